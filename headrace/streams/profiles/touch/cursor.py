"""Touch cursors, which say how far a waiter has seen: `<epoch>:<generation>`, the incarnation in 16 hexadecimal digits
and a log offset.

A cursor is valid as long as the log lives, in every process. It becomes stale when the stream is deleted and created
again, or lets go of records after it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from headrace.errors import InvalidRequest

NOW = "now"
_CURSOR = re.compile(r"([0-9a-f]{16}):([0-9]{1,20})", re.ASCII | re.IGNORECASE)


class TouchCursor(NamedTuple):
    """A position in the log of one incarnation: records before `generation` have been seen."""

    incarnation: int
    generation: int

    @property
    def epoch(self) -> str:
        """The incarnation as 16 hexadecimal digits."""
        return f"{self.incarnation:016x}"

    def __str__(self) -> str:
        return f"{self.epoch}:{self.generation}"


def parse_cursor(text: str) -> TouchCursor | None:
    """Parses a cursor; returns None for the text `now`.

    Raises:
        InvalidRequest: the text is neither.
    """
    trimmed = text.strip()
    if trimmed == NOW:
        return None
    match = _CURSOR.fullmatch(trimmed)
    if match is None:
        raise InvalidRequest("wait.cursor must be in the form <epochHex>:<generation> or 'now'")
    return TouchCursor(int(match[1], 16), int(match[2]))
