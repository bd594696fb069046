"""How much of a stream an answer saw: the freshness members of `coverage`, alike in searches and aggregates.

Everything is measured against the stream's head when the request began. `complete` is said only when nothing at all was
left out; else the members that begin with `possible_missing_` bound what an answer may lack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headrace import instants

Cursor = Callable[[int], str]


class Omission(NamedTuple):
    """Records `[first, end)` that a request did not look at.

    Attributes:
        time_ms: a time at or before they were appended.
        is_published: they are in segments; else in the write-ahead log.
        segments: that hold them.
    """

    first: int
    end: int
    time_ms: int
    is_published: bool
    segments: int = 0


class Coverage(NamedTuple):
    """What was left out, and how far the answer is whole.

    Attributes:
        head: offset after the last record when the request began.
        omissions: ascending.
        newest_timestamp: greatest primary timestamp, milliseconds, that the request met; None without one.
    """

    head: int
    omissions: tuple[Omission, ...] = ()
    newest_timestamp: int | None = None

    @property
    def complete(self) -> bool:
        """Nothing was left out."""
        return not self.omissions

    @property
    def visible_through(self) -> int:
        """Everything below this offset was looked at."""
        return self.omissions[0].first if self.omissions else self.head

    def members(self, cursor: Cursor) -> dict[str, Any]:
        """Returns the members as JSON; `cursor` prints an offset."""
        omitted = self.omissions
        return {
            "mode": "complete" if self.complete else "published",
            "complete": self.complete,
            "stream_head_offset": cursor(self.head),
            "visible_through_offset": cursor(self.visible_through),
            "visible_through_primary_timestamp_max": (
                None if self.newest_timestamp is None else instants.render(self.newest_timestamp)
            ),
            "oldest_omitted_append_at": instants.render(min(one.time_ms for one in omitted)) if omitted else None,
            "possible_missing_events_upper_bound": sum(one.end - one.first for one in omitted),
            "possible_missing_uploaded_segments": sum(one.segments for one in omitted),
            "possible_missing_sealed_rows": _rows(omitted, is_published=True),
            "possible_missing_wal_rows": _rows(omitted, is_published=False),
        }


def _rows(omissions: Sequence[Omission], *, is_published: bool) -> int:
    return sum(one.end - one.first for one in omissions if one.is_published == is_published)
