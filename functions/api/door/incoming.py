"""What a request says: the stream name in its path, and its headers, parsed once into typed values.

Everything after `/v1/stream/` is the name, percent-decoded once; raw slashes belong to it, and `%2F` is one as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from functions.api.door import times
from headrace import offset as offsets
from headrace.batch import MAX_KEY_BYTES
from headrace.errors import InvalidRequest
from headrace.limits import MAX_PRODUCER_ID_BYTES, MAX_SAFE_INTEGER, MAX_SEQ_BYTES
from headrace.streams import names
from headrace.streams.requests import ForkRequest
from headrace.wal.state import Producer

STREAM_PREFIX = "/v1/stream/"
_ASKING = ("/_search", "/_aggregate")  # resources whose POST only asks, in a body
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_PRINTABLE = frozenset(range(0x21, 0x7F))


def only_asks(scope: Mapping[str, Any]) -> bool:
    """Returns whether the request is a POST that writes nothing, whatever comes of it."""
    return bool(scope["method"] == "POST" and scope["path"].endswith(_ASKING))


def raw_path(scope: Mapping[str, Any]) -> bytes:
    """Returns the path as the client sent it, still encoded."""
    raw = scope.get("raw_path")
    if raw is None:
        return quote(str(scope["path"])).encode()
    assert isinstance(raw, bytes)
    return raw.split(b"?", 1)[0]


def stream_name(scope: Mapping[str, Any], resource: str = "") -> str:
    """Returns the checked name of the stream that the request is about.

    Args:
        resource: what follows the name, such as `/_schema`.

    Raises:
        InvalidRequest: not UTF-8 once decoded, or not a name.
    """
    encoded = _after_prefix(scope)
    suffix = resource.encode()
    if not encoded.endswith(suffix):
        raise InvalidRequest(f"the path does not end with {resource}")
    return decode_name(encoded[: len(encoded) - len(suffix)])


def name_and_key(scope: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the stream and the routing key of `…/{name}/pk/{key}`; an escaped slash belongs to the key.

    Raises:
        InvalidRequest: one of them is empty, not UTF-8 once decoded, or not a name.
    """
    name, found, key = _after_prefix(scope).rpartition(b"/pk/")
    if not found or not key or b"/" in key:
        raise InvalidRequest("the path does not end with /pk/ and one key")
    if _BROKEN_ESCAPE.search(key):
        raise InvalidRequest("routing key has a broken percent escape")
    try:
        return decode_name(name), unquote_to_bytes(key).decode()
    except UnicodeDecodeError as exc:
        raise InvalidRequest("routing key is not UTF-8") from exc


def _after_prefix(scope: Mapping[str, Any]) -> bytes:
    raw = raw_path(scope)
    prefix = STREAM_PREFIX.encode()
    if not raw.startswith(prefix):
        # The router matched a path that is spelled another way (`/v1/%73tream/…`): one way is enough.
        raise InvalidRequest(f"the path does not begin with {STREAM_PREFIX}")
    return raw[len(prefix) :]


def decode_name(encoded: bytes) -> str:
    """Returns the name that a percent-encoded text holds.

    Raises:
        InvalidRequest: a percent sign without two digits, not UTF-8 once decoded, or not a name.
    """
    if _BROKEN_ESCAPE.search(encoded):
        raise InvalidRequest("stream name has a broken percent escape")
    try:
        return names.check(unquote_to_bytes(encoded).decode())
    except UnicodeDecodeError as exc:
        raise InvalidRequest("stream name is not UTF-8") from exc


def source_name(header: str) -> str:
    """Returns the name in `Stream-Forked-From`: the path of the source's URL, or the bare name.

    Raises:
        InvalidRequest: another server's URL, another path, or not a name.
    """
    if "://" in header or header.startswith("//"):
        raise InvalidRequest("Stream-Forked-From must be the path of a stream on this server")
    if header.startswith(STREAM_PREFIX):
        header = header[len(STREAM_PREFIX) :]
    elif header.startswith("/"):
        raise InvalidRequest(f"Stream-Forked-From does not begin with {STREAM_PREFIX}")
    return decode_name(header.encode())


def url(scope: Mapping[str, Any], host: str) -> str:
    """Returns the request's URL without its query, in ASCII."""
    path = quote(raw_path(scope), safe="/%:@!$&'()*+,;=-._~")
    clean = host if host and all(ord(char) in _PRINTABLE for char in host) else ""
    return f"{scope.get('scheme', 'http')}://{clean}{path}" if clean else path


_TOKEN = r"[!#$%&'*+.^_`|~0-9a-z-]{1,127}"
_MEDIA_TYPE = re.compile(rf"{_TOKEN}/{_TOKEN}", re.ASCII)
_INTEGER = re.compile(r"(?:0|[1-9]\d{0,15})", re.ASCII)
_PRODUCER = ("producer-id", "producer-epoch", "producer-seq")


