"""Reading records with all their columns: every column survives, from the tail, from segments and across both; and what a
page costs.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from headrace.batch import Batch, Record
from headrace.errors import Damaged, NotFound, SegmentMissing
from headrace.log.requests import At, Selection
from headrace.objects import keys
from headrace.settings import Settings
from headrace.wal.state import BEGINNING
from tests.support.builders import batch_of
from tests.support.faults import Faulty
from tests.support.pairs import NOTES, Pairs
from tests.unit.sealer.world import World

DICE = random.Random(3)


def some(count: int, *, has_meta: bool = True) -> list[Record]:
    """Records with different columns."""
    return [
        Record(
            0,
            0,
            DICE.choice([None, "a", "b", "ba"]),
            DICE.randbytes(DICE.choice([0, 1, 40, 300])),
            DICE.choice([None, "n1", "n2"]),
            DICE.choice([None, b"{}", b'{"long":"%s"}' % (b"x" * 90)]) if has_meta else None,
            DICE.choice([0, 0, 3]),
        )
        for _ in range(count)
    ]


class Topic:
    """A pair whose records have all columns, and a process that reads them."""

    def __init__(
        self, sealed: tuple[int, ...] = (), tail: tuple[int, ...] = (), *, has_meta: bool = True, **settings: Any
    ) -> None:
        self.world = World(Settings(seal_records=10, **{"spill_bytes": 300, **settings}))
        self.row = self.world.pairs.create("p")
        self.log_id = self.row.log_id
        self.written: list[Record] = []
        for count in sealed:
            self.append(count, has_meta=has_meta)
            self.world.seal(self.log_id)
        if sealed:
            slots = [entry.slot for entry in self.world.entries(self.log_id)]
            self.world.wal.remove(self.log_id, slots[:-1])  # as trimming does, later
        for count in tail:
            self.append(count, has_meta=has_meta)
        self.wal, self.objects = Faulty(self.world.wal), Faulty(self.world.objects)
        self.reader = self.cold()

    def append(self, count: int, *, has_meta: bool = True, **columns: Any) -> None:
        """One entry."""
        self.world.clock.advance(0.005)
        batch = [one._replace(**columns) for one in some(count, has_meta=has_meta)]
        end = self.world.pairs.log.appender.append("p", batch_of(batch)).result()
        time_ms = self.world.clock.now_ms()
        self.written += [one._replace(offset=end - count + at, time_ms=time_ms) for at, one in enumerate(batch)]

    def cold(self) -> Pairs:
        """Returns a process that knows nothing."""
        return Pairs(replace(self.world.stores, wal=self.wal, objects=self.objects))

    def costs(self, position: int, max_records: int = 100, max_bytes: int = 10**6) -> tuple[int, list[list[str]]]:
        """Reads a page; returns the queries, and what was asked of the bucket: one list for each round."""
        queries, rounds = self.wal.calls["read"] + self.wal.calls["newest"], len(self.objects.seen)
        page = self.reader.log.records("p", position, max_records=max_records, max_bytes=max_bytes)
        assert page.records == self.written[position : page.next]
        asked = [
            [kind(one.key) for one in args[0]] if method == "get_ranges" else [kind(args[0])]
            for method, args in self.objects.seen[rounds:]
        ]
        return self.wal.calls["read"] + self.wal.calls["newest"] - queries, asked


def kind(key: str) -> str:
    """Returns what kind of object a key names."""
    found = keys.artifact(key)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("has_meta", [True, False])
@pytest.mark.parametrize(
    ("sealed", "tail"), [((), (5, 1, 9)), ((9, 8), ()), ((7, 1, 8), (3, 9)), ((10, 10, 10), (4,))]
)
def test_every_column_of_every_record_is_read(sealed: tuple[int, ...], tail: tuple[int, ...], has_meta: bool) -> None:
    topic = Topic(sealed, tail, has_meta=has_meta)
    for position in range(len(topic.written) + 1):
        for max_records, max_bytes in ((1, 1), (3, 10**6), (100, 500), (100, 10**6)):
            page = topic.reader.log.records("p", position, max_records=max_records, max_bytes=max_bytes)
            taken: list[Record] = []
            for one in topic.written[position:]:
                if len(taken) == max_records or sum(len(r.data) + len(r.meta or b"") for r in taken) >= max_bytes:
                    break
                taken.append(one)
            assert page.records == taken
            assert (page.next, page.end) == (position + len(taken), len(topic.written))
            assert page.head.state.next_offset == page.end


def test_a_page_at_the_tail_is_one_query() -> None:
    topic = Topic(tail=(3, 4), spill_bytes=30_000)
    topic.costs(0)  # learns the row
    assert topic.costs(0) == (1, [])
    assert topic.costs(3) == (1, [])
    assert topic.costs(7) == (1, [])


def test_a_page_of_a_segment_is_one_round_of_data_and_meta_with_the_key_page_the_first_time() -> None:
    for has_meta, round_ in ((True, ["segment", "segment"]), (False, ["segment"])):
        topic = Topic(sealed=(9, 9), tail=(1,), has_meta=has_meta)
        topic.costs(18)
        assert topic.costs(0, 4)[1][-1:] == [[*round_, "key_page"]]  # after the manifest
        assert topic.costs(0, 4) == (1, [round_])
        assert topic.costs(4, 5) == (1, [round_])
        assert topic.costs(4, 9) == (1, [round_, [*round_, "key_page"]])
        assert topic.costs(4, 9) == (1, [round_, round_])


def test_records_below_the_floor_are_left_out() -> None:
    topic = Topic(sealed=(5,), tail=(5,))
    topic.world.pairs.raise_floor("p", 3)
    page = topic.reader.log.records("p", 0)
    assert page.records == topic.written[3:]
    assert page.head.state.floor == 3
    assert topic.reader.log.records("p", 7).records == topic.written[7:]


def test_a_decision_reads_records_with_all_columns_too() -> None:
    topic = Topic(sealed=(6, 6), tail=(3,))
    page = topic.reader.log._context.page
    assert page(topic.row, 4, 10, 10**6) == topic.written[4:14]
    assert (
        page(topic.row, 0, 15, 1)
        == topic.written[
            : next(at for at, one in enumerate(topic.written, 1) if any(r.data or r.meta for r in topic.written[:at]))
        ]
    )
    assert page(topic.row, 4, 0, 10) == []
    with pytest.raises(Damaged):
        page(topic.row, 15, 1, 10)


def test_a_companion_is_read_by_its_role_and_a_name_that_is_not_there_is_refused() -> None:
    topic = Topic(tail=(2,))
    topic.world.pairs.log.appender.append(("p", NOTES), Batch.of([b"1"], meta=b"m"))
    assert [one.meta for one in topic.reader.log.records(("p", NOTES), 0).records] == [b"m"]
    with pytest.raises(NotFound):
        topic.reader.log.records("q", 0)


def test_a_segment_without_its_key_page_is_no_answer() -> None:
    topic = Topic(sealed=(4, 4), tail=(1,))
    names = [key for key in topic.world.objects.list("logs/") if key.endswith(".keys.zst")]
    topic.world.objects.delete(names)
    with pytest.raises(SegmentMissing):
        topic.reader.log.records("p", 0)


def test_descriptions_of_a_key_read_each_key_page_once() -> None:
    topic = Topic((9, 9))
    seen, log = len(topic.objects.seen), topic.cold().log
    page = log.read("p", At(BEGINNING), Selection("a"), describe=lambda _, record: b"%d" % record.offset)
    assert page.data == [b"%d" % one.offset for one in topic.written if one.key == "a"]
    asked = [kind(args[0]) for method, args in topic.objects.seen[seen:] if method == "get"]
    assert asked.count("key_page") == 2
