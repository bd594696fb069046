"""Appends: requests of one process to the same log wait in a group, and the thread of one of them leads.

The leader takes a batch of requests, commits what the surface decides, and answers all of them. When its own request is
answered and others wait, it hands the lead over to the first of them. A process that serves one request at a time
always leads a batch of one. A control verb (delete, fork, expire) takes the `turn` between two batches, so that a
stream of appends can't starve it.

If the log's state is cached, an append costs one conditional write and nothing else; otherwise one catalog read and one
query come before it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import HeadraceError, Overloaded, StoreError
from headrace.limits import GROUP_BYTES, GROUP_REQUESTS
from headrace.log.commit import Attempt, Budget, Found
from headrace.log.context import Context, Picture
from headrace.log.seam import Which, split
from headrace.wal import Committed, SlotTaken

if TYPE_CHECKING:  # `Controls.ensure_alive` is asked for only when a deadline has passed
    from headrace.log.control import Controls

_LEAST_BUDGET_MS = 500  # for a batch whose first request has waited in the queue


class Appender:
    """Commits appends to the logs of one surface.

    Attributes:
        groups: the waiting requests by log; control verbs take turns with them.
        wakeups: the callbacks that are called after each change by this process.
    """

    def __init__(self, context: Context, controls: Controls) -> None:
        self._context = context
        self._controls = controls
        self.groups = Groups()
        self.wakeups = Wakeups()

    def append(self, which: Which, request: Sized) -> Ticket:
        """Commits one append request by the surface's decision, alone or together with others of this process.

        Returns:
            The ticket of the request, which has the answer.

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
        """Commits a batch of requests and answers every ticket, whatever happens."""
        try:
            self._commit(which, tickets)
        except BaseException as exc:
            for ticket in tickets:
                ticket.settle(error=exc)
            if not isinstance(exc, (HeadraceError, StoreError)):
                raise

    def _commit(self, which: Which, tickets: Sequence[Ticket]) -> None:
        context, surface = self._context, self._context.surface
        clock, timeout_ms = context.stores.clock, context.stores.settings.append_timeout_ms
        waited_ms = round((clock.monotonic() - tickets[0].queued) * 1000)
        if waited_ms > timeout_ms:
            raise Overloaded(f"too many appends wait for this {surface.noun}")
        budget = Budget(clock, max(timeout_ms - waited_ms, _LEAST_BUDGET_MS))
        attempt, request_ids = Attempt(context, budget), [ticket.request_id for ticket in tickets]
        logs = surface.look_at(which)
        pictures = [context.pictures.warm(one) for one in logs]
        fresh = None in pictures
        looked = self._look(logs) if fresh else [picture for picture in pictures if picture is not None]
        while True:
            looked = [self._controls.ensure_alive(one) if context.is_due(one) else one for one in looked]
            found, now_ms = Found(tuple(looked), min([one.read for one in looked])), clock.now_ms()
            decision = surface.decide([context.look_at(one) for one in looked], tickets, context, now_ms, attempt)
            if decision.tells and (not fresh or context.pictures.is_old(found.read)):
                # What was decided on cached state, and no slot will check, is checked once against fresh state.
                looked, fresh = self._look(logs), True
                continue
            if not decision.entries:
                break
            outcome = attempt.commit(found, decision, now_ms, request_ids)
            if isinstance(outcome, Committed):
                break
            budget.again(f"others keep appending to this {surface.noun}")
            if isinstance(outcome, SlotTaken) and budget.tries == 1 and len(looked) == 1:
                # What is in our slot is the state to decide on, unless more came after it: so it is as old as the
                # picture that it follows, or the fence would trust a slot that was used and trimmed.
                looked, fresh = [context.pictures.remember(looked[0].row, outcome.entry, found.read)], False
            else:
                looked, fresh = self._look(logs), True
        for ticket, answer in zip(tickets, decision.answers, strict=True):
            ticket.tries = budget.tries + 1
            if isinstance(answer, HeadraceError):
                ticket.settle(error=answer)
            else:
                ticket.settle(answer)
        written = {draft.log_id for draft in decision.entries}
        for log, picture in zip(logs, looked, strict=True):
            if log == which or picture.row.log_id in written:
                self.wakeups.notify(log)

    def _look(self, logs: Sequence[Which]) -> list[Picture]:
        """Reads fresh pictures of these logs."""
        return [self._context.pictures.look(one) for one in logs]


class Sized(Protocol):
    """A request whose size is known."""

    @property
    def size(self) -> int:
        """The bytes that the request adds to a batch."""


