"""The stream of jobs as a worker reads it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace.settings import Settings
from tests.unit.api.asgi import JSON, Exchange, Server, text_headers
from tests.unit.api.topics import T

QUICK = Settings(metrics_interval_ms=0, sse_seconds=1)


async def post(server: Server, what: str, **body: Any) -> Any:
    answer = await server.ask("POST", f"{T}/{what}".rstrip("/"), JSON, json.dumps(body).encode())
    assert answer.status < 300, answer.body
    return answer.json


class Events:
    """The events of a stream, as a browser would read them."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.headers: dict[str, str] = {}
        self._text = ""

    async def begin(self) -> str:
        """Reads the beginning of the answer, and returns its first chunk."""
        start = await self.exchange.next()
        assert start["status"] == 200
        self.headers = text_headers(start)
        return str((await self.exchange.next())["body"].decode())

    async def next(self, within_s: float = 5) -> dict[str, Any] | None:
        """Returns the next event that is no comment, its data parsed; None at the end of the stream."""
        while "\n\n" not in self._text:
            message = await self.exchange.next(within_s)
            self._text += message["body"].decode()
            if not message["more_body"]:
                return None
        block, self._text = self._text.split("\n\n", 1)
        if block.startswith(":"):
            return await self.next(within_s)
        fields: dict[str, str] = {}
        for line in block.split("\n"):
            name, _, value = line.partition(": ")
            fields[name] = fields[name] + "\n" + value if name in fields else value
        return {**fields, "data": json.loads(fields["data"])}

    async def quiet(self, for_s: float = 0.3) -> None:
        """Checks that no event comes for a while."""
        with pytest.raises(TimeoutError):
            await self.next(for_s)


@asynccontextmanager
async def working(server: Server, query: str, **headers: str) -> AsyncIterator[Events]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with server.exchange("GET", f"{T}/work?{query}", named) as exchange:
        yield Events(exchange)
