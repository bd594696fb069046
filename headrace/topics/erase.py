"""Finds the records that a delete is about, in parts of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, islice
from typing import TYPE_CHECKING

from headrace.log.requests import Head
from headrace.topics.decide import EraseRequest
from headrace.topics.retention import Measured
from headrace.topics.runs import Runs
from headrace.topics.values import Match

if TYPE_CHECKING:
    from headrace.log.logs import Log

_PART = 1_000_000  # records of one commit: their sizes are in memory


def victims_of(log: Log, head: Head, match: Match | None, end: int) -> Iterator[EraseRequest]:
    """Yields deletes of the records below offset `end` that match; none if there are none."""
    return _prefix(log, head, end) if match is None else _matching(log, head, match, end)


def _matching(log: Log, head: Head, match: Match, end: int) -> Iterator[EraseRequest]:
    found = log.tagged(head, match.text, match.is_prefix, head.state.floor, end)
    while part := dict(islice(found, _PART)):
        yield _with_sizes(head, part)


def _with_sizes(head: Head, sizes: dict[int, int]) -> EraseRequest:
    victims = Runs.of_offsets(sizes)
    # Bytes of the victims before each of them, in the order of their offsets.
    before = list(accumulate((sizes[offset] for first, end in victims for offset in range(first, end)), initial=0))

    def between(first: int, end: int) -> int:
        return before[victims.count_below(end)] - before[victims.count_below(first)]

    def size_of(_: Head, measured: Measured) -> int:
        dying = measured.dying
        if dying == victims.within(dying.first, dying.end):
            return between(dying.first, dying.end)
        return sum(between(first, end) for first, end in dying)

    return EraseRequest(head, victims, size_of)


def _prefix(log: Log, head: Head, end: int) -> Iterator[EraseRequest]:
    def size_of(now: Head, measured: Measured) -> int:
        if measured.left < measured.dying.count_all:
            return measured.size - _sizes(log, now, measured.living())
        return _sizes(log, now, measured.dying)

    first = head.state.floor
    # One commit for all of them if few remain: then only these are measured.
    step = _PART if head.state.next_offset - end > _PART else max(end - first, 1)
    for at in range(first, end, step):
        yield EraseRequest(head, Runs.of([(first, min(at + step, end))]), size_of)


def _sizes(log: Log, head: Head, records: Runs) -> int:
    if not records:
        return 0
    sizes, first = log.sizes(head, records.first, records.end), records.first
    return sum(sum(sizes[low - first : high - first]) for low, high in records)
