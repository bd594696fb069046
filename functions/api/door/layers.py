"""The layers around the application: which requests may come in, how many at once, what every answer carries, and what
becomes of an error.

Pure ASGI, so that an SSE response streams through them. Preflights and the liveness route need no key.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from functions.api.door import errors, incoming
from functions.api.door.access import Grant, Keys
from functions.api.door.access import Scope as AccessScope
from functions.api.door.incoming import headers_of
from functions.api.door.waiting import run
from functions.metrics import ApiMetric
from functions.observability import Meter
from headrace.errors import Overloaded
from headrace.limits import QUEUE_BYTES, QUEUE_REQUESTS
from headrace.streams import names

_ERRORS = {
    401: ApiMetric.Unauthorized,
    403: ApiMetric.Forbidden,
    408: ApiMetric.Timeouts,
    409: ApiMetric.Conflicts,
    429: ApiMetric.Overloads,
    500: ApiMetric.Failures,
    503: ApiMetric.StoreFailures,
}


def error_metric(status: int, *, may_have_written: bool) -> ApiMetric | None:
    """Returns the metric of an answer; None for one that is no error."""
    if status < 400:
        return None
    if status == 408 and may_have_written:
        return ApiMetric.UnknownOutcomes
    return _ERRORS.get(status, ApiMetric.ClientErrors)


_WRITES = frozenset({"POST", "PUT", "DELETE"})


class Load(NamedTuple):
    """Requests under way: those that write, the bytes of their bodies, and those that read."""

    writes: int
    write_bytes: int
    reads: int

    @property
    def full(self) -> bool:
        """More writes, or more bytes of them, than a process takes."""
        return self.writes > QUEUE_REQUESTS or self.write_bytes > QUEUE_BYTES


def is_write(scope: Scope) -> bool:
    """Returns the request may write. A question in a body may not; nor may waiting for a touch, and many do it for
    long.
    """
    if scope["method"] not in _WRITES or incoming.only_asks(scope):
        return False
    return not scope["path"].endswith("/touch/wait")


class Traffic:
    """Counts requests from their begin to their end. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._load = Load(0, 0, 0)

    def load(self) -> Load:
        """Now."""
        with self._lock:
            return self._load

    @contextmanager
    def request(self, *, writes: bool, size: int) -> Iterator[None]:
        """Around one request of `size` announced bytes."""
        change = Load(1, size, 0) if writes else Load(0, 0, 1)
        self._add(change, 1)
        try:
            yield
        finally:
            self._add(change, -1)

    def arrived(self, size: int) -> None:
        """Counts bytes of a body whose size was not announced."""
        self._add(Load(0, size, 0), 1)

    def _add(self, change: Load, sign: int) -> None:
        with self._lock:
            self._load = Load(*(now + sign * more for now, more in zip(self._load, change, strict=True)))


class CountTraffic:
    """Wraps the application. Pure ASGI. `began` and `ended` are told of each request, and return at once."""

    def __init__(self, app: ASGIApp, traffic: Traffic, began: Callable[[], None], ended: Callable[[], None]) -> None:
        self._app = app
        self._traffic = traffic
        self._began = began
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._began()
        try:
            with self._traffic.request(writes=is_write(scope), size=headers_of(scope).content_length or 0):
                await self._app(scope, receive, send)
        finally:
            self._ended()


_log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/health"})
GRANT = "headrace.grant"
METHODS = "GET, HEAD, PUT, POST, DELETE, OPTIONS"

_WITH_EACH_REQUEST = (
    ApiMetric.Failures,
    ApiMetric.StoreFailures,
    ApiMetric.BrokenAnswers,
    ApiMetric.StoreThrottles,
)

_EXPOSED = (
    "Content-Type, ETag, Location, Retry-After, Stream-Next-Offset, Stream-End-Offset, Stream-Up-To-Date, "
    "Stream-Closed, Stream-Cursor, Stream-TTL, Stream-Expires-At, Stream-SSE-Data-Encoding, Stream-Expected-Seq, "
    "Stream-Received-Seq, Producer-Epoch, Producer-Seq, Producer-Expected-Seq, Producer-Received-Seq"
)
_ALLOWED = (
    "Authorization, Content-Type, If-None-Match, Accept, Cache-Control, Last-Event-ID, Stream-TTL, "
    "Stream-Expires-At, Stream-Closed, Stream-Seq, Stream-Key, Stream-Timestamp, Stream-Forked-From, "
    "Stream-Fork-Offset, Stream-Fork-Sub-Offset, Producer-Id, Producer-Epoch, Producer-Seq"
)
_ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"cross-origin"),
    (b"access-control-allow-origin", b"*"),
]
_PREFLIGHT = {
    "Access-Control-Allow-Methods": METHODS,
    "Access-Control-Allow-Headers": _ALLOWED,
    "Access-Control-Max-Age": "86400",
    "Cache-Control": "no-store",
}


