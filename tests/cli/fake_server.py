"""A server of the protocol, small enough to be read, that keeps the exact text of records and can be told to fail."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

import httpx
import msgspec

from headrace.wal.state import decode_cursor, encode_cursor

RECORDS_PER_PAGE = 3


@dataclass
class Stream:
    content_type: str
    records: list[bytes] = field(default_factory=list)
    closed: bool = False
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)
    created_with: dict[str, str] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    """Routing keys, by the numbers of records."""


@dataclass
class FakeServer:
    """A filter is a text that records must have in them. With `counts`, offsets are Headrace's, which say how many records
    are before them; else they are numbers.

    `faults` are taken one for each request: None lets it through; a callable gets the request and `apply`, which serves it,
    and returns an answer or raises.
    """

    streams: dict[str, Stream] = field(default_factory=dict)
    requests: list[httpx.Request] = field(default_factory=list)
    faults: list[Callable[[httpx.Request, Callable[[], httpx.Response]], httpx.Response] | None] = field(
        default_factory=list
    )
    on_long_poll: Callable[[Stream], None] = lambda stream: None
    resources: dict[str, Callable[[httpx.Request], httpx.Response]] = field(default_factory=dict)
    """The resources below a stream, by `name/_resource`."""
    counts: bool = False

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        fault = self.faults.pop(0) if self.faults else None
        return fault(request, lambda: self.serve(request)) if fault else self.serve(request)

    def serve(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode().partition("?")[0]
        if path == "/v1/streams":
            return self.list(request)
        name = path.removeprefix("/v1/stream/")
        if unquote(name) in self.resources:
            return self.resources[unquote(name)](request)
        assert "/" not in name, "a name is one segment"
        stream = self.streams.get(unquote(name))
        if request.method == "PUT":
            return self.put(unquote(name), stream, request)
        if stream is None:
            return httpx.Response(404, json={"error": {"code": "not_found", "message": "no such stream"}})
        if request.method == "DELETE":
            del self.streams[unquote(name)]
            return httpx.Response(204)
        if request.method == "HEAD":
            return httpx.Response(200, headers=self.position(stream, len(stream.records)))
        return self.post(stream, request) if request.method == "POST" else self.get(stream, request)

    def list(self, request: httpx.Request) -> httpx.Response:
        params = request.url.params
        start, limit = int(params.get("offset", 0)), int(params["limit"])
        after, prefix = params.get("after", ""), params.get("prefix", "")
        names = [name for name in sorted(self.streams) if name > after and name.startswith(prefix)]
        return httpx.Response(200, json=[{"name": name} for name in names[start : start + limit]])

    def put(self, name: str, stream: Stream | None, request: httpx.Request) -> httpx.Response:
        if stream is None:
            content_type = request.headers.get("content-type", "application/octet-stream")
            stream = Stream(content_type, created_with=dict(request.headers))
            self.streams[name] = stream
            return httpx.Response(201, headers=self.position(stream, 0))
        return httpx.Response(200, headers=self.position(stream, len(stream.records)))

    def post(self, stream: Stream, request: httpx.Request) -> httpx.Response:
        body = request.read()
        if "producer-id" in request.headers:
            epoch, seq = int(request.headers["producer-epoch"]), int(request.headers["producer-seq"])
            known_epoch, known_seq = stream.producers.get(request.headers["producer-id"], (-1, -1))
            if epoch < known_epoch:
                return httpx.Response(403, headers={"producer-epoch": str(known_epoch)})
            if epoch > known_epoch >= 0 and seq:
                return httpx.Response(400)
            if epoch == known_epoch and seq <= known_seq:
                return httpx.Response(204, headers=self.position(stream, len(stream.records)))
            expected = known_seq + 1 if epoch == known_epoch else 0
            if seq > expected and not stream.closed:
                return httpx.Response(409, headers={"producer-expected-seq": str(expected)})
        if stream.closed and body:
            return httpx.Response(409, headers=self.position(stream, len(stream.records)))
        if "producer-id" in request.headers:
            stream.producers[request.headers["producer-id"]] = (epoch, seq)
        if stream.content_type == "application/json":
            stream.records += [bytes(r) for r in msgspec.json.decode(body, type=list[msgspec.Raw])] if body else []
        elif body:
            stream.records.append(body)
        stream.closed = stream.closed or request.headers.get("stream-closed") == "true"
        return httpx.Response(200, headers=self.position(stream, len(stream.records)))

    def get(self, stream: Stream, request: httpx.Request) -> httpx.Response:
        asked = request.url.params.get("offset", "-1")
        start = {"-1": 0, "now": len(stream.records)}.get(asked, -1)
        if start < 0:
            start = decode_cursor(asked).position if self.counts else int(asked)
        live = request.url.params.get("live")
        if live and start == len(stream.records) and not stream.closed:
            self.on_long_poll(stream)
        if live == "sse":
            return self.events(stream, start)
        end = min(len(stream.records), start + RECORDS_PER_PAGE)
        headers = self.position(stream, end)
        if live and start == end:
            return httpx.Response(204, headers=headers)
        return httpx.Response(200, headers=headers, content=self.selected(stream, start, end, request.url.params))

    def selected(self, stream: Stream, start: int, end: int, params: httpx.QueryParams) -> bytes:
        wanted = [
            number
            for number in range(start, end)
            if params.get("filter", "").encode() in stream.records[number]
            and params.get("key") in (None, stream.keys.get(number))
        ]
        records = [stream.records[number] for number in wanted]
        is_json = stream.content_type == "application/json"
        if params.get("format") == "records":
            data = [b'"value":' + one if is_json else b'"base64":"' + b64encode(one) + b'"' for one in records]
            records = [
                self.about(stream, number)[:-1] + b"," + one + b"}" for number, one in zip(wanted, data, strict=True)
            ]
        elif not is_json:
            return b"".join(records)
        return b"[" + b",".join(records) + b"]"

    def about(self, stream: Stream, number: int) -> bytes:
        about = {"offset": self.offset(number + 1), "time": f"2030-01-01T00:00:{number:02}.000Z"}
        return json.dumps({**about, "key": stream.keys.get(number)}).encode()

    def offset(self, number: int) -> str:
        return encode_cursor(1, number) if self.counts else str(number)

    def page(self, stream: Stream, start: int, end: int) -> bytes:
        records = stream.records[start:end]
        return b"[" + b",".join(records) + b"]" if stream.content_type == "application/json" else b"".join(records)

    def events(self, stream: Stream, start: int) -> httpx.Response:
        """Returns one page as an event, its control event, then data whose control event is lost with the connection."""

        def body() -> Iterator[bytes]:
            end = min(len(stream.records), start + RECORDS_PER_PAGE)
            at_end = end == len(stream.records)
            if end > start:
                yield b"event: data\n" + b"".join(
                    b"data: " + line + b"\n" for line in self.page(stream, start, end).split(b"\n")
                )
                yield b"\n"
            control = {
                "streamNextOffset": self.offset(end),
                "upToDate": at_end,
                "streamClosed": at_end and stream.closed,
            }
            yield f"event: control\ndata: {json.dumps(control)}\n\n".encode()
            if not at_end:
                yield b"event: data\ndata: " + self.page(stream, end, end + 1) + b"\n\n"
                raise httpx.ReadError("connection lost")

        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=body())

    def position(self, stream: Stream, at: int) -> dict[str, str]:
        headers = {"stream-next-offset": self.offset(at), "content-type": stream.content_type}
        if at == len(stream.records):
            headers["stream-up-to-date"] = "true"
            if stream.closed:
                headers["stream-closed"] = "true"
        return headers


def answer_lost(request: httpx.Request, apply: Callable[[], httpx.Response]) -> httpx.Response:
    """Serves the request, and loses its answer."""
    apply()
    raise httpx.ReadTimeout("answer lost", request=request)


def status(code: int, **headers: str) -> Callable[[httpx.Request, Callable[[], httpx.Response]], httpx.Response]:
    """Answers `code` and serves nothing."""

    def fault(request: httpx.Request, apply: Callable[[], httpx.Response]) -> httpx.Response:
        return httpx.Response(code, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return fault
