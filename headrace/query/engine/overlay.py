"""What a request looks at beside the index runs: the tail, and the newest segments that no run covers. Pure.

A request can't scan everything that is not indexed: it takes the newest segments within a budget, and says what it
left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.query.engine.sources import Range, SegmentRange, Snapshot
from headrace.query.language.coverage import Omission


class Budget(NamedTuple):
    """How much of what is not indexed one request scans."""

    segments: int = 32  # small ones: each costs a GET
    payload_bytes: int = 64 * 1024 * 1024  # as measured: 16 MiB take 20 to 50 ms


class Overlay(NamedTuple):
    """What is scanned, and what is left out.

    Attributes:
        segments: to be scanned, the newest first.
        omissions: what is neither scanned nor covered by a run, ascending.
        runs: ranges covered by runs, ascending.
    """

    segments: tuple[SegmentRange, ...]
    omissions: tuple[Omission, ...]


def plan_overlay(snapshot: Snapshot, unindexed: Sequence[SegmentRange], budget: Budget) -> Overlay:
    """Chooses segments.

    Args:
        snapshot: the stream.
        unindexed: its segments that no run in use covers, ascending.
        budget: the newest segment is always taken, if it is within the bytes alone.
    """
    taken: list[SegmentRange] = []
    room = budget.payload_bytes
    for found in reversed(unindexed):
        share = found.segment.payload_bytes * (found.end - found.first) // found.segment.count
        if len(taken) >= budget.segments or share > room:
            break
        room -= share
        taken.append(found)
    left = unindexed[: len(unindexed) - len(taken)]
    omissions = [Omission(one.first, one.end, one.segment.min_time_ms, is_published=True, segments=1) for one in left]
    omissions += [
        Omission(part.unread.first, part.unread.end, part.unread_time_ms, is_published=False)
        for part in snapshot.parts
        if part.unread.size
    ]
    return Overlay(tuple(taken), tuple(sorted(omissions, key=lambda one: one.first)))


def visible(snapshot: Snapshot, overlay: Overlay) -> Range:
    """The records up to the first omission."""
    first = overlay.omissions[0].first if overlay.omissions else snapshot.end
    return Range(0, first)
