"""A client of Lambda's Runtime API, as far as a streaming function needs it. It uses HTTP on loopback, without
credentials.

The body of an answer is chunked. It begins with the prelude: a JSON document with status and headers, followed by eight
zero bytes. An error after the start is reported in trailers; Lambda then closes the client's connection. Source: Lambda
developer guide, "Building a custom runtime", § Response streaming; the prelude as the Node.js runtime writes it.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

SEPARATOR = b"\0" * 8
ERROR_TYPE = "Lambda-Runtime-Function-Error-Type"
ERROR_BODY = "Lambda-Runtime-Function-Error-Body"
END = b"0\r\n\r\n"


def head(host: str, request_id: str) -> bytes:
    """Returns the head of the HTTP request that carries the answer to an invocation."""
    lines = (
        f"POST /2018-06-01/runtime/invocation/{request_id}/response HTTP/1.1",
        f"Host: {host}",
        "Lambda-Runtime-Function-Response-Mode: streaming",
        "Content-Type: application/vnd.awslambda.http-integration-response",
        "Transfer-Encoding: chunked",
        f"Trailer: {ERROR_TYPE}, {ERROR_BODY}",
    )
    return "\r\n".join((*lines, "", "")).encode()


def prelude(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Returns the first bytes of a streamed answer: JSON with status and headers, then eight zero bytes. A repeated
    header becomes one, joined by commas; cookies stay separate.
    """
    joined: dict[str, str] = {}
    cookies: list[str] = []
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name == "set-cookie":
            cookies.append(value)
        else:
            joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return json.dumps({"statusCode": status, "headers": joined, "cookies": cookies}).encode() + SEPARATOR


def chunk(data: bytes) -> bytes:
    """Returns data as one HTTP chunk; b"" for empty data, since an empty chunk would be the end."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def failed_end(kind: str, message: str) -> bytes:
    """Returns the bytes that end an incomplete chunked answer: the last chunk, and trailers that describe the error."""
    body = base64.b64encode(error(kind, message)).decode()
    return f"0\r\n{ERROR_TYPE}: {kind}\r\n{ERROR_BODY}: {body}\r\n\r\n".encode()


def error(kind: str, message: str) -> bytes:
    """Returns the JSON document that describes an error for Lambda."""
    return json.dumps({"errorMessage": message, "errorType": kind, "stackTrace": []}).encode()


_RUNTIME = "/2018-06-01/runtime"


class RuntimeApiError(Exception):
    """The Runtime API refused a call, or is gone. The process can't continue."""


@dataclass(frozen=True)
class Invocation:
    """One request to the function. At `deadline_ms` (epoch) Lambda stops a process that still works on it."""

    request_id: str
    deadline_ms: int
    event: dict[str, Any]


class RuntimeApi:
    """A client of the Runtime API at `host:port`."""

    def __init__(self, address: str) -> None:
        self._address = address

    def next(self) -> Invocation:
        """Waits for the next invocation and returns it. Lambda may freeze the process meanwhile.

        Raises:
            RuntimeApiError: the endpoint does not answer, or the answer has no invocation.
        """
        try:
            status, headers, body = self._exchange("GET", "/invocation/next")
            if status != 200:
                raise RuntimeApiError(f"no next invocation: status={status}")
            return Invocation(
                headers["Lambda-Runtime-Aws-Request-Id"],
                int(headers["Lambda-Runtime-Deadline-Ms"]),
                json.loads(body),
            )
        except (OSError, http.client.HTTPException, KeyError, ValueError) as exc:
            raise RuntimeApiError(f"no next invocation: {type(exc).__name__}: {exc}") from exc

    def report(self, kind: str, message: str, request_id: str | None = None) -> None:
        """Reports an invocation that failed before its answer began or, without an id, that the function could not
        start.

        Raises:
            RuntimeApiError: the endpoint does not answer.
        """
        path = f"/invocation/{request_id}/error" if request_id else "/init/error"
        try:
            self._exchange("POST", path, error(kind, message), {ERROR_TYPE: kind})
        except (OSError, http.client.HTTPException) as exc:
            raise RuntimeApiError(f"error not reported: {type(exc).__name__}: {exc}") from exc

    def _exchange(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        connection = http.client.HTTPConnection(self._address)  # on loopback a new connection costs nothing
        try:
            connection.request(method, _RUNTIME + path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    async def reply(self, request_id: str) -> Reply:
        """Opens a connection for the answer to an invocation. Raises OSError if the Runtime API can't be reached."""
        host, _, port = self._address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head(self._address, request_id))
        return Reply(reader, writer)


class Reply:
    """The answer to an invocation while it is being sent, in chunks."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.refused = asyncio.ensure_future(_verdict(reader))
        """Done when the Runtime API accepts no more: it has closed the connection (0), or has answered with this
        status.
        """

    async def send(self, data: bytes) -> None:
        """Sends one chunk as soon as there is room. Data sent after the connection has ended is lost."""
        self._writer.write(chunk(data))
        with suppress(ConnectionError):
            await self._writer.drain()

    async def end(self, last: bytes = END) -> int:
        """Sends the end, waits until the Runtime API answers, and returns the status of its answer (202: accepted); 0
        if the connection broke.
        """
        self._writer.write(last)
        with suppress(ConnectionError):
            await self._writer.drain()
        return await self.refused

    async def close(self) -> None:
        """Closes the connection; an answer without an end counts as failed."""
        if not self.refused.done():  # otherwise remaining data would be sent first, to a peer that may not read it
            self.refused.cancel()
            self._writer.transport.abort()
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


async def _verdict(reader: asyncio.StreamReader) -> int:
    """Returns the status with which the Runtime API answers; 0 if the connection ends without an answer, or the answer
    has no status.
    """
    try:
        first = (await reader.readuntil(b"\r\n")).split(b" ", 2)
    except (asyncio.IncompleteReadError, ConnectionError):
        return 0
    return int(first[1]) if len(first) > 1 and first[1].isdigit() else 0
