"""The stream name in a request's path.

Everything after `/v1/stream/` is the name, percent-decoded once; raw slashes belong to it, and `%2F` is one as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from headrace import names
from headrace.errors import InvalidRequest

STREAM_PREFIX = "/v1/stream/"
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_PRINTABLE = frozenset(range(0x21, 0x7F))


def raw_path(scope: Mapping[str, Any]) -> bytes:
    """The path as the client sent it, still encoded."""
    raw = scope.get("raw_path")
    if raw is None:
        return quote(str(scope["path"])).encode()
    assert isinstance(raw, bytes)
    return raw.split(b"?", 1)[0]


def stream_name(scope: Mapping[str, Any]) -> str:
    """The checked name of the stream that the request is about.

    Raises:
        InvalidRequest: not UTF-8 once decoded, or not a name.
    """
    raw = raw_path(scope)
    prefix = STREAM_PREFIX.encode()
    if not raw.startswith(prefix):
        # The router matched a path that is spelled another way (`/v1/%73tream/…`): one way is enough.
        raise InvalidRequest(f"the path does not begin with {STREAM_PREFIX}")
    return decode_name(raw[len(prefix) :])


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
