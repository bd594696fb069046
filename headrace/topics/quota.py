"""The limit of the bytes of all topics (§ 11: max_total_bytes): topics reserve bytes before they hold them.

A topic's state says how many bytes it has reserved of the counter `total_bytes`. An entry after which the topic would hold
more than that reserves more, in the same commit, and something in advance; so few commits meet the counter, and the
reserved bytes of all topics never exceed the limit. What a topic no longer needs it gives back with its next entry, and
all of it when its row is marked as ended (`Stores.mark_ended`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from headrace.errors import LimitReached
from headrace.log.seam import Decision, Draft, Ids, Look, Rows
from headrace.tables.counters import SHARDS, TOTAL_BYTES, Count, part_of, usual_shard
from headrace.tables.items import Guard
from headrace.topics import retention
from headrace.topics.live import removed_of
from headrace.topics.runs import Runs
from headrace.topics.values import TopicState, topic_of

LEAST = 16 * 1024  # bytes that are reserved, or given back, at once; of a large topic an eighth


def wanted(used: int, reserved: int, *, ahead: bool = True) -> int:
    """Returns how many bytes a topic should have reserved that holds `used`: as many as before, while that is enough and
    not far too much; else a part more than it holds, or just that if nothing is to be reserved `ahead`.
    """
    spare = max(LEAST, used // 8) if used else 0
    if used <= reserved <= used + 2 * spare:
        return reserved
    return used + (spare if ahead else 0)


def spread(counts: Sequence[int], most: int, change: int, first: int) -> list[tuple[int, int]] | None:
    """Returns in which shards of a counter to count `change` more, from `first` on: number and share of each. None if the
    limit has no room for it.
    """
    shares: list[tuple[int, int]] = []
    for step in range(SHARDS):
        shard = (first + step) % SHARDS
        share = min(change, part_of(shard, most) - counts[shard])
        if share > 0:
            shares.append((shard, share))
            change -= share
        if not change:
            return shares
    return None


def reserve(
    looks: Sequence[Look],
    decision: Decision,
    most: int,
    hidden: Callable[[Look, Rows], Runs],
    rows: Rows,
    ids: Ids,
) -> Decision:
    """Returns the decision with entries that reserve what the topics hold after them.

    Args:
        looks: the logs on which it was decided.
        most: the limit; not 0.
        hidden: returns the records that are gone, though the topic's state does not say so.

    Raises:
        LimitReached: there is no room for records that it adds.
    """
    known = {look.log_id: look for look in looks}
    used = {
        draft.log_id: _used(draft, known.get(draft.log_id), hidden, rows)
        for draft in decision.entries
        if isinstance(draft.state.extension, TopicState) and not draft.state.ended
    }
    if not used:
        return decision
    others = tuple(guard for guard in decision.guards if not _is_ours(guard))
    freed = sum(guard.change for guard in decision.guards if isinstance(guard, Count) and _is_ours(guard))
    first, counts = usual_shard(min(used), most), None
    if any(_is_ours(guard) for guard, _ in ids.refused):
        counts = rows.counts(TOTAL_BYTES)
    for ahead in (True, False):
        entries = tuple(_reserving(draft, used, ahead=ahead) for draft in decision.entries)
        change = freed + sum(_reserved(draft) for draft in entries) - sum(map(_reserved, decision.entries))
        shares: list[tuple[int, int]] | None = [(first, change)] if change else []
        if change > 0 and (counts is not None or change > part_of(first, most)):
            counts = counts or rows.counts(TOTAL_BYTES)
            shares = spread(counts, most, change, first)
        if shares is not None:
            guards = tuple(Count(TOTAL_BYTES, share, most, shard) for shard, share in shares)
            return decision._replace(entries=entries, guards=(*others, *guards))
    if any(draft.batches for draft in decision.entries if draft.log_id in used):
        raise LimitReached(f"max_{TOTAL_BYTES}", most)
    return decision  # it adds nothing: what a topic held before there was a limit is reserved with its next records


def _used(draft: Draft, look: Look | None, hidden: Callable[[Look, Rows], Runs], rows: Rows) -> int:
    """Returns how many bytes a topic holds after an entry; looks at what is hidden only if that can matter."""
    topic = topic_of(draft.state)
    if look is None or topic.bytes <= topic.reserved:
        return topic.bytes
    gone = hidden(look._replace(state=draft.state), rows)
    return retention.counted(draft.state, removed_of(draft.log_id, draft.state, rows), gone)[1]


def _reserving(draft: Draft, used: Mapping[str, int], *, ahead: bool) -> Draft:
    if draft.log_id not in used:
        return draft
    topic = topic_of(draft.state)
    reserved = wanted(used[draft.log_id], topic.reserved, ahead=ahead)
    return draft._replace(state=replace(draft.state, extension=replace(topic, reserved=reserved)))


def _reserved(draft: Draft) -> int:
    return topic_of(draft.state).reserved


def _is_ours(guard: Guard) -> bool:
    return isinstance(guard, Count) and guard.what == TOTAL_BYTES
