"""Decides from the facts of every log what recovery must write. Pure: the clock and ids are arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from headrace.log import seam
from headrace.log.commit import control_entry
from headrace.recovery import names
from headrace.recovery.names import Names
from headrace.recovery.report import Loss, Status
from headrace.recovery.survey import Facts
from headrace.tables.catalog import Row
from headrace.wal.extension import begin
from headrace.wal.state import SLOT_SPAN, Entry, LogConfig, LogState, Recovery, first_slot, incarnation_of

_ENDED = SLOT_SPAN - 1000  # where the entry of a purged log is: behind every entry that it had


class Plan(msgspec.Struct, frozen=True):
    """What recovery must write for one log.

    Attributes:
        entry: the control entry; None if the existing entries are right.
        publish: whether `entry` is published in a generation of its own before it is written.
        forget_producers: whether rows of producers are removed before it is written, because they may describe lost
            writes.
        row: the catalog row to write with the entry; None if the existing row is right.
        mark_ended: whether the row is right except that it must say that the log has ended.
    """

    facts: Facts
    status: Status
    state: LogState
    entry: Entry | None = None
    publish: bool = False
    forget_producers: bool = False
    row: Row | None = None
    mark_ended: bool = False
    lost: tuple[Loss, ...] = ()
    reason: str = ""


def plan(logs: Sequence[Facts], *, rewound: bool, now_ms: int, request_ids: Callable[[], str]) -> Iterator[Plan]:
    """Yields a plan for each log.

    Args:
        rewound: whether the tables were restored to an earlier time, so that later records of every log may be lost.
        now_ms: the server's clock.
    """
    judged = names.resolve(logs)
    by_id = {log.log_id: log for log in logs}
    refusals = [_refusal(facts, judged, by_id) for facts in logs]
    refused = {
        names.name_of(facts): facts.log_id
        for facts, why in zip(logs, refusals, strict=True)
        if why
        and facts.config is not None
        and not facts.config.role
        and judged.standing[facts.log_id] == "has the name"
    }
    for facts, why in zip(logs, refusals, strict=True):
        if facts.is_lost:
            yield Plan(facts, "lost", LogState(), lost=("unpublished log",))
            continue
        why = why or _misled(facts, judged, refused)
        if why:
            yield Plan(facts, "refused", facts.state or LogState(), reason=why)
        elif judged.standing[facts.log_id] == "superseded":
            yield _nameless(facts, facts.log_id in judged.holding, rewound, now_ms, request_ids)
        else:
            yield _Planner(facts, judged, by_id, rewound, now_ms, request_ids).plan()


def raised_incarnation(config: LogConfig, state: LogState, now_ms: int) -> int:
    """Returns the new incarnation: the current time in seconds (a u32 until 2106), so that it was never used before; at
    least one more than the current incarnation.

    Adding one would not be enough: the incarnation of an earlier recovery may be lost with its entry, or the name may
    have been deleted and created again after the last published entry. For the same reason it is never far ahead of the
    time.
    """
    return max(incarnation_of(config, state) + 1, now_ms // 1000)


def _nameless(facts: Facts, holds_source: bool, rewound: bool, now_ms: int, request_ids: Callable[[], str]) -> Plan:
    """Returns the plan for a log whose name was created again. If it has a tombstone but seems to live, it is ended
    again.
    """
    state = facts.state or LogState()
    if facts.tombstone is None:
        return Plan(facts, "superseded", state)
    newest = facts.newest
    if newest is None or (newest.state.ended and not (rewound and (facts.has_older or holds_source))):
        return Plan(facts, "gone", state)
    state = replace(state, ended=facts.tombstone.ended or "deleted", forks=0, holds_source=holds_source)
    return Plan(facts, "ended", state, entry=control_entry(newest, "recover", state, (request_ids(),), now_ms))


def _refusal(facts: Facts, judged: Names, by_id: Mapping[str, Facts]) -> str:
    """Returns a text that says why a log must be left alone; empty if it may be recovered."""
    if facts.damage:
        return facts.damage
    if facts.row_damage is not None:
        return facts.row_damage.reason
    if facts.config is None:
        return "nothing says what log this is"
    if judged.standing[facts.log_id] == "main log is unknown":
        return f"nothing says what its main log is: main={facts.config.main}"
    if judged.standing[facts.log_id] == "name is taken":
        return "a younger log has the name, and does not come after this one"
    if facts.tail == "diverged":
        return "the write-ahead log does not continue what is published"
    if facts.tombstone is not None or facts.log_id in judged.ended_with_others:
        return ""
    if _has_ended(facts):
        return ""
    if facts.state is not None:
        lacks = _lacks(facts.config, by_id)
        if lacks:
            return lacks
    for ancestor in facts.config.lineage:
        if judged.standing.get(ancestor.log_id) == "superseded":
            return f"it must have ended: its source {ancestor.log_id} had, with all its forks"
    return ""


def _misled(facts: Facts, judged: Names, refused: Mapping[tuple[str, str], str]) -> str:
    """Returns a text that says why a log must be left alone that has lost its name to a log that is refused; empty if
    nobody reaches it by the name.

    A row is put right only with the log that has the name. Until then the row of a restored catalog leads to an older log.
    If that has forgotten its end, it would be read and written as if it had none, at offsets that were given away before.
    """
    younger = refused.get(names.name_of(facts))
    has_ended = facts.tombstone is not None or (facts.state is not None and bool(facts.state.ended))
    if younger is None or judged.standing[facts.log_id] != "superseded" or facts.own_row is None or has_ended:
        return ""
    return f"its name leads to it, and a younger log is refused: {younger}"


def _lacks(config: LogConfig, by_id: Mapping[str, Facts]) -> str:
    """Returns a text that says which data that a fork inherits is missing; empty if none is."""
    for ancestor in config.lineage:
        source = by_id.get(ancestor.log_id)
        end = _end_offset(source) if source is not None else 0
        if end < ancestor.through:
            return f"fork point {ancestor.through} lies behind the end of its source {ancestor.log_id}, {end}"
    return ""


def _has_ended(facts: Facts) -> bool:
    """Returns whether the log's entries or its row say that it has ended, and no fork reads what it inherits."""
    says_row = facts.own_row is not None and facts.own_row.ended
    if facts.state is None:
        return says_row
    return (bool(facts.state.ended) or says_row) and not facts.state.forks


