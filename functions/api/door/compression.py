"""Compressed bodies: a request's body is expanded piece by piece while it is read, so that its reader counts and bounds
what comes out (a small body may stand for gigabytes), and answers are compressed for clients that ask for it.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from types import MappingProxyType

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Message, Receive, Scope

from functions.api.door.requests import Headers, run
from headrace.errors import InvalidRequest

_GZIP = 16 + zlib.MAX_WBITS  # zlib's way to say that there is a gzip header
_PIECE = 1024 * 1024
_MOST_MEMBERS = 2_000  # one for 64 KiB of the largest body, twice; empty ones cost time, and expand to nothing
_LEVEL = 1  # a client waits for it
_WORTHWHILE = 1400  # bytes: less goes into one packet anyway


def expanded(scope: Scope, receive: Receive) -> Receive:
    """Returns the `receive` that gives the body as it was before the client compressed it. It raises HTTPException (415)
    if the body is encoded in another way than gzip.
    """
    encoding = (Headers(scope).get("content-encoding") or "identity").lower()
    if encoding == "identity":
        return receive
    return _Expander(receive) if encoding == "gzip" else _refuse


async def _refuse() -> Message:
    raise HTTPException(415, "content-encoding must be gzip")


class _Expander:
    """A `receive` that expands the body that another one gives; it may be several gzip members."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._member = zlib.decompressobj(_GZIP)
        self._compressed = b""
        self._complete = True  # whether a member has just ended, or none has begun
        self._has_more = False  # whether zlib may have output without further input
        self._is_last = False
        self._members = 0
        self._over = False

    async def __call__(self) -> Message:
        while not self._over:
            if self._compressed or self._has_more:
                piece = self._expand()
                if piece:
                    await asyncio.sleep(0)  # other requests go on meanwhile
                    return {"type": "http.request", "body": piece, "more_body": True}
            elif self._is_last:
                if not self._complete:
                    raise InvalidRequest("the gzip body is cut off")
                self._over = True
                return {"type": "http.request", "body": b"", "more_body": False}
            else:
                message = await self._receive()
                if message["type"] != "http.request":
                    return message
                self._compressed = message.get("body", b"")
                self._is_last = not message.get("more_body", False)
        return await self._receive()

    def _expand(self) -> bytes:
        if self._complete:
            self._members += 1
            if self._members > _MOST_MEMBERS:
                raise InvalidRequest(f"the body has too many gzip members: limit={_MOST_MEMBERS}")
            self._member, self._complete = zlib.decompressobj(_GZIP), False
        try:
            piece = self._member.decompress(self._compressed, _PIECE)
        except zlib.error as exc:
            raise InvalidRequest("the body is not gzip") from exc
        self._complete = self._member.eof
        self._compressed = self._member.unused_data if self._complete else self._member.unconsumed_tail
        self._has_more = len(piece) == _PIECE and not self._complete
        return piece


def wants_gzip(headers: Headers, size: int) -> bool:
    """Returns whether an answer of `size` bytes should be compressed: the client accepts it, and it is worth the time."""
    if size < _WORTHWHILE:
        return False
    for choice in (headers.get("accept-encoding") or "").lower().split(","):
        coding, _, quality = choice.partition(";")
        if coding.strip() in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def compressed(body: bytes) -> bytes:
    """Returns a body in gzip."""
    return zlib.compress(body, _LEVEL, _GZIP)


async def answer(
    request: Headers,
    body: bytes,
    status: int = 200,
    content_type: str = "application/json",
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Response:
    """Returns an answer that no cache may store, compressed if the request accepts that."""
    told = {"Content-Type": content_type, "Cache-Control": "no-store", **headers}
    if wants_gzip(request, len(body)):
        told |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        body = await run(compressed, body)
    return Response(body, status, told)
