"""Laws of recovery: what was published comes back, what was lost is said, and no offset means two things."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
from msgspec.structs import replace

from emr_jobs import merge
from functions.sealer.purge import purge
from functions.sealer.trim import trim
from headrace.errors import Damaged, Gone, InvalidRequest, NotFound
from headrace.index.job import Task
from headrace.log.requests import At
from headrace.manifest import merging
from headrace.manifest.invariants import check
from headrace.objects import keys
from headrace.recovery.recover import recover
from headrace.streams.errors import ProducerGap, StreamClosed
from headrace.streams.values import STREAMS, CreateRequest, ForkRequest
from headrace.wal.state import Cursor
from tests.unit.recovery.world import HOUR_S, Ruins
from tests.unit.sealer.world import PORTS, SETTINGS, Dead, Dies, Watched

AGE_S = SETTINGS.trim_age_ms / 1000


def at(incarnation: int, position: int) -> At:
    return At(cursor=Cursor(incarnation, position))


def test_fifty_logs_come_back_exactly_as_published() -> None:
    world, chance = Ruins(), random.Random(7)
    expected: dict[str, list[bytes] | None] = {}
    written: dict[str, list[bytes]] = {}
    closed: set[str] = set()
    for number in range(50):
        name = f"log-{number:02d}"
        kind = ("plain", "fork", "closed", "deleted", "partly sealed")[number % 5]
        if kind == "fork":
            source = f"log-{number - 1:02d}"
            log_id = world.fork(name, source)
            inherited = written[source]
        else:
            log_id, inherited = world.create(name), []
        first = world.fill(name, chance.randint(1, 5))
        if kind == "closed":
            world.close(name)
            closed.add(name)
        world.seal(log_id)
        later = world.fill(name, 3) if kind == "partly sealed" else []
        written[name] = inherited + first + later
        expected[name] = inherited + first
        if kind == "deleted":
            world.logs.delete(name)
            world.wait(AGE_S)
            assert purge(world.parts, log_id)
            expected[name] = None
    ids = {name: world.stores.catalog.get(STREAMS, name).log_id for name in expected}  # type: ignore[union-attr]
    world.lose_tables()
    assert world.recover(dry_run=True).changed
    assert world.tables().entries == {}
    report, raised = world.recovered(), world.seconds()
    assert all(log.status in ("restored", "ended") for log in report.values()), report
    for name, data in expected.items():
        said = report[ids[name]]
        if data is None:
            assert said.status == "ended"
            with pytest.raises(NotFound):
                world.logs.head(name)
            continue
        assert world.read(name) == data
        assert (said.status, said.end_offset, said.incarnation) == ("restored", len(data), raised)
        assert "unpublished tail" in said.lost
        assert world.logs.head(name).state.is_final == (name in closed)
    assert [row.name for row in world.logs.list(limit=100)] == [n for n, d in expected.items() if d is not None]
    left = world.verify().findings  # payloads of entries that are gone, and nothing else
    assert left
    assert all(one.kind == "bucket.orphan" and "/wal/" in one.where for one in left)

    tables, bucket = world.tables(), world.bucket()
    again = world.recover()
    assert not again.changed
    assert (world.tables(), world.bucket()) == (tables, bucket)

    for name, data in expected.items():
        if data is None:
            created = world.create(name)
            assert created != ids[name]
            assert world.logs.head(name).incarnation == 1
        elif name in closed:
            with pytest.raises(StreamClosed):
                world.fill(name, 1)
        else:
            more = world.fill(name, 2)
            assert world.read(name) == data + more
            assert world.read(name, at(0, len(data))) == more
            world.seal(ids[name])
    for name, data in expected.items():
        if data is not None and name not in closed:
            assert world.read(name)[: len(data)] == data
    assert world.verify().findings == left


def test_older_cursors_hold_up_to_the_end_and_not_beyond() -> None:
    world = Ruins()
    log_id = world.create("a")
    published = world.fill("a", 4)
    world.seal(log_id)
    world.fill("a", 2)  # acknowledged, seen, and lost
    world.lose_tables()
    world.recover()
    raised = world.seconds()
    assert world.read("a", at(0, 5)) == published[5:]
    assert world.read("a", at(0, 12)) == []
    with pytest.raises(Gone):
        world.read("a", at(0, 13))
    fresh = world.fill("a", 2)
    with pytest.raises(Gone):
        world.read("a", at(0, 15))
    assert world.read("a", at(0, 12)) == fresh
    assert world.read("a", at(raised, 15)) == fresh[3:]
    with pytest.raises(InvalidRequest):
        world.read("a", at(raised + 1, 0))
    assert world.logs.head("a").incarnation == raised


def test_a_second_disaster_raises_again_even_before_anything_was_sealed() -> None:
    world = Ruins()
    log_id = world.create("a")
    published = world.fill("a", 2)
    world.seal(log_id)
    seen = [0]
    for _ in range(3):
        world.lose_tables()
        seen.append(world.recovered()[log_id].incarnation)
        world.fill("a", 1)
    assert seen == sorted(set(seen))
    for incarnation in seen[:-1]:
        assert world.read("a", at(incarnation, 6)) == world.read("a")[6:]
        with pytest.raises(Gone):
            world.read("a", at(incarnation, 7))
    assert world.read("a")[:6] == published
    world.seal(log_id)
    assert not world.verify().findings


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


def test_of_several_logs_of_a_name_the_last_one_has_it() -> None:
    world = Ruins()
    old = world.create("a")
    world.fill("a", 2)
    world.seal(old)
    world.logs.delete("a")  # known to the lost tables only
    world.wait(1)
    new = world.create("a")
    data = world.fill("a", 1)
    world.seal(new)
    world.lose_tables()
    report = world.recovered()
    assert (report[old].status, report[new].status) == ("superseded", "restored")
    assert world.read("a") == data
    assert not world.recover().changed


def test_a_deleted_log_is_not_resurrected_by_one_that_came_before() -> None:
    world = Ruins()
    old = world.create("a")
    world.fill("a", 2)
    world.seal(old)
    world.logs.delete("a")
    world.wait(1)
    new = world.create("a")
    world.fill("a", 1)
    world.seal(new)
    world.logs.delete("a")
    world.wait(AGE_S)
    assert purge(world.parts, new)
    world.lose_tables()
    world.recover()
    with pytest.raises(NotFound):
        world.logs.head("a")
    world.create("a")
    assert world.logs.head("a").incarnation == 2


def test_a_younger_log_of_the_name_is_never_replaced() -> None:
    world = Ruins()
    world.create("a")
    world.logs.delete("a")
    old = world.create("a")
    world.fill("a", 2)
    world.seal(old)
    world.lose_tables()
    world.wait(HOUR_S)
    new = world.create("a")  # before anybody recovered
    data = world.fill("a", 1)
    report = world.recovered()
    assert (report[old].status, report[new].status) == ("refused", "intact")
    assert world.read("a") == data


def test_producers_in_the_state_go_on_and_others_are_said_to_be_lost() -> None:
    world = Ruins()
    log_id = world.create("a")
    for number in range(9):
        world.produce("a", f"p{number}", 0, b"x")
    world.seal(log_id)
    world.lose_tables()
    assert "producers" in world.recovered()[log_id].lost
    assert world.produce("a", "p8", 0, b"x").duplicate
    assert not world.produce("a", "p8", 1, b"y").duplicate
    with pytest.raises(ProducerGap):
        world.produce("a", "p0", 1, b"y")


def test_a_sliding_expiry_starts_anew() -> None:
    world = Ruins()
    log_id = world.create("a", ttl_ms=HOUR_S * 1000)
    data = world.fill("a", 1)
    world.seal(log_id)
    world.wait(HOUR_S * 0.9)
    world.logs.read("a", at(0, 0))  # a touch, which is lost
    world.wait(HOUR_S * 0.9)
    world.lose_tables()
    assert "touches" in world.recovered()[log_id].lost
    assert world.read("a") == data
    world.wait(HOUR_S + 1)
    with pytest.raises(NotFound):
        world.logs.head("a")


def test_a_log_that_was_only_described_comes_back_empty() -> None:
    world = Ruins()
    log_id = world.create("a")
    world.fill("a", 2)
    world.seal(log_id)
    world.objects.delete(world.keys(log_id, "manifests/") + world.keys(log_id, "segments/"))
    world.lose_tables()
    said = world.recovered()[log_id]
    assert (said.status, said.end_offset) == ("restored", 0)
    assert "unpublished log" in said.lost
    with pytest.raises(Gone):
        world.read("a", at(0, 3))
    data = world.fill("a", 2)
    world.objects.delete(world.segment_keys(log_id))
    world.seal(log_id)
    assert world.read("a") == data


def test_payload_objects_show_that_a_tail_was_lost() -> None:
    world = Ruins()
    log_id = world.create("a")
    world.fill("a", 2)
    world.seal(log_id)
    world.fill("a", 4)  # the fourth is spilled
    world.lose_tables()
    assert world.recovered()[log_id].evidence_offset == 15


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


def test_a_damaged_manifest_is_refused_and_others_go_on() -> None:
    world = Ruins()
    bad, good = world.create("bad"), world.create("good")
    for name, log_id in (("bad", bad), ("good", good)):
        world.fill(name, 2)
        world.seal(log_id)
    key = world.newest_manifest_key(bad)
    whole = world.objects.get(key)
    world.objects.put(key, whole[:-20])
    world.lose_tables()
    report = world.recover()
    assert not report.clean
    status = {log.log_id: log.status for log in report.logs}
    assert status == {bad: "refused", good: "restored"}
    world.objects.put(key, whole)  # the operator brings the older version back
    assert world.recovered()[bad].status == "restored"
    assert len(world.read("bad")) == 6


def test_a_recovery_on_a_machine_whose_clock_is_ahead_restores_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Ruins()
    log_id = world.create("a")
    data = world.fill("a", 2)
    world.seal(log_id)
    world.lose_tables()
    ask, answered = world.stores.watermarks.get, list[str]()

    def tell_the_time(asked: str) -> Any:
        """The first answer of a table sets the clock back."""
        if not answered:
            world.clock.set_back(5)
        answered.append(asked)
        return ask(asked)

    monkeypatch.setattr(world.stores.watermarks, "get", tell_the_time)
    (found,) = recover(world.stores).logs
    assert (found.log_id, found.status) == (log_id, "restored")
    assert world.read("a") == data


def test_a_recovery_that_slept_for_half_a_day_publishes_nothing() -> None:
    world = Ruins()
    log_id = world.create("a")
    data = world.fill("a", 2)
    world.seal(log_id)
    world.lose_tables()
    before = world.stores.manifests().standing(log_id)

    def sleep(what: str, done: int, total: int) -> None:
        if what == "recovering" and not done:
            world.wait(13 * HOUR_S)

    (found,) = recover(world.stores, progress=sleep).logs
    assert (found.status, found.wrote) == ("refused", ())
    assert world.stores.manifests().standing(log_id) == before
    assert world.recovered()[log_id].status == "restored"
    assert world.read("a") == data


@pytest.mark.parametrize("after", [False, True])
def test_a_recovery_that_dies_anywhere_is_finished_by_the_next(after: bool) -> None:
    at_call = 0
    while True:
        at_call += 1
        world = Ruins()
        source = world.create("s")
        data = world.fill("s", 2)
        fork = world.fork("f", "s")
        own = world.fill("f", 1)
        world.seal(fork)
        world.fill("s", 1)
        world.lose_tables()
        hook = Dies(at_call, after=after)
        ports = {name: Watched(getattr(world.stores, name), hook) for name in PORTS}
        try:
            recover(dataclasses.replace(world.stores, **ports))  # type: ignore[arg-type]
            break
        except Dead:
            pass
        world.recover()
        assert world.read("s") == data
        assert world.read("f") == data + own
        assert world.logs.head("s").state.forks == 1
        assert not world.verify().findings
        world.fill("s", 1)
        world.fill("f", 1)
        world.seal(source)
        world.seal(fork)
        assert not world.verify().findings
    assert at_call > 15


def test_a_process_that_went_on_sees_the_raised_incarnation() -> None:
    """A process that remembers the name from before needs no restart to hand out the new incarnation."""
    world = Ruins()
    log_id = world.create("a")
    world.fill("a", 2)
    world.seal(log_id)
    remembering = world.logs
    remembering.head("a")
    world.wal.remove(log_id, [entry.slot for entry in world.entries(log_id)])
    world.lose_catalog()
    world.recover()
    assert remembering.head("a").incarnation == world.seconds()


def test_keys_of_the_bucket_are_only_added() -> None:
    world = Ruins()
    log_id = world.create("a")
    world.fill("a", 2)
    world.seal(log_id)
    before = world.bucket()
    world.lose_tables()
    world.recover()
    after = world.bucket()
    assert before.items() <= after.items()
    assert set(after) - set(before) == {keys.manifest(log_id, 2)}


def test_no_generation_forgets_a_recovery() -> None:
    world = Ruins()
    log_id = world.create("a")
    world.fill("a", 2)
    world.seal(log_id)
    world.lose_tables()
    world.recover()
    world.close("a")
    world.seal(log_id)
    manifests = world.stores.manifests()
    before, after = manifests.load(log_id, 2), manifests.load(log_id, 3)
    assert before is not None and after is not None
    check(before, after)
    with pytest.raises(Damaged, match="recoveries"):
        check(before, replace(after, state=replace(after.state, recoveries=())))


def test_a_recovered_name_that_is_deleted_and_made_again_goes_on_above() -> None:
    world = Ruins()
    log_id = world.create("a")
    world.fill("a", 2)
    world.seal(log_id)
    world.lose_tables()
    world.recover()
    raised = world.seconds()
    world.logs.delete("a")
    world.wait(AGE_S)
    assert purge(world.parts, log_id)
    world.lose_tables()
    world.recover()
    world.create("a")
    assert world.logs.head("a").incarnation == raised + 1
    with pytest.raises(Gone):
        world.read("a", at(raised, 0))


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
