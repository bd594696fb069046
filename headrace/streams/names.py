"""Stream names: valid, or not accepted."""

from __future__ import annotations

from headrace.errors import InvalidRequest
from headrace.limits import MAX_NAME_BYTES

STREAMS = "streams"  # the surface of `/v1/stream/…`

SYSTEM_STREAM = "__stream_metrics__"  # written by the server, read by anyone who may
# Nobody else writes these. Those without a writer do not exist, and their names stay free for the server.
OWN_STREAMS = frozenset({SYSTEM_STREAM, "__registry__", "__stream_stats__"})

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


# … of two segments; `…/pk/{key}` reads one routing key.
RESERVED_PAIRS = frozenset({("touch", "meta"), ("touch", "wait"), ("templates", "activate")})


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
    below = tuple(segments[-2:])
    if segments[-1] in RESERVED_SEGMENTS or segments[0] == "__ds" or below in RESERVED_PAIRS or below[0] == "pk":
        raise InvalidRequest(f"stream name is reserved: name={name}")
    return name


def check_writable(name: str) -> None:
    """Passes if clients may make, write, change and delete a stream of this name.

    Raises:
        InvalidRequest: it is the server's own.
    """
    if name in OWN_STREAMS:
        raise InvalidRequest(f"stream name is reserved for the server: name={name}")
