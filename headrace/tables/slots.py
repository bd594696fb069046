"""How a slot is taken and freed: a place among a limited number over all processes, for a time that is known beforehand.

A slot is tried in random shards of its counters first, which costs one transaction. Only if that is refused the counters
are read; and only if one of them is full, the slots whose deadline has passed are freed, and the counters read again.
So nobody is turned away for the sake of a process that died, as far as its slots' deadlines have passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from headrace.errors import LimitReached, StoreThrottled
from headrace.tables.counters import SHARDS, free_shard
from headrace.tables.parts import Part, taking
from headrace.tables.sessions import Sessions

_TRIES = 8
_FREED_AT_ONCE = 200  # by one request; the sweep frees more


class Limit(NamedTuple):
    """A limit that a slot counts against.

    Attributes:
        setting: the setting that has it, for messages.
        what: the name of its counter.
        most: how many slots there may be; 0 means that there is no limit, and nothing is counted.
    """

    setting: str
    what: str
    most: int


def take(sessions: Sessions, new: Part, limits: Sequence[Limit], now_ms: int) -> Part | None:
    """Takes a slot: writes a row and counts it. Returns the row. Returns None if there is no limit to count against; then
    nothing is written.

    Args:
        new: the row, with a new random id, and the time when it may be freed by anyone.

    Raises:
        LimitReached: no slot is free.
        StoreThrottled: others kept changing the counters; nothing was written.
        StoreTimeout: the slot may be taken, until its deadline.
    """
    limits = [limit for limit in limits if limit.most]
    if not limits:
        return None
    mosts = {limit.what: limit.most for limit in limits}
    first = [sum(new.id.encode()) % min(SHARDS, limit.most) for limit in limits]
    shards = first
    for attempt in range(_TRIES):
        slot = replace(new, counts=tuple(zip(mosts, shards, strict=True)))
        try:
            if sessions.commit(taking(slot, mosts)) is None:
                return replace(slot, version=1)
        except StoreThrottled:
            if attempt == _TRIES - 1:
                raise
        first = [(shard + 1) % SHARDS for shard in first]
        shards = _free_shards(sessions, limits, first, now_ms)
    raise StoreThrottled(f"others keep taking slots: tries={_TRIES}")


def free_expired(sessions: Sessions, now_ms: int, most: int) -> int:
    """Frees slots whose deadline has passed, at most `most`. Returns their number. One that collides with another
    transaction is left for the next time.
    """
    freed = 0
    for slot in sessions.expired(now_ms):
        try:
            freed += sessions.drop_part(slot)
        except StoreThrottled:
            continue
        if freed >= most:
            break
    return freed


def _free_shards(sessions: Sessions, limits: Sequence[Limit], first: Sequence[int], now_ms: int) -> list[int]:
    """Returns a shard with room for each limit; frees expired slots first if one has none.

    Raises:
        LimitReached: a limit is reached all the same.
    """
    is_last = False
    while True:
        shards = [
            free_shard(sessions.counts(limit.what), limit.most, number)
            for limit, number in zip(limits, first, strict=True)
        ]
        found = [shard for shard in shards if shard is not None]
        if len(found) == len(shards):
            return found
        if is_last or not free_expired(sessions, now_ms, _FREED_AT_ONCE):
            full = limits[shards.index(None)]
            raise LimitReached(full.setting, full.most)
        is_last = True
