"""Where the live records of a topic begin, and how many there are: caps, TTLs and deletes. Everything here is pure.

A record dies by a delete, which is silent, or by a cap or the TTL, which readers must learn. `LogState.floor` is the
offset of the first live record, or the end of the log. `TopicState.evict_floor` is the offset after the last record that a
cap or the TTL took. A record above the floor that was deleted is in the set `removed`. None of this ever goes back.

The number of live records is exact. Bytes are exact until a cap or the TTL cuts into a mark: then its records count as
equally large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal, NamedTuple

from msgspec.structs import replace

from headrace.log.marks import Mark, count_expired, joined
from headrace.topics.removed import Offsets
from headrace.topics.runs import NONE, Runs
from headrace.topics.values import TopicConfig, TopicState, topic_of
from headrace.wal.state import LogState

MAX_VOIDS = 16
INLINE_BYTES = 512  # of removed runs in a state; more of them become an object

Loss = Literal["cap", "ttl", "source_trim"]


def is_marked(config: TopicConfig) -> bool:
    """Returns whether a topic has a cap or a TTL, so that its state keeps marks."""
    return bool(config.ttl_ms or config.cap_records or config.cap_bytes)


def is_discarding(config: TopicConfig) -> bool:
    """Returns whether appends discard old records that are over a cap."""
    return config.discard == "old" and bool(config.cap_records or config.cap_bytes)


def cutoff_ms(state: LogState, now_ms: int) -> int | None:
    """Returns the time (epoch ms) before which records have expired; None if the topic has no TTL. A reader whose clock is
    late goes by the newest record's time.
    """
    ttl_ms = topic_of(state).config.ttl_ms
    return max(now_ms, state.append_time_ms) - ttl_ms if ttl_ms else None


def grow(state: LogState, records: int, size: int) -> LogState:
    """Returns the state in which the newest `records` records, with `size` bytes, live: `state` is that of the log after
    their append, without the topic's part.
    """
    topic = topic_of(state)
    marks = topic.marks
    if is_marked(topic.config) and records:
        marks = joined((*marks, Mark(state.next_offset, state.append_time_ms, records, size)))
    topic = replace(topic, live=topic.live + records, bytes=topic.bytes + size, marks=marks)
    return replace(state, extension=topic)


def is_over(config: TopicConfig, live: int, size: int) -> bool:
    """Returns whether so many records, or bytes, are more than a topic may have."""
    return 0 < config.cap_records < live or 0 < config.cap_bytes < size


def expire(
    state: LogState,
    cutoff: int | None,
    removed: Callable[[], Offsets],
    find: Callable[[int, int], int] = lambda first, _: first,
    hidden: Callable[[], Runs] = lambda: NONE,
) -> LogState:
    """Returns the state without the records that were appended before `cutoff` (epoch ms).

    Args:
        removed: returns the removed records above the floor; called only if something expires.
        find: returns the first offset of `[first, end)` with a record that has not expired; the last one has not. By
            default only whole marks expire.
        hidden: as in `enforce_caps`.
    """
    topic = topic_of(state)
    if cutoff is None or not topic.marks:
        return state
    expired = count_expired(topic.marks, cutoff)
    first = topic.marks[expired - 1].end if expired else state.floor
    for mark in topic.marks[expired : expired + 1]:
        # Its last record lives on. One record needs no search.
        first = find(first, mark.end) if mark.end - first > 1 else first
    return lose(state, first, removed, "ttl", hidden()) if first > state.floor else state


def enforce_caps(
    state: LogState, removed: Callable[[], Offsets], hidden: Callable[[], Runs] = lambda: NONE
) -> LogState:
    """Returns the state without the oldest records that are beyond the caps; the newest record stays.

    Args:
        removed: returns the removed records above the floor; called only if a cap is exceeded.
        hidden: returns records that are gone for another reason, and count no more; called likewise.
    """
    topic = topic_of(state)
    config = topic.config
    if not is_over(config, topic.live, topic.bytes):
        return state
    others = hidden()
    live, size = counted(state, removed, others)
    if not is_over(config, live, size):
        return state
    gone = removed().union(others)
    first = state.floor
    if 0 < config.cap_records < live:
        first = gone.live_at(first, live - config.cap_records)
    if 0 < config.cap_bytes < size:
        first = max(first, _cut_bytes(state, gone, size - config.cap_bytes))
    first = min(first, gone.live_end(state.next_offset) - 1)
    return lose(state, first, removed, "cap", others)


def counted(state: LogState, removed: Callable[[], Offsets], hidden: Runs) -> tuple[int, int]:
    """Returns how many records live and are not hidden, and their bytes."""
    topic = topic_of(state)
    if not hidden or not topic.live:
        return topic.live, topic.bytes
    gone = removed().union(hidden)
    if not topic.marks:
        live = _live(gone, state.floor, state.next_offset)
        return live, _share(topic.bytes, live, topic.live)
    # By mark, as caps cut: done jobs of one size say nothing about the size of those that live.
    firsts = (state.floor, *(max(mark.end, state.floor) for mark in topic.marks))
    lives = [_live(gone, first, mark.end) for first, mark in zip(firsts, topic.marks, strict=False)]
    size = sum(_share(mark.bytes, live, mark.live) for mark, live in zip(topic.marks, lives, strict=True))
    return sum(lives), size


def _live(gone: Offsets, first: int, end: int) -> int:
    return max(0, end - first) - gone.count(first, end)


def _cut_bytes(state: LogState, gone: Offsets, excess: int) -> int:
    """Returns the offset below which the oldest records together have `excess` bytes, and no record more than needed. The
    records of a mark count as equally large.
    """
    topic, first = topic_of(state), state.floor
    for mark in topic.marks:
        live = _live(gone, first, mark.end)
        size = _share(mark.bytes, live, mark.live)
        if size > excess:
            return gone.live_at(first, -(-live * excess // size))
        excess -= size
        first = max(first, mark.end)
        if not excess:
            break
    return first


def lose(state: LogState, end: int, removed: Callable[[], Offsets], cause: Loss, hidden: Runs = NONE) -> LogState:
    """Returns the state after a cap or the TTL took all records below offset `end`."""
    topic, gone = topic_of(state), removed().union(hidden)
    lost = gone.live_end(end)
    if lost > state.floor:  # records that nobody could read any more are no loss
        topic = _lost(topic, lost, cause)
    return _raise_floor(state, topic, end, removed())


def lapse(state: LogState, end: int) -> LogState:
    """Returns the state as readers are to see it if the last record below offset `end` was lost to the TTL, or to a cap of
    a topic without one.
    """
    topic = topic_of(state)
    cause: Loss = "ttl" if topic.config.ttl_ms else "cap"
    return replace(state, extension=_lost(topic, end, cause)) if end > topic.evict_floor else state


def void(state: LogState, removed: Callable[[], Offsets]) -> LogState:
    """Returns the state in which the newest record is a void: it is gone, and stands for records that the topic's source
    lost before they were copied. `state` is that of the log after its append, without the topic's part.
    """
    topic, offset = topic_of(state), state.next_offset - 1
    inline = Runs.of_flat(topic.removed).add(offset, offset + 1)
    gone = removed().union(Runs.of([(offset, offset + 1)]))
    topic = replace(topic, removed=inline.flat(), voids=with_void(topic.voids, offset))
    return _raise_floor(state, topic, state.floor, gone)


def with_void(voids: Sequence[int], offset: int) -> tuple[int, ...]:
    """Returns the offsets of a topic's voids with a new one. Of too many, the two neighbours that are nearest to each other
    become one, the later: a reader that comes past both still learns that something was lost.
    """
    found = [*voids, offset]
    while len(found) > MAX_VOIDS:
        at = min(range(len(found) - 1), key=lambda one: found[one + 1] - found[one])
        del found[at]
    return tuple(found)


def _lost(topic: TopicState, end: int, cause: Loss) -> TopicState:
    both = cause if topic.cause in ("", cause) else "mixed"
    return replace(topic, evict_floor=max(topic.evict_floor, end), cause=both)


def _raise_floor(state: LogState, topic: TopicState, floor: int, removed: Offsets) -> LogState:
    """Returns the state whose live records begin at offset `floor`, or behind the removed ones there. `topic` still counts
    those below.
    """
    cut = min(floor, state.next_offset)
    live = topic.live - max(0, cut - state.floor) + removed.count(state.floor, cut)
    size, marks = topic.bytes, topic.marks
    floor = min(removed.live_at(cut), state.next_offset)
    if marks:
        marks = tuple(mark for mark in _shortened(marks, cut, removed) if mark.end > floor)
        size = sum(mark.bytes for mark in marks)
    inline = Runs.of_flat(topic.removed).above(floor)
    topic = replace(topic, live=live, bytes=size if live else 0, removed=inline.flat(), marks=marks)
    passed = [offset for offset in topic.voids if offset < floor]
    if passed:
        topic = replace(topic, voids=topic.voids[len(passed) :])
        topic = _lost(topic, passed[-1] + 1, "source_trim") if passed[-1] >= topic.evict_floor else topic
    return replace(state, floor=floor, extension=topic)


def _shortened(marks: Sequence[Mark], floor: int, removed: Offsets) -> Iterable[Mark]:
    """Yields the marks of records from `floor` on; the one that it cuts without those below, its bytes prorated."""
    is_cut = True
    for mark in marks:
        if mark.end <= floor:
            continue
        live = mark.end - floor - removed.count(floor, mark.end) if is_cut else mark.live
        yield mark if live == mark.live else replace(mark, live=live, bytes=_share(mark.bytes, live, mark.live))
        is_cut = False


def _share(size: int, part: int, whole: int) -> int:
    return size * part // whole if whole else 0


class Removal(NamedTuple):
    """The effect of a delete: the state after it, and how many records it removed."""

    state: LogState
    deleted: int


class Measured(NamedTuple):
    """Records that a delete is about, all in one mark.

    Attributes:
        dying: those that die.
        left: how many others of the mark live on.
        size: the bytes of all of them.
        living: returns those that live on.
    """

    dying: Runs
    left: int
    size: int
    living: Callable[[], Runs]


def remove(state: LogState, victims: Runs, removed: Offsets, size_of: Callable[[Measured], int]) -> Removal:
    """Returns the effect of deleting those of `victims` that live. All of them are inline in the state, however many.

    Args:
        removed: the removed records above the floor.
        size_of: returns the bytes of the records that die.
    """
    topic = topic_of(state)
    victims = victims.within(state.floor, state.next_offset)
    dying = victims.minus(removed.near(victims))
    if not dying:
        return Removal(state, 0)
    union = removed.union(dying)
    after: list[Mark] = []
    first = state.floor
    for mark in topic.marks or (Mark(state.next_offset, 0, topic.live, topic.bytes),):
        here = dying.within(first, mark.end)
        if here:
            left = mark.live - here.count_all
            measured = Measured(here, left, mark.bytes, partial(_living, union, first, mark.end))
            size = max(0, mark.bytes - size_of(measured)) if left else 0
            mark = replace(mark, live=left, bytes=size)
        after.append(mark)
        first = mark.end
    topic = replace(
        topic,
        live=topic.live - dying.count_all,
        bytes=sum(mark.bytes for mark in after),
        removed=Runs.of_flat(topic.removed).union(dying).flat(),
        marks=tuple(after) if topic.marks else (),
    )
    return Removal(_raise_floor(state, topic, state.floor, union), dying.count_all)


def _living(removed: Offsets, first: int, end: int) -> Runs:
    return Runs.of(removed.within(first, end).live_runs(first, end))


def build_marks(
    state: LogState, bounds: Sequence[tuple[int, int]], removed: Offsets, sizes: Sequence[int] = ()
) -> LogState:
    """Returns the state with marks, for a topic that gets its first cap or TTL.

    Args:
        bounds: where marks end, ascending, each with the append time of the record before; the last one is the log's end.
        removed: the removed records above the floor.
        sizes: the bytes of each record from the floor on; empty to count them as equally large.
    """
    topic, first = topic_of(state), state.floor
    marks: list[Mark] = []
    live_left, size_left = topic.live, topic.bytes
    for end, last_ms in bounds:
        live = end - first - removed.count(first, end)
        size = _share(size_left, live, live_left)
        if sizes:
            runs = _living(removed, first, end)
            size = sum(sum(sizes[low - state.floor : high - state.floor]) for low, high in runs)
        marks.append(Mark(end, last_ms, live, size))
        first, live_left, size_left = end, live_left - live, size_left - size
    return replace(state, extension=replace(topic, marks=tuple(marks), bytes=sum(one.bytes for one in marks)))
