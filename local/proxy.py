"""A proxy with one port in front of several API processes: each request goes to the next process, round robin.

    python -m local.proxy --listen-fd 5 --upstream 127.0.0.1:40001 --upstream 127.0.0.1:40002

On one kept-alive connection, too, each request goes to the next process, so that a client can't rely on what one
process remembers. A process that can't be reached is skipped, since nothing was sent to it. If a process dies during a
request, the client gets a 502 and can't know the outcome. Bytes pass unchanged: the path is not decoded, headers keep
their case, bodies stream in both directions, and when a client disconnects, the API process sees that. A connection that
is upgraded, to a WebSocket, stays with its process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import signal
import socket
import sys
from collections import deque

from local import http1
from local.http1 import BadMessage, Head, Length
from local.lifeline import exit_with_parent

HEAD_BYTES = 256 * 1024
PIECE_BYTES = 64 * 1024
CONNECT_SECONDS = 5
IDLE_CONNECTIONS = 64
OVERTAKEN_SECONDS = 0.05
_SWITCHING = 101  # from here on the connection speaks another protocol

_LOST = (ConnectionError, asyncio.IncompleteReadError, TimeoutError, OSError)


class _Protocol(asyncio.StreamReaderProtocol):
    """A stream protocol that reports when the peer has disconnected, even while nothing is being read."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self.gone = asyncio.Event()

    def eof_received(self) -> bool | None:
        self.gone.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        super().connection_lost(exc)


class Connection:
    """A byte stream to a client or an API process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gone: asyncio.Event) -> None:
        self.reader = reader
        self.writer = writer
        self.gone = gone

    async def head(self) -> Head | None:
        """Reads the next message head; returns None if the peer closed the connection instead. Raises BadMessage if the
        head is malformed, too long or incomplete.
        """
        try:
            return http1.parse_head(await self.reader.readuntil(b"\r\n\r\n"))
        except asyncio.IncompleteReadError as exc:
            if exc.partial.strip():
                raise BadMessage("the head ends early") from exc
            return None
        except asyncio.LimitOverrunError as exc:
            raise BadMessage(f"the head is longer than {HEAD_BYTES} bytes") from exc

    async def send(self, data: bytes) -> None:
        """Writes data, and waits while the peer reads more slowly than we write."""
        self.writer.write(data)
        await self.writer.drain()

    def abort(self) -> None:
        """Drops the connection at once."""
        with contextlib.suppress(Exception):
            self.writer.transport.abort()


class Upstream:
    """One API process, and the idle connections to it."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._idle: deque[Connection] = deque()

    async def acquire(self) -> Connection:
        """Returns an idle connection, or a new one. Raises OSError if the process can't be reached."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.gone.is_set():
                return connection
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=HEAD_BYTES, loop=loop)
        protocol = _Protocol(reader)
        async with asyncio.timeout(CONNECT_SECONDS):
            transport, _ = await loop.create_connection(lambda: protocol, self.host, self.port)
        _without_delay(transport)
        return Connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop), protocol.gone)

    def release(self, connection: Connection) -> None:
        """Keeps a connection for reuse, or closes it if there are 64 idle ones already; its last exchange must be
        complete.
        """
        if len(self._idle) < IDLE_CONNECTIONS and not connection.gone.is_set():
            self._idle.append(connection)
        else:
            connection.abort()


class Proxy:
    """The proxy of one listening socket, which passes requests to the upstreams in turn."""

    def __init__(self, upstreams: list[Upstream]) -> None:
        self._turn = itertools.cycle(upstreams)
        self._count = len(upstreams)
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, listener: socket.socket) -> asyncio.Server:
        """Starts to accept connections and returns the server, which runs until it is closed."""
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.Protocol:
            reader = asyncio.StreamReader(limit=HEAD_BYTES, loop=loop)
            return _ClientProtocol(reader, self._accept)

        return await loop.create_server(protocol, sock=listener, backlog=1024)

    def _accept(self, client: Connection) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: Connection) -> None:
        try:
            while (head := await client.head()) is not None:
                if not await self._until_client_leaves(client, head):
                    break
        except BadMessage as exc:
            await _refuse(client, 400, "bad_request", str(exc))
        except _LOST:
            pass
        finally:
            with contextlib.suppress(Exception):
                client.writer.close()

    async def _until_client_leaves(self, client: Connection, head: Head) -> bool:
        """Runs one exchange, or cancels it when the client disconnects. Returns whether the connection can serve
        another request.
        """
        exchange = asyncio.ensure_future(self._exchange(client, head))
        left = asyncio.ensure_future(client.gone.wait())
        try:
            await asyncio.wait((exchange, left), return_when=asyncio.FIRST_COMPLETED)
            return exchange.done() and await exchange
        finally:
            left.cancel()
            exchange.cancel()

    async def _exchange(self, client: Connection, head: Head) -> bool:
        method, target, _ = head.start
        length = http1.request_length(head)
        try:
            upstream, server = await self._acquire()
        except _LOST as exc:
            await _refuse(client, 502, "bad_gateway", f"no API process answers; nothing was sent: {exc}")
            return False
        reusable = False
        upload: asyncio.Task[None] | None = None
        answering = False
        try:
            server.writer.write(head.forwarded(start=(method, target, b"HTTP/1.1")))
            if length:
                # Beside the answer, which may come first: 100 Continue, or a refusal of what is still on its way.
                upload = asyncio.get_running_loop().create_task(_relay(client, server, length))
            answer = await self._final_head(client, server)
            if http1.status_of(answer) == _SWITCHING:
                answering = True
                await client.send(answer.forwarded())
                await _tunnel(client, server)
                return False
            uploaded = upload is None or await _ends_soon(upload)
            answer_length = http1.response_length(answer, method)
            old_client = head.start[2] == b"HTTP/1.0"
            close = head.wants_close() or not uploaded or answer_length == http1.UNTIL_CLOSE or old_client
            answering = True
            client.writer.write(answer.forwarded(close=close))
            await _relay(server, client, answer_length)
            await client.writer.drain()
            reusable = uploaded and not answer.wants_close() and answer_length != http1.UNTIL_CLOSE
            return not close
        except (*_LOST, BadMessage) as exc:
            if not answering:
                await _refuse(client, 502, "bad_gateway", f"the API process did not answer: {exc}")
            return False
        finally:
            if upload is not None and not upload.done():
                upload.cancel()
            if reusable:
                upstream.release(server)
            else:
                server.abort()

    async def _acquire(self) -> tuple[Upstream, Connection]:
        """Returns a connection to the next process in turn, or to the first one after it that can be reached. Raises
        OSError if there is none.
        """
        for tries_left in reversed(range(self._count)):
            upstream = next(self._turn)
            try:
                return upstream, await upstream.acquire()
            except _LOST:
                if not tries_left:
                    raise
        raise AssertionError("the last try returns or raises")

    async def _final_head(self, client: Connection, server: Connection) -> Head:
        """Reads and returns the head of the final answer; passes interim answers (100 Continue) on to the client."""
        while True:
            answer = await server.head()
            if answer is None:
                raise ConnectionResetError("closed before an answer")
            if http1.status_of(answer) >= 200 or http1.status_of(answer) == _SWITCHING:
                return answer
            await client.send(answer.forwarded())


class _ClientProtocol(_Protocol):
    """The protocol of a client's connection; it calls `accepted` once the connection is established."""

    def __init__(self, reader: asyncio.StreamReader, accepted: object) -> None:
        super().__init__(reader)
        self._reader_of_client = reader
        self._accepted = accepted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        _without_delay(transport)
        writer = asyncio.StreamWriter(transport, self, self._reader_of_client, asyncio.get_running_loop())  # type: ignore[arg-type]
        self._accepted(Connection(self._reader_of_client, writer, self.gone))  # type: ignore[operator]


