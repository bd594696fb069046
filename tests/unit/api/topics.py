"""What tests of `/v0` share: a server whose topics are asked in JSON."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.api.asgi import JSON, Answer, Server

T = "/v0/topics/jobs"
ROOT = "/v0/topics"


def ask(server: Server, method: str, target: str, body: Any = None, key: str | None = None, **headers: str) -> Answer:
    """Sends a JSON body, if there is one; bytes are sent as they are."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    kind = JSON if data else {}
    return server(
        method, target, {**kind, **{name.replace("_", "-"): text for name, text in headers.items()}}, data, key
    )


def append(server: Server, *data: Any, topic: str = "jobs", **members: Any) -> Answer:
    """Appends records that have nothing but data."""
    return ask(server, "POST", f"{ROOT}/{topic}", {"records": [{"data": one} for one in data], **members})


def code(answer: Answer) -> tuple[int, str]:
    """Returns the status and the code of an error, whose form it checks."""
    error = answer.json["error"]
    assert set(answer.json) == {"error"}
    assert set(error) <= {"code", "message", "detail"}
    assert error["message"]
    return answer.status, error["code"]


def diff(server: Server, topic: str = "jobs", **body: Any) -> Any:
    """Reads a page."""
    answer = ask(server, "POST", f"{ROOT}/{topic}/diff", body)
    assert answer.status == 200, answer.body
    return answer.json
