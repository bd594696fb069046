"""Appending: decide, put into the next slot, and decide again when somebody was first.

Warm, this is one conditional write and nothing else. Cold, one catalog read and one query come before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from headrace.batch import Batch
from headrace.errors import HeadraceError, Overloaded, StoreError
from headrace.log import decide
from headrace.log.commit import Budget, Committer
from headrace.log.definition import Definitions
from headrace.log.expire import Expirer
from headrace.log.payload import Payloads
from headrace.log.picture import Picture, Pictures
from headrace.log.prepare import prepare
from headrace.log.queue import Groups, Prepared, Ticket
from headrace.log.requests import Appended, AppendRequest
from headrace.log.stores import Stores
from headrace.log.wakeups import Wakeups
from headrace.tables.items import Guard
from headrace.tables.producers import PutProducer
from headrace.wal import Committed, SlotTaken
from headrace.wal.state import Entry, LogState, Producer, TimeRun

_LEAST_BUDGET_MS = 500  # for a batch whose first request has waited in the queue


class _Plan(NamedTuple):
    """What a batch comes to: the entry to commit (None if nothing changes), and each ticket's answer after it."""

    entry: Entry | None
    guards: tuple[Guard, ...]
    answers: list[Appended | HeadraceError]

    @property
    def tells(self) -> bool:
        """Somebody is refused, or told of an earlier write: an answer that rests on the state alone."""
        return any(isinstance(answer, HeadraceError) or answer.duplicate for answer in self.answers)


