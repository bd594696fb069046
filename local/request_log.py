"""An ASGI layer that prints one line for each request."""

from __future__ import annotations

import sys
import time
from typing import Any


class RequestLog:
    """The layer. A line is printed on standard error when the answer has ended, or its connection has."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, size = time.monotonic(), 0, 0

        async def note(message: Any) -> None:
            nonlocal status, size
            status = message.get("status", status)
            size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, note)
        finally:
            query = scope["query_string"].decode("latin-1")
            target = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
            took_ms = (time.monotonic() - began) * 1000
            print(
                f"{scope['method']} {target} {status or '-'} {size} B {took_ms:.1f} ms", file=sys.stderr, flush=True
            )
