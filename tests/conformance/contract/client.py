"""A plain client of the HTTP contract, for tests: it says what was sent and answered, and decides nothing."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain"}
ZERO = "0" * 26
WAIT_S = 15.0
CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    410: "gone",
    413: "payload_too_large",
    429: "overloaded",
    503: "unavailable",
}
_ON_EVERY_ANSWER = {
    "date",
    "access-control-allow-origin",
    "access-control-expose-headers",
    "content-length",
    "cross-origin-resource-policy",
    "x-content-type-options",
}
T = TypeVar("T")


class SetupFailed(Exception):
    """What a test needs before it can judge anything could not be made. No verdict on what it judges."""


def shown(answer: httpx.Response) -> str:
    """Returns a request and its answer as text, for a failed assertion."""
    asked = answer.request
    headers = {name: value for name, value in answer.headers.items() if name not in _ON_EVERY_ANSWER}
    return f"{asked.method} {asked.url} → {answer.status_code} {answer.content[:600]!r} {headers}"


def expect(answer: httpx.Response, status: int) -> httpx.Response:
    """Returns the answer, which must have this status."""
    assert answer.status_code == status, shown(answer)
    return answer


def succeeded(answer: httpx.Response) -> httpx.Response:
    """Returns the answer of a write, which must have been accepted: 204, or 200 where there is a body to answer."""
    assert answer.status_code in (200, 201, 204), shown(answer)
    return answer


def refused(answer: httpx.Response, status: int) -> str:
    """Returns the message of a refusal, which must have this status and the envelope of the contract."""
    expect(answer, status)
    error = answer.json()["error"]
    assert set(error) == {"code", "message"}, shown(answer)
    assert error["code"] == CODES[status], shown(answer)
    assert error["message"], shown(answer)
    return str(error["message"])


def given(answer: httpx.Response) -> httpx.Response:
    """Returns the answer to a step that only prepares. Raises SetupFailed if the step failed, which is no verdict on what
    is tested.
    """
    if not 200 <= answer.status_code < 300:
        raise SetupFailed(shown(answer))
    return answer


def eventually(read: Callable[[], T], holds: Callable[[T], bool], *, within_s: float = WAIT_S) -> T:
    """Calls `read` until `holds` is true of its value; returns that value. Fails after `within_s`."""
    deadline = time.monotonic() + within_s
    while not holds(value := read()):
        assert time.monotonic() < deadline, f"not within {within_s} s: last seen {value!r}"
        time.sleep(0.05)  # polls: the server has nothing to wait on for any condition
    return value


def text_of(body: object) -> bytes:
    """Returns a body as it is, or as JSON."""
    return body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()


@dataclass(frozen=True)
class Api:
    """A server under test."""

    url: str
    seals: bool = False
    key: str | None = None
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=30, trust_env=False))

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def with_key(self, key: str | None) -> Api:
        """Returns the same server with another key, over the same connections."""
        return replace(self, key=key)

    def request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: object = None,
        params: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Sends one request; returns the answer. `path` begins with a slash and is encoded already."""
        query = "?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in params.items()) if params else ""
        sent: dict[str, Any] = {"headers": encoded(headers or {})}
        if self.key is not None:
            sent["headers"].append((b"authorization", b"Bearer " + self.key.encode()))
        if body is not None:
            sent["content"] = text_of(body)
        return self.http.request(method, self.url + path + query, **sent)

    def get(self, path: str, headers: Mapping[str, str] | None = None, /, **params: str) -> httpx.Response:
        """GET with query parameters."""
        return self.request("GET", path, headers, params=params)

    def unused(self, prefix: str = "t") -> Stream:
        """Returns a stream whose name no other test uses, and which is not created."""
        return Stream(self, f"{prefix}-{uuid.uuid4().hex[:12]}")

    def stream(self, headers: Mapping[str, str] = JSON, prefix: str = "t") -> Stream:
        """Returns a new stream."""
        stream = self.unused(prefix)
        given(stream.put(headers))
        return stream

    def with_schema(self, **update: Any) -> Stream:
        """Creates a JSON stream and posts `update` to its `_schema`; returns the stream."""
        stream = self.stream()
        given(stream.define(**update))
        return stream


def encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Header values as UTF-8, which httpx would refuse to choose by itself."""
    return [(name.encode(), value.encode()) for name, value in headers.items()]


@dataclass(frozen=True)
class Stream:
    """One name on a server."""

    api: Api
    name: str

    @property
    def path(self) -> str:
        """Of the stream itself."""
        return "/v1/stream/" + quote(self.name, safe="")

    def at(self, method: str, sub: str = "", headers: Mapping[str, str] | None = None, body: object = None) -> Any:
        """Sends a request to the stream or, with `sub` such as `/_schema`, to a part of it; returns the answer."""
        return self.api.request(method, self.path + sub, headers, body)

    def put(self, headers: Mapping[str, str] | None = JSON, body: object = None) -> httpx.Response:
        """Create."""
        return self.api.request("PUT", self.path, headers, body)

    def append(self, body: object, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Append JSON: a value, or a list of which each element is a record."""
        return self.api.request("POST", self.path, {**JSON, **(headers or {})}, text_of(body))

    def append_bytes(self, body: bytes, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Append one record of a text stream."""
        return self.api.request("POST", self.path, {**TEXT, **(headers or {})}, body)

    def read(self, headers: Mapping[str, str] | None = None, /, **params: str) -> httpx.Response:
        """Reads one page; returns the answer."""
        return self.api.get(self.path, headers, **params)

    def head(self) -> httpx.Response:
        """Describe."""
        return self.api.request("HEAD", self.path)

    def delete(self) -> httpx.Response:
        """Delete."""
        return self.api.request("DELETE", self.path)

    def define(self, **update: Any) -> httpx.Response:
        """POST `_schema`."""
        return self.api.request("POST", self.path + "/_schema", JSON, update)

    def registry(self) -> httpx.Response:
        """GET `_schema`."""
        return self.api.get(self.path + "/_schema")

    def set_profile(self, kind: str, **options: Any) -> httpx.Response:
        """POST `_profile`."""
        document = {"apiVersion": "durable.streams/profile/v1", "profile": {"kind": kind, **options}}
        return self.api.request("POST", self.path + "/_profile", JSON, document)

    def profile(self) -> httpx.Response:
        """GET `_profile`."""
        return self.api.get(self.path + "/_profile")

    def details(self, headers: Mapping[str, str] | None = None, /, **params: str) -> httpx.Response:
        """GET `_details`."""
        return self.api.get(self.path + "/_details", headers, **params)

    def index_status(self, headers: Mapping[str, str] | None = None, /, **params: str) -> httpx.Response:
        """GET `_index_status`."""
        return self.api.get(self.path + "/_index_status", headers, **params)

    def search(self, body: object = None, **members: Any) -> httpx.Response:
        """POST `_search` with these members, or with a body as it is."""
        return self.api.request("POST", self.path + "/_search", JSON, members if body is None else body)

    def search_by_url(self, **params: str) -> httpx.Response:
        """GET `_search`."""
        return self.api.get(self.path + "/_search", **params)

    def aggregate(self, body: object = None, **members: Any) -> httpx.Response:
        """POST `_aggregate`. The member `from` is given as `start`, since it is a word of Python's."""
        if "start" in members:
            members["from"] = members.pop("start")
        return self.api.request("POST", self.path + "/_aggregate", JSON, members if body is None else body)

    def routing_keys(self, **params: str) -> httpx.Response:
        """GET `_routing_keys`."""
        return self.api.get(self.path + "/_routing_keys", **params)

    def touch(self, route: str, body: object) -> httpx.Response:
        """POST to a touch route."""
        return self.api.request("POST", f"{self.path}/touch/{route}", JSON, body)

    def touch_meta(self, **params: str) -> httpx.Response:
        """GET `touch/meta`."""
        return self.api.get(self.path + "/touch/meta", **params)

    def records(self, **params: str) -> list[Any]:
        """Reads every page with these parameters; returns the records."""
        found: list[Any] = []
        for answer in self.pages(**params):
            found += answer.json()
        return found

    def pages(self, **params: str) -> Iterable[httpx.Response]:
        """Pages up to the end of the stream."""
        while True:
            answer = expect(self.read(**params), 200)
            yield answer
            reached = answer.headers["stream-next-offset"]
            if reached == answer.headers["stream-end-offset"]:
                return
            assert reached != params.get("offset"), f"a page that goes nowhere: {shown(answer)}"
            params = {**{name: value for name, value in params.items() if name != "since"}, "offset": reached}

    @property
    def end(self) -> str:
        """The offset of the end."""
        return str(expect(self.head(), 200).headers["stream-end-offset"])

    def settle(self) -> None:
        """Where segments are written soon: waits until one was. Elsewhere everything stays in the tail."""
        if not self.api.seals:
            return

        def segments() -> int:
            return int(expect(self.index_status(), 200).json()["segments"]["uploaded_count"])

        eventually(segments, lambda count: count > 0)

    def quiet(self, read: Callable[..., httpx.Response]) -> str:
        """Waits until all is sealed and nothing changes any more; returns the entity tag of `_details` or
        `_index_status`.
        """

        def is_sealed() -> bool:
            stream = expect(self.details(), 200).json()["stream"]
            return bool(stream["created_at"] < stream["updated_at"] == stream["last_segment_cut_at"])

        if self.api.seals:
            eventually(is_sealed, bool)
        pause_ms = "2000" if self.api.seals else "200"

        def tag() -> tuple[str, int]:
            now = str(expect(read(), 200).headers["etag"])
            return now, read({"If-None-Match": now}, live="true", timeout_ms=pause_ms).status_code

        return eventually(tag, lambda seen: seen[1] == 304)[0]
