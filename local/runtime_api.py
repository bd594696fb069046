"""The emulated Lambda Runtime API on loopback: instances of a function poll it for invocations, and stream their
answers to it.

Each instance has an endpoint of its own, as on Lambda; each invocation goes to one of the instances that poll. If an
instance is killed, its invocation fails at once. An instance that takes longer than the timeout is cut off, as Lambda
would kill it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from local import http1

log = logging.getLogger("headrace.function_url")
HEAD_BYTES = 64 * 1024
PIECE_BYTES = 64 * 1024
SET_UP_SECONDS = 0.05
_PATH = re.compile(r"/2018-06-01/runtime/(?:(init)/error|invocation/(next)|invocation/([^/]+)/(response|error))")
_LOST = (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, http1.BadMessage)


class Broken(Exception):
    """The function failed, died or took too long. The message says which."""


@dataclass
class Call:
    """An invocation and its answer."""

    request_id: str
    event: dict[str, Any]
    given_up: asyncio.Event = field(default_factory=asyncio.Event)
    _pieces: asyncio.Queue[bytes | Broken] = field(default_factory=asyncio.Queue)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yields the pieces of the answer as they arrive. Raises Broken if the answer is incomplete."""
        while piece := await self._pieces.get():
            if isinstance(piece, Broken):
                raise piece
            yield piece

    def give_up(self) -> None:
        """Marks the call as abandoned: nobody waits for its answer."""
        self.given_up.set()

    def put(self, piece: bytes | Broken) -> None:
        """Adds a piece of the answer; an empty piece is its end, Broken the reason why it is incomplete."""
        self._pieces.put_nowait(piece)

    def expire(self, timeout_s: float) -> None:
        """Ends the call because it took longer than the timeout."""
        self.put(Broken(f"timed out after {timeout_s:g} s"))
        self.give_up()


