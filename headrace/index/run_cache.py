"""What a process keeps of index runs, whoever asks them: readers, what they decoded, and ranges of objects.

Searches, aggregates and reads that select records share it, so that each object is fetched once and one bound holds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace.objects import Objects

if TYPE_CHECKING:  # a tenth of a second of imports, of numpy and pyarrow, that plain reads need not wait for
    from headrace.index.cache import CachedRanges
    from headrace.index.opening import Runs


class Opened(NamedTuple):
    """Readers of runs, and where they get ranges from."""

    runs: Runs
    ranges: CachedRanges


class RunCache:
    """Made when it is first asked for. Thread-safe."""

    def __init__(
        self,
        objects: Objects,
        monotonic: Callable[[], float],
        *,
        directory: Path | None = None,
        directory_bytes: int = 0,
    ) -> None:
        """Of runs in `objects`; the arguments are those of `headrace.index.cache.CachedRanges`."""
        self._objects = objects
        self._monotonic = monotonic
        self._directory = directory
        self._directory_bytes = directory_bytes
        self._lock = threading.Lock()
        self._opened: Opened | None = None

    def opened(self) -> Opened:
        """The same each time. The first call imports what reads indexes."""
        from headrace.index.cache import CachedRanges
        from headrace.index.opening import Runs

        with self._lock:
            if self._opened is None:
                ranges = CachedRanges(
                    self._objects,
                    directory=self._directory,
                    directory_bytes=self._directory_bytes,
                    monotonic=self._monotonic,
                )
                self._opened = Opened(Runs(), ranges)
            return self._opened
