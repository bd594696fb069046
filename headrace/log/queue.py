"""Group commit's queue: requests of one process that append to one log wait here, and one of them leads.

The leader takes a batch, commits it as one entry, and answers all. When its own request is answered and others wait, it
hands the lead to the first of them. A process that serves one request at a time always leads a batch of one. A control
verb (delete, fork, expire) takes the `turn` between two batches, so that a stream of appends cannot starve it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from headrace.limits import GROUP_BYTES, GROUP_REQUESTS
from headrace.log.seam import Which, split


class Sized(Protocol):
    """A request."""

    @property
    def size(self) -> int:
        """Bytes that it brings."""


class Ticket:
    """A waiting request and its answer.

    Attributes:
        queued: since when it waits, monotonic seconds.
        memo: what its surface remembers of it from one decision to the next.
        tries: commits that it took.
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
        """Answers the request; the first answer counts."""
        if not self.settled:
            self.answer, self.error = answer, error
        self._woken.set()

    @property
    def settled(self) -> bool:
        """It has its answer."""
        return self.answer is not None or self.error is not None

    def wake(self) -> None:
        """Tells its thread to lead."""
        self._woken.set()

    def wait(self) -> None:
        """Until answered, or woken to lead."""
        self._woken.wait()

    def result(self) -> Any:
        """Returns the answer, or raises the error."""
        if self.error is not None:
            raise self.error
        return self.answer


class Group:
    """The requests of one process for one name."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._waiting: deque[Ticket] = deque()
        self._led = False
        self._control = 0
        self._turn = threading.Lock()
        self.users = 0

    def enter(self, ticket: Ticket) -> bool:
        """Queues a ticket; True if its thread must lead now, else it has waited: settled, or woken to lead."""
        with self._lock:
            self._waiting.append(ticket)
            if not self._led:
                self._led = True
                return True
        ticket.wait()
        return not ticket.settled

    def batch(self) -> list[Ticket]:
        """Returns what the leader commits next, in order of arrival; at least one ticket if any waits."""
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
        """Ends a lead: the first waiting thread leads, or nobody."""
        with self._lock:
            if self._waiting:
                self._waiting[0].wake()
            else:
                self._led = False

    @contextmanager
    def data_turn(self) -> Iterator[None]:
        """Held around one batch; waits while a control verb waits or works."""
        with self._lock:
            self._lock.wait_for(lambda: not self._control)
        with self._turn:
            yield

    @contextmanager
    def control_turn(self) -> Iterator[None]:
        """Held around a control verb."""
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
    """Groups by log, kept while somebody uses them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[tuple[str, str], Group] = {}

    @contextmanager
    def of(self, which: Which) -> Iterator[Group]:
        """Yields the group of a log."""
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