class RuntimeApi:
    """The queue of a function's invocations, which its instances poll. `timeout_s` is the function's timeout."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._waiting: asyncio.Queue[Call] = asyncio.Queue()
        self.asked: asyncio.Semaphore = asyncio.Semaphore(0)
        """Released each time an instance polls for an invocation."""
        self.failed_starts: list[str] = []
        """The errors that instances reported because they could not start."""

    async def listen(self) -> Endpoint:
        """Returns an endpoint for one instance, which serves on a free loopback port."""
        endpoint = Endpoint(self)
        await endpoint.listen()
        return endpoint

    def invoke(self, call: Call) -> None:
        """Queues the call for the next instance that polls."""
        self._waiting.put_nowait(call)

    async def take(self) -> Call:
        """Waits for the next call whose answer is still awaited, and returns it."""
        while (call := await self._waiting.get()).given_up.is_set():
            pass
        return call


class Endpoint:
    """The Runtime API for one instance, which polls it at `address`."""

    def __init__(self, api: RuntimeApi) -> None:
        self._api = api
        self._running: dict[str, Call] = {}
        self._server: asyncio.Server | None = None
        self._is_open = True
        self._asking: set[asyncio.Task[None]] = set()
        self.address = ""

    async def listen(self) -> None:
        """Starts to serve on a free loopback port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=HEAD_BYTES)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Stops serving an instance that is dead or must end: its invocation fails, and it gets no further one."""
        self._is_open = False
        for task in self._asking:
            task.cancel()
        for call in self._running.values():
            call.put(Broken("the instance died"))
        self._running.clear()
        # A connection that asyncio has accepted and not yet set up would hang if the server were closed under it.
        await asyncio.sleep(SET_UP_SECONDS)
        if self._server is not None:
            self._server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = http1.parse_head(await reader.readuntil(b"\r\n\r\n"))
            found = _PATH.fullmatch(head.start[1].decode("latin-1"))
            if found is None:
                await _respond(writer, b"404 Not Found")
            elif found[2]:
                if not self._is_open:
                    return
                asking = asyncio.ensure_future(self._next(reader, writer))
                self._asking.add(asking)
                asking.add_done_callback(self._asking.discard)
                with suppress(asyncio.CancelledError):
                    await asking
            elif found[4] == "response":
                await self._response(self._running[found[3]], head, reader, writer)
            else:
                error = (await reader.readexactly(int(head.get(b"content-length") or 0))).decode()
                log.error("function failed: %s", error)
                if found[1]:
                    self._api.failed_starts.append(error)
                else:
                    self._running.pop(found[3]).put(Broken(error))
                await _respond(writer, b"202 Accepted")
        except (*_LOST, KeyError) as exc:
            log.info("instance lost: %s", type(exc).__name__)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _next(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers an instance's poll with the next invocation; waits for one unless the instance dies."""
        self._api.asked.release()
        left = asyncio.ensure_future(reader.read(1))
        taken = asyncio.ensure_future(self._api.take())
        is_there = False
        try:
            await asyncio.wait((left, taken), return_when=asyncio.FIRST_COMPLETED)
            is_there = not left.done()
        finally:
            left.cancel()
            taken.cancel()
            if taken.done() and not is_there:
                self._api.invoke(taken.result())
        if not is_there:
            return
        call = taken.result()
        self._running[call.request_id] = call
        deadline_ms = round((time.time() + self._api.timeout_s) * 1000)
        asyncio.get_running_loop().call_later(self._api.timeout_s, self._expire, call)
        body = json.dumps(call.event).encode()
        fields = b"Lambda-Runtime-Aws-Request-Id: %b\r\nLambda-Runtime-Deadline-Ms: %d\r\n"
        await _respond(writer, b"200 OK", body, fields % (call.request_id.encode(), deadline_ms))

    def _expire(self, call: Call) -> None:
        if self._running.pop(call.request_id, None) is not None:
            call.expire(self._api.timeout_s)

    async def _response(
        self, call: Call, head: http1.Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Reads an instance's answer. Drops the connection when the caller no longer waits for the answer."""
        if head.get(b"lambda-runtime-function-response-mode") != b"streaming":
            raise http1.BadMessage("only streamed answers")
        reading = asyncio.ensure_future(_read_answer(reader, call))
        given_up = asyncio.ensure_future(call.given_up.wait())
        await asyncio.wait((reading, given_up), return_when=asyncio.FIRST_COMPLETED)
        given_up.cancel()
        if not reading.done():
            reading.cancel()
            self._running.pop(call.request_id, None)
            writer.transport.abort()
            return
        self._running.pop(call.request_id, None)
        try:
            call.put(reading.result())
        except _LOST as exc:
            call.put(Broken("the instance died"))
            raise ConnectionResetError from exc
        await _respond(writer, b"202 Accepted")


async def _read_answer(reader: asyncio.StreamReader, call: Call) -> bytes | Broken:
    """Passes the chunks of an answer on to the call, and returns its end: an empty piece, or Broken. Raises the errors
    of a lost connection.
    """
    while size := http1.chunk_size(await reader.readuntil(b"\r\n")):
        while size:
            piece = await reader.readexactly(min(size, PIECE_BYTES))
            size -= len(piece)
            call.put(piece)
        await reader.readexactly(2)
    trailers = http1.parse_head(b"trailers of answer\r\n" + await _trailers(reader))
    kind = trailers.get(b"lambda-runtime-function-error-type")
    if kind is None:
        return b""
    told = base64.b64decode(trailers.get(b"lambda-runtime-function-error-body") or b"").decode()
    log.error("function failed in its answer: kind=%s error=%s", kind.decode(), told)
    return Broken(kind.decode())


async def _trailers(reader: asyncio.StreamReader) -> bytes:
    lines = b""
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        lines += line
    return lines + b"\r\n"


async def _respond(writer: asyncio.StreamWriter, status: bytes, body: bytes = b"", fields: bytes = b"") -> None:
    head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n%b\r\n"
    writer.write(head % (status, len(body), fields) + body)
    await writer.drain()
