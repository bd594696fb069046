"""Parses the parts of a request for every surface (path, query, headers and body), counts the requests in progress, and
runs calls to stores.

A JSON body is one value, or an array of which each element becomes a record (one level). The text of an element is
kept byte for byte, so numbers and key order survive.

Every store call blocks. A Lambda function serves one request at a time, so it makes calls directly. A server with many
requests makes them in threads; no thread is held while a request only waits for time to pass.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, ParamSpec, TypeVar
from urllib.parse import parse_qsl, quote, unquote_to_bytes

import msgspec
import orjson
import simdjson
from starlette.requests import Request
from starlette.types import Message, Receive

from functions.access import Access
from headrace import limits
from headrace.batch import EMPTY, Batch
from headrace.errors import InvalidRequest, PayloadTooLarge, RequestTimeout
from headrace.log.requests import JSON

_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def raw_path(scope: Mapping[str, Any]) -> bytes:
    """Returns the path of a request as the client sent it, still percent-encoded and without the query string. If the
    server gives only the decoded path, that is encoded again.
    """
    raw = scope.get("raw_path")
    if raw is None:
        return quote(str(scope["path"])).encode()
    assert isinstance(raw, bytes)
    return raw.split(b"?", 1)[0]


def decode(encoded: bytes, what: str) -> str:
    """Percent-decodes a part of a path once, and returns it as text.

    Raises:
        InvalidRequest: there is a percent sign without two digits, or the result is not UTF-8. The message names the
            part by `what`.
    """
    if _BROKEN_ESCAPE.search(encoded):
        raise InvalidRequest(f"{what} has a broken percent escape")
    try:
        return unquote_to_bytes(encoded).decode()
    except UnicodeDecodeError as exc:
        raise InvalidRequest(f"{what} is not UTF-8") from exc


_MAX_PARAMETERS = 100


def parameters(scope: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Parses the query string, and returns its parameters in order.

    Raises:
        InvalidRequest: the query string is not percent-encoded UTF-8, or has too many parameters.
    """
    try:
        text = scope["query_string"].decode("ascii")
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS)
    except ValueError as exc:  # UnicodeDecodeError is one
        raise InvalidRequest("query string is malformed") from exc


def query_of(scope: Mapping[str, Any], known: frozenset[str]) -> dict[str, str]:
    """Parses the query string, and returns those parameters that are `known`.

    Raises:
        InvalidRequest: a known parameter is repeated, or the query string is malformed.
    """
    found: dict[str, str] = {}
    for name, value in parameters(scope):
        if name in found:
            raise InvalidRequest(f"parameter is repeated: name={name}")
        if name in known:
            found[name] = value
    return found


def take_parameter(scope: MutableMapping[str, Any], name: str) -> str | None:
    """Removes a parameter from the query string, so that no log shows it, and returns its first value; None if there is
    none.
    """
    fields = scope["query_string"].split(b"&")
    own = [
        field for field in fields if unquote_to_bytes(field.partition(b"=")[0].replace(b"+", b" ")) == name.encode()
    ]
    if not own:
        return None
    scope["query_string"] = b"&".join(field for field in fields if field not in own)
    return unquote_to_bytes(own[0].partition(b"=")[2].replace(b"+", b" ")).decode(errors="replace")


_TOKEN = r"[!#$%&'*+.^_`|~0-9a-z-]{1,127}"
_MEDIA_TYPE = re.compile(rf"{_TOKEN}/{_TOKEN}", re.ASCII)
_INTEGER = re.compile(r"(?:0|[1-9]\d{0,15})", re.ASCII)
_HEADERS = "headrace.headers"  # where the scope of a request keeps them