def grant_of(request: Request) -> Grant:
    """Returns what the request's key allows."""
    grant: Grant = request.scope[GRANT]
    return grant


def require(request: Request, scope: AccessScope, name: str) -> None:
    """Raises:
    Forbidden: the request's key does not allow `scope` on the stream.
    InvalidRequest: more than reading was asked for, of a stream that only the server writes.
    """
    grant_of(request).require(scope, name)
    if scope is not AccessScope.READ:
        names.check_writable(name)


class Door:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, access: Keys, meter: Meter[ApiMetric], exposed: Iterable[str] = ()) -> None:
        """Args:
        exposed: headers of answers that pages of other origins may read, besides those of every surface.
        """
        self._always = [*_ALWAYS, (b"access-control-expose-headers", ", ".join((_EXPOSED, *exposed)).encode())]
        self._app = app
        self._access = access
        self._meter = meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"]
        meant = "GET" if incoming.only_asks(scope) else method  # what an error of it is told as
        started = False
        unknown = False  # the answer says that a write may have happened

        async def send_dressed(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                if method != "OPTIONS" and scope["path"] not in OPEN_PATHS:
                    self._count(message["status"], unknown)
                message["headers"] = [*self._dressed(message["headers"], method), *self._always]
            elif method == "HEAD":
                message = {**message, "body": b""}
            await send(message)

        try:
            if method == "OPTIONS":
                await Response(None, 204, _PREFLIGHT)(scope, receive, send_dressed)
                return
            if scope["path"] not in OPEN_PATHS:
                if self._access.is_stale:
                    await run(self._access.refresh)
                scope[GRANT] = self._access.grant(headers_of(scope).get("authorization"))
            await self._app(scope, receive, send_dressed)
        except asyncio.CancelledError:  # the server ends and waits no longer
            if not started:
                unknown = meant not in errors.SAFE_METHODS
                await errors.at_shutdown(meant)(scope, receive, send_dressed)
            raise
        except Exception as exc:  # the one place where every error becomes an answer
            if started:
                self._meter.add(ApiMetric.BrokenAnswers)
                _log.exception("response broke off: method=%s path=%s", method, scope["path"])
                raise
            answer = errors.response_to(exc, meant)
            unknown = errors.may_have_written(exc, meant)
            await answer(scope, receive, send_dressed)

    def _count(self, status: int, unknown: bool) -> None:
        self._meter.add(ApiMetric.Requests)
        for metric in _WITH_EACH_REQUEST:
            self._meter.add(metric, 0)
        error = error_metric(status, may_have_written=unknown)
        if error is not None:
            self._meter.add(error)

    def _dressed(self, headers: list[tuple[bytes, bytes]], method: str) -> list[tuple[bytes, bytes]]:
        if method == "HEAD":
            headers = [(name, value) for name, value in headers if name != b"content-length"]
        if not self._access.restricted:
            return headers
        return [
            (name, b"private, " + value) if name == b"cache-control" and value != b"no-store" else (name, value)
            for name, value in headers
        ]


class Admission:
    """Wraps the application. Pure ASGI. Knows of a body what is announced, or else what has arrived."""

    def __init__(self, app: ASGIApp, traffic: Traffic) -> None:
        self._app = app
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_write(scope):
            await self._app(scope, receive, send)
            return
        self._check()
        if headers_of(scope).content_length is not None:
            await self._app(scope, receive, send)
            return
        arrived = 0

        async def receive_counted() -> Message:
            nonlocal arrived
            message = await receive()
            size = len(message.get("body", b""))
            arrived += size
            self._traffic.arrived(size)
            self._check()
            return message

        try:
            await self._app(scope, receive_counted, send)
        finally:
            self._traffic.arrived(-arrived)

    def _check(self) -> None:
        """Raises:
        Overloaded: this request, which is counted already, is one too many.
        """
        if self._traffic.load().full:
            raise Overloaded("too many writes are under way")


_FUNCTION_URL = ".lambda-url."


class TruePath:
    """Puts the path as the client sent it, `raw_path` and `path`, into the scope of an HTTP API (payload 2.0) or Function
    URL request: Mangum keeps a decoded one, decoded once too often.

    A Function URL passes the path still encoded. An HTTP API passes it decoded once already (and cut at a decoded `?`),
    so it is encoded again here: decoding it as it comes would turn the name `100%25` into `100%`, then into an error.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        event = scope["aws.event"]
        path = str(event["rawPath"])
        if _FUNCTION_URL not in event["requestContext"].get("domainName", ""):
            path = quote(path)
        await self._app({**scope, "raw_path": path.encode(), "path": unquote(path)}, receive, send)
