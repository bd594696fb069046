"""Tables that were rewound, or lost some rows: a recovery repairs what it can prove, and leaves the rest."""

from __future__ import annotations

import pytest

from emr_jobs import merge
from functions.sealer.purge import purge
from functions.sealer.trim import trim
from headrace.errors import Gone, NotFound
from headrace.index.job import Task
from headrace.manifest import merging
from tests.unit.recovery.world import AGE_S, HOUR_S, Ruins, at


def test_lost_rows_come_back_and_whole_logs_keep_their_incarnation() -> None:
    world = Ruins()
    log_id = world.create("a")
    world.fill("a", 2)
    world.seal(log_id)
    whole = world.fill("a", 3)
    world.lose_catalog()
    said = world.recovered()[log_id]
    assert (said.status, said.incarnation, said.lost) == ("repaired", 0, ())
    assert world.read("a", at(0, 6)) == whole
    assert not world.recover().changed
    assert not world.verify().findings


def test_tables_rewound_behind_the_published_end_take_it_up() -> None:
    world = Ruins()
    log_id = world.create("a")
    data = world.fill("a", 2)
    earlier = world.snapshot()
    data += world.fill("a", 3)
    world.seal(log_id)
    world.rewind(earlier)
    assert "wal.behind" in world.kinds()
    assert world.recovered()[log_id].status == "restored"
    assert world.read("a") == data
    assert not world.recover().changed
    assert not world.verify().findings
    more = world.fill("a", 1)
    world.seal(log_id)
    world.wait(2 * AGE_S)
    trim(world.parts, log_id)
    assert world.read("a") == data + more
    assert not world.verify().findings


def test_tables_rewound_within_the_tail_raise_only_when_told() -> None:
    world = Ruins()
    log_id = world.create("a")
    data = world.fill("a", 2)
    world.seal(log_id)
    data += world.fill("a", 1)
    earlier = world.snapshot()
    world.fill("a", 2)
    world.rewind(earlier)
    assert world.recovered()[log_id].status == "intact"
    said = world.recovered(rewound=True)[log_id]
    assert (said.status, said.incarnation, said.end_offset) == ("repaired", world.seconds(), 9)
    assert not world.recover().changed
    assert world.read("a", at(0, 9)) == []
    with pytest.raises(Gone):
        world.read("a", at(0, 10))
    world.seal(log_id)
    assert world.read("a") == data
    assert not world.verify().findings


def test_a_fork_that_a_rewound_source_does_not_count_is_counted() -> None:
    world = Ruins()
    source = world.create("s")
    inherited = world.fill("s", 2)
    world.seal(source)
    earlier = world.snapshot()
    fork = world.fork("f", "s")
    world.seal(fork)
    world.rewind(earlier)
    assert "fork.uncounted" in world.kinds()
    report = world.recovered()
    assert (report[source].status, report[fork].status) == ("repaired", "restored")
    assert world.logs.head("s").state.forks == 1
    assert world.read("f") == inherited
    assert not world.recover().changed


def test_a_log_with_a_tombstone_that_a_rewind_brought_back_is_ended() -> None:
    world = Ruins()
    log_id = world.create("a")
    world.fill("a", 2)
    earlier = world.snapshot()
    world.logs.delete("a")
    world.wait(AGE_S)
    assert purge(world.parts, log_id)
    world.rewind(earlier)
    assert "tombstone.living" in world.kinds()
    assert world.recovered()[log_id].status == "ended"
    with pytest.raises(NotFound):
        world.logs.head("a")
    assert not world.recover().changed


def test_another_history_is_left_alone() -> None:
    world = Ruins()
    log_id = world.create("a")
    world.fill("a", 2)
    earlier = world.snapshot()
    world.fill("a", 3)
    world.seal(log_id)
    world.rewind(earlier)
    world.wait(HOUR_S)
    world.append("a", b"written before a recovery")
    before = world.tables()
    said = world.recovered()[log_id]
    assert said.status == "refused"
    assert "does not continue" in said.reason
    assert world.tables() == before


def test_entries_that_came_back_without_their_payloads_are_read_from_segments_once() -> None:
    world = Ruins()
    log_id = world.create("a")
    data = world.fill("a", 4)  # the fourth is spilled
    earlier = world.snapshot()
    world.seal(log_id)
    world.append("a", b"lost")
    world.wait(AGE_S)
    trim(world.parts, log_id)
    world.rewind(earlier)
    world.recover(rewound=True)
    assert world.read("a") == data
    assert {one.kind for one in world.verify().findings} == {"payload.missing"}
    assert {one.severity for one in world.verify().findings} == {"warning"}


def test_a_rewound_log_that_was_written_to_is_refused_although_it_was_merged_since() -> None:
    world = Ruins()
    log_id = world.create("a")
    for _ in range(2):
        world.fill("a", 1)
        world.seal(log_id)
    earlier = world.snapshot()
    for _ in range(2):
        world.fill("a", 1)
        world.seal(log_id)
    world.rewind(earlier)
    world.wait(2 * AGE_S)
    world.fill("a", 1)
    world.wait(2 * AGE_S)
    newest, manifests = world.manifest(log_id), world.stores.manifests()
    assert newest is not None
    small = newest.open_page
    task = Task("merge", log_id, "r", 0, "", 0, newest.end_offset, "", newest.config.content_type, small)
    made = merge.merge_segments(world.objects, task, world.clock.now_ms(), lambda: "x")
    merged = merging.merged(newest, small, made, world.clock.now_ms())
    assert merged is not None and manifests.publish(merged)
    assert world.recovered()[log_id].status == "refused"
