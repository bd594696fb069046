"""The stream name in a request's path.

Everything after `/v1/stream/` is the name, percent-decoded once; raw slashes belong to it, and `%2F` is one as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from headrace.errors import InvalidRequest
from headrace.streams import names

STREAM_PREFIX = "/v1/stream/"
_ASKING = ("/_search", "/_aggregate")  # resources whose POST only asks, in a body
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_PRINTABLE = frozenset(range(0x21, 0x7F))


def only_asks(scope: Mapping[str, Any]) -> bool:
    """The request is a POST that writes nothing, whatever comes of it."""
    return bool(scope["method"] == "POST" and scope["path"].endswith(_ASKING))


def raw_path(scope: Mapping[str, Any]) -> bytes:
    """The path as the client sent it, still encoded."""
    raw = scope.get("raw_path")
    if raw is None:
        return quote(str(scope["path"])).encode()
    assert isinstance(raw, bytes)
    return raw.split(b"?", 1)[0]


def stream_name(scope: Mapping[str, Any], resource: str = "") -> str:
    """The checked name of the stream that the request is about.

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
    """The stream and the routing key of `…/{name}/pk/{key}`; an escaped slash belongs to the key.

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
    """A name from its percent-encoded form.

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
    """The name in `Stream-Forked-From`: the path of the source's URL, or the bare name.

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
    """The request's URL without its query, in ASCII."""
    path = quote(raw_path(scope), safe="/%:@!$&'()*+,;=-._~")
    clean = host if host and all(ord(char) in _PRINTABLE for char in host) else ""
    return f"{scope.get('scheme', 'http')}://{clean}{path}" if clean else path
