"""Ranged reads of immutable objects: routines that ask for ranges, and a cache of fetched ranges.

A routine is a generator: it yields the ranges that it needs next, and is sent their bytes. The caller that drives
routines decides how ranges are fetched. With `gather` several routines share each round: all the ranges that they ask
for at the same time are one round of parallel GETs, whatever runs, parts and families they belong to. Neighbouring
ranges are fetched by one GET, together with the bytes between them.
"""

from __future__ import annotations

import hashlib
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from headrace.clock import Bounded
from headrace.errors import Damaged
from headrace.objects import ObjectMissing, Objects, Range, keys

if TYPE_CHECKING:
    from headrace.index.reading import Runs

_GAP = 128 * 1024  # a gap of up to so many bytes is cheaper to fetch than another GET
_LARGEST = 8 * 1024 * 1024  # maximum size of a joined GET: several large GETs in parallel are faster

T = TypeVar("T")

Routine = Generator[list[Range], list[bytes], T]


class Ranges(Protocol):
    """The port from which ranges of objects are read."""

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """Returns the bytes of each range, in their order; fewer than asked for at the end of an object.

        Raises:
            ObjectMissing: one of the objects does not exist.
        """


def run(routine: Routine[T], source: Ranges) -> T:
    """Drives a routine to its end and returns its result.

    Raises:
        Damaged: an object that a range names does not exist.
    """
    try:
        wanted = next(routine)
        while True:
            wanted = routine.send(source.get_ranges(wanted) if wanted else [])
    except ObjectMissing as exc:
        raise Damaged(f"index object is missing: object={exc}") from exc
    except StopIteration as end:
        found: T = end.value
        return found
    finally:
        routine.close()


def gather(routines: Sequence[Routine[T]]) -> Routine[list[T]]:
    """Combines several routines into one: each round asks for the ranges of all routines that have not ended.

    Returns their results, in their order. A routine that raises an error ends all of them.
    """
    results: dict[int, T] = {}
    waiting: dict[int, list[Range]] = {}

    def step(number: int, found: list[bytes] | None) -> None:
        try:
            routine = routines[number]
            waiting[number] = next(routine) if found is None else routine.send(found)
        except StopIteration as end:
            results[number] = end.value

    try:
        for number in range(len(routines)):
            step(number, None)
        while waiting:
            asked, waiting = waiting, {}
            found = yield [one for wanted in asked.values() for one in wanted]
            at = 0
            for number, wanted in asked.items():
                step(number, found[at : at + len(wanted)])
                at += len(wanted)
    finally:
        for routine in routines:
            routine.close()
    return [results[number] for number in range(len(routines))]


# What a process keeps of objects.


