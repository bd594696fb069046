"""Appending: decide, put into the next slot, and decide again when somebody was first.

Warm, this is one conditional write and nothing else. Cold, one catalog read and one query come before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.errors import HeadraceError, Overloaded, StoreError
from headrace.log.commit import Attempt, Budget, Committer
from headrace.log.control import Controls
from headrace.log.picture import Pictures
from headrace.log.queue import Groups, Ticket
from headrace.log.seam import Rows, Surface, Which
from headrace.log.stores import Stores
from headrace.log.wakeups import Wakeups
from headrace.wal import Committed, SlotTaken

_LEAST_BUDGET_MS = 500  # for a batch whose first request has waited in the queue


class Appender:
    """Appends."""

    def __init__(
        self,
        stores: Stores,
        surface: Surface,
        pictures: Pictures,
        committer: Committer,
        controls: Controls,
        rows: Rows,
        groups: Groups,
        wakeups: Wakeups,
    ) -> None:
        self._stores = stores
        self._surface = surface
        self._pictures = pictures
        self._committer = committer
        self._controls = controls
        self._rows = rows
        self._groups = groups
        self._wakeups = wakeups

    def append(self, which: Which, request: Any) -> Ticket:
        """Commits one request, alone or with others of this process; returns it with its answer.

        Raises:
            HeadraceError: refused (nothing was written), overloaded (nothing was written), or of unknown outcome.
        """
        ticket = Ticket(request, self._stores.request_ids(), self._stores.clock.monotonic())
        with self._groups.of(which) as group:
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
        """Settles every ticket, whatever happens."""
        try:
            self._commit(which, tickets)
        except BaseException as exc:
            for ticket in tickets:
                ticket.settle(error=exc)
            if not isinstance(exc, (HeadraceError, StoreError)):
                raise

    def _commit(self, which: Which, tickets: Sequence[Ticket]) -> None:
        timeout_ms = self._stores.settings.append_timeout_ms
        waited_ms = round((self._stores.clock.monotonic() - tickets[0].queued) * 1000)
        if waited_ms > timeout_ms:
            raise Overloaded(f"too many appends wait for this {self._surface.noun}")
        budget = Budget(self._stores.clock, max(timeout_ms - waited_ms, _LEAST_BUDGET_MS))
        attempt = Attempt(self._stores, budget)
        picture = self._pictures.warm(which)
        fresh = picture is None
        if picture is None:
            picture = self._pictures.look(which)
        while True:
            picture = self._controls.ensure_alive(picture)
            now_ms = self._stores.clock.now_ms()
            decision = self._surface.decide((self._controls.look_at(picture),), tickets, self._rows, now_ms, attempt)
            if decision.tells and (not fresh or self._pictures.is_old(picture.read)):
                # What was decided on cached state, and no slot will check, is checked once against fresh state.
                picture, fresh = self._pictures.look(which), True
                continue
            if not decision.entries:
                break
            (draft,) = decision.entries
            attempt.write(decision.objects)
            request_ids = tuple(tickets[number].request_id for number in draft.requests)
            entry = attempt.entry(draft, picture.newest, request_ids, now_ms)
            sent = self._pictures.read_time()
            outcome = self._committer.put(entry, decision.guards, picture.read, budget)
            if isinstance(outcome, Committed):
                self._pictures.remember(picture.row, entry, sent)
                break
            budget.again(f"others keep appending to this {self._surface.noun}")
            if isinstance(outcome, SlotTaken) and budget.tries == 1:
                # What is in our slot is the state to decide on, unless more came after it: so it is as old as the
                # picture that it follows, or the fence would trust a slot that was used and trimmed.
                picture, fresh = self._pictures.remember(picture.row, outcome.entry, picture.read), False
            else:
                picture, fresh = self._pictures.look(which), True
        for ticket, answer in zip(tickets, decision.answers, strict=True):
            ticket.tries = budget.tries + 1
            if isinstance(answer, HeadraceError):
                ticket.settle(error=answer)
            else:
                ticket.settle(answer)
        self._wakeups.notify(which)
