"""A port that fails: a wrapper that does something before or after chosen calls of the port behind it.

`port.fail("commit")` makes the next commit time out before it takes effect; with `after=True` it takes effect and its
answer is lost. `port.on("commit", action)` runs any action there: another process's write, a trim, a jump of the clock.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.errors import StoreTimeout
from headrace.tables.catalog import Row
from headrace.tables.memory import MemoryCatalog
from headrace.wal import Page


@dataclass
class _Rule:
    method: str
    first: int
    last: float
    after: bool
    action: Callable[[], object]


class Faulty:
    """Forwards every method to `target`, counts calls by method, and keeps the arguments of each."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self.calls: Counter[str] = Counter()
        self.seen: list[tuple[str, tuple[Any, ...]]] = []
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()

    def on(
        self, method: str, action: Callable[[], object], *, call: int = 1, times: float = 1, after: bool = False
    ) -> None:
        """Runs `action` at call number `call` from now on (1: the next one), and at the `times - 1` after it."""
        first = self.calls[method] + call
        self._rules.append(_Rule(method, first, first + times - 1, after, action))

    def fail(
        self,
        method: str,
        error: type[Exception] = StoreTimeout,
        *,
        call: int = 1,
        times: float = 1,
        after: bool = False,
    ) -> None:
        """Makes calls of `method` fail with `error`: before they take effect or, with `after`, once they have, so
        that the answer is lost.
        """

        def fails() -> None:
            raise error(f"{method} was made to fail")

        self.on(method, fails, call=call, times=times, after=after)

    def heal(self) -> None:
        """Forgets every rule."""
        self._rules.clear()

    def __getattr__(self, method: str) -> Any:
        target = getattr(self.target, method)
        if not callable(target):
            return target

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                self.calls[method] += 1
                number = self.calls[method]
                self.seen.append((method, args))
                due = [rule for rule in self._rules if rule.method == method and rule.first <= number <= rule.last]
            for rule in due:
                if not rule.after:
                    rule.action()
            answer = target(*args, **kwargs)
            for rule in due:
                if rule.after:
                    rule.action()
            return answer

        return call


class CountedEntries(Faulty):
    """A write-ahead log that counts the entries that its reads return."""

    entries = 0

    def read(self, log_id: str, **what: Any) -> Page:
        """Reads, and counts."""
        page: Page = self.target.read(log_id, **what)
        self.entries += len(page.entries)
        return page


class LaggingIndex(Faulty):
    """A catalog in memory whose listings show from now on what it holds now."""

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        self._index = MemoryCatalog()
        self._index.rows = dict(target.rows)

    def living(self, surface: str, **which: Any) -> list[Row]:
        """Lists the rows as they were."""
        return self._index.living(surface, **which)

    def part(self, surface: str, bucket: str, **which: Any) -> list[Row]:
        """Lists the rows of one bucket as they were."""
        return self._index.part(surface, bucket, **which)
