"""What a request says, whatever surface it is for: its path, query, headers and body; what its door can carry; and where
the calls to stores run that it makes.

A JSON body is one value, or an array of which each element becomes a record (one level). The text of an element is
kept byte for byte, so numbers and key order survive.

Every request to a Lambda function is an event: a JSON text of 6 MB at most. What the HTTP API takes back is one result,
whole. A larger answer would be lost on the way, and its reader with it. So pages of records are cut to fit
(`streams/reads.py`), and what cannot be cut is refused here. The streaming door passes an answer on as it comes.

Every store call blocks. A Lambda function serves one request at a time, so there a call runs in place. A server of many
requests runs it in a thread; nothing holds a thread while it merely waits for time to pass.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar
from urllib.parse import parse_qsl, quote, unquote, unquote_to_bytes

import msgspec
import orjson
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.batch import EMPTY, Batch
from headrace.errors import InvalidRequest, PayloadTooLarge
from headrace.limits import MAX_APPEND_BYTES, MAX_RECORDS_PER_APPEND, MAX_SAFE_INTEGER
from headrace.log.requests import JSON

_FUNCTION_URL = ".lambda-url."
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_PRINTABLE = frozenset(range(0x21, 0x7F))


class TruePath:
    """Puts the path as the client sent it, `raw_path` and `path`, into the scope of an HTTP API (payload 2.0) or Function
    URL request: Mangum keeps a decoded one, decoded once too often.

    A Function URL passes the path still encoded. An HTTP API passes it decoded once already (and cut at a decoded `?`),
    so it is encoded again here: decoding it as it comes would turn the name `100%25` into `100%`, then into an error.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        event = scope["aws.event"]
        path = str(event["rawPath"])
        if _FUNCTION_URL not in event["requestContext"].get("domainName", ""):
            path = quote(path)
        await self._app({**scope, "raw_path": path.encode(), "path": unquote(path)}, receive, send)


def raw_path(scope: Mapping[str, Any]) -> bytes:
    """Returns the path as the client sent it, still encoded."""
    raw = scope.get("raw_path")
    if raw is None:
        return quote(str(scope["path"])).encode()
    assert isinstance(raw, bytes)
    return raw.split(b"?", 1)[0]


def decode(encoded: bytes, what: str) -> str:
    """Returns the text that a part of a path holds, percent-decoded once.

    Raises:
        InvalidRequest: a percent sign without two digits, or not UTF-8 once decoded. `what` names the part.
    """
    if _BROKEN_ESCAPE.search(encoded):
        raise InvalidRequest(f"{what} has a broken percent escape")
    try:
        return unquote_to_bytes(encoded).decode()
    except UnicodeDecodeError as exc:
        raise InvalidRequest(f"{what} is not UTF-8") from exc


def url(scope: Mapping[str, Any], host: str) -> str:
    """Returns the request's URL without its query, in ASCII."""
    path = quote(raw_path(scope), safe="/%:@!$&'()*+,;=-._~")
    clean = host if host and all(ord(char) in _PRINTABLE for char in host) else ""
    return f"{scope.get('scheme', 'http')}://{clean}{path}" if clean else path


_MAX_PARAMETERS = 100


