"""Finds the records that a delete is about, in parts of a bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from typing import TYPE_CHECKING

from headrace.log.requests import Head
from headrace.topics.decide import EraseRequest
from headrace.topics.retention import Measured
from headrace.topics.runs import Runs
from headrace.topics.values import Match, topic_of

if TYPE_CHECKING:
    from headrace.log.logs import Log

_PART = 1_000_000  # records of one commit: their sizes are in memory


def victims_of(
    log: Log, head: Head, match: Match | None, end: int, offsets: Iterable[int] | None = None
) -> Iterator[EraseRequest]:
    """Yields deletes of the records below offset `end` that match and, unless it is None, are among `offsets`; none if
    there are none.
    """
    if match is None and offsets is None:
        return _prefix(log, head, end)
    among = None if offsets is None else sorted(set(offsets))
    text, is_prefix = match or (None, False)
    return _in_parts(head, log.tagged(head, text, is_prefix, head.state.floor, end, among))


def _in_parts(head: Head, found: Iterator[tuple[int, int]]) -> Iterator[EraseRequest]:
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
    first = head.state.floor
    # One commit for all of them if few remain: then only these are measured.
    step = _PART if head.state.next_offset - end > _PART else max(end - first, 1)
    for at in range(first, end, step):
        victims = Runs.of([(at, min(at + step, end))])
        sizes = _Sizes(log)
        sizes.prepare(head, victims)
        yield EraseRequest(head, victims, sizes.of)


class _Sizes:
    """The sizes of consecutive records. They never change, so that a delete which is decided again, because others have
    written, measures only what came since; most is measured before the first decision.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._known: tuple[str, int] | None = None  # the log, and its incarnation
        self._first = 0
        self._sizes: list[int] = []

    def of(self, head: Head, measured: Measured) -> int:
        """Returns the bytes of the records that die, by those of the fewer: these, or those that live on."""
        if measured.left < measured.dying.count_all:
            return measured.size - self._total(head, measured.living())
        return self._total(head, measured.dying)

    def prepare(self, head: Head, victims: Runs) -> None:
        """Measures what a decision will ask for, if nothing else happens: records of the stretch where the victims end.
        Nothing of a queue, which does not count its jobs' bytes when they are deleted.
        """
        first, topic = head.state.floor, topic_of(head.state)
        if topic.config.type == "queue":
            return
        for end in (*(mark.end for mark in topic.marks), head.state.next_offset):
            if first <= victims.end < end:
                dying, living = (max(first, victims.first), victims.end), (victims.end, end)
                self._load(head, *min(dying, living, key=lambda one: one[1] - one[0]))
            first = end

    def _total(self, head: Head, records: Runs) -> int:
        if not records:
            return 0
        self._load(head, records.first, records.end)
        return sum(sum(self._sizes[low - self._first : high - self._first]) for low, high in records)

    def _load(self, head: Head, first: int, end: int) -> None:
        """Measures those of the records `[first, end)` that are not measured yet."""
        log, known_end = (head.log_id, head.incarnation), self._first + len(self._sizes)
        if self._known != log or first > known_end or end < self._first:
            self._known, self._first, self._sizes = log, first, []
            known_end = first
        if first < self._first:
            self._sizes[:0] = self._log.sizes(head, first, self._first)
            self._first = first
        if end > known_end:
            self._sizes += self._log.sizes(head, known_end, end)
