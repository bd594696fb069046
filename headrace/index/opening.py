"""Opens runs: their readers, kept with what they decoded up to bounds."""

from __future__ import annotations

import threading
from collections import OrderedDict

from headrace.index import descriptors
from headrace.index.decoded import Decoded
from headrace.index.fetching import Routine
from headrace.index.parts import whole
from headrace.index.reading import RunReader
from headrace.index.run import Run
from headrace.objects import Range

_MEMORY = 6  # times the size of a descriptor's object that its reader takes: footers, decoded


class Runs:
    """Readers of runs, by descriptor; shared by the requests of a process. Thread-safe."""

    def __init__(self, *, readers_bytes: int = 64 * 1024 * 1024, decoded_bytes: int = 192 * 1024 * 1024) -> None:
        """Keeps readers of about `readers_bytes`, and columns and postings, decoded, of `decoded_bytes`."""
        self._readers_bytes = readers_bytes
        self._decoded = Decoded(decoded_bytes)
        self._lock = threading.Lock()
        self._readers: OrderedDict[str, tuple[RunReader, int]] = OrderedDict()
        self._bytes = 0

    def open(self, run: Run) -> Routine[RunReader]:
        """The reader of a run. One GET, the first time.

        Raises (as every routine of the reader does):
            Damaged: an object is missing, or is not what it should be.
        """
        kept = self._kept(run)
        if kept is not None:
            return kept
        asked = [Range(run.descriptor, 0, run.size)]
        data = yield asked
        whole(data, asked)
        reader = RunReader(run.descriptor, descriptors.opened(run, data[0]), self._decoded)
        self._keep(run, reader)
        return reader

    def _kept(self, run: Run) -> RunReader | None:
        with self._lock:
            found = self._readers.get(run.descriptor)
            if found is None:
                return None
            self._readers.move_to_end(run.descriptor)
            return found[0]

    def _keep(self, run: Run, reader: RunReader) -> None:
        size = run.size * _MEMORY
        with self._lock:
            if run.descriptor in self._readers:
                return
            self._readers[run.descriptor] = (reader, size)
            self._bytes += size
            while self._bytes > self._readers_bytes and len(self._readers) > 1:
                _, (_, gone) = self._readers.popitem(last=False)
                self._bytes -= gone
