"""What measured latencies are summed up as."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(latencies: Sequence[float], rank: float) -> float | None:
    """Returns the smallest latency that at least `rank` percent of them do not exceed (nearest rank, no interpolation);
    None without any.
    """
    if not latencies:
        return None
    return sorted(latencies)[max(0, math.ceil(len(latencies) * rank / 100) - 1)]


def show_ms(latency_ms: float | None) -> str:
    """Returns a latency for people: `0.85`, `12.3`, `1,204`; `-` for None."""
    if latency_ms is None:
        return "-"
    return (
        f"{latency_ms:.2f}" if latency_ms < 1 else f"{latency_ms:,.1f}" if latency_ms < 100 else f"{latency_ms:,.0f}"
    )
