"""Merging from end to end: planned, made, published against sealers and crashes, read meanwhile, cleaned up."""

from __future__ import annotations

import contextlib
import json

import pytest
from msgspec.structs import replace

from emr_jobs import merge as merging_job
from functions.indexer.context import Context
from functions.indexer.follow import follow, publish_merged
from functions.indexer.look import audit, look
from functions.indexer.runs import load_input, load_result
from functions.indexer.start import start
from functions.sealer.purge import purge
from functions.sealer.seal import seal
from functions.sealer.trim import sweep_orphans, trim
from headrace.errors import Damaged, StoreError
from headrace.index.job import Task
from headrace.log.requests import At, Selection
from headrace.manifest import merging
from headrace.manifest.invariants import check
from headrace.objects import keys
from headrace.recovery.verify import verify
from headrace.segment.descriptor import Segment
from headrace.settings import Settings
from headrace.streams.verbs import Streams
from headrace.wal.state import Cursor
from tests.unit.indexer.world import World, dispatcher, each_call
from tests.unit.sealer.world import Dead, Dies, Interrupts, Stutters

SETTINGS = Settings(
    seal_records=30,
    seal_bytes=10_000,
    index_segments=100,
    index_age_ms=10**9,
    merge_segments=4,
    merge_age_ms=60_000,
    merge_retire_ms=7_200_000,
)
AGE_S = SETTINGS.merge_retire_ms / 1000


def slow_log(segments: int = 5) -> tuple[World, str, list[bytes]]:
    """Returns a log of small segments, old enough to be merged."""
    world = World(SETTINGS)
    log_id = world.create("a")
    written = world.publish("a", log_id, segments)
    world.wait(SETTINGS.trim_age_ms / 1000 + 1)
    trim(world.parts, log_id)
    return world, log_id, written


def merge(world: World, log_id: str, parts: Context | None = None) -> None:
    """A job that merges, from look to publication."""
    parts = parts or world.indexer
    look(parts, log_id)
    start(parts)
    world.work_all()
    follow(parts)


def counts(world: World, log_id: str) -> list[int]:
    """Records in each published segment."""
    manifest = world.manifest(log_id)
    assert manifest is not None
    return [one.count for one in world.stores.manifests().segments_from(manifest, 0)]


def read_all(logs: Streams, name: str = "a", page: int = 4, selection: Selection | None = None) -> list[bytes]:
    """Returns the whole stream, page by page."""
    found: list[bytes] = []
    at = 0
    while True:
        where = At(Cursor(None, at))
        read = logs.read(name, where, max_records=page, **({"selection": selection} if selection else {}))
        found += read.data
        at = read.next
        if read.up_to_date:
            return found


def check_chain(world: World, log_id: str) -> None:
    """Every generation may follow the one before, and nothing is damaged."""
    manifests = world.stores.manifests()
    newest = world.manifest(log_id)
    assert newest is not None
    for generation in range(2, newest.generation + 1):
        check(manifests.load(log_id, generation - 1), manifests.load(log_id, generation))  # type: ignore[arg-type]
    assert [one for one in verify(world.stores, log_id).findings if one.severity == "error"] == []


def test_small_segments_of_a_slow_log_become_one() -> None:
    world, log_id, written = slow_log()
    merge(world, log_id)
    assert counts(world, log_id) == [15]
    assert world.published(log_id) == written
    assert world.stores.watermarks.get(log_id).generation == 6
    check_chain(world, log_id)
    written += world.publish("a", log_id, 1)
    assert world.published(log_id) == written
    assert counts(world, log_id) == [15, 3]
    check_chain(world, log_id)


def test_a_log_without_a_search_is_merged_and_nothing_else() -> None:
    world = World(SETTINGS)
    log_id = world.create("a")
    assert look(world.indexer, log_id) is False
    world.publish("a", log_id, 3)
    look(world.indexer, log_id)
    assert start(world.indexer).jobs == 0


