"""What this process is busy with: requests under way, by what they do to a stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from functions.api.door import paths
from functions.api.door.headers import Headers
from headrace.limits import QUEUE_BYTES, QUEUE_REQUESTS

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
    """The request may write. A question in a body may not; nor may waiting for a touch, and many do it for long."""
    if scope["method"] not in _WRITES or paths.only_asks(scope):
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
            with self._traffic.request(writes=is_write(scope), size=Headers(scope).content_length or 0):
                await self._app(scope, receive, send)
        finally:
            self._ended()
