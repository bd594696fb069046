"""A plain client of feature tables, for tests: it says what was sent and answered, and decides nothing."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from tests.conformance.contract.client import expect, shown
from tests.conformance.topics.client import Server, prepared

AS_OF = "Headrace-As-Of"
REPLAY = "X-Beava-Idempotent-Replay"


def answered(answer: httpx.Response) -> Any:
    """Returns the document of a success, which is always 200."""
    expect(answer, 200)
    assert answer.headers["content-type"] == "application/json", shown(answer)
    return answer.json()


def refused(answer: httpx.Response, status: int, code: str) -> str:
    """Returns the message of a refusal, which must have this status and code, in the envelope of all calls but
    `/register`.
    """
    expect(answer, status)
    assert answer.headers["content-type"].startswith("application/json"), shown(answer)
    assert set(answer.json()) == {"error"}, shown(answer)
    error = answer.json()["error"]
    assert {"code", "message"} <= set(error) <= {"code", "message", "detail"}, shown(answer)
    assert error["code"] == code, shown(answer)
    message: str = error["message"]
    assert message, shown(answer)
    return message


def rejected(answer: httpx.Response, code: str, path: str | None = None, status: int = 400) -> str:
    """Returns the reason of a refused registration, which must have this code and path, in the envelope of `/register`."""
    expect(answer, status)
    assert answer.headers["content-type"].startswith("application/json"), shown(answer)
    assert set(answer.json()) == {"error", "registry_version"}, shown(answer)
    error = answer.json()["error"]
    assert set(error) == {"code", "path", "reason"}, shown(answer)
    assert error["code"] == code and error["path"] == (path or error["path"]), shown(answer)
    reason: str = error["reason"]
    assert reason, shown(answer)
    return reason


@dataclass(frozen=True)
class Namespace:
    """One namespace on a server. Methods without a word on what they return return the answer."""

    server: Server
    name: str | None

    def by(self, key: str | None) -> Namespace:
        """Returns the same namespace, asked with another key."""
        return Namespace(self.server.with_key(key), self.name)

    def send(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """Sends a request to a path such as `/push`."""
        return self.server.send(method, f"/features/{self.name}{path}" if self.name else path, body, headers)

    def post(self, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Sends a POST to a path such as `/push`."""
        return self.send("POST", path, body, headers)

    def register(self, *nodes: Any, **flags: Any) -> httpx.Response:
        """Registers nodes."""
        return self.post("/register", {"nodes": list(nodes), **flags})

    def push(self, data: Any, event: str = "Txn") -> httpx.Response:
        """Pushes an event."""
        return self.post("/push", {"event": event, "data": data})

    def get(self, table: str = "U", key: Any = "a", **members: Any) -> httpx.Response:
        """Reads the features of an entity."""
        return self.post("/get", {"table": table, "key": key, **members})

    def get_all(self, *requests: Any, **members: Any) -> httpx.Response:
        """Reads the features of several entities, each given as (table, key) or as an entry of the body."""
        entries = [{"table": one[0], "key": one[1]} if isinstance(one, tuple) else one for one in requests]
        return self.post("/batch_get", {"requests": entries, **members})

    # What prepares, and what is asked of answers that must succeed.

    def has(self, *nodes: Any, **flags: Any) -> Namespace:
        """Registers nodes to prepare a test; returns the namespace."""
        prepared(self.register(*nodes, **flags), 200)
        return self

    def filled(self, *events: Any, event: str = "Txn") -> Namespace:
        """Pushes events one after the other to prepare a test; returns the namespace."""
        for data in events:
            prepared(self.push(data, event), 200)
        return self

    def row(self, table: str = "U", key: Any = "a", **members: Any) -> dict[str, Any]:
        """Returns the features of an entity."""
        row: dict[str, Any] = answered(self.get(table, key, **members))
        return row

    def version(self) -> int:
        """Returns the registry's version."""
        version: int = answered(self.post("/ping", {}))["registry_version"]
        return version


def unused(server: Server, prefix: str = "") -> Namespace:
    """Returns a namespace that no other test uses."""
    return Namespace(server, prefix + uuid.uuid4().hex)


def alike(actual: Any, wanted: Any) -> bool:
    """Returns whether two JSON values are the same, but for the last digits of floats."""
    if isinstance(actual, dict) and isinstance(wanted, dict):
        return actual.keys() == wanted.keys() and all(alike(actual[name], wanted[name]) for name in wanted)
    if isinstance(actual, list) and isinstance(wanted, list):
        return len(actual) == len(wanted) and all(map(alike, actual, wanted))
    if isinstance(actual, float) and isinstance(wanted, int | float) and not isinstance(wanted, bool):
        return math.isclose(actual, wanted, rel_tol=1e-9, abs_tol=1e-9)
    return type(actual) is type(wanted) and bool(actual == wanted)


def txn(user: Any = "a", amount: Any = 1.0, n: Any = 1, ok: Any = True, extra: Any = 0) -> dict[str, Any]:
    """Returns the data of an event `Txn`, as `documents.event` declares it."""
    return {"user": user, "amount": amount, "n": n, "ok": ok, "extra": extra}
