"""Laws of recovery: what was published comes back, what was lost is said, and no offset means two things."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from functions.sealer.purge import purge
from headrace.errors import Damaged, Gone, InvalidRequest, NotFound
from headrace.manifest.invariants import check
from headrace.objects import keys
from headrace.streams.errors import ProducerGap, StreamClosed
from headrace.streams.values import STREAMS
from tests.unit.recovery.world import AGE_S, HOUR_S, Ruins, at


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


def test_the_row_that_a_refused_log_lacks_is_not_missed_of_one_that_had_the_name_before() -> None:
    world = Ruins()
    old = world.create("a")
    world.seal(old)
    world.logs.delete("a")
    new = world.create("a")
    world.seal(new)
    key = world.newest_manifest_key(new)
    world.objects.put(key, world.objects.get(key)[:-1])
    world.lose_catalog()
    report = world.recovered()
    assert (report[old].status, report[new].status) == ("superseded", "refused")
    assert [one.log_id for one in world.verify().findings if one.kind == "catalog.missing"] == [new]


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
