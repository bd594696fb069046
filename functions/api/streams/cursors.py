"""`Stream-Cursor`: makes the URLs of live readers change over time, so that caches between can't loop (protocol § 10.1)."""

from __future__ import annotations

from collections.abc import Callable

_EPOCH_MS = 1_728_432_000_000  # 2024-10-09T00:00:00Z
_INTERVAL_MS = 20_000
_JITTER_S = 3600


def next_cursor(client: int | None, now_ms: int, random_below: Callable[[int], int]) -> int:
    """The number of the current interval; if the client's cursor is not below it, one above the client's.

    The distance stands for 1 to 3,600 random seconds.
    """
    current = max(0, (now_ms - _EPOCH_MS) // _INTERVAL_MS)
    if client is None or client < current:
        return current
    jitter_s = 1 + random_below(_JITTER_S)
    return client + max(1, jitter_s * 1000 // _INTERVAL_MS)
