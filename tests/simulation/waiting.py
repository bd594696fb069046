"""The engine's locks, conditions and events in simulated time: they let other actors run while one waits.

They take the place of `threading` in `headrace.log.context`, where requests of one process wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.scheduler import Actor, Scheduler


class SimulatedThreading:
    """What `headrace.log.context` uses of `threading`, for whichever scheduler runs in this thread."""

    def __init__(self) -> None:
        self.scheduler: Scheduler | None = None

    def _now(self) -> Scheduler:
        assert self.scheduler is not None
        return self.scheduler

    def Lock(self) -> Lock:  # noqa: N802 - stands in for threading.Lock
        """Returns a lock."""
        return Lock(self._now())

    def Condition(self) -> Condition:  # noqa: N802
        """Returns a condition."""
        return Condition(self._now())

    def Event(self) -> Event:  # noqa: N802
        """Returns an event."""
        return Event(self._now())


class _Waits:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: list[Actor] = []

    def _wait(self) -> None:
        actor = self._scheduler.current
        assert actor is not None
        self._waiting.append(actor)
        try:
            self._scheduler.park()
        finally:
            if actor in self._waiting:
                self._waiting.remove(actor)

    def _wake(self, count: int) -> None:
        for actor in self._waiting[:count]:
            self._waiting.remove(actor)
            self._scheduler.wake(actor)


class Lock(_Waits):
    """threading.Lock."""

    _held = False

    def __enter__(self) -> bool:
        """Waits for it."""
        while self._held:
            self._wait()
        self._held = True
        return True

    def __exit__(self, *_: Any) -> None:
        """Gives it back."""
        self._held = False
        self._wake(1)


class Condition(_Waits):
    """threading.Condition. Its lock is never held while anything waits elsewhere, so it needs none."""

    def __enter__(self) -> bool:
        """Nothing: only one actor runs."""
        return True

    def __exit__(self, *_: Any) -> None:
        """Nothing."""

    def wait_for(self, predicate: Callable[[], bool]) -> bool:
        """Until the predicate holds."""
        while not predicate():
            self._wait()
        return True

    def notify_all(self) -> None:
        """Wakes everybody."""
        self._wake(len(self._waiting))


class Event(_Waits):
    """threading.Event."""

    _set = False

    def is_set(self) -> bool:
        """Returns whether it was set."""
        return self._set

    def set(self) -> None:
        """Wakes everybody, for good."""
        self._set = True
        self._wake(len(self._waiting))

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is set."""
        while not self._set:
            self._wait()
        return True
