"""Stream names: valid, or not accepted."""

from __future__ import annotations

from headrace.errors import InvalidRequest
from headrace.limits import MAX_NAME_BYTES

STREAMS = "streams"  # the surface of `/v1/stream/…`

# Sub-resources of a stream; a name may not end in one, since raw slashes are part of a name.
RESERVED_SEGMENTS = frozenset(
    {
        "_schema",
        "_profile",
        "_search",
        "_aggregate",
        "_routing_keys",
        "_index_status",
        "_details",
        "_otlp",
        "__ds",
    }
)


def check(name: str) -> str:
    """Returns `name` if it can name a stream.

    Raises:
        InvalidRequest: empty, too long, not encodable, with control characters, or ending in a reserved segment.
    """
    if not name:
        raise InvalidRequest("stream name is empty")
    try:
        raw = name.encode()
    except UnicodeEncodeError as exc:
        raise InvalidRequest("stream name is not valid unicode") from exc
    if len(raw) > MAX_NAME_BYTES:
        raise InvalidRequest(f"stream name is too long: limit={MAX_NAME_BYTES} received={len(raw)}")
    if any(ord(char) < 32 or ord(char) == 127 for char in name):
        raise InvalidRequest("stream name has a control character")
    segments = name.split("/")
    if segments[-1] in RESERVED_SEGMENTS or segments[0] == "__ds":
        raise InvalidRequest(f"stream name is reserved: name={name}")
    return name
