"""The layers around the application: which requests may come in, how many at once, where their calls to stores run, what
every answer carries, and what becomes of an error.

Pure ASGI, so that an SSE response streams through them. Preflights and the liveness route need no key.

Every store call blocks. A Lambda function serves one request at a time, so there a call runs in place. A server of many
requests runs it in a thread; nothing holds a thread while it merely waits for time to pass.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple, ParamSpec, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from functions.api.door import errors
from functions.api.door.access import Grant, Keys
from functions.api.door.errors import Row
from functions.api.door.requests import Headers
from functions.metrics import ApiMetric, Meter
from headrace.errors import Overloaded
from headrace.limits import QUEUE_BYTES, QUEUE_REQUESTS

P = ParamSpec("P")
T = TypeVar("T")

# Appends wait in their thread for a group commit: fewer threads than concurrent writers would make groups small.
_THREADS = 128
_pool: ThreadPoolExecutor | None = None


def on_lambda() -> bool:
    """This process is a Lambda function."""
    return "AWS_LAMBDA_FUNCTION_NAME" in os.environ


def capacity() -> int:
    """Returns how many calls run at once."""
    return 1 if on_lambda() else _THREADS


async def run(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Makes the call and gives its result."""
    global _pool
    if on_lambda():
        return call(*args, **kwargs)
    if _pool is None:
        _pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="store")
    return await asyncio.get_running_loop().run_in_executor(_pool, lambda: call(*args, **kwargs))


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


class Surface(NamedTuple):
    """What the door needs to know of a surface.

    Attributes:
        allowed, exposed: headers of requests, and of answers, besides everybody's, that pages of other origins may send
            and read.
        errors: how its own errors are answered.
        asking: ends of paths where a POST writes nothing, whatever comes of it: the question is in the body.
        waiting: ends of paths where requests wait, many of them and for long, and count as reads.
    """

    allowed: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()
    errors: tuple[Row, ...] = ()
    asking: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()

    def only_asks(self, scope: Scope) -> bool:
        """Returns whether the request is a POST that writes nothing."""
        return bool(scope["method"] == "POST" and scope["path"].endswith(self.asking))

    def is_write(self, scope: Scope) -> bool:
        """Returns whether the request may write, and is under way only as long as that takes."""
        return scope["method"] in _WRITES and not scope["path"].endswith(self.waiting) and not self.only_asks(scope)


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

    def __init__(
        self,
        app: ASGIApp,
        surface: Surface,
        traffic: Traffic,
        began: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self._app = app
        self._surface = surface
        self._traffic = traffic
        self._began = began
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._began()
        try:
            size = Headers(scope).content_length or 0
            with self._traffic.request(writes=self._surface.is_write(scope), size=size):
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

_EXPOSED = ("Content-Type", "ETag", "Location", "Retry-After")
_ALLOWED = ("Authorization", "Content-Type", "If-None-Match", "Accept", "Cache-Control", "Last-Event-ID")
_ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"cross-origin"),
    (b"access-control-allow-origin", b"*"),
]
_PREFLIGHT = {
    "Access-Control-Allow-Methods": METHODS,
    "Access-Control-Max-Age": "86400",
    "Cache-Control": "no-store",
}


def grant_of(request: Request) -> Grant:
    """Returns what the request's key allows."""
    grant: Grant = request.scope[GRANT]
    return grant


class Door:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, surface: Surface, access: Keys, meter: Meter[ApiMetric]) -> None:
        exposed = ", ".join((*_EXPOSED, *surface.exposed))
        self._always = [*_ALWAYS, (b"access-control-expose-headers", exposed.encode())]
        self._preflight = {
            **_PREFLIGHT,
            "Access-Control-Allow-Headers": ", ".join((*_ALLOWED, *surface.allowed)),
        }
        self._app = app
        self._surface = surface
        self._access = access
        self._meter = meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"]
        meant = "GET" if self._surface.only_asks(scope) else method  # what an error of it is told as
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
                await Response(None, 204, self._preflight)(scope, receive, send_dressed)
                return
            if scope["path"] not in OPEN_PATHS:
                if self._access.is_stale:
                    await run(self._access.refresh)
                scope[GRANT] = self._access.grant(Headers(scope).get("authorization"))
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
            answer = errors.response_to(exc, meant, self._surface.errors)
            unknown = errors.may_have_written(exc, meant)
            await answer(scope, receive, send_dressed)

    def _count(self, status: int, unknown: bool) -> None:
        self._meter.add(ApiMetric.Requests)
        for metric in _WITH_EACH_REQUEST:
            self._meter.add(metric, 0)
        if status >= 400:
            self._meter.add(errors.error_metric(status, may_have_written=unknown))

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

    def __init__(self, app: ASGIApp, surface: Surface, traffic: Traffic) -> None:
        self._app = app
        self._surface = surface
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._surface.is_write(scope):
            await self._app(scope, receive, send)
            return
        self._check()
        if Headers(scope).content_length is not None:
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
