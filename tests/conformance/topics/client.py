"""A plain client of `/v0`, for tests: it says what was sent and answered, and decides nothing."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from tests.conformance.contract.client import JSON, SetupFailed, eventually, expect, shown

__all__ = ["JSON", "SetupFailed", "eventually", "expect", "shown"]

SSE = {"Accept": "text/event-stream"}
T = TypeVar("T")


def answered(answer: httpx.Response, status: int = 200) -> dict[str, Any]:
    """Returns the members of a success, which must have this status, be JSON, and say what it cost."""
    expect(answer, status)
    assert answer.headers["content-type"].startswith("application/json"), shown(answer)
    body: dict[str, Any] = answer.json()
    assert "error" not in body, shown(answer)
    assert body["performance"]["server_total_ms"] >= 0, shown(answer)
    return body


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Returns the error of a refusal, which must have this status and code, in the envelope of § 0.5."""
    expect(answer, status)
    assert answer.headers["content-type"].startswith("application/json"), shown(answer)
    body = answer.json()
    assert {"error"} <= set(body) <= {"error", "performance"}, shown(answer)
    error: dict[str, Any] = body["error"]
    assert {"code", "message"} <= set(error) <= {"code", "message", "detail"}, shown(answer)
    assert error["code"] == code, shown(answer)
    assert isinstance(error["message"], str) and error["message"], shown(answer)
    assert isinstance(error.get("detail", {}), dict), shown(answer)
    return error


def at_once(calls: list[Callable[[], T]]) -> list[T]:
    """Makes all calls at one moment, each in a thread; returns their results in order."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def compact(body: object) -> bytes:
    """Returns a body as JSON without spaces."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Server:
    """A server under test, asked with one key or none."""

    url: str
    http: httpx.Client
    key: str | None = None

    def with_key(self, key: str | None) -> Server:
        """Returns the same server with another key, over the same connections."""
        return Server(self.url, self.http, key)

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, object] | None = None,
    ) -> httpx.Response:
        """Sends one request; bytes are sent as they are, other bodies as JSON. Returns the answer."""
        return self.http.request(method, self.url + path, **self._request(body, headers, params))

    def get(self, path: str, headers: Mapping[str, str] | None = None, /, **params: object) -> httpx.Response:
        """Sends a GET with query parameters."""
        return self.send("GET", path, None, headers, params)

    @contextmanager
    def stream(self, path: str, headers: Mapping[str, str] = SSE, /, **params: object) -> Iterator[httpx.Response]:
        """Opens a GET whose answer is read while it arrives."""
        with self.http.stream("GET", self.url + path, **self._request(None, headers, params)) as answer:
            yield answer

    def _request(
        self, body: object, headers: Mapping[str, str] | None, params: Mapping[str, object] | None
    ) -> dict[str, Any]:
        sent = dict(headers or {})
        if body is not None and not any(name.lower() == "content-type" for name in sent):
            sent |= JSON
        if self.key is not None:
            sent["Authorization"] = f"Bearer {self.key}"
        query = {
            name: value if isinstance(value, str) else json.dumps(value) for name, value in (params or {}).items()
        }
        content = body if isinstance(body, bytes) or body is None else compact(body)
        return {"content": content, "headers": sent, "params": query or None}  # {} would drop the query of the path

    def unused(self, prefix: str = "t-") -> Topic:
        """Returns a topic whose name no other test uses, and which does not exist."""
        return Topic(self, prefix + uuid.uuid4().hex[:12])

    def topic(self, prefix: str = "t-", /, **config: object) -> Topic:
        """Returns a new topic with this configuration."""
        topic = self.unused(prefix)
        prepared(topic.put(**config), 201)
        return topic

    def queue(self, *data: object, **config: object) -> Topic:
        """Returns a new queue with this configuration and these jobs."""
        queue = self.topic(type="queue", **config)
        if data:
            queue.filled(*data)
        return queue


def prepared(answer: httpx.Response, *statuses: int) -> dict[str, Any]:
    """Returns the answer to a step that only prepares. Raises SetupFailed if it failed, which is no verdict on what is
    tested.
    """
    if answer.status_code not in statuses:
        raise SetupFailed(shown(answer))
    body: dict[str, Any] = answer.json()
    return body