class CachedRanges:
    """A cache of ranges of immutable objects. Thread-safe.

    Ranges are kept in memory up to a bound, then in a directory up to another bound. All requests of a process share
    the cache; each uses it through its own `Fetches`.
    """

    def __init__(
        self,
        objects: Objects,
        *,
        memory_bytes: int = 128 * 1024 * 1024,
        directory: Path | None = None,
        directory_bytes: int = 0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Creates a cache of ranges of `objects`.

        Args:
            memory_bytes: how much to keep in memory.
            directory: where to keep ranges that were dropped from memory; used by this process only.
            directory_bytes: how much to keep in the directory.
            monotonic: returns seconds, for `FetchStats.wait_s`.
        """
        self.objects = objects
        self.monotonic = monotonic
        self._memory: Bounded[Range, bytes] = Bounded(memory_bytes, weigh=len)
        self._directory = _Directory(directory, directory_bytes) if directory and directory_bytes else None

    def fetches(self) -> Fetches:
        """Returns an object through which one request reads from the cache, with statistics of its own."""
        return Fetches(self)

    def from_memory(self, wanted: Range) -> bytes | None:
        """Returns a range if memory holds it, else None."""
        return self._memory.get(wanted)

    def from_directory(self, wanted: Range) -> bytes | None:
        """Returns a range if the directory holds it, and keeps it in memory again; else None."""
        data = self._directory.get(wanted) if self._directory else None
        if data is not None:
            self.keep(wanted, data)
        return data

    def keep(self, fetched: Range, data: bytes) -> None:
        """Keeps a range in memory, and moves those used least recently to the directory; drops them if there is none."""
        for old, body in self._memory.put(fetched, data):
            if self._directory:
                self._directory.put(old, body)


@dataclass(slots=True)
class FetchStats:
    """Statistics of what one request has fetched so far.

    Attributes:
        rounds: rounds with at least one GET; the GETs of a round are made at once.
        gets: number of GETs sent to the object store.
        bytes: bytes that they returned, including those between ranges.
        memory_hits, directory_hits: number of ranges that the cache held.
        wait_s: seconds spent in rounds with GETs.
    """

    rounds: int = 0
    gets: int = 0
    bytes: int = 0
    memory_hits: int = 0
    directory_hits: int = 0
    wait_s: float = 0.0


class _Round(NamedTuple):
    """One call of `Fetches.get_ranges`: its duration, what it fetched, and the key and length of each range that it
    returned.
    """

    seconds: float
    gets: int
    bytes: int
    given: list[tuple[str, int]]


class Fetches:
    """The port `Ranges` for one request: reads through the cache, and counts what it fetches. Not thread-safe.

    Attributes:
        stats: what this request has fetched.
    """

    def __init__(self, cache: CachedRanges) -> None:
        self._cache = cache
        self._rounds: list[_Round] = []
        self.stats = FetchStats()

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """Returns ranges from the cache; fetches those that are not cached in one round. Raises ObjectMissing if one of the
        objects does not exist.
        """
        cache, stats = self._cache, self.stats
        began = cache.monotonic()
        held: dict[Range, bytes] = {}
        missing: list[Range] = []
        for wanted in dict.fromkeys(ranges):
            if (data := cache.from_memory(wanted)) is not None:
                stats.memory_hits += 1
            elif (data := cache.from_directory(wanted)) is not None:
                stats.directory_hits += 1
            if data is None:
                missing.append(wanted)
            else:
                held[wanted] = data
        wide = join_neighbours(missing)
        asked = cache.monotonic()
        fetched = cache.objects.get_ranges([whole for whole, _ in wide]) if wide else []
        received = sum(map(len, fetched))
        if wide:
            stats.rounds += 1
            stats.gets += len(wide)
            stats.bytes += received
            stats.wait_s += cache.monotonic() - asked
        for (whole, members), data in zip(wide, fetched, strict=True):
            for wanted in members:
                low = wanted.start - whole.start
                # Bytes of their own: a slice in memory would hold what is around it.
                held[wanted] = data if wanted == whole else data[low : low + wanted.length]
                if len(held[wanted]) == wanted.length:
                    cache.keep(wanted, held[wanted])
        given = [held[wanted] for wanted in ranges]
        sizes = [(wanted.key, len(data)) for wanted, data in zip(ranges, given, strict=True)]
        self._rounds.append(_Round(cache.monotonic() - began, len(wide), received, sizes))
        return given

    def explain(self) -> dict[str, Any]:
        """Returns each round of GETs and the cache hits as JSON, for `explain=true`."""
        return {
            "gets": [
                {
                    "ms": round(one.seconds * 1000, 3),
                    "gets": one.gets,
                    "bytes": one.bytes,
                    "ranges": _by_family(one.given),
                }
                for one in self._rounds
            ],
            "cache": {
                "hits": self.stats.memory_hits + self.stats.directory_hits,
                "memory_hits": self.stats.memory_hits,
                "directory_hits": self.stats.directory_hits,
            },
        }


def _by_family(given: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    """Returns the number of ranges and their bytes by kind of object: an index family, `descriptor`, or another kind."""
    counts, sizes = Counter[str](), Counter[str]()
    for key, size in given:
        artifact = keys.artifact(key)
        family = artifact[1] if artifact is not None else "other"
        if family == "index_run":
            name = key.rpartition("/")[2]
            family = "descriptor" if name.startswith("run.") else name.partition("-")[0]
        counts[family] += 1
        sizes[family] += size
    return [{"family": name, "ranges": counts[name], "bytes": sizes[name]} for name in sorted(counts)]


def join_neighbours(ranges: Iterable[Range]) -> list[tuple[Range, list[Range]]]:
    """Joins ranges that are close to each other. Returns each joined range with the ranges inside it."""
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
    """A cache of ranges as files, each with a checksum, since the disk is not trusted. Losing a file is no error.
    Thread-safe.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._sizes: Bounded[Range, int] = Bounded(max_bytes, weigh=int)
        path.mkdir(parents=True, exist_ok=True)
        for left in path.glob("*.range"):  # files of an earlier process, whose names this one does not know
            left.unlink(missing_ok=True)

    def get(self, wanted: Range) -> bytes | None:
        if self._sizes.get(wanted) is None:
            return None
        try:
            data = self._file(wanted).read_bytes()
        except OSError:
            return None
        body = data[4:]
        is_whole = len(body) == wanted.length and data[:4] == zlib.crc32(body).to_bytes(4, "big")
        return body if is_whole else None

    def put(self, fetched: Range, data: bytes) -> None:
        if len(data) > self._max_bytes or self._sizes.get(fetched) is not None:
            return
        for old, _ in self._sizes.put(fetched, len(data)):
            self._file(old).unlink(missing_ok=True)
        beside = self._file(fetched).with_suffix(f".{threading.get_ident()}")
        with suppress(OSError):  # a full disk: the range is fetched again
            beside.write_bytes(zlib.crc32(data).to_bytes(4, "big") + data)
            beside.replace(self._file(fetched))

    def _file(self, one: Range) -> Path:
        name = hashlib.sha256(f"{one.key}\0{one.start}\0{one.length}".encode()).hexdigest()
        return self._path / f"{name[:32]}.range"


class Opened(NamedTuple):
    """The open readers of runs, and the cache from which they read ranges."""

    runs: Runs
    ranges: CachedRanges


class RunCache:
    """A process's cache of index runs: readers, decoded columns and postings, and ranges of objects. Thread-safe.

    Searches, aggregates and reads that select records share it, so that each object is fetched once and its size has
    one bound.
    """

    def __init__(
        self,
        objects: Objects,
        monotonic: Callable[[], float],
        *,
        directory: Path | None = None,
        directory_bytes: int = 0,
    ) -> None:
        """Creates a cache of runs in `objects`; for the arguments see `CachedRanges`."""
        self._ranges = CachedRanges(
            objects, directory=directory, directory_bytes=directory_bytes, monotonic=monotonic
        )
        self._lock = threading.Lock()
        self._runs: Runs | None = None

    def opened(self) -> Opened:
        """Returns the readers and ranges, always the same. The first call imports numpy and pyarrow."""
        # numpy and pyarrow take a tenth of a second to import, which plain reads need not wait for.
        from headrace.index.reading import Runs

        with self._lock:
            if self._runs is None:
                self._runs = Runs()
            return Opened(self._runs, self._ranges)
