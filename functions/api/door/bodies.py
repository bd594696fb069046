"""Reads bodies of requests and cuts them into records, for every surface.

A JSON body is one value, or an array of which each element becomes a record (one level). The text of an element is
kept byte for byte, so numbers and key order survive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
import orjson
import simdjson
from starlette.requests import Request

from functions.api.door.requests import BODY_BYTES, Headers, is_event
from headrace import limits
from headrace.batch import EMPTY, Batch
from headrace.errors import InvalidRequest, PayloadTooLarge, RequestTimeout
from headrace.log.requests import JSON

_WHITE_SPACE = b" \t\r\n"
_elements = msgspec.json.Decoder(list[msgspec.Raw])


BODY_SECONDS = 30.0  # in which a body has to arrive: 10 MiB at 3 Mbit/s


class BodyTimeout(RequestTimeout):
    """The body did not arrive in time. The connection is closed, since the rest may still be on its way."""

    def __init__(self) -> None:
        super().__init__(f"the body did not arrive in time: limit={BODY_SECONDS:g} s")


async def read(request: Request, limit: int = limits.MAX_APPEND_BYTES) -> bytes:
    """Reads the whole body of a request.

    Raises:
        PayloadTooLarge: the announced or received size is above `limit` or, on Lambda, above what fits an event.
        BodyTimeout: the body took longer than `BODY_SECONDS` to arrive.
        ClientDisconnect: the client left before the end of the body.
    """
    if is_event(request.scope):
        limit = min(limit, BODY_BYTES)
    announced = Headers(request.scope).content_length
    if announced is not None and announced > limit:
        raise PayloadTooLarge(f"body is too large: limit={limit} received={announced}")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(None if is_event(request.scope) else BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise PayloadTooLarge(f"body is too large: limit={limit}")
                parts.append(part)
    except TimeoutError:
        raise BodyTimeout from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def records(body: bytes, content_type: str | None, key: str | None) -> Batch:
    """Returns the records in a body, all with the routing key `key`. If the content type is JSON, an array has one
    record per element; any other body is one record. An empty body or an empty array has none.

    Raises:
        InvalidRequest: the content type is JSON, but the body is not.
        PayloadTooLarge: there are too many records.
    """
    if not body:
        return EMPTY
    if content_type != JSON:
        return Batch.of((body,), key=key)
    return Batch.of(_split(body), key=key)


def _split(body: bytes) -> Sequence[bytes | msgspec.Raw]:
    try:
        count = _array_length(body)
        if count is None:
            return [body.strip(_WHITE_SPACE)]
        if count > limits.MAX_RECORDS_PER_APPEND:  # before they are cut out: that costs far more memory than the body
            raise PayloadTooLarge(f"too many records: limit={limits.MAX_RECORDS_PER_APPEND} received={count}")
        return _elements.decode(body)
    except (orjson.JSONDecodeError, msgspec.DecodeError, RecursionError) as exc:
        raise InvalidRequest("body is not valid JSON") from exc


def _array_length(body: bytes) -> int | None:
    """Returns how many elements a JSON array has; None for any other JSON value. Raises JSONDecodeError for a body that
    is not strict JSON.
    """
    if body.lstrip(_WHITE_SPACE).startswith(b"["):
        value = parsed(body)
        return len(value)
    orjson.loads(body)
    return None


def parsed(body: bytes) -> Any:
    """Returns a JSON text that is an array or object as a value to look into, at once, and not to keep. Raises
    JSONDecodeError for a body that is not strict JSON: UTF-8, no NaN, no number that a double can't hold, no lone
    surrogates, bounded depth.

    orjson decides. simdjson accepts no array or object that orjson refuses, but builds no objects, which takes a quarter
    of the time. What it refuses can still be valid, such as an integer above 64 bits.
    """
    with suppress(ValueError, RuntimeError):
        return simdjson.Parser().parse(body)  # a parser of its own: one serves one thread, and keeps its memory
    return orjson.loads(body)
