"""Time as an argument, so that a run can be replayed."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the Unix epoch. May jump."""

    def monotonic(self) -> float:
        """Seconds that never run backwards, of this process only."""

    def sleep(self, seconds: float) -> None:
        """Waits."""


class SystemClock:
    """The clock of the machine."""

    def now_ms(self) -> int:
        """Wall clock in ms."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Blocks the thread."""
        time.sleep(seconds)


class ManualClock:
    """A clock that a test moves. Sleeping moves it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._elapsed = 0.0

    def now_ms(self) -> int:
        """Wall clock in ms."""
        return self._now_ms

    def monotonic(self) -> float:
        """Seconds advanced so far."""
        return self._elapsed

    def sleep(self, seconds: float) -> None:
        """Advances both clocks."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Moves time forward by `seconds`."""
        self._elapsed += seconds
        self._now_ms += round(seconds * 1000)

    def set_back(self, seconds: float) -> None:
        """Moves the wall clock, and only it, back."""
        self._now_ms -= round(seconds * 1000)