class Ticket:
    """A waiting request and its answer.

    Attributes:
        queued: when it began to wait, in monotonic seconds.
        memo: what the surface keeps about it from one decision to the next.
        tries: number of commits that it took.
    """

    def __init__(self, request: Sized, request_id: str, queued: float) -> None:
        self.request = request
        self.request_id = request_id
        self.queued = queued
        self.memo: Any = None
        self.tries = 0
        self.answer: Any = None
        self.error: BaseException | None = None
        self._woken = threading.Event()

    def settle(self, answer: Any = None, error: BaseException | None = None) -> None:
        """Answers the request with a result or an error; only the first answer counts."""
        if not self.settled:
            self.answer, self.error = answer, error
        self._woken.set()

    @property
    def settled(self) -> bool:
        """Whether the request has its answer."""
        return self.answer is not None or self.error is not None

    def wake(self) -> None:
        """Wakes the thread of the request, which waits for its answer or for its turn to lead."""
        self._woken.set()

    def wait(self) -> None:
        """Waits until the request is answered, or its thread must lead."""
        self._woken.wait()

    def result(self) -> Any:
        """Returns the request's answer, or raises its error."""
        if self.error is not None:
            raise self.error
        return self.answer


class Group:
    """The waiting requests of one process for one log."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._waiting: deque[Ticket] = deque()
        self._led = False
        self._control = 0
        self._turn = threading.Lock()
        self.users = 0

    def enter(self, ticket: Ticket) -> bool:
        """Queues a ticket. Returns True if its thread must lead now; otherwise waits until it is answered or must
        lead.
        """
        with self._lock:
            self._waiting.append(ticket)
            if not self._led:
                self._led = True
                return True
        ticket.wait()
        return not ticket.settled

    def batch(self) -> list[Ticket]:
        """Returns the tickets that the leader commits next, in order of arrival; at least one if any waits."""
        with self._lock:
            taken: list[Ticket] = []
            size = 0
            while self._waiting and len(taken) < GROUP_REQUESTS:
                size += self._waiting[0].request.size
                if taken and size > GROUP_BYTES:
                    break
                taken.append(self._waiting.popleft())
            return taken

    def hand_over(self) -> None:
        """Ends a lead: the first waiting thread leads next, if there is one."""
        with self._lock:
            if self._waiting:
                self._waiting[0].wake()
            else:
                self._led = False

    @contextmanager
    def data_turn(self) -> Iterator[None]:
        """Holds the log for one batch while the block runs; first waits until no control verb waits or runs."""
        with self._lock:
            self._lock.wait_for(lambda: not self._control)
        with self._turn:
            yield

    @contextmanager
    def control_turn(self) -> Iterator[None]:
        """Holds the log for a control verb while the block runs, so that no batch is committed meanwhile."""
        with self._lock:
            self._control += 1
        try:
            with self._turn:
                yield
        finally:
            with self._lock:
                self._control -= 1
                self._lock.notify_all()


class Groups:
    """The groups of all logs; each exists while it is in use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[tuple[str, str], Group] = {}

    @contextmanager
    def of(self, which: Which) -> Iterator[Group]:
        """Yields the group of a log, and creates it if no other request of the log is in progress."""
        key = split(which)
        with self._lock:
            group = self._groups.setdefault(key, Group())
            group.users += 1
        try:
            yield group
        finally:
            with self._lock:
                group.users -= 1
                if not group.users:
                    del self._groups[key]

    def in_use(self, name: str) -> list[Which]:
        """Returns the main log of a name, and those of its companions for which requests are waiting."""
        with self._lock:
            return [(name, ""), *(key for key in self._groups if key[0] == name and key[1])]


class Wakeups:
    """Callbacks by log, which wake waiting readers of this process. They are only a hint: readers also poll, to see
    other processes' writes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[tuple[str, str], list[Callable[[], None]]] = {}

    @contextmanager
    def listen(self, which: Which, callback: Callable[[], None]) -> Iterator[None]:
        """Calls `callback`, from any thread, after each change of a log by this process, while the block runs."""
        key = split(which)
        with self._lock:
            self._listeners.setdefault(key, []).append(callback)
        try:
            yield
        finally:
            with self._lock:
                listeners = self._listeners[key]
                listeners.remove(callback)
                if not listeners:
                    del self._listeners[key]

    def notify(self, which: Which) -> None:
        """Calls the callbacks of a log."""
        with self._lock:
            listeners = list(self._listeners.get(split(which), ()))
        for callback in listeners:
            callback()
