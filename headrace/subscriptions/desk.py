"""What all parts of subscriptions share in one process; and the timer of a subscription: the row that has the relay visit
it at a time, whatever becomes of its streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from headrace.clock import Budget
from headrace.log.stores import Stores
from headrace.streams.verbs import Streams
from headrace.subscriptions.rows import Rows
from headrace.subscriptions.values import KIND, Subscription, digest
from headrace.tables.follows import Follow

FOREVER_MS = 253_402_300_799_000  # the end of year 9999


@dataclass(frozen=True)
class Desk:
    """What all parts of subscriptions share in one process.

    Attributes:
        ring: asks the relay to visit a follower at the time that its row says.
        jitter: returns a random number from 0 to 1.
        refusal: tells why the key of a subscription does not allow that streams, or all that the pattern can match, are
            read on its behalf, and its wake stream written: code and message. None if it does.
    """

    stores: Stores
    streams: Streams
    ring: Callable[[Follow], None]
    jitter: Callable[[], float]
    refusal: Callable[[Subscription, Iterable[str]], tuple[str, str] | None]

    @property
    def rows(self) -> Rows:
        """The rows of subscriptions."""
        return Rows(self.stores.sessions)

    def now_ms(self) -> int:
        """Returns the server's clock in epoch milliseconds."""
        return self.stores.clock.now_ms()

    def tries(self, what: str) -> Iterator[None]:
        """Yields once for each try of a transition that others may win, with pauses between them.

        Raises:
            Overloaded: tries or time are used up.
        """
        budget = Budget(self.stores.clock, self.stores.settings.append_timeout_ms)
        while True:
            yield
            budget.again(what)

    def timer(self, id_: str) -> Follow | None:
        """Returns the timer of a subscription; None if it has none."""
        return self.stores.follows.get(timer_log(id_), KIND, id_)

    def arm(self, id_: str, at_ms: int, *, is_urgent: bool = True) -> None:
        """Has the relay visit a subscription at a time, or before it; if that is not urgent, a while later."""
        for _ in self.tries("a subscription's timer changes all the time"):
            row = self.timer(id_)
            now_ms = self.now_ms()
            if row is not None and now_ms < row.due_ms <= at_ms:
                return  # it comes by anyway
            if row is None:
                armed = Follow(timer_log(id_), KIND, id_, until_ms=FOREVER_MS, due_ms=at_ms)
            elif 0 < row.due_ms <= now_ms:
                # A visit that is under way may have looked already, and will write that the next one is later. The time
                # numbers the message: another one.
                armed = replace(row, due_ms=max(now_ms, row.due_ms + 1))
            else:
                armed = replace(row, due_ms=at_ms)
            if self.stores.follows.put(armed, row):
                if is_urgent:
                    self.ring(armed)
                return

    def drop_timer(self, id_: str) -> None:
        """Removes the timer of a subscription that is no more."""
        row = self.timer(id_)
        if row is not None:
            self.stores.follows.remove(row)


def timer_log(id_: str) -> str:
    """Returns what stands in for a log id in the row of a subscription's timer. No log has it."""
    return digest(f"timer of subscription {id_}")