def test_the_last_segments_of_a_log_that_went_idle_are_merged_by_the_schedule_alone() -> None:
    world = World(SETTINGS)
    log_id = world.create("a")
    written = world.publish("a", log_id, 5)
    handler, _ = dispatcher(world.indexer)
    news = [
        {"messageId": str(number), "eventSource": "aws:sqs", "body": json.dumps(event)}
        for number, event in enumerate(world.events_of(log_id))
    ]
    assert handler.dispatch({"Records": news}) == {"batchItemFailures": []}
    assert world.runs.under_way == [], "too young"
    for _ in range(3):
        world.wait(SETTINGS.merge_age_ms / 1000)
        handler.dispatch({"detail-type": "Scheduled Event"})
        world.work_all()
    assert counts(world, log_id) == [15]
    assert world.published(log_id) == written


def test_an_audit_finds_what_no_news_told() -> None:
    world, log_id, written = slow_log()
    handler, _ = dispatcher(world.indexer)
    world.audit(audit, world.indexer)
    for _ in range(2):
        handler.dispatch({"detail-type": "Scheduled Event"})
        world.work_all()
    assert counts(world, log_id) == [15]
    assert world.published(log_id) == written


def test_keys_times_and_bytes_are_those_of_before() -> None:
    world, log_id, _ = slow_log()
    before = read_all(Streams(world.stores), selection=Selection(key="k10"))
    since = Streams(world.stores).read("a", At(since_ms=world.clock.now_ms() - 901_030)).start
    merge(world, log_id)
    assert before
    assert read_all(Streams(world.stores), selection=Selection(key="k10")) == before
    assert Streams(world.stores).read("a", At(since_ms=world.clock.now_ms() - 901_030)).start == since


@pytest.mark.parametrize("key", [None, "k10"])
def test_a_reader_with_an_old_manifest_goes_on_when_its_segments_are_gone(key: str | None) -> None:
    world, log_id, written = slow_log(6)
    logs = Streams(world.stores)
    selection = Selection(key=key) if key else None
    before = read_all(logs, selection=selection)
    first = logs.read("a", At(Cursor(None, 0)), max_records=4)
    merge(world, log_id)
    (merged_key,) = [one for one in world.keys(log_id, "segments/") if "-m" in one and one.endswith(".parquet")]
    world.objects.delete([k for k in world.keys(log_id, "segments/") if "-m" not in k])
    rest = logs.read("a", At(Cursor(None, first.next)), max_records=100)
    assert [*first.data, *rest.data] == written
    assert read_all(logs, selection=selection) == before
    at = Streams(world.stores)
    assert at.read("a", At(since_ms=0), max_records=100).data == written
    world.objects.delete([merged_key])
    with pytest.raises(Damaged):
        read_all(logs)


def test_a_time_is_found_although_its_key_page_was_merged_away() -> None:
    world, log_id, _ = slow_log(6)
    logs = Streams(world.stores)
    times = [world.clock.now_ms() - 901_060 + 10 * step for step in range(8)]
    before = [logs.read("a", At(since_ms=one)).start for one in times]
    merge(world, log_id)
    world.objects.delete([key for key in world.keys(log_id, "segments/") if "-m" not in key])
    assert [logs.read("a", At(since_ms=one)).start for one in times] == before


def planned(world: World, log_id: str) -> tuple[Task, Segment]:
    """Plans and makes a merge without publishing it; returns its task and its segment."""
    look(world.indexer, log_id)
    start(world.indexer)
    (job_id,) = world.runs.under_way
    world.work_all()
    job, result = load_input(world.objects, job_id), load_result(world.objects, job_id)
    assert job is not None and result is not None
    (task,) = job.tasks
    return task, result.merged[task.run_id]


