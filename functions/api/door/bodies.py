"""Request bodies, read within the limit and cut into records; and what a door that holds whole requests or answers takes.

A JSON body is one value, or an array of which each element becomes a record (one level). The text of an element is
kept byte for byte, so numbers and key order survive.

Every request to a Lambda function is an event: a JSON text of 6 MB at most. What the HTTP API takes back is one result,
whole. A larger answer would be lost on the way, and its reader with it. So pages of records are cut to fit
(`streams/pages.py`), and what cannot be cut is refused here. The streaming door passes an answer on as it comes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import orjson
from starlette.datastructures import Headers as AnswerHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from functions.api.door.incoming import headers_of
from headrace.batch import EMPTY, Batch
from headrace.errors import InvalidRequest, PayloadTooLarge
from headrace.limits import MAX_APPEND_BYTES, MAX_RECORDS_PER_APPEND
from headrace.log.requests import JSON

BODY_BYTES = 4_500_000  # of a request: as base64 it still fits an event
ANSWER_BYTES = 6_000_000  # of a body in the result; Lambda takes 6,291,556 with the headers
TEXT_TYPES = ("text/", "application/json")  # what they are part of goes as text if it is UTF-8; the rest as base64
ENDS_AT = "headrace.ends_at_ms"  # set by a door that streams: when, in ms since the epoch, an answer has to be over
_MOST_GROWTH = 6  # of text: a control character is \u0000


class AnswerTooLarge(Exception):
    """The answer does not fit through this door.

    Attributes:
        next_offset: of a page, the position after the record that is too large; else None.
    """

    def __init__(self, next_offset: str | None = None) -> None:
        what = "answer" if next_offset is None else "record"
        super().__init__(f"the {what} is too large for a buffered response: limit={ANSWER_BYTES}")
        self.next_offset = next_offset


def is_event(scope: Mapping[str, Any]) -> bool:
    """Returns whether the request came whole, as a Lambda event."""
    return "aws.event" in scope


def is_buffered(scope: Mapping[str, Any]) -> bool:
    """Returns whether the answer goes out whole, as a result."""
    return is_event(scope) and ENDS_AT not in scope


def fits(body: bytes, content_type: str, sent: int = 0) -> bool:
    """Returns whether a body goes into a result, after `sent` bytes of it."""
    return sent + len(body) * _MOST_GROWTH <= ANSWER_BYTES or sent + grown(body, content_type) <= ANSWER_BYTES


def grown(body: bytes, content_type: str) -> int:
    """Bytes of JSON text that a body becomes."""
    if any(text in content_type for text in TEXT_TYPES):
        try:
            return len(json.dumps(body.decode()))
        except UnicodeDecodeError:
            pass
    return 4 * ((len(body) + 2) // 3)


class BufferedAnswers:
    """Wraps the application: refuses any whole answer that does not fit. What is sent in parts minds its own size."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_buffered(scope):
            await self._app(scope, receive, send)
            return
        start: Message | None = None

        async def send_what_fits(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            if start is not None:
                content_type = AnswerHeaders(raw=list(start["headers"])).get("content-type", "")
                if not fits(message.get("body", b""), content_type):
                    raise AnswerTooLarge
                await send(start)
                start = None
            await send(message)

        await self._app(scope, receive, send_what_fits)


_WHITE_SPACE = b" \t\r\n"
_elements = msgspec.json.Decoder(list[msgspec.Raw])


async def read(request: Request, limit: int = MAX_APPEND_BYTES) -> bytes:
    """Returns the whole body.

    Raises:
        PayloadTooLarge: over `limit` or that of the door, as announced or as received.
    """
    if is_event(request.scope):
        limit = min(limit, BODY_BYTES)
    announced = headers_of(request.scope).content_length
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
