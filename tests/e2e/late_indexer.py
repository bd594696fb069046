"""The indexer, two days later: `python -m tests.e2e.late_indexer LOG PURGED`.

Old generations of the first log's index manifest go, and so does a segment that a job merged too late for the second.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from functions.indexer.context import open_context
from functions.indexer.follow import remove_merged
from functions.indexer.retire import remove_generations
from headrace.clock import SystemClock

LATER_MS = 2 * 24 * 3600 * 1000


class LateClock(SystemClock):
    """Two days ahead."""

    def now_ms(self) -> int:
        return super().now_ms() + LATER_MS


def main(log: str, purged: str) -> None:
    """Exits with an error when nothing was removed."""
    now = open_context()
    late = replace(now, stores=replace(now.stores, clock=LateClock()))
    assert remove_generations(late, log) > 0
    assert remove_merged(late, purged) == 1


if __name__ == "__main__":
    main(*sys.argv[1:])