def test_a_sealer_that_publishes_first_loses_nothing_whenever_it_comes() -> None:
    def run(at: int) -> bool:
        world, log_id, written = slow_log()
        task, made = planned(world, log_id)
        hook = Interrupts(at, lambda: written.extend(world.publish("a", log_id, 1)))
        assert publish_merged(world.watched_indexer(hook), task, made)
        came = hook.calls >= at
        assert world.published(log_id) == written
        assert counts(world, log_id) == ([15, 3] if came else [15])
        check_chain(world, log_id)
        return came

    assert each_call(run) > 6


def test_a_merge_that_is_published_while_a_log_is_sealed_loses_nothing_whenever_it_comes() -> None:
    def run(at: int) -> bool:
        world, log_id, written = slow_log()
        task, made = planned(world, log_id)
        written += world.fill("a", 1)
        hook = Interrupts(at, lambda: publish_merged(world.indexer, task, made))
        seal(world.watched(hook), log_id, force=True)
        came = hook.calls >= at
        assert world.published(log_id) == written
        assert counts(world, log_id) == ([15, 3] if came else [3] * 6)
        check_chain(world, log_id)
        return came

    assert each_call(run) > 8


def test_two_merges_of_the_same_segments_give_one() -> None:
    world, log_id, written = slow_log()
    task, made = planned(world, log_id)
    assert publish_merged(world.indexer, task, made)
    other = merging_job.merge_segments(world.objects, task, world.clock.now_ms(), world.stores.request_ids)
    assert not publish_merged(world.indexer, task, other)
    assert publish_merged(world.indexer, task, made), "again, after a lost answer"
    assert world.published(log_id) == written
    assert world.manifest(log_id).generation == 6  # type: ignore[union-attr]


def test_what_comes_half_a_day_late_is_not_published() -> None:
    world, log_id, written = slow_log()
    task, made = planned(world, log_id)
    world.wait(merging.PUBLISH_MS / 1000 + 1)
    assert not publish_merged(world.indexer, task, made)
    assert sweep_orphans(world.parts, log_id) == 0, "nothing says yet that it never will be"
    world.wait(13 * 3600)
    written += world.publish("a", log_id, 1)
    assert sweep_orphans(world.parts, log_id) == 2
    assert world.published(log_id) == written


def test_a_segment_that_is_not_what_the_job_said_is_refused() -> None:
    world, log_id, _ = slow_log()
    task, made = planned(world, log_id)
    for broken in (
        replace(made, key=keys.segment(log_id, 0, "x")),
        replace(made, key=made.key.replace(log_id, "f" * 32)),
        replace(made, size=made.size + 1),
        replace(made, keys_sha256="0" * 64),
        replace(made, count=made.count - 1),
    ):
        with pytest.raises(Damaged):
            publish_merged(world.indexer, task, broken)
    assert counts(world, log_id) == [3] * 5
    world.objects.delete([made.key])
    with pytest.raises(Damaged, match="missing"):
        publish_merged(world.indexer, task, made)


@pytest.mark.parametrize("after", [False, True])
def test_an_indexer_that_dies_while_merging_is_replaced_by_the_next(after: bool) -> None:
    def run(at: int) -> bool:
        world, log_id, written = slow_log()
        hook = Dies(at, after=after)
        try:
            merge(world, log_id, world.watched_indexer(hook))
            died = False
        except (Dead, StoreError):
            died = True
        world.work_all()
        world.settle(log_id)
        assert counts(world, log_id) == [15]
        assert world.published(log_id) == written
        check_chain(world, log_id)
        assert world.jobs.places == {}
        return died

    assert each_call(run) > 20


@pytest.mark.parametrize("after", [False, True])
def test_a_call_that_times_out_while_merging_is_repeated_without_harm(after: bool) -> None:
    def run(at: int) -> bool:
        world, log_id, written = slow_log()
        hook = Stutters(at, after=after)
        with contextlib.suppress(StoreError):
            merge(world, log_id, world.watched_indexer(hook))
        world.settle(log_id)
        assert counts(world, log_id) == [15]
        assert world.published(log_id) == written
        check_chain(world, log_id)
        return hook.calls >= at

    assert each_call(run) > 20