class Headers:
    """Headers of one request, by lower-case name; the first of equal names counts.

    Values are UTF-8 if their bytes are, else Latin-1, since clients send both.
    """

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self._values: dict[bytes, bytes] = {bytes(name).lower(): value for name, value in reversed(scope["headers"])}

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

    @property
    def closes(self) -> bool:
        """`Stream-Closed: true`; any other value counts as absent (protocol § 4.1)."""
        return (self.get("stream-closed") or "").lower() == "true"

    @property
    def key(self) -> str | None:
        """`Stream-Key`; an empty one is none.

        Raises:
            InvalidRequest: longer than a record's key may be.
        """
        return self._bounded("stream-key", MAX_KEY_BYTES) or None

    @property
    def seq(self) -> str | None:
        """`Stream-Seq`.

        Raises:
            InvalidRequest: empty or too long.
        """
        value = self._bounded("stream-seq", MAX_SEQ_BYTES)
        if value == "":
            raise InvalidRequest("Stream-Seq is empty")
        return value

    @property
    def time_hint_ms(self) -> int | None:
        """`Stream-Timestamp`.

        Raises:
            InvalidRequest: neither RFC 3339 nor unix nanoseconds.
        """
        value = self.get("stream-timestamp")
        return None if value is None else times.timestamp_ms(value, "Stream-Timestamp")

    @property
    def producer(self) -> Producer | None:
        """The three `Producer-*` headers; None without any.

        Raises:
            InvalidRequest: some but not all, an empty id, or numbers that are not canonical or too large.
        """
        given = [name for name in _PRODUCER if self.get(name) is not None]
        if not given:
            return None
        if len(given) < len(_PRODUCER):
            raise InvalidRequest("Producer-Id, Producer-Epoch and Producer-Seq must come together")
        producer_id = self._bounded("producer-id", MAX_PRODUCER_ID_BYTES)
        if not producer_id:
            raise InvalidRequest("Producer-Id is empty")
        return Producer(producer_id, self._integer("producer-epoch"), self._integer("producer-seq"))

    def expiry(self) -> tuple[int | None, int | None]:
        """`Stream-TTL` in ms and `Stream-Expires-At` in ms since the epoch; at most one is given.

        Raises:
            InvalidRequest: both, or one that is malformed.
        """
        ttl, at = self.get("stream-ttl"), self.get("stream-expires-at")
        if ttl is not None and at is not None:
            raise InvalidRequest("Stream-TTL and Stream-Expires-At exclude each other")
        if ttl is not None:
            return times.ttl_ms(ttl, "Stream-TTL"), None
        if at is not None:
            return None, max(0, times.rfc3339_ms(at, "Stream-Expires-At"))
        return None, None

    def fork(self) -> ForkRequest | None:
        """Returns the fork that a create asks for; None for an ordinary one.

        Raises:
            InvalidRequest: a fork point without a source, a sub-offset without an offset, or malformed values.
        """
        source, at = self.get("stream-forked-from"), self.get("stream-fork-offset")
        sub_offset = self.get("stream-fork-sub-offset")
        if source is None:
            if at is not None or sub_offset is not None:
                raise InvalidRequest("Stream-Fork-Offset and Stream-Fork-Sub-Offset need Stream-Forked-From")
            return None
        past = 0 if sub_offset is None else self._integer("stream-fork-sub-offset")
        if past and at is None:
            raise InvalidRequest("Stream-Fork-Sub-Offset needs Stream-Fork-Offset")
        cursor = None if at is None else offsets.decode(at)
        return ForkRequest(source=source_name(source), at=cursor, sub_offset=past)

    def matches(self, etag: str) -> bool:
        """Returns whether `If-None-Match` names this entity (weak comparison, RFC 9110 § 13.1.2)."""
        value = self.get("if-none-match")
        if value is None:
            return False
        opaque = etag.removeprefix("W/")
        return value == "*" or any(given.strip().removeprefix("W/") == opaque for given in value.split(","))

    def _bounded(self, name: str, limit: int) -> str | None:
        value = self.get(name)
        if value is not None and len(value.encode()) > limit:
            raise InvalidRequest(f"{name.title()} is too long: limit={limit} received={len(value.encode())}")
        return value

    def _integer(self, name: str) -> int:
        value = self.get(name) or ""
        if not _INTEGER.fullmatch(value) or int(value) > MAX_SAFE_INTEGER:
            raise InvalidRequest(f"{name.title()} is not an integer from 0 to {MAX_SAFE_INTEGER}")
        return int(value)


_HEADERS = "headrace.headers"  # where the scope of a request keeps them


def headers_of(scope: MutableMapping[str, Any]) -> Headers:
    """Returns the headers of a request, parsed at the first call."""
    headers: Headers | None = scope.get(_HEADERS)
    if headers is None:
        headers = scope[_HEADERS] = Headers(scope)
    return headers
