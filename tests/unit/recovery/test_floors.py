"""Floors, dropped segments and objects of a surface's own, after disasters."""

from __future__ import annotations

from typing import Literal

import pytest

from functions.sealer.trim import sweep_orphans, trim
from headrace.batch import Batch
from headrace.manifest.manifest import Begin
from headrace.objects import keys
from headrace.queues.verbs import Queues
from headrace.topics.decide import EraseRequest
from headrace.topics.runs import Runs
from headrace.topics.values import DiffRequest, Match, TopicConfig, WriteRequest, topic_of
from headrace.topics.verbs import Topics
from tests.unit.recovery.world import AGE_S, Ruins


def built(world: Ruins) -> str:
    """A pair of five segments, three of them dropped, whose state names an object."""
    log_id = world.pairs.create("p").log_id
    for number in range(5):
        world.pairs.append("p", *[b"%d" % (3 * number + at) for at in range(3)], key="k")
        world.seal(log_id)
    world.pairs.configure("p", 9, b"earlier")
    world.pairs.configure("p", 9, b"reason")
    world.pairs.raise_floor("p", 10)
    world.seal(log_id)
    manifest = world.manifest(log_id)
    assert manifest is not None and isinstance(manifest.begin, Begin)
    assert (manifest.begin.number, manifest.begin.offset) == (3, 9)
    return log_id


def check(world: Ruins, floor: int, end: int = 15) -> None:
    """Every record from the floor on is read, and nothing is wrong."""
    page = world.pairs.log.records("p", 0)
    assert page.head.state.floor == floor
    assert [one.data for one in page.records] == [b"%d" % number for number in range(floor, end)]
    assert world.verify().clean, world.verify().findings


def test_a_log_with_a_floor_is_clean_at_every_age() -> None:
    world = Ruins()
    log_id = built(world)
    check(world, 10)
    world.wait(AGE_S)
    trim(world.parts, log_id)
    check(world, 10)
    world.wait(24 * 3600)
    sweep_orphans(world.parts, log_id)
    check(world, 10)
    segments = [key for key in world.keys(log_id, "segments/") if key.endswith(".parquet")]
    assert len(segments) == 2
    assert [keys.numbered(key)[1] for key in world.keys(log_id, "dead/")] == [2]


@pytest.mark.parametrize("is_swept", [False, True])
def test_the_bucket_alone_brings_a_log_back_from_its_floor_on(is_swept: bool) -> None:
    world = Ruins()
    log_id = built(world)
    if is_swept:
        world.wait(24 * 3600)
        trim(world.parts, log_id)
        sweep_orphans(world.parts, log_id)
    world.lose_tables()
    world.recover()
    check(world, 10)
    newest = world.wal.newest(log_id)
    assert newest is not None
    (named,) = newest.state.named_objects(log_id)
    assert world.objects.get(named) == b"reason"
    world.pairs.append("p", b"15", key="k")
    world.pairs.raise_floor("p", 14)
    world.seal(log_id)
    check(world, 14, 16)


def test_tables_from_before_the_floor_rose_get_the_published_one() -> None:
    world = Ruins()
    log_id = world.pairs.create("p").log_id
    world.pairs.append("p", b"0", b"1", b"2")
    kept = world.snapshot()
    world.pairs.append("p", b"3", b"4")
    world.seal(log_id)
    world.pairs.raise_floor("p", 5)
    world.pairs.append("p", b"5")
    world.seal(log_id)
    world.wait(24 * 3600)
    sweep_orphans(world.parts, log_id)
    world.rewind(kept)
    world.recover()
    check(world, 5, 6)


def test_a_missing_object_that_the_state_names_is_an_error() -> None:
    world = Ruins()
    log_id = built(world)
    newest = world.wal.newest(log_id)
    assert newest is not None
    (key,) = newest.state.named_objects(log_id)
    world.objects.delete([key])
    (found,) = world.verify().findings
    assert (found.kind, found.severity, found.where) == ("object.missing", "error", key)


def test_a_delete_by_tag_takes_what_a_recovered_log_has_at_an_offset() -> None:
    world = Ruins()
    topics = Topics(world.stores)
    topics.append("t", WriteRequest(records=Batch.of([b"0", b"1"], key="a")))
    world.seal(topics.head("t").log_id)
    topics.append("t", WriteRequest(records=Batch.of([b"2", b"3"], key="a")))
    assert topics.erase("t", None, Match("b")).deleted == 0
    cache = topics._reader.columns
    world.lose_tables()
    world.recover()
    topics = Topics(world.stores)
    topics._reader.columns = cache
    topics.append("t", WriteRequest(records=Batch.of([b"2", b"3"], key=["b", "a"])))
    assert topics.erase("t", None, Match("b")).deleted == 1
    assert [one.data for one in topics.diff("t", DiffRequest(0)).records] == [b"0", b"1", b"3"]


@pytest.mark.parametrize("type_", ["log", "queue"])
def test_a_delete_does_not_touch_what_a_recovered_log_has_where_its_victims_were(
    type_: Literal["log", "queue"],
) -> None:
    world = Ruins()
    topics = Queues(world.stores)
    topics.put("t", TopicConfig(type=type_))
    topics.append("t", WriteRequest(records=Batch.of([b"0"], key="a")))
    for row in topics.controls.find_all("t").pictures:
        assert row is not None
        world.seal(row.row.log_id)
    topics.append("t", WriteRequest(records=Batch.of([b"1"], key="a")))
    head = topics.head("t")
    world.lose_tables()
    world.recover()
    topics = Queues(world.stores)
    topics.append("t", WriteRequest(records=Batch.of([b"other"], key="b")))
    (erased,) = topics._erase("t", EraseRequest(head, Runs.of([(1, 2)]), lambda *_: 1))
    assert (erased.deleted, erased.live) == (0, 2)


def test_a_missing_or_damaged_page_of_removed_records_is_an_error() -> None:
    world = Ruins()
    topics = Topics(world.stores)
    topics.append("t", WriteRequest(records=Batch.of([b"x"] * 400, key=["a", "b"] * 200)))
    topics.erase("t", None, Match("a"))
    state = topics.head("t").state
    (root,) = state.named_objects(topics.head("t").log_id)
    (page,) = topic_of(state).named_pages(root, world.objects.get(root))
    for key in (page, root):
        kept = world.objects.get(key)
        world.objects.delete([key])
        found = {(one.kind, one.severity, one.where) for one in world.verify().findings}
        assert ("object.missing", "error", key) in found
        world.objects.put(key, kept)
    world.objects.put(root, b"no root")
    assert ("object.damaged", root) in {(one.kind, one.where) for one in world.verify().findings}


def test_an_object_that_no_state_could_have_named_is_an_orphan() -> None:
    world = Ruins()
    log_id = built(world)
    lost = keys.removed(log_id, 3, "lost")
    world.objects.put(lost, b"")
    (found,) = world.verify().findings
    assert (found.kind, found.severity, found.where) == ("bucket.orphan", "warning", lost)
