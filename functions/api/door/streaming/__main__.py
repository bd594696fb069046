"""`python -m functions.api.door.streaming`: one instance of the streaming function, until Lambda ends it.

Each invocation is turned into an ASGI request for the application, and the response is sent while it is produced.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from starlette.types import ASGIApp, Message

from functions.api.door.requests import ENDS_AT
from functions.api.door.streaming import runtime_api
from functions.api.door.streaming.runtime_api import Invocation, Reply, RuntimeApi, RuntimeApiError
from headrace.clock import Clock, SystemClock

Json = dict[str, Any]


def scope_of(event: Json, ends_at_ms: int) -> Json:
    """Returns the ASGI scope for an event of payload format 2.0. `TruePath` corrects its path.

    `ends_at_ms` (epoch) is the time by which the answer must have ended, so that it can end itself in time.
    """
    http = event["requestContext"]["http"]
    path = str(event["rawPath"])
    headers = _headers(event)
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": http["method"],
        "scheme": dict(headers).get(b"x-forwarded-proto", b"https").decode("latin-1"),
        "path": path,
        "raw_path": path.encode(),
        "query_string": event.get("rawQueryString", "").encode(),
        "root_path": "",
        "headers": headers,
        "server": (event["requestContext"].get("domainName", ""), 443),
        "client": (http.get("sourceIp", ""), 0),
        "aws.event": event,
        ENDS_AT: ends_at_ms,
    }


def body_of(event: Json) -> bytes:
    """Returns the request's body. An event holds all of it: Lambda streams answers, not requests."""
    body = event.get("body") or ""
    return base64.b64decode(body) if event.get("isBase64Encoded") else body.encode()


def _headers(event: Json) -> list[tuple[bytes, bytes]]:
    """Returns the headers with names in lower case. Lambda joins repeated headers with a comma, and keeps cookies
    apart; here these become one `cookie` header.
    """
    headers = [(name.lower().encode("latin-1"), _bytes(value)) for name, value in event.get("headers", {}).items()]
    cookies = event.get("cookies") or []
    return [*headers, (b"cookie", _bytes("; ".join(cookies)))] if cookies else headers


def _bytes(value: str) -> bytes:
    """Returns a header's value as the bytes that were sent, since JSON only has it as text: encoded as Latin-1 if
    possible, else as UTF-8.
    """
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode()


# the name of the package, because this module is run as `__main__`
_log = logging.getLogger("functions.api.door.streaming")

# Before its deadline an invocation must be over, or Lambda kills the process and the client sees a broken answer. The
# application is told to be done so early that it can end one more slow read; what it has not done then is broken off.
SPARE_MS = 3_000
_LAST_MS = 1_000
_END_MS = 200  # before the deadline even the end of an answer is waited for no more: its client reads too slowly


class _Exchange:
    """The ASGI functions `receive` and `send` for one invocation."""

    def __init__(self, api: RuntimeApi, invocation: Invocation) -> None:
        self._api = api
        self._invocation = invocation
        self._asked = False
        self.gone = asyncio.Event()
        self.reply: Reply | None = None
        self.is_whole = False

    async def receive(self) -> Message:
        """Returns the request; later calls return a disconnect as soon as the answer is no longer accepted."""
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": body_of(self._invocation.event), "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Sends a message of the application, the head or a part of the body, to the Runtime API."""
        if message["type"] == "http.response.start":
            self.reply = await self._api.reply(self._invocation.request_id)
            self.reply.refused.add_done_callback(lambda _: self.gone.set())
            await self.reply.send(runtime_api.prelude(message["status"], message["headers"]))
            return
        assert self.reply is not None, "a body before its head"
        await self.reply.send(message.get("body", b""))
        self.is_whole = not message.get("more_body", False)


async def answer(app: ASGIApp, api: RuntimeApi, invocation: Invocation, clock: Clock) -> None:
    """Answers one invocation, whatever the application does, before its deadline.

    When the Runtime API takes no more, the application's task is cancelled. An answer that breaks off ends with trailers
    that say so or, if it had not begun, is reported as failed.

    Raises:
        RuntimeApiError, OSError: the Runtime API is gone.
    """
    exchange = _Exchange(api, invocation)
    scope = scope_of(invocation.event, invocation.deadline_ms - SPARE_MS)
    task = asyncio.ensure_future(app(scope, exchange.receive, exchange.send))
    gone = asyncio.ensure_future(exchange.gone.wait())
    try:
        left_s = _seconds_left(invocation, clock, _LAST_MS)
        await asyncio.wait((task, gone), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        overran = not task.done() and not gone.done()
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task
        if gone.done() and not exchange.is_whole:
            _log.info("nobody takes the answer any more: path=%s", scope["path"])
            return
        async with asyncio.timeout(_seconds_left(invocation, clock, _END_MS)):
            await _end(exchange, api, invocation, _failure(task, overran))
    except TimeoutError:
        _log.error("answer broke off: its client reads too slowly: path=%s", scope["path"])
    finally:
        gone.cancel()
        if exchange.reply is not None:
            await exchange.reply.close()


def _seconds_left(invocation: Invocation, clock: Clock, spare_ms: int) -> float:
    return max(0.0, (invocation.deadline_ms - spare_ms - clock.now_ms()) / 1000)


def _failure(task: asyncio.Future[None], overran: bool) -> tuple[str, str]:
    """Returns why an answer is incomplete: a kind and a message, without the text of the application's error."""
    if overran:
        return "Headrace.OutOfTime", "the answer was broken off at the function's deadline"
    if not task.cancelled() and (error := task.exception()) is not None:
        return f"Headrace.{type(error).__name__}", "the answer broke off"
    return "Headrace.Incomplete", "the application ended before its answer did"


async def _end(exchange: _Exchange, api: RuntimeApi, invocation: Invocation, failure: tuple[str, str]) -> None:
    if exchange.reply is None:
        _log.error("no answer: kind=%s", failure[0])
        api.report(*failure, request_id=invocation.request_id)
        return
    if exchange.is_whole:
        last = runtime_api.END
    else:
        _log.error("answer broke off: kind=%s", failure[0])
        last = runtime_api.failed_end(*failure)
    status = await exchange.reply.end(last)
    if status != 202:
        _log.warning("answer was not taken: status=%s", status)


def main() -> None:
    """Handles one invocation after the other and never returns. Raises the error if the function can't start or the
    Runtime API is gone.
    """
    api = RuntimeApi(os.environ["AWS_LAMBDA_RUNTIME_API"])
    try:
        from functions.api import instance  # reads settings and keys, and may refuse to start
    except Exception as exc:
        api.report(f"Headrace.{type(exc).__name__}", str(exc))
        raise
    serve(instance.app, api, SystemClock(), begin=instance.begin, end=instance.end)


def serve(
    app: ASGIApp, api: RuntimeApi, clock: Clock, *, begin: Callable[[str], None], end: Callable[[float], None]
) -> None:
    """Answers one invocation after the other and never returns. Calls `begin` with the request's id before each, and
    `end` with the milliseconds that are left after it, when its answer is sent; Lambda freezes the process only when the
    next invocation is asked for.

    Raises:
        RuntimeApiError, OSError: the Runtime API is gone.
    """
    with asyncio.Runner() as runner:
        while True:
            invocation = api.next()
            begin(invocation.request_id)
            try:
                runner.run(answer(app, api, invocation, clock))
            finally:
                end(invocation.deadline_ms - clock.now_ms())


if __name__ == "__main__":
    try:
        main()
    except (RuntimeApiError, OSError) as exc:
        sys.exit(f"{type(exc).__name__}: {exc}")
