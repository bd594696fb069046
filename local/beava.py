"""`headrace-beava`: feature tables in memory, in one process, in place of beava's own server: for the embed mode of its
client, and for clients that speak its TCP frames.

    BEAVA_BINARY=$(which headrace-beava) python app.py    # where app.py says bv.App(), without an address

It is for tests and for trying things out: nothing is stored, and every event is kept in memory until the process ends. It
listens on loopback only, on the ports of `BEAVA_LISTEN_ADDR` (127.0.0.1:8080) and `BEAVA_TCP_PORT` (8081). For 0 it takes a
free port. It prints the ports on standard output, as beava does. `BEAVA_TEST_MODE`, or --test-mode, allows resets.

A frame is a length of 4 bytes, which counts what follows, an operation of 2 and a content type of 1, all big-endian, and
then the body, in JSON (1) or MessagePack (2), as is the answer. Frames of one connection are answered in their order.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import struct
import threading
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import orjson

from headrace import decoding

# Clients wait for five seconds until they are told where to connect: what takes long is imported after that.
if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message

    from headrace.log.stores import Stores
    from headrace.tables.follows import Follow

MAX_FRAME_BYTES = 4 * 1024 * 1024  # of a body, as beava has it
ERROR, ANSWER = 0xFFFF, 0x0023
JSON, MESSAGEPACK = 1, 2
_HEAD = struct.Struct(">IHB")
_REST = _HEAD.size - 4  # what the length counts beside the body
_FOLD_S = 0.25


class Operation(NamedTuple):
    """What a frame asks for: a path of the HTTP API, and the operation of the answer."""

    path: str
    answer: int


OPERATIONS = {
    0x0000: Operation("/ping", 0x0000),
    0x0001: Operation("/register", 0x0001),
    0x0010: Operation("/push", 0x0010),
    0x0020: Operation("/get", ANSWER),
    0x0024: Operation("/batch_get", ANSWER),
    0x0040: Operation("/reset", ANSWER),
}


class Frames:
    """Answers frames by requests to the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the frames of a connection until its end."""
        try:
            while True:
                length, number, kind = _HEAD.unpack(await reader.readexactly(_HEAD.size))
                if not _REST <= length <= MAX_FRAME_BYTES + _REST:
                    writer.write(_frame(ERROR, JSON, _error("payload_too_large", f"length of a frame: {length}")))
                    await writer.drain()
                    return  # where the next one begins is not known
                body = await reader.readexactly(length - _REST)
                writer.write(await self._answer(number, kind, body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _answer(self, number: int, kind: int, body: bytes) -> bytes:
        operation = OPERATIONS.get(number)
        if operation is None or kind not in (JSON, MESSAGEPACK):
            return _frame(ERROR, JSON, _error("unknown_op", f"operation {number:#06x} with content type {kind}"))
        try:
            given = orjson.loads(body) if kind == JSON else msgspec.msgpack.decode(body)
            if operation.path == "/push" and isinstance(given, dict) and "body" in given:
                given = {**given, "data": given["body"]}
            content = orjson.dumps(given)
        except (ValueError, TypeError, msgspec.DecodeError, RecursionError) as exc:
            return _frame(ERROR, JSON, _error("invalid_json_body", str(exc)))
        is_done, data = await self._post(operation.path, content)
        body = data if kind == JSON else msgspec.msgpack.encode(orjson.loads(data))
        return _frame(operation.answer if is_done else ERROR, kind, body)

    async def _post(self, path: str, body: bytes) -> tuple[bool, bytes]:
        """Returns whether a request has succeeded, and the body of its answer."""
        status, parts = 0, list[bytes]()
        messages: list[Message] = [
            {"type": "http.disconnect"},
            {"type": "http.request", "body": body, "more_body": False},
        ]

        async def receive() -> Message:
            return messages.pop() if len(messages) > 1 else messages[0]

        async def send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            parts.append(message.get("body", b""))

        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await self._app({**_SCOPE, "path": path, "raw_path": path.encode(), "headers": headers}, receive, send)
        return status == 200, b"".join(parts)


_SCOPE = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "method": "POST",
    "query_string": b"",
    "scheme": "http",
    "server": ("127.0.0.1", 0),
    "client": ("127.0.0.1", 0),
    "root_path": "",
}


def _frame(operation: int, kind: int, body: bytes) -> bytes:
    return _HEAD.pack(len(body) + _REST, operation, kind) + body


def _error(code: str, reason: str) -> bytes:
    return orjson.dumps({"error": {"code": code, "message": reason}})


def fold_for_ever(stores: Stores, over: threading.Event) -> None:
    """Keeps the rows of all lanes up to date, until it is over."""
    from headrace.errors import HeadraceError
    from headrace.features.fold import Folder
    from headrace.features.register import Registrations
    from headrace.features.values import FOLD

    folder = Folder(Registrations(stores))
    follows: Any = stores.follows
    while not over.wait(_FOLD_S):
        rows: list[Follow] = [row for row in list(follows.rows.values()) if row.kind == FOLD]
        for row in rows:
            name, role = decoding.from_json(row.data, tuple[str, str])
            try:
                folder.fold((name, role) if role else name, stores.clock.monotonic() + 1)
            except HeadraceError:
                continue  # it was reset


async def serve(http: socket.socket, tcp: socket.socket, *, may_reset: bool) -> None:
    """Serves both doors until SIGTERM or SIGINT."""
    import uvicorn

    from functions.access import Access
    from headrace.memory import memory_stores
    from headrace.settings import Settings

    stores = memory_stores(Settings(metrics_interval_ms=0, allow_reset=may_reset))
    resolve_name("functions.api.door.requests:call_directly")()
    context = resolve_name("functions.api.context:assemble")(stores, Access({}, "*"))
    app = resolve_name("functions.api.app:create_app")(context)
    over = threading.Event()
    threading.Thread(target=fold_for_ever, args=(stores, over), name="fold", daemon=True).start()
    frames = await asyncio.start_server(Frames(app).serve, sock=tcp)
    await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve(sockets=[http])
    frames.close()
    over.set()


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="headrace-beava", description=__doc__, formatter_class=form)
    parser.add_argument("--config", help="accepted, and not read: settings are environment variables")
    parser.add_argument("--memory-only", action="store_true", help="the same as without it")
    parser.add_argument("--test-mode", action="store_true", help="allow resets")
    parser.add_argument("--data-dir", help="refused: this server stores nothing")
    options = parser.parse_args(arguments)
    if options.data_dir is not None:
        parser.error("--data-dir: nothing is stored here; `headrace dev` and a deployment keep what they acknowledge")
    address = os.environ.get("BEAVA_LISTEN_ADDR", "127.0.0.1:8080")
    host, _, port = address.rpartition(":")
    try:
        doors = [
            socket.create_server((host, int(one)))
            for one in (port, os.environ.get("BEAVA_TCP_PORT", "8081"))
            if host in ("127.0.0.1", "localhost")
        ]
    except (OSError, ValueError) as exc:
        parser.error(f"can't listen: {address}: {exc}")
    if not doors:
        parser.error(f"BEAVA_LISTEN_ADDR must be of loopback, 127.0.0.1:PORT, not {address}: there are no keys here")
    for kind, one in zip(("http", "tcp"), doors, strict=True):  # they listen: who connects waits
        host, number = one.getsockname()
        print(orjson.dumps({"kind": f"server.{kind}_bound", "addr": f"{host}:{number}"}).decode(), flush=True)
    import uvloop

    may_reset = options.test_mode or os.environ.get("BEAVA_TEST_MODE") == "1"
    # uvloop sends at once what is written. On these sockets asyncio does not: the body of an answer waited until the client
    # had acknowledged its head, for 40 ms.
    uvloop.run(serve(*doors, may_reset=may_reset))


if __name__ == "__main__":
    main()
