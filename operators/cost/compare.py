"""Where one is as dear as the other: break-even points by the rate of appends and by the size of a batch. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

from operators.cost.bill import Bill
from operators.cost.model import Reckoning, bill
from operators.cost.workload import Workload

Peer = Callable[[Reckoning], Bill]

_LEAST, _MOST = 1e3, 1e11
_STEPS_A_DECADE = 8
_BATCHES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 2000, 3000)


def crossings(it: Reckoning, peer: Peer) -> list[tuple[float, bool]]:
    """Appends a month at which both cost the same, all else in proportion; whether Headrace is dearer above.

    Steps in a bill (another pair of servers) make several. Between 1e3 and 1e11 appends.
    """

    def dearer_by(appends: float) -> float:
        at = replace(it, work=scaled(it.work, appends))
        return bill(at).usd - peer(at).usd

    found = []
    for low, high in itertools.pairwise(_grid()):
        before, after = dearer_by(low), dearer_by(high)
        if (before > 0) != (after > 0):
            found.append((_bisect(dearer_by, low, high), after > 0))
    return found


def least_batch(it: Reckoning, peer: Peer) -> int | None:
    """The least batch, of those tried, at which the same records cost no more than at the peer; None if none does."""
    for batch in _BATCHES:
        at = replace(it, work=replace(it.work, appends=it.work.records / batch, batch=batch))
        if bill(at).usd <= peer(at).usd:
            return batch
    return None


def scaled(work: Workload, appends: float) -> Workload:
    """The same mix with another number of appends. Followers and streams stay as they are."""
    factor = appends / work.appends
    return replace(work, appends=appends, searches=work.searches * factor, replayed_gb=work.replayed_gb * factor)


def _grid() -> Iterator[float]:
    appends = _LEAST
    while appends <= _MOST:
        yield appends
        appends *= 10 ** (1 / _STEPS_A_DECADE)


def _bisect(of: Callable[[float], float], low: float, high: float) -> float:
    sign = of(low) > 0
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if (of(middle) > 0) == sign else (low, middle)
    return high
