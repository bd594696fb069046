"""A name with a log for each of two roles: they begin and end together, and are found, written and read by role."""

from __future__ import annotations

import threading
from dataclasses import replace
from unittest.mock import Mock

import pytest

from headrace.errors import NotFound, Overloaded
from headrace.limits import MAX_COMPANIONS
from headrace.log.control import worker_controls
from headrace.log.requests import JSON, At
from headrace.log.seam import Which, name_companions
from headrace.memory import memory_stores
from headrace.tables.catalog import PutRow, Row
from headrace.wal import MAX_GUARDS
from headrace.wal.state import BEGINNING
from tests.support.builders import BYTES, config, first_entry, log_id
from tests.support.clocks import ManualClock
from tests.support.faults import Faulty
from tests.support.pairs import NOTES, PAIRS, Pairs, pairs_wal


class World:
    """One process over tables in memory."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = pairs_wal()
        self.wal = Faulty(self.memory)
        self.stores = memory_stores(clock=self.clock, wal=self.memory, surfaces=(PAIRS,))
        self.pairs = self.process()

    def process(self) -> Pairs:
        """Returns a process with a cold memory."""
        return Pairs(memory_stores(clock=self.clock, wal=self.memory, objects=self.stores.objects, surfaces=(PAIRS,)))

    def kinds(self, row: Row) -> list[str]:
        """What is in a log."""
        return [entry.kind for entry in self.memory.read(row.log_id).entries]

    def read(self, which: Which) -> list[bytes]:
        """Returns all records of a log."""
        return self.pairs.log.read(which, At(cursor=BEGINNING), touch=False).data


def test_a_name_has_its_logs_from_one_commit_on() -> None:
    world = World()
    main = world.pairs.create("n")
    (notes,) = main.companions
    assert world.stores.catalog.get(PAIRS, "n") == main
    assert (notes.config.role, notes.config.main, notes.config.content_type) == (NOTES, main.log_id, JSON)
    assert main.log("") == main
    assert main.log(NOTES) == notes
    assert main.log("other") is None
    for row in main.logs:
        (first,) = world.memory.read(row.log_id).entries
        assert first.config == row.config
    assert main.config.content_type == BYTES


def test_logs_are_written_and_read_by_role() -> None:
    world = World()
    world.pairs.create("n")
    assert world.pairs.append("n", b"a", b"b") == 2
    assert world.pairs.append(("n", NOTES), b"1") == 1
    world.process().append(("n", NOTES), b"2")
    assert world.pairs.append(("n", NOTES), b"3") == 3
    world.pairs.append_both("n", b"c", b"4")
    assert (world.read("n"), world.read(("n", NOTES))) == ([b"a", b"b", b"c"], [b"1", b"2", b"3", b"4"])
    assert world.pairs.log.head(("n", NOTES)).state.next_offset == 4


def test_a_role_that_a_name_does_not_have_is_not_found() -> None:
    world = World()
    world.pairs.create("n")
    for which in [("n", "other"), ("m", NOTES)]:
        with pytest.raises(NotFound):
            world.pairs.append(which, b"1")


def test_who_listens_to_a_log_hears_of_that_alone() -> None:
    world = World()
    world.pairs.create("n")
    heard: list[str] = []
    with (
        world.pairs.log.wakeups.listen("n", lambda: heard.append("main")),
        world.pairs.log.wakeups.listen(("n", NOTES), lambda: heard.append("notes")),
    ):
        world.pairs.append(("n", NOTES), b"1")
        world.pairs.append("n", b"a")
    assert heard == ["notes", "main"]


@pytest.mark.parametrize("role", ["", NOTES])
def test_a_delete_ends_every_log_and_is_final_for_writers_that_are_warm(role: str) -> None:
    world = World()
    main = world.pairs.create("n")
    other = world.process()
    other.append(("n", role), b"1")
    assert world.pairs.log.delete("n") is True
    assert [world.kinds(row)[-1] for row in main.logs] == ["delete", "delete"]
    for pairs in (other, world.pairs):
        with pytest.raises(NotFound):
            pairs.append(("n", role), b"2")
    assert world.pairs.log.delete("n") is False


def test_a_delete_that_meets_a_writer_of_a_companion_ends_both_after_it() -> None:
    world = World()
    main = world.pairs.create("n")
    wal = Faulty(world.memory)
    stores = memory_stores(clock=world.clock, wal=world.memory, surfaces=(PAIRS,))
    object.__setattr__(stores, "wal", wal)
    wal.on("commit", lambda: world.process().append(("n", NOTES), b"1"))
    assert Pairs(stores).log.delete("n") is True
    assert [world.kinds(row) for row in main.logs] == [["create", "delete"], ["create", "data", "delete"]]


def test_a_delete_gets_its_turn_among_appenders_to_a_companion() -> None:
    world = World()
    world.pairs.create("n")
    stop = threading.Event()

    def append_for_ever() -> None:
        while not stop.is_set():
            try:
                world.pairs.append(("n", NOTES), b"1")
            except (NotFound, Overloaded):
                return

    threads = [threading.Thread(target=append_for_ever) for _ in range(8)]
    for thread in threads:
        thread.start()
    deleted = world.pairs.log.delete("n")
    stop.set()
    for thread in threads:
        thread.join(10)
    assert deleted


def test_an_expiry_ends_every_log() -> None:
    world = World()
    main = world.pairs.create("n", ttl_ms=60_000)
    world.clock.advance(61)
    with pytest.raises(NotFound):
        world.pairs.append("n", b"a")
    assert [world.kinds(row)[-1] for row in main.logs] == ["expire", "expire"]
    with pytest.raises(NotFound):
        world.pairs.append(("n", NOTES), b"1")


def test_a_name_that_is_created_again_has_new_logs() -> None:
    world = World()
    before = world.pairs.create("n")
    world.pairs.append(("n", NOTES), b"old")
    world.pairs.log.delete("n")
    after = world.pairs.create("n")
    assert {row.log_id for row in before.logs} & {row.log_id for row in after.logs} == set()
    assert [row.config.incarnation for row in after.logs] == [1, 1]
    assert world.read(("n", NOTES)) == []


def test_the_end_of_a_name_with_the_most_companions_fits_a_transaction() -> None:
    world, ids = World(), Mock(log=log_id)
    most = name_companions(config("n", ttl_ms=1_000), {str(role): BYTES for role in range(MAX_COMPANIONS)}, ids)
    row = Row(log_id(), most)
    for one in row.logs:
        world.memory.commit(first_entry(one.log_id, config=one.config))
    world.clock.advance(2)
    assert worker_controls(replace(world.stores, wal=world.wal)).expire_if_due(row) is None
    assert [len(arguments[1]) for method, arguments in world.wal.seen if method == "commit"] == [MAX_GUARDS - 1]
    with pytest.raises(ValueError, match="too many"):
        name_companions(config(), {str(role): BYTES for role in range(MAX_COMPANIONS + 1)}, ids)


def test_the_row_of_a_companion_is_never_put() -> None:
    (notes,) = World().pairs.create("n").companions
    with pytest.raises(AssertionError):
        PutRow(notes, None)
