"""Request bodies: read within the limit, cut into records.

A JSON body is one value, or an array of which each element becomes a record (one level). The text of an element is
kept byte for byte, so numbers and key order survive.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import orjson
from starlette.requests import Request

from functions.api.door.buffered import BODY_BYTES, is_event
from functions.api.door.headers import Headers
from headrace.batch import EMPTY, Batch
from headrace.errors import InvalidRequest, PayloadTooLarge
from headrace.limits import MAX_APPEND_BYTES, MAX_RECORDS_PER_APPEND
from headrace.log.requests import JSON

_WHITE_SPACE = b" \t\r\n"
_elements = msgspec.json.Decoder(list[msgspec.Raw])


async def read(request: Request, headers: Headers, limit: int = MAX_APPEND_BYTES) -> bytes:
    """The whole body.

    Raises:
        PayloadTooLarge: over `limit` or that of the door, as announced or as received.
    """
    if is_event(request.scope):
        limit = min(limit, BODY_BYTES)
    announced = headers.content_length
    if announced is not None and announced > limit:
        raise PayloadTooLarge(f"body is too large: limit={limit} received={announced}")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise PayloadTooLarge(f"body is too large: limit={limit}")
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def records(body: bytes, content_type: str | None, key: str | None) -> Batch:
    """Returns the records in a body; none in an empty body or an empty array.

    Raises:
        InvalidRequest: not JSON where JSON was announced.
        PayloadTooLarge: too many records.
    """
    if not body:
        return EMPTY
    if content_type != JSON:
        return Batch.of((body,), key=key)
    return Batch.of(_split(body), key=key)


def _split(body: bytes) -> Sequence[bytes | msgspec.Raw]:
    try:
        value = orjson.loads(body)  # the strict one: UTF-8, no NaN, no lone surrogates, bounded depth
        if not isinstance(value, list):
            return [body.strip(_WHITE_SPACE)]
        count = len(value)
        if count > MAX_RECORDS_PER_APPEND:  # before they are cut out: that costs far more memory than the body
            raise PayloadTooLarge(f"too many records: limit={MAX_RECORDS_PER_APPEND} received={count}")
        del value
        return _elements.decode(body)
    except (orjson.JSONDecodeError, msgspec.DecodeError, RecursionError) as exc:
        raise InvalidRequest("body is not valid JSON") from exc