class Headers:
    """The headers of one request, by lower-case name; the first of equal names counts. They are parsed once and kept in
    the scope.

    Values are decoded as UTF-8 if possible, else as Latin-1, since clients send both.
    """

    def __init__(self, scope: MutableMapping[str, Any]) -> None:
        values: dict[bytes, bytes] | None = scope.get(_HEADERS)
        if values is None:
            values = scope[_HEADERS] = {bytes(name).lower(): value for name, value in reversed(scope["headers"])}
        self._values = values

    def get(self, name: str) -> str | None:
        """Returns a header's value without surrounding white space; None if the header is missing."""
        raw = self._values.get(name.encode())
        if raw is None:
            return None
        try:
            return raw.decode().strip(" \t")
        except UnicodeDecodeError:
            return raw.decode("latin-1").strip(" \t")

    @property
    def content_type(self) -> str | None:
        """The content type in lower case, without parameters; None if the header is missing or empty.

        Raises:
            InvalidRequest: the value is not a media type.
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
        """The size of the body in bytes, as announced; None if the header is missing or is not a number of at most 15
        digits.
        """
        value = self.get("content-length")
        return int(value) if value and value.isascii() and value.isdigit() and len(value) < 16 else None

    def matches(self, etag: str) -> bool:
        """Returns whether `If-None-Match` names this entity tag, or is `*` (weak comparison, RFC 9110 § 13.1.2); False
        if the header is missing.
        """
        value = self.get("if-none-match")
        if value is None:
            return False
        opaque = etag.removeprefix("W/")
        return value == "*" or any(given.strip().removeprefix("W/") == opaque for given in value.split(","))

    def bounded(self, name: str, limit: int) -> str | None:
        """Returns a header's value; None if it is missing. Raises InvalidRequest if it has more than `limit` bytes, or a
        control character.
        """
        value = self.get(name)
        if value is None:
            return None
        if len(value.encode()) > limit:
            raise InvalidRequest(f"{name.title()} is too long: limit={limit} received={len(value.encode())}")
        if limits.CONTROL_CHARACTER.search(value):
            raise InvalidRequest(f"{name.title()} has a control character")
        return value

    def integer(self, name: str) -> int:
        """Returns a header's value as an integer from 0 to the largest that JSON keeps exactly. Raises InvalidRequest
        if the header is missing or has any other text.
        """
        value = self.get(name) or ""
        if not _INTEGER.fullmatch(value) or int(value) > limits.MAX_SAFE_INTEGER:
            raise InvalidRequest(f"{name.title()} is not an integer from 0 to {limits.MAX_SAFE_INTEGER}")
        return int(value)


BODY_BYTES = 4_500_000  # maximum body of a request: as base64 it still fits an event
ENDS_AT = "headrace.ends_at_ms"  # set by a door that streams: when, in ms since the epoch, an answer has to be over


def is_event(scope: Mapping[str, Any]) -> bool:
    """Returns whether the request arrived as a Lambda event, with its whole body."""
    return "aws.event" in scope


def is_buffered(scope: Mapping[str, Any]) -> bool:
    """Returns whether the answer must be one whole result, because the request came through a Lambda door that does not
    stream.
    """
    return is_event(scope) and ENDS_AT not in scope


class Load(NamedTuple):
    """The requests in progress: number of writes, bytes of their bodies that have arrived, and number of reads. A write
    whose body is still to come holds no more than these bytes, and is not counted otherwise.
    """

    writes: int
    write_bytes: int
    reads: int

    @property
    def full(self) -> bool:
        """Whether there are more writes, or more bytes of them, than a process accepts."""
        return self.writes > limits.QUEUE_REQUESTS or self.write_bytes > limits.QUEUE_BYTES


class Traffic:
    """A counter of the requests in progress. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._load = Load(0, 0, 0)

    def load(self) -> Load:
        """Returns the requests that are in progress now."""
        with self._lock:
            return self._load

    @contextmanager
    def request(self, receive: Receive, *, writes: bool) -> Iterator[Receive]:
        """Counts one request as in progress while the block runs. Yields the `receive` to use instead: that of a write
        counts what arrives.
        """
        size = 0

        async def receive_counted() -> Message:
            nonlocal size
            self._add(-1, 0, 0)
            more = 0
            try:
                message = await receive()
                more = len(message.get("body", b""))
            finally:
                self._add(1, more, 0)
                size += more
            return message

        self._add(int(writes), 0, int(not writes))
        try:
            yield receive_counted if writes else receive
        finally:
            self._add(-int(writes), -size, -int(not writes))

    def _add(self, writes: int, write_bytes: int, reads: int) -> None:
        with self._lock:
            now = self._load
            self._load = Load(now.writes + writes, now.write_bytes + write_bytes, now.reads + reads)


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
    if body.lstrip(_WHITE_SPACE).startswith((b"[", b"{")):
        value = parsed(body)
        return len(value) if isinstance(value, list | simdjson.Array) else None
    orjson.loads(body)
    return None


def parsed(body: bytes) -> Any:
    """Returns a JSON text that is an array or object as a value to look into, at once, and not to keep. Raises
    JSONDecodeError for a body that is not strict JSON: UTF-8, no NaN, no number that a double can't hold, no lone
    surrogates, bounded depth.

    orjson decides. simdjson accepts no array or object that orjson refuses, but builds no objects, which takes a quarter
    of the time. What it refuses can still be valid: an integer above 64 bits. Of a large body orjson would build objects
    for seconds, holding up all other requests, also if only its end is wrong. There simdjson decides, and such integers,
    of up to 308 digits, are made fractions for it; so it counts what is there, but its numbers are others.
    """
    try:
        return simdjson.Parser().parse(body)  # a parser of its own: one serves one thread, and keeps its memory
    except (ValueError, RuntimeError):
        if len(body) <= _SMALL_BYTES:
            return orjson.loads(body)
    try:
        return simdjson.Parser().parse(_LONG_INTEGER.sub(lambda found: found[0][:-2] + b".0", body))
    except (ValueError, RuntimeError) as exc:
        raise orjson.JSONDecodeError(f"JSON is malformed: {exc}", "", 0) from exc


_SMALL_BYTES = 256 * 1024
_LONG_INTEGER = re.compile(rb"[1-9](?<![\d.eE+].)(?<![eE]-.)\d{18,307}+(?![\d.eE])")


P = ParamSpec("P")
T = TypeVar("T")

# Appends wait in their thread for a group commit: fewer threads than concurrent writers would make groups small.
_THREADS = 128
_pool: ThreadPoolExecutor | None = None
_is_direct = False


def call_directly() -> None:
    """Makes `run` call directly, as on Lambda: for a server whose stores are in memory, where no call waits."""
    global _is_direct
    _is_direct = True


def on_lambda() -> bool:
    """Returns whether this process is a Lambda function."""
    return "AWS_LAMBDA_FUNCTION_NAME" in os.environ


def capacity() -> int:
    """Returns how many blocking calls can run at once."""
    return 1 if on_lambda() else _THREADS


async def refresh(access: Access) -> None:
    """Reads the keys again if it is time."""
    if access.is_stale:
        await run(access.refresh)


async def run(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a blocking function and returns its result: on Lambda directly, on a server in a pool of threads. See also
    `call_directly`.
    """
    global _pool
    if _is_direct or on_lambda():
        return call(*args, **kwargs)
    if _pool is None:
        _pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="store")
    return await asyncio.get_running_loop().run_in_executor(_pool, lambda: call(*args, **kwargs))
