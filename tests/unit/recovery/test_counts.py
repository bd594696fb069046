"""The counters of names after disasters: as many as live, whatever was lost."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from headrace.errors import LimitReached, StoreError, StoreTimeout
from headrace.recovery.counts import check_counts
from headrace.recovery.recover import recover
from headrace.recovery.report import Counted
from headrace.tables.counters import SHARDS, Count, part_of
from tests.support.faults import Faulty, LaggingIndex
from tests.support.pairs import PAIRS, Pairs
from tests.unit.recovery.world import Ruins


def held(world: Ruins) -> list[int]:
    return world.stores.sessions.counts(PAIRS)


def published(world: Ruins, *names: str) -> None:
    for name in names:
        world.seal(world.pairs.create(name).log_id)


def test_lost_counters_are_found_and_counted_again() -> None:
    world = Ruins()
    published(world, "a", "b", "c")
    world.pairs.log.delete("b")
    assert check_counts(world.stores) == []
    world.wal.sessions.counters.clear()
    assert check_counts(world.stores) == [Counted(PAIRS, 2, 0)]
    (finding,) = [one for one in world.verify().findings if one.kind == "counter.differs"]
    assert (finding.severity, finding.where, finding.expected, finding.found) == ("warning", PAIRS, "2", "0")
    assert world.recover(dry_run=True).counters == (Counted(PAIRS, 2, 0),)
    assert sum(held(world)) == 0
    assert world.recover().counters == (Counted(PAIRS, 2, 0),)
    assert sum(held(world)) == 2
    assert not world.recover().changed


def test_names_that_come_back_from_the_bucket_are_counted() -> None:
    world = Ruins()
    published(world, "a", "b", "c")
    world.lose_tables()
    assert world.recover().counters == (Counted(PAIRS, 3, 0),)
    with pytest.raises(LimitReached):
        Pairs(world.stores, most=3).create("d")
    Pairs(world.stores, most=4).create("d")
    assert sum(held(world)) == 4


def test_names_are_not_counted_by_a_run_in_which_a_store_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count without that log would be wrong, and its write may arrive after the next run, which finds nothing wrong."""
    world = Ruins()
    published(world, "a", "b")
    rows = dict(world.wal.sessions.counters)
    world.lose_tables()
    world.wal.sessions.counters.update(rows)
    put, failed = world.stores.wal.commit, list[str]()

    def fail_once(*args: Any, **options: Any) -> Any:
        if not failed and args[1]:  # with the row of a name
            failed.append("commit")
            raise StoreTimeout("commit")
        return put(*args, **options)

    monkeypatch.setattr(world.stores.wal, "commit", fail_once)
    monkeypatch.setattr("headrace.recovery.recover._BUDGET_MS", 0)
    report = world.recover()
    assert [log.status for log in report.logs].count("refused") == 1
    assert report.counters == () and sum(held(world)) == 2, "it is as it was"
    report = world.recover()
    assert report.clean and report.counters == () and sum(held(world)) == 2


def test_names_beyond_the_limit_that_come_back_are_never_joined_by_more() -> None:
    """One may take the place of another of them, since shards know only themselves; a fourth never comes."""
    world = Ruins()
    published(world, "t0", "b", "c")
    world.lose_tables()
    assert world.recover().counters == (Counted(PAIRS, 3, 0),)
    full = Pairs(world.stores, most=2)
    full.log.delete("t0")
    full.create("t0")
    assert held(world)[:4] == [1, 1, 1, 0]
    for number in range(40):
        with pytest.raises(LimitReached):
            full.create(f"n{number}")
    for name in ("b", "c"):
        full.log.delete(name)
    full.create("d")
    with pytest.raises(LimitReached):
        full.create("e")
    assert sum(held(world)) == 2


@pytest.mark.parametrize(
    ("found", "most"), [(found, most) for found in (1, 2, 3, 16, 17, 40) for most in (1, 2, 16, 33)]
)
def test_no_shard_exceeds_what_was_found_or_its_part_of_the_limit(found: int, most: int) -> None:
    """So neither does the sum: of even parts of two numbers, those of the higher one are the higher ones in every shard."""
    parts = [(part_of(shard, found), part_of(shard, most)) for shard in range(SHARDS)]
    assert sum(map(max, parts)) == max(found, most)


def test_names_are_counted_although_the_index_lags() -> None:
    world = Ruins()
    published(world, "a", "b", "c")
    world.lose_tables()
    stores = dataclasses.replace(world.stores, catalog=LaggingIndex(world.stores.catalog))
    assert recover(stores).counters == (Counted(PAIRS, 3, 0),)
    assert sum(held(world)) == 3
    assert check_counts(stores) == []


def test_counters_of_another_moment_than_the_rows_are_set_right() -> None:
    world = Ruins()
    published(world, *(f"n{number}" for number in range(20)))
    before = dict(world.wal.sessions.counters)
    for number in range(5):
        world.pairs.log.delete(f"n{number}")
    world.wal.sessions.counters.update(before)
    assert world.recover().counters == (Counted(PAIRS, 15, 20),)
    assert sum(held(world)) == 15
    assert max(held(world)) == 1  # in parts, so that a limit is reached at the limit


def test_a_counter_that_moves_meanwhile_is_left_alone() -> None:
    world = Ruins()
    published(world, "a")
    world.wal.sessions.counters.clear()
    sessions: Any = Faulty(world.stores.sessions)
    one_more = Count(PAIRS, 1, 0, 7)
    sessions.on("counts", lambda: world.stores.sessions.commit([one_more]), call=2)
    assert check_counts(dataclasses.replace(world.stores, sessions=sessions)) == []
    world.wal.sessions.counters.clear()
    sessions.on("commit", lambda: world.stores.sessions.commit([one_more]))
    with pytest.raises(StoreError, match="meanwhile"):
        check_counts(dataclasses.replace(world.stores, sessions=sessions), repair=True)
    assert sum(held(world)) == 1