def _end_offset(facts: Facts) -> int:
    if facts.state is not None:
        return facts.state.next_offset
    return facts.config.base_offset if facts.config is not None else 0


def _says(standing: Row, row: Row) -> bool:
    """Returns whether a row is right for a log that lives. Its deadline need only be a lower bound of the true one."""
    return standing.config == row.config and (row.ended or standing.label == row.label)


class _Planner:
    """The planner for one log that owns its name."""

    def __init__(
        self,
        facts: Facts,
        judged: Names,
        by_id: Mapping[str, Facts],
        rewound: bool,
        now_ms: int,
        request_ids: Callable[[], str],
    ) -> None:
        assert facts.config is not None
        self._facts = facts
        self._config: LogConfig = facts.config
        self._judged = judged
        self._by_id = by_id
        self._rewound = rewound
        self._now_ms = now_ms
        self._request_ids = request_ids
        self._tail_is_lost = facts.tail in ("none", "behind") and facts.tombstone is None

    def plan(self) -> Plan:
        before = self._facts.state or self._unpublished()
        state = self._state(before)
        row = Row(self._facts.log_id, self._config, bool(state.ended), self._deadline_ms(state), state.label)
        standing = (
            self._facts.own_row if not self._config.role else row
        )  # a companion has none of its own: all is well
        is_right = standing is not None and (self._is_gone or _says(standing, row))
        needs_entry = state != before or self._facts.newest is None or self._tail_is_lost or not is_right
        # The event that asks for its purge went to the stream of the lost table: an entry makes another one.
        is_purged = self._is_gone and not self._facts.has_older and not state.holds_source
        needs_entry |= self._rewound and bool(state.ended) and not is_purged
        return Plan(
            facts=self._facts,
            status=self._status(state, needs_entry),
            state=state,
            entry=self._entry(state) if needs_entry else None,
            publish=self._tail_is_lost and self._may_be_published(),
            forget_producers=len(state.recoveries) > len(before.recoveries),
            row=None if is_right else row,
            mark_ended=is_right and standing is not None and row.ended and not standing.ended,
            lost=tuple(self._lost(before, state)),
        )

    @property
    def _is_gone(self) -> bool:
        return self._facts.tombstone is not None

    def _unpublished(self) -> LogState:
        """Returns the state of a log of which nothing but its existence is known."""
        tombstone = self._facts.tombstone
        if tombstone is not None:
            return LogState(next_offset=tombstone.next_offset)
        ancestors = [self._by_id[ancestor.log_id].state for ancestor in self._config.lineage]
        state = LogState(
            next_offset=self._config.base_offset,
            append_time_ms=max((state.append_time_ms for state in ancestors if state is not None), default=0),
            holds_source=self._config.source is not None,
            definition=self._config.definition,
        )
        return begin(self._config, state)

    def _may_be_published(self) -> bool:
        """Returns whether the log has been published already, or everything that it inherits is, since a fork is never
        published before its source.
        """
        if self._facts.manifest is not None:
            return True
        published = ((self._by_id[one.log_id].manifest, one.through) for one in self._config.lineage)
        return all((manifest.end_offset if manifest is not None else 0) >= through for manifest, through in published)

    def _state(self, before: LogState) -> LogState:
        tombstone, log_id = self._facts.tombstone, self._facts.log_id
        if tombstone is not None:
            holds_source = log_id in self._judged.holding
            return replace(
                before, ended=before.ended or tombstone.ended or "deleted", forks=0, holds_source=holds_source
            )
        state, forks = before, self._judged.forks[log_id]
        if log_id in self._judged.ended_with_others:
            state = replace(state, ended=state.ended or "deleted", holds_source=False)
        if state.holds_source and self._source_is_left():
            state = replace(state, holds_source=False)
        row = self._facts.own_row
        if row is not None and row.ended and not state.ended:
            state = replace(state, ended="deleted")  # only said after the end was committed
        if self._facts.state is None and _lacks(self._config, self._by_id) and not state.ended:
            state = replace(state, ended="deleted")  # nothing is left of it, nor of all that it inherits
        has_forks_uncounted = forks > state.forks
        was_rewound = self._rewound and not state.ended
        if self._tail_is_lost or has_forks_uncounted or was_rewound:
            raised = Recovery(state.next_offset, raised_incarnation(self._config, state, self._now_ms))
            renewed_ms = self._now_ms if self._config.ttl_ms is not None else state.touched_ms
            state = replace(
                state,
                forks=forks if self._tail_is_lost else max(forks, state.forks),
                touched_ms=max(state.touched_ms, renewed_ms),
                recoveries=(*state.recoveries, raised),
            )
        if state.ended or self._facts.followers is None:
            return state
        # The rows say who follows: their owners write again those that are lost, with an entry that counts them.
        followed_ms = max(state.followed_ms, self._facts.followed_ms)
        return replace(state, followers=self._facts.followers, followed_ms=followed_ms)

    def _source_is_left(self) -> bool:
        """Returns whether nothing will release the source any more, because it is lost or its name was created again.

        In that case the fork reads nothing from it: otherwise the source would have been published first, or the fork
        has ended.
        """
        source = self._by_id.get(self._config.source.log_id) if self._config.source is not None else None
        return source is None or source.is_lost or self._judged.standing.get(source.log_id) == "superseded"

    def _deadline_ms(self, state: LogState) -> int | None:
        return None if state.ended else seam.deadline_ms(self._config, state, self._facts.touched_ms)

    def _entry(self, state: LogState) -> Entry:
        facts, manifest = self._facts, self._facts.manifest
        if facts.newest is not None and not self._tail_is_lost:
            return control_entry(facts.newest, "recover", state, (self._request_ids(),), self._now_ms)
        if manifest is None:
            slot = first_slot(state.next_offset) + (_ENDED if self._is_gone else 0)
            return Entry(
                log_id=facts.log_id,
                slot=slot,
                kind="recover",
                state=state,
                request_ids=(self._request_ids(),),
                committed_ms=self._now_ms,
                config=self._config,
            )
        return Entry(
            log_id=facts.log_id,
            slot=manifest.end_slot,
            kind="recover",
            state=state,
            request_ids=(self._request_ids(),),
            committed_ms=self._now_ms,
            prev_slot=manifest.last_slot,
            prev_id=manifest.last_id,
            prev_committed_ms=manifest.last_committed_ms,
            prev_bytes=manifest.state.total_bytes,
        )

    def _status(self, state: LogState, needs_entry: bool) -> Status:
        if not needs_entry:
            return "gone" if self._is_gone else "intact"
        if state.ended:
            return "ended"
        return "restored" if self._tail_is_lost else "repaired"

    def _lost(self, before: LogState, state: LogState) -> Iterator[Loss]:
        if not self._tail_is_lost:
            if len(state.recoveries) > len(before.recoveries):
                yield "unpublished tail"
                if state.producers_spilled:
                    yield "producers"
            return
        yield "unpublished tail" if self._facts.manifest is not None else "unpublished log"
        if not state.ended and not state.is_final:
            yield "later end"
        if state.producers_spilled:
            yield "producers"
        if self._config.ttl_ms is not None and not state.ended:
            yield "touches"
