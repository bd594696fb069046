"""What was decoded of runs: columns and postings, kept so that the next query spends its time on something else."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Protocol, TypeVar


class Sized(Protocol):
    """What is kept. It is never changed."""

    @property
    def nbytes(self) -> int:
        """Of memory."""


V = TypeVar("V", bound=Sized)


class Decoded:
    """The values used last, of all runs, up to a number of bytes. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._values: OrderedDict[tuple[str, Hashable], Sized] = OrderedDict()
        self._bytes = 0

    def get(self, run: str, name: Hashable, type_: type[V]) -> V | None:
        """A value that is here.

        Args:
            run: key of the run's descriptor.
            name: what it is of the run.
            type_: what was put under such names.
        """
        with self._lock:
            value = self._values.get((run, name))
            if not isinstance(value, type_):
                return None
            self._values.move_to_end((run, name))
            return value

    def put(self, run: str, name: Hashable, value: Sized) -> None:
        """Keeps a value; those used least recently go."""
        with self._lock:
            before = self._values.pop((run, name), None)
            self._bytes += value.nbytes - (before.nbytes if before is not None else 0)
            self._values[run, name] = value
            while self._bytes > self._max_bytes and self._values:
                _, gone = self._values.popitem(last=False)
                self._bytes -= gone.nbytes
