"""Parses HTTP/1.1 message heads as bytes: just enough to find where a message ends; nothing is rewritten. Does no
I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Headers = list[tuple[bytes, bytes]]
CHUNKED: Literal["chunked"] = "chunked"
UNTIL_CLOSE: Literal["until close"] = "until close"
# How long a body is: a number of bytes, or what tells its end.
Length = int | Literal["chunked", "until close"]

# These speak about one connection, not about the message (RFC 9110, section 7.6.1).
_HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"proxy-connection"})


class BadMessage(ValueError):
    """The message is malformed or not HTTP/1.x, or its headers disagree about where it ends."""


@dataclass(frozen=True)
class Head:
    """A message's start line, split at its spaces, and its headers, unchanged."""

    start: tuple[bytes, bytes, bytes]
    headers: Headers

    def get(self, name: bytes) -> bytes | None:
        """Returns the value of the first header with this lower-case name; None if there is none."""
        return next((value for key, value in self.headers if key.lower() == name), None)

    def wants_close(self) -> bool:
        """Returns whether the sender will close the connection after this message."""
        options = [option.strip() for option in (self.get(b"connection") or b"").lower().split(b",")]
        version = self.start[0] if self.start[0].startswith(b"HTTP/") else self.start[2]
        return b"close" in options or (version == b"HTTP/1.0" and b"keep-alive" not in options)

    def wants_upgrade(self) -> bool:
        """Returns whether the connection is to become one of another protocol."""
        return b"upgrade" in (self.get(b"connection") or b"").lower() and self.get(b"upgrade") is not None

    def forwarded(self, *, start: tuple[bytes, bytes, bytes] | None = None, close: bool = False) -> bytes:
        """Returns the head to send to the next hop: the headers unchanged and in order, without those that concern one
        connection, but for an upgrade; `start` replaces the start line, and `close` adds `Connection: close`.
        """
        lines = [b" ".join(part for part in start or self.start)]
        lines += [name + b": " + value for name, value in self.headers if name.lower() not in _HOP_BY_HOP]
        if close:
            lines.append(b"Connection: close")
        elif self.wants_upgrade():
            lines.append(b"Connection: Upgrade")
        return b"\r\n".join(lines) + b"\r\n\r\n"


def parse_head(data: bytes) -> Head:
    """Parses a head, up to and including the empty line. Raises BadMessage if a line is malformed."""
    start_line, *lines = data[:-4].split(b"\r\n")
    parts = start_line.split(b" ", 2)
    if len(parts) == 2:
        # A status line may end after the number.
        parts.append(b"")
    if len(parts) != 3:
        raise BadMessage(f"bad start line: {start_line[:80]!r}")
    headers: Headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip():
            raise BadMessage(f"bad header: {line[:80]!r}")
        headers.append((name, value.strip(b" \t")))
    return Head((parts[0], parts[1], parts[2]), headers)


def request_length(head: Head) -> Length:
    """Returns the length of a request's body in bytes, or CHUNKED; 0 if the headers state none. Raises BadMessage if
    proxies and servers could disagree.
    """
    if head.start[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise BadMessage(f"not HTTP/1.x: {head.start[2][:20]!r}")
    return _stated_length(head) or 0


def response_length(head: Head, method: bytes) -> Length:
    """Returns the length in bytes of the body of an answer to `method`, or CHUNKED; UNTIL_CLOSE if the headers state
    none. Raises BadMessage if the status line is malformed, or the headers give no clear length.
    """
    status = status_of(head)
    if method == b"HEAD" or status in (204, 304) or status < 200:
        return 0
    stated = _stated_length(head)
    return UNTIL_CLOSE if stated is None else stated


def status_of(head: Head) -> int:
    """Returns the status code in a status line. Raises BadMessage if it is malformed, or not of HTTP/1.x."""
    if not head.start[0].startswith(b"HTTP/1.") or not head.start[1].isdigit():
        raise BadMessage(f"bad status line: {head.start!r}")
    return int(head.start[1])


def _stated_length(head: Head) -> Length | None:
    lengths = {value for name, value in head.headers if name.lower() == b"content-length"}
    coding = head.get(b"transfer-encoding")
    if coding is not None:
        if lengths or coding.lower() != b"chunked":
            raise BadMessage("transfer-encoding with content-length, or not chunked")
        return CHUNKED
    if not lengths:
        return None
    if len(lengths) > 1:
        raise BadMessage("content-length twice")
    (length,) = lengths
    if not length.isdigit():
        raise BadMessage(f"bad content-length: {length[:20]!r}")
    return int(length)


def chunk_size(line: bytes) -> int:
    """Returns the size in a chunk's first line. Raises BadMessage if it is not a hexadecimal number."""
    try:
        return int(line.split(b";", 1)[0].strip(), 16)
    except ValueError as exc:
        raise BadMessage(f"bad chunk size: {line[:20]!r}") from exc
