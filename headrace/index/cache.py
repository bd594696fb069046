"""Ranges of immutable objects, kept: in memory up to a bound, and then in a directory up to another one.

A cache is shared by the requests of a process. Each request asks it through `Fetches` of its own, which count; they also
make few GETs of many ranges, by fetching what stands between neighbours.
"""

from __future__ import annotations

import hashlib
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from headrace.objects import Objects, Range

_GAP = 128 * 1024  # bytes between two ranges that are cheaper than another GET
_LARGEST = 8 * 1024 * 1024  # of a GET that was made of several ranges: large ones are faster side by side


class FetchStats(NamedTuple):
    """What was fetched so far.

    Attributes:
        rounds: rounds with at least one GET; those of one round were made at once.
        gets, bytes: that went to the object store, with what stands between ranges.
        memory_hits, directory_hits: ranges that were here.
        wait_s: seconds spent in rounds with GETs.
    """

    rounds: int = 0
    gets: int = 0
    bytes: int = 0
    memory_hits: int = 0
    directory_hits: int = 0
    wait_s: float = 0.0


class CachedRanges:
    """A cache of what an object store holds; objects must never change. Thread-safe."""

    def __init__(
        self,
        objects: Objects,
        *,
        memory_bytes: int = 128 * 1024 * 1024,
        directory: Path | None = None,
        directory_bytes: int = 0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Caches what `objects` holds.

        Args:
            memory_bytes: kept in memory.
            directory, directory_bytes: where ranges are kept that left memory, and how much of them. The directory
                belongs to the process.
            monotonic: seconds, for `FetchStats.wait_s`.
        """
        self.objects = objects
        self.monotonic = monotonic
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[Range, bytes] = OrderedDict()
        self._bytes = 0
        self._directory = _Directory(directory, directory_bytes) if directory and directory_bytes else None

    def fetches(self) -> Fetches:
        """For one request."""
        return Fetches(self)

    def memory(self, one: Range) -> bytes | None:
        """A range from memory."""
        with self._lock:
            found = self._kept.get(one)
            if found is not None:
                self._kept.move_to_end(one)
            return found

    def directory(self, one: Range) -> bytes | None:
        """A range from the directory; it is in memory again, too."""
        found = self._directory.get(one) if self._directory else None
        if found is not None:
            self.keep(one, found)
        return found

    def keep(self, one: Range, data: bytes) -> None:
        """Keeps a range; those used least recently go to the directory."""
        gone: list[tuple[Range, bytes]] = []
        with self._lock:
            if one in self._kept or len(data) > self._memory_bytes:
                return
            self._kept[one] = data
            self._bytes += len(data)
            while self._bytes > self._memory_bytes:
                oldest = self._kept.popitem(last=False)
                self._bytes -= len(oldest[1])
                gone.append(oldest)
        if self._directory:
            for old, body in gone:
                self._directory.put(old, body)


class Fetches:
    """Ranges for one request: the port `headrace.index.fetching.Ranges`. Not thread-safe.

    Attributes:
        stats: of this request.
    """

    def __init__(self, cache: CachedRanges) -> None:
        self._cache = cache
        self.stats = FetchStats()

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """From the cache or, all that are not there in one round, from the object store. Raises `ObjectMissing`."""
        found: dict[Range, bytes] = {}
        missing: list[Range] = []
        memory_hits = directory_hits = 0
        for one in dict.fromkeys(ranges):
            if (data := self._cache.memory(one)) is not None:
                memory_hits += 1
            elif (data := self._cache.directory(one)) is not None:
                directory_hits += 1
            if data is None:
                missing.append(one)
            else:
                found[one] = data
        wide = joined(missing)
        began = self._cache.monotonic()
        fetched = self._cache.objects.get_ranges([whole for whole, _ in wide]) if wide else []
        waited = self._cache.monotonic() - began
        for (whole, members), data in zip(wide, fetched, strict=True):
            for one in members:
                low = one.start - whole.start
                # Bytes of their own: a slice in memory would hold what stands around it.
                found[one] = data if one == whole else data[low : low + one.length]
                if len(found[one]) == one.length:
                    self._cache.keep(one, found[one])
        before = self.stats
        self.stats = FetchStats(
            rounds=before.rounds + (1 if wide else 0),
            gets=before.gets + len(wide),
            bytes=before.bytes + sum(map(len, fetched)),
            memory_hits=before.memory_hits + memory_hits,
            directory_hits=before.directory_hits + directory_hits,
            wait_s=before.wait_s + (waited if wide else 0.0),
        )
        return [found[one] for one in ranges]


def joined(ranges: Sequence[Range]) -> list[tuple[Range, list[Range]]]:
    """Few ranges in which all of these lie, each with those in it: neighbours are joined if little stands between them."""
    result: list[tuple[Range, list[Range]]] = []
    for one in sorted(ranges):
        last, members = result[-1] if result else (one, [])
        end = max(_end(last), _end(one))
        is_near = last.key == one.key and one.start - _end(last) <= _GAP
        if members and is_near and (end == _end(last) or end - last.start <= _LARGEST):
            result[-1] = (Range(one.key, last.start, end - last.start), [*members, one])
        else:
            result.append((one, [one]))
    return result


def _end(one: Range) -> int:
    return one.start + one.length


class _Directory:
    """Ranges as files, each with a checksum: the disk is not trusted. Losing one is no error. Thread-safe."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._sizes: OrderedDict[Range, int] = OrderedDict()
        self._bytes = 0
        path.mkdir(parents=True, exist_ok=True)
        for left in path.glob("*.range"):  # of a process that was here before: nobody knows them by name
            left.unlink(missing_ok=True)

    def get(self, one: Range) -> bytes | None:
        with self._lock:
            if one not in self._sizes:
                return None
            self._sizes.move_to_end(one)
        try:
            data = self._file(one).read_bytes()
        except OSError:
            return None
        body = data[4:]
        is_whole = len(body) == one.length and data[:4] == zlib.crc32(body).to_bytes(4, "big")
        return body if is_whole else None

    def put(self, one: Range, data: bytes) -> None:
        gone: list[Range] = []
        with self._lock:
            if one in self._sizes or len(data) > self._max_bytes:
                return
            self._sizes[one] = len(data)
            self._bytes += len(data)
            while self._bytes > self._max_bytes:
                oldest, size = self._sizes.popitem(last=False)
                self._bytes -= size
                gone.append(oldest)
        for old in gone:
            self._file(old).unlink(missing_ok=True)
        beside = self._file(one).with_suffix(f".{threading.get_ident()}")
        with suppress(OSError):  # a full disk: the range is fetched again
            beside.write_bytes(zlib.crc32(data).to_bytes(4, "big") + data)
            beside.replace(self._file(one))

    def _file(self, one: Range) -> Path:
        name = hashlib.sha256(f"{one.key}\0{one.start}\0{one.length}".encode()).hexdigest()
        return self._path / f"{name[:32]}.range"
