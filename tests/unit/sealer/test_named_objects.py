"""Objects of a surface's own that states name: those that are named stay, the others go, and none goes that a writer may
still name.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from functions.sealer import trim as trim_module
from functions.sealer.context import assemble
from functions.sealer.purge import purge
from functions.sealer.trim import sweep_orphans, trim
from headrace.batch import Batch
from headrace.objects import keys
from headrace.queues.ledger import Base, LeaseState
from headrace.surfaces import EXTENSIONS
from headrace.topics import removed
from headrace.topics.values import DiffRequest, Match, RemovedRef, TopicState, WriteRequest, topic_of
from headrace.topics.verbs import Topics
from headrace.wal.extension import ForeignExtension
from headrace.wal.state import LogState
from tests.support.faults import Faulty
from tests.support.pairs import Pairs
from tests.unit.sealer.world import SETTINGS, World


def dead(world: World, log_id: str) -> list[int]:
    """The numbers of the objects that stand."""
    return [keys.numbered(key)[1] for key in world.keys(log_id, "dead/")]


def test_an_object_stays_while_an_entry_or_one_of_the_last_two_manifests_names_it() -> None:
    world = World()
    log_id = world.pairs.create("p").log_id
    for number in range(1, 6):
        world.pairs.configure("p", number, b"reason %d" % number)
    for number in (2, 5, 6):
        world.objects.put(keys.removed(log_id, number, "lost"), b"")
    assert sweep_orphans(world.parts, log_id) == 2, "the sixth may be about to be named"
    assert dead(world, log_id) == [1, 2, 3, 4, 5, 6]
    world.seal(log_id)
    world.pairs.configure("p", 6, b"reason 6")
    world.wait(SETTINGS.trim_age_ms / 1000)
    assert sweep_orphans(world.parts, log_id) == 1
    trim(world.parts, log_id)
    assert sweep_orphans(world.parts, log_id) == 4
    assert dead(world, log_id) == [5, 6], "the manifest names one, the newest entry the other"
    for number in (7, 8):
        world.pairs.configure("p", number, b"reason %d" % number)
        world.seal(log_id)
    world.wait(SETTINGS.trim_age_ms / 1000)
    trim(world.parts, log_id)
    assert sweep_orphans(world.parts, log_id) == 2
    assert dead(world, log_id) == [7, 8]


def test_a_writer_that_sleeps_between_object_and_entry_finds_its_object() -> None:
    """Whether it wins its slot, or loses it to another and decides again."""
    for is_overtaken in (False, True):
        world = World()
        log_id = world.pairs.create("p").log_id
        world.pairs.configure("p", 1, b"first")
        objects = Faulty(world.objects)

        def meanwhile(world: World = world, log_id: str = log_id, is_overtaken: bool = is_overtaken) -> None:
            if is_overtaken:
                world.pairs.configure("p", 2, b"overtakes")
            world.seal(log_id)
            sweep_orphans(world.parts, log_id)

        objects.on("put", meanwhile, after=True)
        sleepy = Pairs(replace(world.stores, objects=objects))
        sleepy.configure("p", 3, b"sleeps")
        newest = world.wal.newest(log_id)
        assert newest is not None
        (key,) = newest.state.named_objects(log_id)
        assert world.objects.get(key) == b"sleeps"
        world.wait(2 * SETTINGS.trim_age_ms / 1000)
        world.seal(log_id)
        trim(world.parts, log_id)
        sweep_orphans(world.parts, log_id)
        assert world.objects.get(key) == b"sleeps"


def test_a_page_stays_while_a_root_that_is_kept_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removed, "PAGE_RUNS", 16)
    world = World()
    topics = Topics(world.stores)
    tags = [f"t{number * 7 % 40}" for number in range(1600)]
    topics.append("t", WriteRequest(records=Batch.of([b"x"] * 1600, key=tags)))
    log_id = topics.head("t").log_id
    topics.erase("t", None, Match("t3", is_prefix=True))
    for number in (*range(3), *range(4, 12)):
        assert topics.erase("t", None, Match(f"t{number}")).deleted > 20
        topics.erase("t", 50 * number, None)
        root = topic_of(topics.head("t").state).base
        assert root is not None
        world.objects.put(keys.removed_page(log_id, root.number, "lost"), b"")
        if number % 3 != 1:
            world.seal(log_id)
        world.wait(SETTINGS.trim_age_ms / 1000)
        if number % 2:
            trim(world.parts, log_id)
        sweep_orphans(world.parts, log_id)
        standing = set(world.keys(log_id, "dead/"))
        for one in standing:
            if not keys.is_removed_page(one):
                assert standing.issuperset(TopicState().named_pages(one, world.objects.get(one)))
        left = {f"t{one}" for one in range(number + 1, 30)} - {"t3"}
        living = [at for at, tag in enumerate(tags) if tag in left and at >= 50 * number - 1]
        page = Topics(world.stores).diff("t", DiffRequest(0, limit=1000))
        assert [one.offset for one in page.records] == living[:1000]
    for _ in range(3):
        world.seal(log_id)
        topics.append("t", WriteRequest(records=Batch.of([b"x"])))
    world.wait(SETTINGS.trim_age_ms / 1000)
    trim(world.parts, log_id)
    assert sweep_orphans(world.parts, log_id)
    state = topics.head("t").state
    (key,) = state.named_objects(log_id)
    pages = topic_of(state).named_pages(key, world.objects.get(key))
    assert len(pages) > 5
    assert set(world.keys(log_id, "dead/")) == {key, *pages}


def test_a_sweep_goes_on_where_the_one_before_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trim_module, "_PAYLOADS", 2)
    world = World()
    log_id = world.pairs.create("p").log_id
    for number in range(1, 9):
        world.pairs.configure("p", number, b"reason %d" % number)
    for number in (6, 7):
        world.objects.put(keys.removed(log_id, number, "lost"), b"")
    assert sum(sweep_orphans(world.parts, log_id) for _ in range(5)) == 2
    assert dead(world, log_id) == [*range(1, 9)]
    world.objects.put(keys.removed(log_id, 1, "lost"), b"")
    assert sum(sweep_orphans(world.parts, log_id) for _ in range(5)) == 1, "it begins again"


def test_a_stream_pays_nothing_for_the_objects_of_others() -> None:
    world = World()
    log_id = world.create("s")
    world.fill("s", 3)
    objects = Faulty(world.objects)
    world.objects.put(keys.removed(log_id, 0, "strange"), b"")
    sweep_orphans(assemble(replace(world.stores, objects=objects), world.queue), log_id)
    listed = [args[0] for method, args in objects.seen if method == "list"]
    assert not [prefix for prefix in listed if "dead" in prefix or "snapshots" in prefix]
    assert dead(world, log_id) == [0]


def test_objects_are_purged_with_their_log() -> None:
    world = World()
    log_id = world.pairs.create("p").log_id
    world.pairs.configure("p", 1, b"reason")
    world.pairs.log.delete("p")
    world.wait(SETTINGS.trim_age_ms / 1000)
    assert purge(world.parts, log_id)
    assert dead(world, log_id) == []


def test_a_wired_process_knows_what_a_state_names_and_others_keep_all() -> None:
    assert {TopicState, LeaseState} <= set(EXTENSIONS)
    state = LogState(extension=LeaseState(base=Base(8, "n", 0)))
    assert state.named_objects("log") == (keys.snapshot("log", 8, "n"),)
    state = LogState(extension=TopicState(base=RemovedRef(7, "n", 1, 9)))
    assert state.named_objects("log") == (keys.removed("log", 7, "n"),)
    assert LogState(extension=TopicState()).named_objects("log") == LogState().named_objects("log") == ()
    assert LogState(extension=ForeignExtension(kind="topic", base=[7, "n", 1, 9])).named_objects("log") == ()
