"""Commits decisions: entries of one log or of several, each into one slot, all or none of them. Appends are here, with
their loop; other changes are in `headrace.log.control`.

`put` finds out the outcome: after a lost or unknown answer it sends the identical entry to the same slot until the slot
is seen to be taken, by this entry or by another. `verify_slot` is the ack fence: a writer with an old picture proves
that its entry is part of the chain before it acknowledges it.

The objects that an entry names, including its payload if that is large, are written before the entry, so that a reader
that sees the entry finds them. A payload that no entry names is removed after a day; the ack fence has stopped its
writer long before. Objects of a log that is yet to be created are announced first (`headrace.tables.unborn`).

Appends of one process to the same log wait in a group, and the thread of one of them leads. The leader takes a batch of
requests, commits what the surface decides, and answers all of them. When its own request is answered and others wait,
it hands the lead over to the first of them. If the log's state is cached, an append costs one conditional write and
nothing else; otherwise one catalog read and one query come before it. While other processes append to the same log, too, a
query for what they have written comes first: it is cheaper than a write that loses its slot.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from headrace.batch import Batch, concat, encode_frames
from headrace.clock import Bounded, Budget, Moment, Threads
from headrace.errors import (
    HeadraceError,
    LimitReached,
    OutcomeUnknown,
    Overloaded,
    StoreError,
    StoreThrottled,
    StoreTimeout,
)
from headrace.log.context import Context, Picture, Sized, Ticket, Wakeups
from headrace.log.join import read_since, verify
from headrace.log.seam import Decision, Draft, NamedObject, Which, split
from headrace.objects import keys
from headrace.tables.catalog import PutRow
from headrace.tables.items import Guard
from headrace.tables.producers import PutKey
from headrace.tables.unborn import Born, announced, buried
from headrace.tables.watermarks import Unpublished
from headrace.wal import Committed, GuardRefused, Outcome, SlotTaken, TooLate
from headrace.wal.entry import PutEntry
from headrace.wal.state import Entry, LogState, first_slot

if TYPE_CHECKING:  # `Controls.ensure_alive` is asked for only when a deadline has passed
    from headrace.log.control import Controls

_log = logging.getLogger(__name__)

_WRITERS = Threads(8, "objects")
_REMEMBERED = 4096  # logs of one process
_LOOKS = 4  # commits that look first, after one that met another process
_LEAST_BUDGET_MS = 500  # for a batch whose first request has waited in the queue


class Found(NamedTuple):
    """The logs that a decision is about, as they were read.

    Attributes:
        pictures: a picture for each log; None for a name that does not exist.
        read: when the oldest picture was read.
        is_named: whether the pictures have the rows of their names, so that they can be cached after the commit.
    """

    pictures: tuple[Picture | None, ...]
    read: Moment
    is_named: bool = True


class Attempt:
    """One commit that may be decided repeatedly: its budget, payloads, nonces, objects already written, the logs that it
    creates, and those that are announced. Implements `Ids`.

    Attributes:
        budget: the time and tries that it has.
        refused: the guards of all tries whose conditions did not hold, with the rows that existed then.
    """

    def __init__(self, context: Context, budget: Budget) -> None:
        self.budget = budget
        self.refused: list[tuple[Guard, Any]] = []
        self._is_short = False
        self._context = context
        self._payloads: dict[str, _Payload] = {}
        self._nonces: dict[bytes, str] = {}
        self._written: set[str] = set()
        self._new: set[str] = set()
        self._announced: set[str] = set()

    def log(self) -> str:
        """Returns a new log id."""
        return self._context.stores.log_ids()

    def nonce(self, data: bytes) -> str:
        """Returns the nonce for an object's key; the same for equal data."""
        return self._nonces.setdefault(data, self._context.stores.request_ids())

    def commit(self, found: Found, decision: Decision, now_ms: int, request_ids: Sequence[str] = ()) -> Outcome:
        """Commits a decision about the logs in `found`. Returns the outcome: committed, or what prevented it; then no
        entry was written.

        Args:
            now_ms: the clock by which it was decided.
            request_ids: ids of the requests that it answers; without them, each entry gets an id of its own.

        Raises:
            Overloaded, OutcomeUnknown: as in `put`.
            LimitReached: it would go beyond the limit of the bytes of all logs.
        """
        context = self._context
        most_bytes = context.stores.settings.max_total_bytes
        if most_bytes:
            looks = [context.look_at(one) for one in found.pictures if one is not None]
            try:
                decision = context.surface.reserve(looks, decision, most_bytes, context, self)
            except LimitReached:
                if self._is_short:
                    raise
                self._is_short = True  # a refusal is checked once against fresh state
                return TooLate()
        newest = {one.newest.log_id: one.newest for one in found.pictures if one is not None}
        self._new = {draft.log_id for draft in decision.entries if draft.config is not None}
        if decision.objects:
            context.remember(decision.objects)
            self.write(decision.objects)
        entries = []
        for draft in decision.entries:
            ids = tuple(request_ids[number] for number in draft.requests) if request_ids else ()
            before = newest[draft.log_id] if draft.config is None else None
            entries.append(self._entry(draft, before, ids or (context.stores.request_ids(),), now_ms, found.read))
        guards = (*decision.guards, *map(PutEntry, entries[1:]))
        if guards:  # what they write must not outlive an entry that is dead
            guards += tuple(Unpublished(one.log_id, one.slot) for one in entries if one.prev_slot >= 0)
        unborn = sorted(self._new & self._announced)
        guards += tuple(map(Born, unborn))
        sent = context.pictures.read_time()
        outcome = self.put(entries[0], guards, found.read)
        if isinstance(outcome, GuardRefused):
            self.refused += [(guards[number], standing) for number, standing in outcome.refused]
        if not isinstance(outcome, Committed):
            with suppress(HeadraceError, StoreError):  # else the sweep comes in a day
                for log_id in unborn:
                    context.stores.catalog.put(buried(log_id, context.stores.clock.now_ms()))
        elif found.is_named:
            rows = {one.row.log_id: one.row for one in found.pictures if one is not None}
            rows |= {row.log_id: row for one in guards if isinstance(one, PutRow) for row in one.row.logs}
            for entry in entries:
                row = rows.get(entry.log_id)
                if row is not None and entry.state.ended:
                    context.pictures.drop(row)
                elif row is not None:
                    context.pictures.remember(row, entry, sent)
        return outcome

    def is_told(self, outcome: Outcome) -> bool:
        """Returns whether only keys prevented the commit whose outcome this is. Their rows tell what the requests get that
        repeat them, so the next decision competes with nobody about these.
        """
        if not isinstance(outcome, GuardRefused):
            return False
        return all(isinstance(guard, PutKey) for guard, _ in self.refused[-len(outcome.refused) :])

    def write(self, objects: Sequence[NamedObject]) -> None:
        """Writes those of the objects that this attempt has not written yet, several at once."""
        new = [one for one in objects if one.key not in self._written]
        for one in new:
            self._announce(one.key)
        _WRITERS.map(lambda one: self._context.stores.objects.put(one.key, one.data), new)
        self._written.update(one.key for one in new)

    def _announce(self, key: str) -> None:
        """Announces the log of an object that is about to be written if this commit creates the log."""
        stores, log_id = self._context.stores, keys.log_of(key)
        if log_id in self._new - self._announced:
            stores.catalog.put(announced(log_id, stores.clock.now_ms()))
            self._announced.add(log_id)

    def _entry(
        self, draft: Draft, before: Entry | None, request_ids: tuple[str, ...], now_ms: int, read: Moment
    ) -> Entry:
        """Builds the entry of a draft after `before` (None: it is the first), as of `read`; writes a large payload."""
        if before is not None:
            entry = control_entry(before, draft.kind, draft.state, request_ids, now_ms)
        else:
            assert draft.config is not None, "a new log has a configuration"
            entry = Entry(
                log_id=draft.log_id,
                slot=first_slot(draft.config.base_offset),
                kind=draft.kind,
                state=draft.state,
                request_ids=request_ids,
                committed_ms=now_ms,
                config=draft.config,
            )
        count = sum(map(len, draft.batches))
        if not count:
            return entry
        payload = self._payload(draft.log_id, entry.slot, draft.batches, read)
        return replace(entry, count=count, times=draft.times, payload=payload.inline, payload_key=payload.key)

    def _payload(self, log_id: str, slot: int, batches: Sequence[Batch], read: Moment) -> _Payload:
        """Returns the encoded batches, inline or, if they are large, as the key of an object that it writes.

        The same batches are written once for each log, because its objects are removed with the log; and again if the
        picture that gave the key its slot is old, because the orphan sweep judges an object by the slot in its key.
        """
        known = self._payloads.get(log_id)
        is_same = known is not None and list(map(id, known.batches)) == list(map(id, batches))
        if known is not None and is_same and not self._context.pictures.is_old(known.read):
            return known
        stores, frames = self._context.stores, encode_frames(concat(batches))
        if len(frames) <= stores.settings.spill_bytes:
            payload = _Payload(batches, read, inline=frames)
        else:
            key = keys.payload(log_id, slot, stores.request_ids())
            self._announce(key)
            stores.objects.put(key, frames)
            payload = _Payload(batches, read, key=key)
        self._payloads[log_id] = payload
        return payload

    def put(self, entry: Entry, guards: Sequence[Guard], read: Moment) -> Outcome:
        """Commits `entry` with its guards. Returns the outcome: committed, or what prevented it; then nothing was
        written.

        Args:
            read: when the state was read on which `entry` was decided.

        Raises:
            Overloaded: the store refused until the budget was spent; nothing was written.
            OutcomeUnknown: the store gave no answer, or the ack fence could not prove that the entry is in the chain.
        """
        outcome, is_certain = self._send(entry, guards, read.wall_ms)
        if not self._context.pictures.is_old(read):
            return outcome
        if isinstance(outcome, Committed):
            entries = [entry, *(second for guard in guards for second in guard.entries)]
            verdicts = [self.verify_slot(one) for one in entries]  # each, so that every dead one is removed
            is_certain = all(verdicts)
        if not is_certain:
            raise OutcomeUnknown()  # also of a try that may have been stored, sealed and trimmed meanwhile
        return outcome

    def _send(self, entry: Entry, guards: Sequence[Guard], read_ms: int) -> tuple[Outcome, bool]:
        """Sends `entry` until the store says what became of it. Returns that, and whether every try was answered."""
        is_certain, attempt = True, 0
        while True:
            try:
                outcome = self._context.stores.wal.commit(entry, guards, read_ms)
            except (StoreThrottled, StoreTimeout) as exc:
                is_certain = is_certain and not isinstance(exc, StoreTimeout)
                if self.budget.spent:
                    raise (Overloaded("the store is throttling") if is_certain else OutcomeUnknown()) from exc
                attempt += 1
                self.budget.pause(attempt)
                continue
            except Exception as exc:
                if is_certain:
                    raise
                raise OutcomeUnknown() from exc  # an earlier try may have been stored
            if isinstance(outcome, SlotTaken) and outcome.entry.request_ids == entry.request_ids:
                outcome = Committed()  # an earlier try of ours got through
            return outcome, is_certain

    def verify_slot(self, entry: Entry) -> bool:
        """Returns whether `entry`, which is stored in its slot, is part of its log's chain; False also if a store fails."""
        context = self._context
        try:
            return verify(context.stores, context.manifests, entry)
        except Exception as exc:  # noqa: BLE001 - whatever it is, the entry is stored
            _log.warning("entry can't be verified: log_id=%s slot=%s reason=%r", entry.log_id, entry.slot, exc)
            return False