def test_replaced_objects_go_after_two_generations_and_the_age() -> None:
    world, log_id, written = slow_log()
    merge(world, log_id)
    assert sweep_orphans(world.parts, log_id) == 0
    world.wait(AGE_S + 1)
    assert sweep_orphans(world.parts, log_id) == 0, "no second generation"
    written += world.publish("a", log_id, 1)
    assert sweep_orphans(world.parts, log_id) == 0
    written += world.publish("a", log_id, 1)
    assert sweep_orphans(world.parts, log_id) == 10
    assert world.published(log_id) == written
    check_chain(world, log_id)
    assert sweep_orphans(world.parts, log_id) == 0
    written += world.publish("a", log_id, 1)
    manifest = world.manifest(log_id)
    assert manifest is not None
    assert manifest.replaced == (), "forgotten with the generation after that"
    check_chain(world, log_id)


@pytest.mark.parametrize("after", [False, True])
def test_a_sealer_removes_them_before_it_forgets_them_wherever_it_dies(after: bool) -> None:
    def run(at: int) -> bool:
        world, log_id, written = slow_log()
        small = set(world.keys(log_id, "segments/"))
        merge(world, log_id)
        written += world.publish("a", log_id, 2)
        world.wait(AGE_S + 1)
        written += world.fill("a", 1, records=3)
        hook = Dies(at, after=after)
        with contextlib.suppress(Dead):
            seal(world.watched(hook), log_id, force=True)
        for _ in range(2):
            manifest = world.manifest(log_id)
            assert manifest is not None
            named = {one.key for one in manifest.replaced} | {keys.segment_keys(one.key) for one in manifest.replaced}
            assert not (small - named) & set(world.keys(log_id)), "whatever is forgotten is gone"
            seal(world.parts, log_id, force=True)
        assert manifest.replaced == ()
        assert world.published(log_id) == written
        check_chain(world, log_id)
        return hook.calls >= at

    assert each_call(run) > 8


def test_an_idle_log_loses_them_too() -> None:
    world, log_id, written = slow_log()
    merge(world, log_id)
    world.wait(AGE_S * merging.IDLE_AGES + 1)
    assert sweep_orphans(world.parts, log_id) == 10
    assert world.published(log_id) == written
    check_chain(world, log_id)


def test_orphans_of_sealers_still_go_and_those_that_may_be_published_stay() -> None:
    world, log_id, written = slow_log()
    manifest = world.manifest(log_id)
    assert manifest is not None
    lost, next_ = keys.segment(log_id, 4, "lost"), keys.segment(log_id, manifest.sealed_count, "next")
    merge(world, log_id)
    world.objects.put(lost, b"x")
    world.objects.put(next_, b"x")
    assert sweep_orphans(world.parts, log_id) == 1
    assert lost not in world.keys(log_id)
    assert next_ in world.keys(log_id)
    written += world.publish("a", log_id, 1)
    assert sweep_orphans(world.parts, log_id) == 1
    assert world.published(log_id) == written


@pytest.mark.parametrize("is_purged", [False, True])
def test_nothing_is_left_of_a_merge_whose_log_is_over(is_purged: bool) -> None:
    world, log_id, _ = slow_log()
    look(world.indexer, log_id)
    start(world.indexer)
    world.logs.delete("a")
    world.wait(SETTINGS.trim_age_ms / 1000 + 1)
    world.work_all()
    if is_purged:
        late = {key: world.objects.get(key) for key in world.keys(log_id, "segments/") if "-m" in key}
        assert purge(world.parts, log_id)
        for key, data in late.items():
            world.objects.put(key, data)
    follow(world.indexer)
    left = [key for key in world.keys(log_id, "segments/") if "-m" in key]
    assert bool(left) != is_purged, "tables restored to a time before the end can bring the log back"
    assert purge(world.parts, log_id)
    assert not world.keys(log_id, "segments/")
