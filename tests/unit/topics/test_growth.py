"""What deletes and diffs cost as a topic grows, counted: requests to the bucket, and reads and commits of the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from functions.sealer.trim import trim
from headrace.batch import Batch
from headrace.objects.observed import ObservedObjects, Request
from headrace.settings import Settings
from headrace.topics.removed import PAGE_RUNS
from headrace.topics.values import Match, WriteRequest
from headrace.topics.verbs import Topics
from tests.support.faults import CountedEntries, Faulty
from tests.unit.sealer.world import World
from tests.unit.topics.world import put, read

STRETCH = 1000  # records: each of ten tags has a hundred of them
SIZES = (4 * STRETCH, 24 * STRETCH)  # from one page of removed records to three
Costs = dict[str, int]


class Growing:
    """A topic of which four records of ten were deleted, each by itself, and what its processes ask of the stores."""

    def __init__(self, *, is_sealed: bool) -> None:
        self._world = World(Settings(seal_records=2 * STRETCH, trim_age_ms=1))
        self._is_sealed = is_sealed
        self._requests: Counter[str] = Counter()
        self._wal = Faulty(self._world.wal)
        objects = ObservedObjects(self._world.objects, self._world.clock, self._note)
        self._stores = replace(self._world.stores, objects=objects, wal=self._wal)
        self.warm = Topics(self._stores)
        put(self.warm, "t")
        self.size = 0

    def cold(self) -> Topics:
        """Returns a process that knows nothing."""
        return Topics(self._stores)

    def grow(self, size: int) -> None:
        """Adds records, and deletes their share."""
        for first in range(self.size, size, STRETCH):
            keys = [f"t{number % 10}:{first // STRETCH}" for number in range(STRETCH)]
            self.warm.append("t", WriteRequest(records=Batch.of([b"1"] * STRETCH, key=keys)))
        if self._is_sealed:
            log_id = self.warm.head("t").log_id
            self._world.seal(log_id)
            self._world.clock.advance(3600)
            trim(self._world.parts, log_id)
        for stretch in range(self.size // STRETCH, size // STRETCH):
            for digit in (0, 2, 4, 6):
                assert self.erase(self.warm, f"t{digit}:{stretch}") == STRETCH // 10
        self.size = size

    def erase(self, topics: Topics, tag: str) -> int:
        """Deletes the records with a tag; returns how many."""
        return topics.erase("t", None, Match(tag)).deleted

    def costs(self) -> Costs:
        """Returns what was asked since the last time."""
        calls = {what: self._wal.calls[what] for what in ("read", "newest", "commit")}
        found = {**{what: count for what, count in calls.items() if count}, **self._requests}
        self._wal.calls.clear()
        self._requests.clear()
        return found

    def _note(self, request: Request) -> None:
        self._requests.update(f"{request.operation} {key.split('/')[2]}" for key in request.keys)


def diffs(growing: Growing, process: Callable[[], Topics]) -> list[Costs]:
    """Reads a page at the start, in the middle, near the end and at the end, each by a process; returns what each cost."""
    found = []
    for from_seq in (10, growing.size // 2, growing.size - 100, growing.size):
        topics = process()
        growing.costs()
        assert len(read(topics, "t", from_seq, limit=60).records) == (60 if from_seq < growing.size else 0)
        found.append(growing.costs())
    return found


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_diff_costs_the_same_however_much_a_topic_holds(is_sealed: bool) -> None:
    growing, found = Growing(is_sealed=is_sealed), []
    for size in SIZES:
        growing.grow(size)
        diffs(growing, lambda: growing.warm)
        found.append(diffs(growing, growing.cold) + diffs(growing, lambda: growing.warm))
    assert found[0] == found[1]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_delete_costs_the_same_however_much_a_topic_holds(is_sealed: bool) -> None:
    growing, found = Growing(is_sealed=is_sealed), []
    for front, size in enumerate(SIZES, 1):
        growing.grow(size)
        growing.costs()
        costs = []
        for stretch in (size // STRETCH - 1, size // STRETCH // 2):
            assert growing.erase(growing.warm, f"t8:{stretch}") == STRETCH // 10
            costs.append(growing.costs())
        assert growing.warm.erase("t", 100 * front + 1, None).deleted == 60
        costs.append(growing.costs())
        found.append(costs)
    assert found[0] == found[1]


def test_the_larger_topic_has_several_pages_of_removed_records() -> None:
    assert SIZES[0] * 4 // 10 < PAGE_RUNS < SIZES[1] * 4 // 10 // 2


def test_a_page_of_large_batches_reads_few_entries() -> None:
    world = World()
    wal = CountedEntries(world.wal)
    topics = Topics(replace(world.stores, wal=wal))
    put(topics, "t")
    for _ in range(100):
        topics.append("t", WriteRequest(records=Batch.of([b"1"] * 100)))
    context = topics._context
    row = context.pictures.row("t")
    for position in (0, 5_000, 5_050, 9_900):
        wal.entries = 0
        assert len(context.page(row, position, 100, 2**20)) == 100
        assert wal.entries <= 5
    for number in range(40):
        topics.append("t", WriteRequest(records=Batch.of([b"%d" % number])))
    topics.append("t", WriteRequest(records=Batch.of([b"1"] * 100)))
    wal.entries = 0
    assert len(context.page(row, 10_000, 40, 2**20)) == 40, "the newest entry has more records than those before it"
    assert wal.entries <= 4 + 38 + 1
