"""Tables are restored one by one, each to a moment of its own: what one of them tells, another may not know yet.

The simulation found each of these.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from functions.sealer.purge import purge
from headrace.errors import Gone, NotFound
from headrace.log.commit import control_entry
from headrace.log.requests import At
from headrace.objects import keys
from headrace.streams.errors import ProducerGap
from headrace.streams.values import STREAMS
from headrace.wal.memory import MemoryWal
from headrace.wal.state import Cursor
from tests.unit.recovery.world import AGE_S, Ruins


def rewind_entries(world: Ruins, to: MemoryWal) -> None:
    """The write-ahead log goes back, the other tables stay."""
    world.wal._slots, world.wal._entries = to._slots, to._entries
    world.rewind(world.wal)  # new processes


def test_a_row_that_has_ended_and_lost_its_entries_gives_its_name_free() -> None:
    world = Ruins()
    lost = world.create("a")
    world.fill("a", 1)
    world.logs.delete("a")
    rewind_entries(world, MemoryWal())
    assert world.recovered()[lost].status == "ended"
    with pytest.raises(NotFound):
        world.logs.head("a")
    assert not world.recover().changed
    world.create("a")
    assert world.logs.head("a").incarnation == world.seconds() + 1
    with pytest.raises(Gone):
        world.read("a", At(cursor=Cursor(0, 1)))


def test_a_row_that_has_ended_ends_its_log_again() -> None:
    world = Ruins()
    log_id = world.create("a")
    earlier = world.snapshot()
    world.logs.delete("a")
    rewind_entries(world, earlier)
    assert world.recovered(rewound=True)[log_id].status == "ended"
    with pytest.raises(NotFound):
        world.read("a")


def test_a_fork_that_lost_all_it_inherits_is_ended_and_its_name_is_free() -> None:
    world = Ruins()
    source = world.create("s")
    earlier = world.snapshot()
    world.fill("s", 1)
    fork = world.fork("f", "s")
    rewind_entries(world, earlier)
    report = world.recovered(rewound=True)
    assert (report[source].status, report[fork].status) == ("repaired", "ended")
    assert "unpublished log" in report[fork].lost
    assert not world.recover().changed
    world.wait(AGE_S)
    assert purge(world.parts, fork)
    assert world.logs.head("s").state.forks == 0
    world.create("f")
    assert world.read("f") == []
    assert not [one for one in world.verify().findings if one.severity == "error"]


def test_a_lost_fork_is_not_published_before_its_source() -> None:
    world = Ruins()
    world.create("s")
    inherited = world.fill("s", 1)
    earlier = world.snapshot()
    fork = world.fork("f", "s")
    rewind_entries(world, earlier)
    assert world.recovered(rewound=True)[fork].status == "restored"
    assert world.manifest(fork) is None
    assert world.read("f") == inherited
    world.seal(fork)
    world.lose_tables()
    world.recover()
    assert world.read("f") == inherited


def test_recoveries_one_after_the_other_never_raise_to_what_was_lost() -> None:
    world = Ruins()
    log_id = world.create("a")
    world.fill("a", 1)
    world.seal(log_id)
    earlier = world.snapshot()
    for _ in range(4):  # the first three died, as far as the operator knows
        world.recover(rewound=True)
    world.fill("a", 1)
    seen = world.logs.head("a").incarnation
    world.wait(60)
    world.rewind(earlier)
    world.recover(rewound=True)
    assert world.logs.head("a").incarnation > seen
    with pytest.raises(Gone):
        world.read("a", At(cursor=Cursor(seen, 6)))


def test_rows_of_producers_never_vouch_for_lost_writes() -> None:
    world = Ruins()
    log_id = world.create("a")
    for number in range(9):
        world.produce("a", f"p{number}", 0, b"x")
    world.seal(log_id)
    world.produce("a", "p0", 1, b"lost")
    for number in range(1, 9):  # they push p0 out of the state: its row says 1
        world.produce("a", f"p{number}", 1, b"lost")
    rewind_entries(world, MemoryWal())
    assert "producers" in world.recovered()[log_id].lost
    with pytest.raises(ProducerGap):
        world.produce("a", "p0", 1, b"lost")
    for number in range(9):  # and no row of a lost write is in the way of another
        if number:
            world.produce("a", f"p{number}", 1, b"again")
    assert world.read("a")[9:] == [b"again"] * 8


def test_a_purged_fork_that_came_back_gives_its_source_back_again() -> None:
    world = Ruins()
    source = world.create("s")
    world.fill("s", 1)
    fork = world.fork("f", "s")
    earlier = world.snapshot()
    world.logs.delete("f")
    world.wait(AGE_S)
    assert purge(world.parts, fork)
    rewind_entries(world, earlier)
    world.recover(rewound=True)
    assert not world.recover().changed
    world.wait(AGE_S)
    assert purge(world.parts, fork)
    assert world.logs.head("s").state.forks == 0
    world.logs.delete("s")
    world.wait(AGE_S)
    assert purge(world.parts, source)


def test_a_second_purge_leaves_the_tombstone_as_it_is() -> None:
    world = Ruins()
    log_id = world.create("a")
    earlier = world.snapshot()
    world.fill("a", 1)
    world.logs.delete("a")
    world.wait(AGE_S)
    assert purge(world.parts, log_id)
    tombstone = world.bucket()[keys.tombstone(log_id)]
    rewind_entries(world, earlier)
    world.recover(rewound=True)
    world.wait(AGE_S)
    assert purge(world.parts, log_id)
    assert world.bucket()[keys.tombstone(log_id)] == tombstone


def test_a_fork_that_has_ended_is_no_business_of_a_source_that_was_made_again() -> None:
    world = Ruins()
    world.create("s")
    fork = world.fork("f", "s")
    world.logs.delete("f")
    world.logs.delete("s")
    world.create("s")
    assert world.recovered()[fork].status == "intact"


def test_entries_of_a_log_whose_name_was_made_again_are_no_error() -> None:
    world = Ruins()
    old = world.create("a")
    earlier = world.snapshot()
    world.fill("a", 1)
    world.seal(old)
    world.logs.delete("a")
    world.wait(1)
    world.create("a")
    rewind_entries(world, earlier)
    report = world.recovered(rewound=True)
    row = world.stores.catalog.get(STREAMS, "a")
    assert row is not None
    assert (report[old].status, report[row.log_id].status) == ("superseded", "restored")
    assert {one.severity for one in world.verify().findings} <= {"warning"}


def test_a_fork_outlives_a_lost_source_of_which_it_reads_nothing() -> None:
    world = Ruins()
    source = world.create("s")
    fork = world.fork("f", "s")
    own = world.fill("f", 1)
    world.seal(fork)
    world.objects.delete(world.keys(source))  # it was never published
    world.lose_tables()
    report = world.recovered()
    assert (report[source].status, report[fork].status) == ("lost", "restored")
    assert "generation" in report[fork].wrote
    assert world.read("f") == own
    assert world.read("f", At(since_ms=0)) == own
    assert world.read("f", At(since_ms=world.clock.now_ms() + 1)) == []


def test_a_log_that_had_ended_is_purged_although_the_event_of_its_end_is_lost() -> None:
    world = Ruins()
    log_id = world.create("a")
    world.logs.delete("a")
    world.rewind(world.snapshot())
    assert world.recovered(rewound=True)[log_id].wrote == ("entry",)
    newest = world.wal.newest(log_id)
    assert newest is not None
    assert (newest.kind, newest.state.ended) == ("recover", "deleted")
    assert not world.recover().changed


def test_a_fork_that_had_ended_lets_go_of_a_source_whose_name_was_made_again() -> None:
    world = Ruins()
    source = world.create("s")
    world.fill("s", 1)
    fork = world.fork("f", "s")
    world.seal(fork)
    world.logs.delete("f")
    world.logs.delete("s")
    world.wait(1)
    world.create("s")
    rewind_entries(world, MemoryWal())
    report = world.recovered()
    assert (report[source].status, report[fork].status) == ("superseded", "ended")
    world.wait(AGE_S)
    assert purge(world.parts, fork)


def test_entries_of_a_purged_log_that_came_back_are_purged_again() -> None:
    world = Ruins()
    log_id = world.create("a")
    world.logs.delete("a")
    earlier = world.snapshot()
    world.wait(AGE_S)
    assert purge(world.parts, log_id)
    rewind_entries(world, earlier)
    assert world.recovered(rewound=True)[log_id].wrote[0] == "entry"
    assert not world.recover().changed
    world.wait(AGE_S)
    assert purge(world.parts, log_id)
    assert len(world.entries(log_id)) == 1
    assert not world.recover(rewound=True).changed


def test_a_purged_fork_that_came_back_ended_gives_its_source_back_again() -> None:
    world = Ruins()
    world.create("s")
    world.fill("s", 1)
    fork = world.fork("f", "s")
    world.seal(fork)
    newest = world.wal.newest(fork)
    assert newest is not None
    ended = control_entry(newest, "delete", replace(newest.state, ended="deleted"), "end", world.clock.now_ms())
    world.wal.commit(ended)  # its api died before it gave back the source
    world.wal.remove(fork, [newest.slot])
    earlier = world.snapshot()
    world.wait(AGE_S)
    assert purge(world.parts, fork)
    rewind_entries(world, earlier)
    assert "entry" in world.recovered(rewound=True)[fork].wrote
    assert not world.recover().changed
    world.wait(AGE_S)
    assert purge(world.parts, fork)
    assert world.logs.head("s").state.forks == 0
