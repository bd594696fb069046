"""A bucket over HTTP, as far as readers need one: ranged GETs of objects in a folder, each answered after a while.

The delay represents the time to S3's first byte. Requests that arrive together wait together.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from urllib.parse import unquote, urlsplit

BUCKET = "bench"
_HEADERS = b'ETag: "0"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nAccept-Ranges: bytes\r\n'


@contextmanager
def served(root: Path, latency_s: float) -> Iterator[str]:
    """Serves the objects under `root` in a thread of this process, as bucket `BUCKET`; gives the endpoint's URL."""
    loop = asyncio.new_event_loop()
    ready: list[int] = []
    started = threading.Event()

    async def main() -> None:
        server = await asyncio.start_server(lambda r, w: _serve(root, latency_s, r, w), "127.0.0.1", 0, backlog=256)
        ready.append(server.sockets[0].getsockname()[1])
        started.set()
        async with server:
            await server.serve_forever()

    def run() -> None:
        asyncio.set_event_loop(loop)
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(main())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    started.wait()
    try:
        yield f"http://127.0.0.1:{ready[0]}"
    finally:
        loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
        thread.join(5)


async def _serve(root: Path, latency_s: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, target, _ = head[0].split(" ", 2)
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
            await asyncio.sleep(latency_s)
            key = unquote(urlsplit(target).path).removeprefix(f"/{BUCKET}/")
            writer.write(_answer(root / key, method, headers.get("range", "")))
            await writer.drain()
    except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
        pass
    finally:
        writer.close()


def _answer(path: Path, method: str, wanted: str) -> bytes:
    if method not in ("GET", "HEAD"):
        return _head(HTTPStatus.NOT_IMPLEMENTED, 0)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if method == "HEAD":
                return _head(HTTPStatus.OK, size)
            if not wanted:
                return _head(HTTPStatus.OK, size) + file.read()
            first, last = _bounds(wanted, size)
            data = os.pread(file.fileno(), last - first + 1, first)
    except (FileNotFoundError, IsADirectoryError):
        body = b"<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>"
        return _head(HTTPStatus.NOT_FOUND, len(body)) + body
    where = f"Content-Range: bytes {first}-{last}/{size}\r\n".encode()
    return _head(HTTPStatus.PARTIAL_CONTENT, len(data), where) + data


def _bounds(wanted: str, size: int) -> tuple[int, int]:
    """First and last byte of a `Range` header."""
    first, _, last = wanted.removeprefix("bytes=").partition("-")
    if not first:
        return max(0, size - int(last)), size - 1
    return int(first), min(int(last), size - 1) if last else size - 1


def _head(status: HTTPStatus, length: int, more: bytes = b"") -> bytes:
    line = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Length: {length}\r\n"
    return line.encode() + _HEADERS + more + b"\r\n"
