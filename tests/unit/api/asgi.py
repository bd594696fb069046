"""Drives an ASGI application with exact bytes: no client between that tidies paths, headers or bodies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from fastapi import FastAPI

from functions.access import parse
from functions.api.app import create_app
from functions.api.context import Context, assemble
from headrace.memory import memory_stores
from headrace.objects.memory import MemoryObjects
from headrace.settings import Settings
from headrace.tables.sessions import MemorySessions
from headrace.wal.memory import MemoryWal

TEXT = {"content-type": "text/plain"}
JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def offset(self) -> str:
        return self.headers["stream-next-offset"]


QUIET = Settings(metrics_interval_ms=0)  # nothing appears by itself


class Server:
    """An application on memory adapters; without keys it obeys everybody, unless `hosts` says whom."""

    def __init__(
        self,
        keys: str = "",
        settings: Settings | None = None,
        parts: Context | None = None,
        hosts: Collection[str] = "*",
    ) -> None:
        access = parse(keys, hosts)
        self.stores = memory_stores(settings or QUIET)
        self.parts = parts or assemble(self.stores, access)
        self.app: FastAPI = create_app(self.parts)

    def dump(self) -> tuple[str, ...]:
        """Returns everything that is stored, to compare; without the times of reads, which are no change."""
        wal, sessions = self.stores.wal, self.stores.sessions
        assert isinstance(wal, MemoryWal)
        assert isinstance(sessions, MemorySessions)
        rows = (wal._entries, wal.catalog.rows, wal.watermarks.rows, wal.producers.rows, wal.producers.keys)
        parts = (*rows, sessions.counters, sessions.rows, wal.follows.rows)
        objects = self.stores.objects
        assert isinstance(objects, MemoryObjects)
        return tuple(str(sorted(part.items(), key=str)) for part in (*parts, vars(objects).get("_objects", {})))

    def __call__(self, *args: Any, **kwargs: Any) -> Answer:
        """Asks as `ask` does, and waits for the answer."""
        return asyncio.run(self.ask(*args, **kwargs))

    async def ask(
        self,
        method: str,
        target: str | bytes,
        headers: Mapping[str, str | bytes] | None = None,
        body: bytes | Iterable[bytes] = b"",
        key: str | None = None,
    ) -> Answer:
        async with self.exchange(method, target, headers, body, key) as exchange:
            return await exchange.answer()

    @asynccontextmanager
    async def exchange(
        self,
        method: str,
        target: str | bytes,
        headers: Mapping[str, str | bytes] | None = None,
        body: bytes | Iterable[bytes | None] = b"",
        key: str | None = None,
    ) -> AsyncIterator[Exchange]:
        scope = http_scope(method, target, {**(headers or {}), **({"authorization": f"Bearer {key}"} if key else {})})
        exchange = Exchange([body] if isinstance(body, bytes) else list(body))
        task = asyncio.ensure_future(self.app(scope, exchange.receive, exchange.send))
        exchange.task = task
        try:
            yield exchange
        finally:
            exchange.disconnect()
            await asyncio.wait_for(task, 10)


class Exchange:
    """One request under way. A body that ends in None does not end: nothing more of it arrives."""

    def __init__(self, body: list[bytes | None]) -> None:
        self._incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._outgoing: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for index, part in enumerate(body or [b""]):
            if part is None:
                break
            more = index + 1 < len(body)
            self._incoming.put_nowait({"type": "http.request", "body": part, "more_body": more})
        self.task: asyncio.Future[None] | None = None

    async def receive(self) -> dict[str, Any]:
        return await self._incoming.get()

    async def send(self, message: Any) -> None:
        self._outgoing.put_nowait(message)

    def disconnect(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def next(self, within_s: float = 5) -> dict[str, Any]:
        """Returns the next message. Raises the application's error if it died instead of sending one."""
        got = asyncio.ensure_future(self._outgoing.get())
        assert self.task is not None
        await asyncio.wait((got, self.task), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        if not got.done() and not self._outgoing.empty():
            await asyncio.sleep(0)
        if not got.done():
            got.cancel()
            if self.task.done():
                self.task.result()
            raise TimeoutError("nothing was sent")
        return got.result()

    async def answer(self) -> Answer:
        start = await self.next(15)
        body = b""
        while True:
            message = await self.next(15)
            body += message.get("body", b"")
            if not message.get("more_body", False):
                return Answer(start["status"], text_headers(start), body)


def text_headers(start: Mapping[str, Any]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in start["headers"]}


def http_scope(method: str, target: str | bytes, headers: Mapping[str, str | bytes]) -> dict[str, Any]:
    raw, _, query = (target.encode() if isinstance(target, str) else target).partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(raw.decode("latin-1")),
        "raw_path": raw,
        "query_string": query,
        "root_path": "",
        "headers": [
            (name.lower().encode(), value if isinstance(value, bytes) else value.encode())
            for name, value in {"host": "localhost", **headers}.items()
        ],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }
