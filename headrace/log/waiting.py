"""What waits in one process for a log: appends for their commit, and readers for a change.

Appends to the same log wait in a group, which one of them leads (`headrace.log.commit`). A process that serves one
request at a time always leads a batch of one. A control verb (delete, fork, expire) takes its turn between two batches,
so that a stream of appends can't starve it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from headrace.limits import GROUP_BYTES, GROUP_REQUESTS
from headrace.log.seam import Which, split


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
        """Returns the request's answer (None if it is not settled), or raises its error. An error is raised once: its
        traceback holds this ticket, so a ticket that kept it would wait, with its request, for the garbage collector.
        """
        error, self.error = self.error, None
        if error is None:
            return self.answer
        try:
            raise error
        finally:
            del error


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
        """Removes and returns the tickets that the leader commits next, in order of arrival, up to the bounds of a group;
        at least one if any waits.
        """
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
        """Waits for the batch that is being committed, and holds the log for a control verb while the block runs, so that
        no batch is committed meanwhile.
        """
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
        """Calls the callbacks of a log, in the caller's thread."""
        with self._lock:
            listeners = list(self._listeners.get(split(which), ()))
        for callback in listeners:
            callback()