class _Payload(NamedTuple):
    """Batches, and where their encoded bytes are: inline if they are small, otherwise in the object with the given key,
    which has the slot after a picture that was read at `read`.
    """

    batches: Sequence[Batch]
    read: Moment
    inline: bytes | None = None
    key: str | None = None


def control_entry(newest: Entry, kind: str, state: LogState, request_ids: tuple[str, ...], now_ms: int) -> Entry:
    """Builds the control entry that follows `newest` and gives its log the state `state`. A delete, and entries after
    it, use reserved slots.
    """
    return Entry(
        log_id=newest.log_id,
        slot=newest.next_slot(deleting=bool(state.ended)),
        kind=kind,
        state=state,
        request_ids=request_ids,
        committed_ms=now_ms,
        prev_slot=newest.slot,
        prev_id=newest.id,
        prev_committed_ms=newest.committed_ms,
        prev_bytes=newest.state.total_bytes,
    )


class Appender:
    """The part of a process that commits appends to the logs of one surface.

    Attributes:
        groups: the waiting requests by log; control verbs take turns with them.
        wakeups: the callbacks that are called after each change by this process.
    """

    def __init__(self, context: Context, controls: Controls) -> None:
        self._context = context
        self._controls = controls
        self.wakeups = Wakeups()
        self.groups = context.groups
        self._contended: Bounded[tuple[str, str], int] = Bounded(_REMEMBERED)  # commits that look first

    def append(self, which: Which, request: Sized) -> Ticket:
        """Commits one append request by the surface's decision, alone or together with others of this process. Returns the
        ticket of the request, which has the answer.

        Raises:
            HeadraceError: refused (nothing was written), overloaded (nothing was written), or of unknown outcome.
        """
        stores = self._context.stores
        ticket = Ticket(request, stores.request_ids(), stores.clock.monotonic())
        with self.groups.of(which) as group:
            if group.enter(ticket):
                try:
                    while not ticket.settled:
                        with group.data_turn():
                            self._commit_batch(which, group.batch())
                finally:
                    group.hand_over()
        ticket.result()
        return ticket

    def _commit_batch(self, which: Which, tickets: Sequence[Ticket]) -> None:
        """Commits a batch of requests and settles each ticket with an answer or an error. Raises only unexpected errors."""
        try:
            self._commit(which, tickets)
        except BaseException as exc:
            if isinstance(exc, LimitReached) and len(tickets) > 1:  # one that does not fit refuses no other
                # The smaller ones first: they may fit, and looks for the others take time.
                ordered, middle = sorted(tickets, key=lambda one: one.request.size), len(tickets) // 2
                try:
                    self._commit_batch(which, ordered[:middle])
                finally:
                    self._commit_batch(which, ordered[middle:])
                return
            for ticket in tickets:
                ticket.settle(error=exc)
            if not isinstance(exc, (HeadraceError, StoreError)):
                raise

    def _commit(self, which: Which, tickets: Sequence[Ticket]) -> None:
        context, surface = self._context, self._context.surface
        clock, timeout_ms = context.stores.clock, context.stores.settings.append_timeout_ms
        waited_ms = round((clock.monotonic() - min(ticket.queued for ticket in tickets)) * 1000)
        if waited_ms > timeout_ms:
            raise Overloaded(f"too many appends wait for this {surface.noun}")
        budget = Budget(clock, max(timeout_ms - waited_ms, _LEAST_BUDGET_MS))
        attempt, request_ids = Attempt(context, budget), [ticket.request_id for ticket in tickets]
        logs = surface.look_at(which)
        pictures = [context.pictures.warm(one) for one in logs]
        warm = [picture for picture in pictures if picture is not None]
        fresh, looks, is_contended = len(warm) < len(logs), self._contended.get(split(which)) or 0, False
        looked = context.pictures.look_all(logs) if fresh else warm
        if looks and not fresh:
            caught_up = self._catch_up(warm)
            looked, fresh = (context.pictures.look_all(logs), True) if caught_up is None else (caught_up, False)
            is_contended = looked[0].newest.slot > warm[0].newest.slot
        while True:
            looked = [self._controls.ensure_alive(one) if context.is_due(one) else one for one in looked]
            found, now_ms = Found(tuple(looked), min([one.read for one in looked])), clock.now_ms()
            decision = surface.decide([context.look_at(one) for one in looked], tickets, context, now_ms, attempt)
            if decision.tells and (not fresh or context.pictures.is_old(found.read)):
                # What was decided on cached state, and no slot will check, is checked once against fresh state.
                looked, fresh = context.pictures.look_all(logs), True
                continue
            if not decision.entries:
                break
            outcome = attempt.commit(found, decision, now_ms, request_ids)
            if isinstance(outcome, Committed):
                break
            if not attempt.is_told(outcome):
                budget.again(f"others keep appending to this {surface.noun}")
                is_contended = True
            followed = self._follow(looked, outcome, found.read)
            looked, fresh = (followed, False) if followed is not None else (context.pictures.look_all(logs), True)
        if looks or is_contended:
            self._contended.put(split(which), _LOOKS if is_contended else looks - 1)
        for ticket, answer in zip(tickets, decision.answers, strict=True):
            ticket.tries = budget.tries + bool(decision.entries)
            if isinstance(answer, HeadraceError):
                ticket.settle(error=answer)
            else:
                ticket.settle(answer)
        written = {draft.log_id for draft in decision.entries}
        for log, picture in zip(logs, looked, strict=True):
            if log == which or picture.row.log_id in written:
                self.wakeups.notify(log)

    def _follow(self, looked: Sequence[Picture], outcome: Outcome, read: Moment) -> list[Picture] | None:
        """Returns the pictures with what is in our slot, and came after it while this process paused; costs one query. None
        if there is no such entry; if a picture is old, because what is in the slot may be a dead item then; or if the entry
        is of another kind than data, because the commit that wrote it may have changed the other logs, too.
        """
        if not isinstance(outcome, SlotTaken) or self._context.pictures.is_old(read):
            return None
        entry = outcome.entry
        if len(looked) > 1 and entry.kind != "data":
            return None
        followed = [
            self._context.pictures.remember(one.row, entry, read) if one.row.log_id == entry.log_id else one
            for one in looked
        ]
        return self._catch_up(followed)

    def _catch_up(self, looked: Sequence[Picture]) -> list[Picture] | None:
        """Returns the pictures with the newest one of the first log, which is the one that is written; costs one query.
        None if that log has ended, if a commit since then may have changed the other logs, too, if too much came since
        then, or if the picture is old by the time of the answer: a dead item may follow it then.
        """
        pictures, (first, *others) = self._context.pictures, looked
        read = pictures.read_time()
        tail = read_since(self._context.stores.wal, first.newest)
        if tail.newest is None or tail.newest.state.ended or pictures.is_old(first.read):
            return None
        if others and any(entry.kind != "data" for entry in tail.entries[1:]):
            return None
        return [pictures.remember(first.row, tail.newest, read), *others]