def records_of(data: tuple[object, ...], **members: object) -> list[dict[str, object]]:
    """Returns records with these data and, all of them, these members."""
    return [{"data": item, **members} for item in data]


@dataclass(frozen=True)
class Topic:
    """One name on a server. Methods without a word on what they return return the answer."""

    server: Server
    name: str

    @property
    def path(self) -> str:
        """The path of the topic itself."""
        return "/v0/topics/" + quote(self.name, safe="")

    def by(self, key: str | None) -> Topic:
        """Returns the same topic, asked with another key."""
        return Topic(self.server.with_key(key), self.name)

    def send(
        self,
        method: str,
        sub: str = "",
        body: object = None,
        headers: Mapping[str, str] | None = None,
        /,
        **params: object,
    ) -> httpx.Response:
        """Sends a request to the topic or, with `sub` such as `/diff`, to one of its routes."""
        return self.server.send(method, self.path + sub, body, headers, params)

    def put(self, **config: object) -> httpx.Response:
        """Creates or configures the topic."""
        return self.send("PUT", "", config)

    def state(self, **params: object) -> httpx.Response:
        """Reads the topic's state."""
        return self.send("GET", "", None, None, **params)

    def remove(self, **params: object) -> httpx.Response:
        """Deletes the topic."""
        return self.send("DELETE", "", None, None, **params)

    def write(self, records: object, **members: object) -> httpx.Response:
        """Appends records, with further members of the body."""
        return self.send("POST", "", {"records": records, **members})

    def append(self, *data: object, **members: object) -> httpx.Response:
        """Appends a record for each of these data, with further members of the body."""
        return self.write(records_of(data), **members)

    def diff(self, from_seq: int = 0, **members: object) -> httpx.Response:
        """Reads after a cursor."""
        return self.send("POST", "/diff", {"from_seq": from_seq, **members})

    def erase(self, **members: object) -> httpx.Response:
        """Deletes records."""
        return self.send("POST", "/delete", members)

    def claim(self, node: str = "w", **members: object) -> httpx.Response:
        """Claims jobs."""
        return self.send("POST", "/claim", {"node": node, **members})

    def ack(self, seqs: object, node: str = "w", **members: object) -> httpx.Response:
        """Acks jobs."""
        return self.send("POST", "/ack", {"node": node, "seqs": seqs, **members})

    def nack(self, seqs: object, node: str = "w", **members: object) -> httpx.Response:
        """Nacks jobs."""
        return self.send("POST", "/nack", {"node": node, "seqs": seqs, **members})

    def extend(self, seqs: object, node: str = "w", **members: object) -> httpx.Response:
        """Extends leases."""
        return self.send("POST", "/extend", {"node": node, "seqs": seqs, **members})

    # What prepares, and what is asked of answers that must succeed.

    def filled(self, *data: object, **members: object) -> Topic:
        """Appends records, each with these members, to prepare a test; returns the topic."""
        prepared(self.write(records_of(data, **members)), 200, 201)
        return self

    def jobs(self, node: str = "w", **members: object) -> list[dict[str, Any]]:
        """Claims; returns the jobs."""
        claimed: list[dict[str, Any]] = answered(self.claim(node, **members))["claimed"]
        return claimed

    def seqs(self, node: str = "w", **members: object) -> list[int]:
        """Claims; returns the seqs of the jobs."""
        return [job["$seq"] for job in self.jobs(node, **members)]

    def page(self, from_seq: int = 0, **members: object) -> dict[str, Any]:
        """Reads after a cursor; returns the answer's members."""
        return answered(self.diff(from_seq, **members))

    def data(self, from_seq: int = 0, **members: object) -> list[object]:
        """Reads every page from a cursor on; returns the data."""
        found: list[object] = []
        while True:
            page = self.page(from_seq, **members)
            found += [record["data"] for record in page["records"]]
            if page["caught_up"]:
                return found
            assert page["next_from_seq"] > from_seq, page
            from_seq = page["next_from_seq"]

    def now(self) -> dict[str, Any]:
        """Reads the state, without being noticed."""
        return answered(self.state(touch=False))

    def counters(self) -> dict[str, int]:
        """Reads the counters of a queue."""
        counters: dict[str, int] = self.now()["queue"]
        return counters

    def exists(self) -> bool:
        """Returns whether there is such a topic."""
        return self.state(touch=False).status_code == 200