async def _relay(source: Connection, target: Connection, length: Length) -> None:
    """Copies a body piece by piece as it arrives. Raises the errors of a lost connection, and BadMessage."""
    if length == http1.CHUNKED:
        await _relay_chunks(source, target)
    elif length == http1.UNTIL_CLOSE:
        while piece := await source.reader.read(PIECE_BYTES):
            await target.send(piece)
    else:
        await _relay_bytes(source, target, length)


async def _tunnel(client: Connection, server: Connection) -> None:
    """Copies bytes in both directions until one side closes."""
    ways = [asyncio.ensure_future(_relay(*way, http1.UNTIL_CLOSE)) for way in ((client, server), (server, client))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _relay_bytes(source: Connection, target: Connection, count: int) -> None:
    while count > 0:
        piece = await source.reader.read(min(count, PIECE_BYTES))
        if not piece:
            raise ConnectionResetError("the body ends early")
        count -= len(piece)
        await target.send(piece)


async def _relay_chunks(source: Connection, target: Connection) -> None:
    while True:
        line = await source.reader.readuntil(b"\r\n")
        size = http1.chunk_size(line)
        if size == 0:
            break
        if size <= PIECE_BYTES:
            await target.send(line + await source.reader.readexactly(size + 2))
        else:
            target.writer.write(line)
            await _relay_bytes(source, target, size + 2)
    end = line
    while (trailer := await source.reader.readuntil(b"\r\n")) != b"\r\n":
        end += trailer
    await target.send(end + b"\r\n")


async def _ends_soon(upload: asyncio.Task[None]) -> bool:
    """Returns whether the whole body was sent, after waiting up to 50 ms for its end. If it was not, the connection
    must be closed, because the rest of the body is never read.
    """
    await asyncio.wait((upload,), timeout=OVERTAKEN_SECONDS)
    return upload.done() and upload.exception() is None


async def _refuse(client: Connection, status: int, code: str, message: str) -> None:
    """Sends an error answer from the proxy itself, in the form of the API's errors."""
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    reason = {400: "Bad Request", 502: "Bad Gateway"}[status]
    head = f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    with contextlib.suppress(*_LOST):
        await client.send(head.encode() + b"connection: close\r\n\r\n" + body)


def _without_delay(transport: asyncio.BaseTransport) -> None:
    raw = transport.get_extra_info("socket")
    if raw is not None:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def serve(listener: socket.socket, upstreams: list[Upstream]) -> None:
    """Passes requests on until SIGTERM or SIGINT; prints `ready` when it accepts connections."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = await Proxy(upstreams).listen(listener)
    print("ready", flush=True)
    await stop.wait()
    server.close()


def main(arguments: list[str] | None = None) -> None:
    """Passes requests on from an inherited listening socket, until SIGTERM, SIGINT or the end of standard input."""
    parser = argparse.ArgumentParser(prog="python -m local.proxy", description=__doc__)
    parser.add_argument("--listen-fd", type=int, required=True)
    parser.add_argument("--upstream", action="append", required=True, help="host:port of an API process")
    options = parser.parse_args(arguments)
    exit_with_parent()
    addresses = [address.rpartition(":") for address in options.upstream]
    upstreams = [Upstream(host, int(port)) for host, _, port in addresses]
    with contextlib.suppress(KeyboardInterrupt):
        _run(serve(socket.socket(fileno=options.listen_fd), upstreams))
    sys.exit(0)


def _run(main_task: object) -> None:
    import uvloop

    uvloop.run(main_task)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
