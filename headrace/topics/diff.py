"""What a reader gets after a cursor: which records, whether it must learn of a gap, and where its cursor is then.

A cursor is a seq, the last one that the reader knows; so it is the offset of the record that the reader wants next.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import orjson

from headrace.batch import Record
from headrace.log.requests import Head
from headrace.topics.removed import Offsets
from headrace.topics.runs import Runs
from headrace.topics.values import DiffRequest, Gap, TopicState, topic_of
from headrace.wal.state import LogState

Reason = Literal["cap", "ttl", "mixed", "recreated", "source_trim"]


class Plan(NamedTuple):
    """Where reading begins, and the gap before it that the reader must learn of; None if there is none."""

    start: int
    gap: Gap | None


def resume(request: DiffRequest, head: Head) -> int:
    """Returns the cursor of a request in the log as it is now. What a recovery has lost is not waited for; and a cursor of
    an earlier topic with this name is above the end, whatever seqs the topic has now.
    """
    cursor, incarnation = request.from_seq, request.incarnation
    if incarnation is None or incarnation == head.incarnation:
        return cursor
    before, is_own = head.config.incarnation, False
    for recovery in head.state.recoveries:
        is_own = is_own or incarnation == before
        if is_own:
            cursor = min(cursor, recovery.at)
        before = recovery.incarnation
    return cursor if is_own else head.state.next_offset + 1


def plan(cursor: int, state: LogState, live: LogState, gone: Offsets) -> Plan:
    """Returns where reading after a cursor begins.

    Args:
        state: the topic's state.
        live: the state without the records that have expired since.
        gone: the records that are gone above the floor.
    """
    end = live.next_offset
    floor = min(gone.live_at(live.floor), end)
    if cursor > end:
        # The cursor is of an earlier topic with this name. The reader begins again.
        return Plan(floor, Gap(1, end, "recreated", end))
    if cursor < topic_of(live).evict_floor:
        return Plan(floor, Gap(cursor + 1, floor, _reason(cursor, topic_of(state), topic_of(live)), floor - cursor))
    cursor = max(cursor, floor)
    start = min(gone.live_at(cursor), end)
    if next_void(cursor, live) < start:
        return Plan(start, Gap(cursor + 1, start, "source_trim", start - cursor))
    return Plan(start, None)


def next_void(position: int, live: LogState) -> int:
    """Returns the offset of the first void from `position` on, or the end of the log if there is none. A page ends before
    it: the next one begins with its gap.
    """
    return next((offset for offset in topic_of(live).voids if offset >= position), live.next_offset)


def _reason(cursor: int, before: TopicState, now: TopicState) -> Reason:
    """Returns what took the records that the reader misses: as far as known, and only informative."""
    is_expired = cursor >= before.evict_floor and before.config.ttl_ms
    return "ttl" if is_expired else now.cause or "ttl"


class Taken(NamedTuple):
    """Some of the records that were looked at, and the cursor after them.

    Attributes:
        size: bytes of data and meta of the records.
        examined: how many records were looked at.
        is_full: whether no more records fit into the page.
    """

    records: list[Record]
    size: int
    next: int
    examined: int
    is_full: bool


def take(found: Iterable[Record], start: int, gone: Runs, own: frozenset[str], room: int, room_bytes: int) -> Taken:
    """Returns those of consecutive records that the reader gets, while there is room.

    Args:
        start: the cursor before.
        gone: the records that are gone.
        own: the nodes whose records the reader does not get.
        room, room_bytes: how many records, and bytes of data and meta, the page still takes.
    """
    taken: list[Record] = []
    cursor, examined, size = start, 0, 0
    for record in found:
        if record.offset < start:
            continue
        if len(taken) >= room or size >= room_bytes:
            return Taken(taken, size, cursor, examined, is_full=True)
        cursor = record.offset + 1
        if record.offset in gone:
            continue
        examined += 1
        if record.node is not None and record.node in own:
            continue
        taken.append(record)
        size += len(record.data) + len(record.meta or b"")
    return Taken(taken, size, cursor, examined, len(taken) >= room or size >= room_bytes)


def own_nodes(request: DiffRequest, state: LogState) -> frozenset[str]:
    """Returns the nodes whose records a reader does not get."""
    return request.nodes if topic_of(state).config.dedupe_node else frozenset()


def shown(
    record: Record, *, tag: bool, meta: bool, node: bool = True, data: bool = True, lease: bytes = b""
) -> bytes:
    """Returns a record as readers get it: a JSON text, with data and meta as they were stored.

    Args:
        tag, meta, node, data: whether these are shown, if the record has them.
        lease: further members, as JSON text that begins with a comma.
    """
    parts = [b'{"$seq":%d' % (record.offset + 1), lease, b',"$ts":%d' % record.time_ms]
    if node and record.node is not None:
        parts += (b',"$node":', orjson.dumps(record.node))
    if tag and record.key is not None:
        parts += (b',"$tag":', orjson.dumps(record.key))
    if data:
        parts += (b',"data":', record.data)
    if meta and record.meta is not None:
        parts += (b',"meta":', record.meta)
    parts.append(b"}")
    return b"".join(parts)
