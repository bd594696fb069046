"""Marks: stretches of a log of which a surface that lets old records go knows the age and the size. Pure.

A state has at most `MAX_MARKS` of them, so an append decides without a read what has become too old or too much.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

MAX_MARKS = 16


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of a log that ends before offset `end`: the append time of its last record, and how many of its records
    live, with how many bytes. It begins where the mark before it ends.
    """

    end: int
    last_ms: int
    live: int
    bytes: int


def joined(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """Returns at most `MAX_MARKS` marks: too many, and the two neighbours that have the fewest records become one."""
    found = tuple(marks)
    while len(found) > MAX_MARKS:
        at = min(range(len(found) - 1), key=lambda one: found[one].live + found[one + 1].live)
        one, other = found[at : at + 2]
        both = Mark(other.end, other.last_ms, one.live + other.live, one.bytes + other.bytes)
        found = (*found[:at], both, *found[at + 2 :])
    return found


def count_expired(marks: Sequence[Mark], cutoff_ms: int) -> int:
    """Returns how many of the first marks have only records that were appended before `cutoff_ms`."""
    return next((number for number, mark in enumerate(marks) if mark.last_ms >= cutoff_ms), len(marks))


def count_beyond(marks: Sequence[Mark], size: int) -> int:
    """Returns how many of the first marks can go while the others still have `size` bytes. The last one stays."""
    left = sum(mark.bytes for mark in marks)
    for number, mark in enumerate(marks[:-1]):
        left -= mark.bytes
        if left < size:
            return number
    return max(0, len(marks) - 1)


def below(marks: Sequence[Mark], end: int) -> tuple[Mark, ...]:
    """Returns the marks of the records below offset `end`; the one that it cuts ends there, with its bytes prorated."""
    found: list[Mark] = []
    for mark in marks:
        over = mark.end - end
        if over <= 0:
            found.append(mark)
            continue
        live = max(0, mark.live - over)
        if live:
            found.append(Mark(end, mark.last_ms, live, mark.bytes * live // mark.live))
        break
    return tuple(found)