class Appender:
    """Appends and closes."""

    def __init__(
        self,
        stores: Stores,
        pictures: Pictures,
        committer: Committer,
        expirer: Expirer,
        groups: Groups,
        wakeups: Wakeups,
        definitions: Definitions,
    ) -> None:
        self._stores = stores
        self._pictures = pictures
        self._committer = committer
        self._expirer = expirer
        self._groups = groups
        self._wakeups = wakeups
        self._definitions = definitions

    def append(self, name: str, request: AppendRequest) -> Appended:
        """Commits one request, alone or with others of this process.

        Raises:
            HeadraceError: refused (nothing was written), overloaded (nothing was written), or of unknown outcome.
        """
        ticket = Ticket(request, self._stores.request_ids(), self._stores.clock.monotonic())
        with self._groups.of(name) as group:
            if group.enter(ticket):
                try:
                    while not ticket.settled:
                        with group.data_turn():
                            self._commit_batch(name, group.batch())
                finally:
                    group.hand_over()
        return ticket.result()

    def _commit_batch(self, name: str, tickets: Sequence[Ticket]) -> None:
        """Settles every ticket, whatever happens."""
        try:
            self._commit(name, tickets)
        except BaseException as exc:
            for ticket in tickets:
                ticket.settle(error=exc)
            if not isinstance(exc, (HeadraceError, StoreError)):
                raise

    def _commit(self, name: str, tickets: Sequence[Ticket]) -> None:
        timeout_ms = self._stores.settings.append_timeout_ms
        waited_ms = round((self._stores.clock.monotonic() - tickets[0].queued) * 1000)
        if waited_ms > timeout_ms:
            raise Overloaded("too many appends wait for this stream")
        budget = Budget(self._stores.clock, max(timeout_ms - waited_ms, _LEAST_BUDGET_MS))
        payloads = Payloads(self._stores)
        picture = self._pictures.warm(name)
        fresh = picture is None
        if picture is None:
            picture = self._pictures.look(name)
        while True:
            picture = self._expirer.ensure_alive(name, picture)
            plan = self._plan(picture, tickets, payloads)
            if plan.tells and (not fresh or self._pictures.is_old(picture.read)):
                # What was decided on cached state, and no slot will check, is checked once against fresh state.
                picture, fresh = self._pictures.look(name), True
                continue
            if plan.entry is None:
                break
            sent = self._pictures.read_time()
            outcome = self._committer.put(plan.entry, plan.guards, picture.read, budget)
            if isinstance(outcome, Committed):
                self._pictures.remember(name, picture.row, plan.entry, sent)
                break
            budget.again("others keep appending to this stream")
            if isinstance(outcome, SlotTaken) and budget.tries == 1:
                # What stands in our slot is the state to decide on, unless more came after it: so it is as old as the
                # picture that it follows, or the fence would trust a slot that was used and trimmed.
                picture, fresh = self._pictures.remember(name, picture.row, outcome.entry, picture.read), False
            else:
                picture, fresh = self._pictures.look(name), True
        for ticket, answer in zip(tickets, plan.answers, strict=True):
            if isinstance(answer, HeadraceError):
                ticket.settle(error=answer)
            else:
                ticket.settle(answer._replace(tries=budget.tries + 1))
        self._wakeups.notify(name)

    def _plan(self, picture: Picture, tickets: Sequence[Ticket], payloads: Payloads) -> _Plan:
        now_ms = self._stores.clock.now_ms()
        state, newest = picture.state, picture.newest
        answers: list[Appended | HeadraceError] = []
        accepted: list[Ticket] = []
        batches: list[Batch] = []
        times: list[TimeRun] = []
        evicted: dict[str, Producer] = {}
        for ticket in tickets:
            prepared = ticket.prepared = self._prepare(picture, ticket, now_ms)
            decision = decide.append(
                picture.row.config,
                state,
                prepared.request,
                now_ms,
                self._spilled(picture, state, ticket.request, evicted),
            )
            if prepared.fault is not None and isinstance(decision, decide.Accepted):
                decision = decide.Refused(prepared.fault)
            if isinstance(decision, decide.Refused):
                answers.append(decision.error)
                continue
            answers.append(decision.answer)
            if isinstance(decision, decide.Accepted):
                state = decision.state
                accepted.append(ticket)
                if ticket.request.producer is not None:
                    evicted.pop(ticket.request.producer.id, None)
                if decision.evicted is not None:
                    evicted[decision.evicted.id] = decision.evicted
                if prepared.request.records:
                    times.append(TimeRun(len(prepared.request.records), decision.time_ms))
                    batches.append(prepared.request.records)
        if not accepted:
            return _Plan(None, (), answers)
        slot = newest.next_slot()
        entry = Entry(
            log_id=newest.log_id,
            slot=slot,
            kind="data" if batches else "close",
            count=sum(map(len, batches)),
            times=tuple(times),
            state=state,
            request_ids=tuple(ticket.request_id for ticket in accepted),
            committed_ms=now_ms,
            prev_slot=newest.slot,
            prev_id=newest.id,
            prev_committed_ms=newest.committed_ms,
        )
        payload = payloads.of(newest.log_id, slot, batches)
        entry = replace(entry, payload=payload.inline, payload_key=payload.key)
        guards = tuple(PutProducer(newest.log_id, producer) for producer in evicted.values())
        return _Plan(entry, guards, answers)

    def _prepare(self, picture: Picture, ticket: Ticket, now_ms: int) -> Prepared:
        """The ticket's request under the definition in force; prepared once for each definition that it meets."""
        log_id, ref, request = picture.row.log_id, picture.state.definition, ticket.request
        known = ticket.prepared
        if known is not None and (known.log_id, known.definition) == (log_id, ref):
            return known
        if ref is None or not request.records:
            return Prepared(log_id, ref, request, None)
        definition = self._definitions.of(log_id, picture.state)
        try:
            records = prepare(definition, request.content_type, request.records, now_ms)
        except HeadraceError as exc:
            return Prepared(log_id, ref, request, exc)
        return Prepared(log_id, ref, replace(request, records=records), None)

    def _spilled(
        self, picture: Picture, state: LogState, request: AppendRequest, evicted: dict[str, Producer]
    ) -> dict[str, Producer | None]:
        wanted = decide.unknown_producer(state, request)
        if wanted is None:
            return {}
        if wanted in evicted:
            return {wanted: evicted[wanted]}
        return {wanted: self._stores.producers.get(picture.row.log_id, wanted)}
