"""What tests of the wire of feature tables share: a server that is asked in JSON, with an event `Tx` and a table `U`."""

from __future__ import annotations

import json
from typing import Any

from headrace.settings import Settings
from tests.unit.api.asgi import JSON, Answer, Server
from tests.unit.features.world import event, table

SETTINGS = Settings(metrics_interval_ms=0, allow_reset=True)


def ask(server: Server, method: str, target: str, body: Any = None, key: str | None = None, **headers: str) -> Answer:
    """Sends a JSON body, if there is one; bytes are sent as they are."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return server(
        method, target, {**JSON, **{name.replace("_", "-"): text for name, text in headers.items()}}, data, key
    )


def register(server: Server, *nodes: Any, under: str = "", key: str | None = None, **flags: Any) -> Answer:
    """Registers nodes."""
    return ask(server, "POST", f"{under}/register", {"nodes": list(nodes), **flags}, key)


def serving(*nodes: Any, settings: Settings = SETTINGS, keys: str = "") -> Server:
    """Returns a server on which nodes are registered; by default `Tx` and `U`."""
    server = Server(keys, settings)
    answer = register(server, *(nodes or (event(), table())), key=keys.partition(",")[0] or None)
    assert answer.status == 200, answer.body
    return server


def get(server: Server, key: Any = "a", table: str = "U", under: str = "") -> Any:
    """Returns the row of an entity."""
    answer = ask(server, "POST", f"{under}/get", {"table": table, "key": key})
    assert answer.status == 200, answer.body
    return answer.json


def code(answer: Answer) -> tuple[int, str]:
    """Returns the status and the code of an error of anything but a registration, whose form it checks."""
    assert set(answer.json) == {"error"}, answer
    error = answer.json["error"]
    if answer.status == 405:
        assert set(error) == {"code", "method", "path"}
    else:
        assert {"code", "message"} <= set(error) <= {"code", "message", "detail"}
        assert error["message"]
    return answer.status, error["code"]


def refusal(answer: Answer) -> tuple[int, str, str]:
    """Returns the status, the code and the path of an error of a registration, whose form it checks."""
    assert set(answer.json) == {"error", "registry_version"}, answer
    error = answer.json["error"]
    assert set(error) == {"code", "path", "reason"}
    assert error["reason"]
    return answer.status, error["code"], error["path"]
