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


class HostClock:
    """The clock of a host that is suspended now and then, while a `ManualClock` tells the true time. One of its clocks may
    stand still meanwhile; the wall clock is right again with the next answer of a store (`SystemClock.follow`).
    """

    def __init__(self, true: ManualClock) -> None:
        self._true = true
        self._behind_ms = 0
        self._behind_s = 0.0

    def now_ms(self) -> int:
        """Returns the wall clock time in epoch milliseconds."""
        return self._true.now_ms() - self._behind_ms

    def monotonic(self) -> float:
        """Returns monotonic seconds."""
        return self._true.monotonic() - self._behind_s

    def sleep(self, seconds: float) -> None:
        """Moves the true time forward, without waiting."""
        self._true.advance(seconds)

    def miss(self, seconds: float, stopped: str) -> None:
        """Stays behind by so many seconds: the clock named `wall` or `monotonic`; none if it is another word."""
        if stopped == "wall":
            self._behind_ms += round(seconds * 1000)
        elif stopped == "monotonic":
            self._behind_s += seconds

    def follow(self) -> None:
        """Sets the wall clock right: a store has answered."""
        self._behind_ms = 0
