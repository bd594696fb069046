"""A clock that a test moves."""

from __future__ import annotations


class ManualClock:
    """A clock for tests, which moves only when told to. Sleeping moves it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._elapsed = 0.0

    def now_ms(self) -> int:
        """Returns the wall clock time in epoch milliseconds."""
        return self._now_ms

    def monotonic(self) -> float:
        """Returns the seconds that the clock was moved so far."""
        return self._elapsed

    def sleep(self, seconds: float) -> None:
        """Moves both clocks forward at once, without waiting."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Moves both clocks forward by `seconds`."""
        self._elapsed += seconds
        self._now_ms += round(seconds * 1000)

    def set_back(self, seconds: float) -> None:
        """Moves only the wall clock back by `seconds`."""
        self._now_ms -= round(seconds * 1000)