def parameters(scope: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the parameters of the query string, in order.

    Raises:
        InvalidRequest: it is not percent-encoded UTF-8, or there are too many.
    """
    try:
        text = scope["query_string"].decode("ascii")
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS)
    except ValueError as exc:  # UnicodeDecodeError is one
        raise InvalidRequest("query string is malformed") from exc


def query_of(scope: Mapping[str, Any], known: frozenset[str]) -> dict[str, str]:
    """Returns the known parameters of a request.

    Raises:
        InvalidRequest: one of them comes twice, or the query string is malformed.
    """
    found: dict[str, str] = {}
    for name, value in parameters(scope):
        if name in found:
            raise InvalidRequest(f"parameter is repeated: name={name}")
        if name in known:
            found[name] = value
    return found


_TOKEN = r"[!#$%&'*+.^_`|~0-9a-z-]{1,127}"
_MEDIA_TYPE = re.compile(rf"{_TOKEN}/{_TOKEN}", re.ASCII)
_INTEGER = re.compile(r"(?:0|[1-9]\d{0,15})", re.ASCII)
_HEADERS = "headrace.headers"  # where the scope of a request keeps them


class Headers:
    """Headers of one request, by lower-case name; the first of equal names counts. The scope keeps what was parsed.

    Values are UTF-8 if their bytes are, else Latin-1, since clients send both.
    """

    def __init__(self, scope: MutableMapping[str, Any]) -> None:
        values: dict[bytes, bytes] | None = scope.get(_HEADERS)
        if values is None:
            values = scope[_HEADERS] = {bytes(name).lower(): value for name, value in reversed(scope["headers"])}
        self._values = values

    def get(self, name: str) -> str | None:
        """Returns the value without surrounding white space; None without the header."""
        raw = self._values.get(name.encode())
        if raw is None:
            return None
        try:
            return raw.decode().strip(" \t")
        except UnicodeDecodeError:
            return raw.decode("latin-1").strip(" \t")

    @property
    def content_type(self) -> str | None:
        """The base type in lower case, parameters dropped; None without one.

        Raises:
            InvalidRequest: not a media type.
        """
        value = self.get("content-type")
        if not value:
            return None
        base = value.split(";", 1)[0].strip(" \t").lower()
        if not _MEDIA_TYPE.fullmatch(base):
            raise InvalidRequest("Content-Type is not a media type")
        return base

    @property
    def content_length(self) -> int | None:
        """Announced bytes of the body."""
        value = self.get("content-length")
        return int(value) if value and value.isascii() and value.isdigit() and len(value) < 16 else None

    def matches(self, etag: str) -> bool:
        """Returns whether `If-None-Match` names this entity (weak comparison, RFC 9110 § 13.1.2)."""
        value = self.get("if-none-match")
        if value is None:
            return False
        opaque = etag.removeprefix("W/")
        return value == "*" or any(given.strip().removeprefix("W/") == opaque for given in value.split(","))

    def bounded(self, name: str, limit: int) -> str | None:
        """Returns a value. Raises InvalidRequest if it has more than `limit` bytes."""
        value = self.get(name)
        if value is not None and len(value.encode()) > limit:
            raise InvalidRequest(f"{name.title()} is too long: limit={limit} received={len(value.encode())}")
        return value

    def integer(self, name: str) -> int:
        """Returns a number from 0 to the largest that JSON keeps exactly. Raises InvalidRequest for any other text."""
        value = self.get(name) or ""
        if not _INTEGER.fullmatch(value) or int(value) > MAX_SAFE_INTEGER:
            raise InvalidRequest(f"{name.title()} is not an integer from 0 to {MAX_SAFE_INTEGER}")
        return int(value)


BODY_BYTES = 4_500_000  # of a request: as base64 it still fits an event
ANSWER_BYTES = 6_000_000  # of a body in the result; Lambda takes 6,291,556 with the headers
TEXT_TYPES = ("text/", "application/json")  # what they are part of goes as text if it is UTF-8; the rest as base64
ENDS_AT = "headrace.ends_at_ms"  # set by a door that streams: when, in ms since the epoch, an answer has to be over
_MOST_GROWTH = 6  # of text: a control character is \u0000


class AnswerTooLarge(Exception):
    """The answer does not fit through this door.

    Attributes:
        headers: tell a client how to go on without it.
    """

    def __init__(self, what: str = "answer", headers: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(f"the {what} is too large for a buffered response: limit={ANSWER_BYTES}")
        self.headers = headers


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


_WHITE_SPACE = b" \t\r\n"
_elements = msgspec.json.Decoder(list[msgspec.Raw])


async def read(request: Request, limit: int = MAX_APPEND_BYTES) -> bytes:
    """Returns the whole body.

    Raises:
        PayloadTooLarge: over `limit` or that of the door, as announced or as received.
    """
    if is_event(request.scope):
        limit = min(limit, BODY_BYTES)
    announced = Headers(request.scope).content_length
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


P = ParamSpec("P")
T = TypeVar("T")

# Appends wait in their thread for a group commit: fewer threads than concurrent writers would make groups small.
_THREADS = 128
_pool: ThreadPoolExecutor | None = None


def on_lambda() -> bool:
    """This process is a Lambda function."""
    return "AWS_LAMBDA_FUNCTION_NAME" in os.environ


def capacity() -> int:
    """Returns how many calls run at once."""
    return 1 if on_lambda() else _THREADS


async def run(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Makes the call and gives its result."""
    global _pool
    if on_lambda():
        return call(*args, **kwargs)
    if _pool is None:
        _pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="store")
    return await asyncio.get_running_loop().run_in_executor(_pool, lambda: call(*args, **kwargs))
