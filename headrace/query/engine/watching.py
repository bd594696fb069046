"""Ranges that are asked for, watched: what `explain=true` shows of the work behind an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from headrace.index.cache import Fetches
from headrace.objects import Range, keys


class Watched:
    """The port `headrace.index.fetching.Ranges`, with each round written down. Not thread-safe."""

    def __init__(self, fetches: Fetches, monotonic: Callable[[], float]) -> None:
        self._fetches = fetches
        self._monotonic = monotonic
        self._rounds: list[dict[str, Any]] = []

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """As `Fetches.get_ranges`."""
        before, began = self._fetches.stats, self._monotonic()
        found = self._fetches.get_ranges(ranges)
        after = self._fetches.stats
        asked, sizes = Counter(_family(one.key) for one in ranges), Counter[str]()
        for one, data in zip(ranges, found, strict=True):
            sizes[_family(one.key)] += len(data)
        self._rounds.append(
            {
                "ms": round((self._monotonic() - began) * 1000, 3),
                "gets": after.gets - before.gets,
                "bytes": after.bytes - before.bytes,
                "ranges": [{"family": name, "ranges": asked[name], "bytes": sizes[name]} for name in sorted(asked)],
            }
        )
        return found

    def explain(self) -> dict[str, Any]:
        """Rounds of GETs and what the cache spared, as JSON."""
        stats = self._fetches.stats
        return {
            "gets": self._rounds,
            "cache": {
                "hits": stats.memory_hits + stats.directory_hits,
                "memory_hits": stats.memory_hits,
                "directory_hits": stats.directory_hits,
            },
        }


def _family(key: str) -> str:
    """What an object holds: an index family, `descriptor`, or another kind of object."""
    found = keys.artifact(key)
    kind = found[1] if found is not None else "other"
    name = key.rpartition("/")[2]
    if kind != "index_run":
        return kind
    return "descriptor" if name.startswith("run.") else name.partition("-")[0]
