"""Forks come back with their sources, and are counted."""

from __future__ import annotations

import pytest

from functions.sealer.purge import purge
from headrace.errors import Gone, NotFound
from headrace.streams.values import CreateRequest, ForkRequest
from headrace.wal.state import Cursor
from tests.unit.recovery.world import AGE_S, Ruins, at


def test_a_fork_of_a_recovered_log_takes_cursors_of_all_its_source_was() -> None:
    world = Ruins()
    log_id = world.create("a")
    published = world.fill("a", 2)
    world.seal(log_id)
    world.lose_tables()
    world.recover()
    raised = world.seconds()
    more = world.fill("a", 1)
    world.fork("f", "a")
    own = world.fill("f", 1)
    whole = published + more + own
    assert world.read("f") == whole
    assert world.read("f", at(0, 3)) == whole[3:]
    assert world.read("f", at(raised, 8)) == whole[8:]
    assert world.logs.create("g", _fork("a", Cursor(0, 4))).created
    assert world.read("g") == published[:4]
    world.seal(world.logs.head("f").log_id)
    assert not world.verify().findings


def _fork(source: str, cursor: Cursor) -> CreateRequest:
    return CreateRequest(fork=ForkRequest(source, cursor))


def test_fork_counts_are_those_of_the_forks_that_came_back() -> None:
    world = Ruins()
    source = world.create("s")
    inherited = world.fill("s", 2)
    fork = world.fork("f", "s")
    world.fork("never-published", "s")
    own = world.fill("f", 1)
    world.seal(fork)
    world.lose_tables()
    report = world.recovered()
    assert set(report) == {source, fork}
    assert world.logs.head("s").state.forks == 1
    world.logs.delete("s")
    world.wait(AGE_S)
    assert not purge(world.parts, source)
    assert world.read("f") == inherited + own
    world.logs.delete("f")
    world.wait(AGE_S)
    assert purge(world.parts, fork)
    assert purge(world.parts, source)


def test_a_source_that_was_deleted_and_published_stays_deleted_for_its_forks() -> None:
    world = Ruins()
    source = world.create("s")
    inherited = world.fill("s", 2)
    fork = world.fork("f", "s")
    world.logs.delete("s")
    world.seal(source)
    world.seal(fork)
    world.lose_tables()
    world.recover()
    with pytest.raises(Gone):
        world.logs.head("s")
    assert world.read("f") == inherited
    assert not world.verify().findings


def test_a_fork_whose_source_was_purged_had_ended() -> None:
    world = Ruins()
    source = world.create("s")
    world.fill("s", 2)
    fork = world.fork("f", "s")
    world.fill("f", 1)
    world.seal(fork)
    world.logs.delete("f")
    world.logs.delete("s")
    world.wait(AGE_S)
    assert purge(world.parts, source)  # the fork's own purge is still to come
    world.lose_tables()
    report = world.recovered()
    assert report[fork].status == "ended"
    with pytest.raises(NotFound):
        world.logs.head("f")
    world.wait(AGE_S)
    assert purge(world.parts, fork)


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_log_that_lost_its_name_to_a_refused_fork_is_refused_if_it_seems_to_live(has_ended: bool) -> None:
    world = Ruins()
    old = world.create("a")
    world.fill("a", 1)
    world.create("s")
    early = world.snapshot()
    world.fill("a", 1)
    world.logs.delete("a")
    late = world.snapshot()
    world.fill("s", 1)
    fork = world.fork("a", "s")
    world.seal(fork)
    world.logs.delete("a")
    world.logs.delete("s")
    world.wait(1)
    world.seal(world.create("s"))
    world.rewind(late if has_ended else early)
    report = world.recovered(rewound=True)
    assert report[fork].reason.startswith("it must have ended")
    assert report[old].status == (
        "superseded" if has_ended else "refused"
    )  # else clients reach it, by its old cursors
    assert report[old].reason == ("" if has_ended else f"its name leads to it, and a younger log is refused: {fork}")
    assert not world.recover().changed
