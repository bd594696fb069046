"""Rules that every surface shares, pure: time, deadlines, what records and producers do to a state, and forks.

Nothing here reads a clock or a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from headrace.batch import Batch
from headrace.errors import Conflict
from headrace.limits import MAX_FORK_DEPTH, PRODUCERS_IN_STATE
from headrace.log.seam import Draft, Ids, Look
from headrace.tables.catalog import Row
from headrace.wal.state import Ancestor, Companion, LogConfig, LogState, Producer

_LATEST_MS = 253_402_300_799_999  # the end of year 9999: what RFC 3339 can say


class Grown(NamedTuple):
    """A state after records, their append time, and the producer that left the state for it."""

    state: LogState
    time_ms: int
    evicted: Producer | None = None


def deadline_ms(config: LogConfig, state: LogState, touched_ms: int) -> int | None:
    """Returns when the log expires if nothing touches it; None if never. `touched_ms` is the last counted read."""
    if config.expires_at_ms is not None:
        return config.expires_at_ms
    if config.ttl_ms is None:
        return None
    return max(config.created_ms, state.touched_ms, touched_ms) + config.ttl_ms


def record_time(previous_ms: int, now_ms: int, hint_ms: int | None) -> int:
    """Returns the append time of new records: the hint, else now, but never before the previous record's."""
    return max(previous_ms, min(now_ms if hint_ms is None else hint_ms, _LATEST_MS))


def grow(
    state: LogState,
    records: Batch,
    now_ms: int,
    hint_ms: int | None = None,
    producer: Producer | None = None,
) -> Grown:
    """Returns the state after records, perhaps those of a producer. It renews a sliding deadline."""
    producers, evicted = state.producers, None
    if producer is not None:
        rest = [one for one in producers if one.id != producer.id]
        if len(rest) == PRODUCERS_IN_STATE:
            evicted = rest.pop(0)
        producers = (*rest, producer)
    time_ms = record_time(state.append_time_ms, now_ms, hint_ms)
    after = replace(
        state,
        next_offset=state.next_offset + len(records),
        append_time_ms=time_ms if records else state.append_time_ms,
        touched_ms=max(state.touched_ms, now_ms),
        total_bytes=state.total_bytes + len(records.data),
        producers=producers,
        producers_spilled=state.producers_spilled or evicted is not None,
    )
    return Grown(after, time_ms, evicted)


def name_companions(config: LogConfig, content_types: Mapping[str, str], ids: Ids) -> LogConfig:
    """Returns the configuration of a new main log with companions: their content types by role."""
    companions = (Companion(role, ids.log(), content_type) for role, content_type in content_types.items())
    return replace(config, companions=tuple(companions))


def create_companions(row: Row) -> tuple[Draft, ...]:
    """Returns the first entries of a new row's companions, empty logs all: they join the commit of its main log's."""
    return tuple(Draft(one.log_id, "create", LogState(), config=one.config) for one in row.companions)


def counts_fork(source: Look) -> Draft:
    """Returns the entry by which a source counts a fork that commits with it."""
    return Draft(source.log_id, "fork", replace(source.state, forks=source.state.forks + 1))


def lineage_of(source: Look, base: int) -> tuple[Ancestor, ...]:
    """Returns what a fork of `source` that begins at offset `base` inherits, oldest first.

    Raises:
        Conflict: forks are nested too deep.
    """
    inherited = [replace(ancestor, through=min(ancestor.through, base)) for ancestor in source.config.lineage]
    lineage = [*inherited, *_incarnations(source, base)]
    # An ancestor that adds nothing below the fork point is not needed; the source is, for its cursors.
    kept: list[Ancestor] = []
    reached = 0
    for ancestor in lineage:
        if ancestor.through > reached:
            kept.append(ancestor)
            reached = ancestor.through
    if not kept or kept[-1] != lineage[-1]:
        kept.append(lineage[-1])
    if len(kept) > MAX_FORK_DEPTH:
        raise Conflict(f"forks are nested too deep: limit={MAX_FORK_DEPTH}")
    return tuple(kept)


def _incarnations(source: Look, base: int) -> list[Ancestor]:
    """Returns the source as an ancestor, once for each incarnation that recoveries gave it: its older cursors stay
    accepted.
    """
    found, incarnation = [], source.config.incarnation
    for recovery in source.state.recoveries:
        found.append(Ancestor(source.log_id, incarnation, min(recovery.at, base)))
        incarnation = recovery.incarnation
    return [*found, Ancestor(source.log_id, incarnation, base)]
