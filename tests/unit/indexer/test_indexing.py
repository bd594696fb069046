"""The verbs of the indexer together: what is asked, started, published, isolated, removed."""

from __future__ import annotations

import json

import pytest

from functions.indexer import policy
from functions.indexer.follow import PLANNING_MS, STARTING_MS, follow
from functions.indexer.look import look, see
from functions.indexer.retire import rebuild, sweep_orphans
from functions.indexer.runs import load_input
from functions.indexer.start import GIVE_UP_MS, start
from functions.queue import Message
from functions.sealer.purge import purge
from headrace.errors import StoreTimeout
from headrace.index.descriptors import NONE, Run
from headrace.index.manifest import with_runs
from headrace.objects import keys
from headrace.settings import Settings
from headrace.streams.values import CreateRequest
from headrace.tables.jobs import Place
from tests.support.builders import JSON, appending
from tests.unit.indexer.world import SETTINGS, World
from tests.unit.log.test_definitions import NUMBERS, RENAME, RENAMED, SEARCH, installing

DAY_S = 24 * 3600


def test_a_log_is_indexed_when_enough_segments_wait() -> None:
    world = World()
    log_id = world.create("a")
    world.publish("a", log_id)
    assert look(world.indexer, log_id)
    assert start(world.indexer).jobs == 0
    assert world.wakes.waiting == [Message("tick", not_before_ms=world.clock.now_ms() + 60_000)]
    world.publish("a", log_id)
    look(world.indexer, log_id)
    started = start(world.indexer)
    assert (started.jobs, started.tasks, started.logs) == (1, 1, 1)
    assert follow(world.indexer)[:3] == (0, 0, ())
    world.work_all()
    assert follow(world.indexer)[:3] == (1, 1, ())
    assert world.covered(log_id)
    world.tick()
    assert (world.jobs.rows, world.jobs.places) == ({}, {})


def test_a_log_is_indexed_when_its_first_segment_has_waited() -> None:
    world = World()
    log_id = world.create("a")
    world.publish("a", log_id)
    look(world.indexer, log_id)
    world.wait(59)
    assert start(world.indexer).jobs == 0
    world.wait(1)
    assert start(world.indexer).jobs == 1


def test_one_job_run_serves_many_logs_and_only_one_runs_at_once() -> None:
    world = World()
    logs = {name: world.create(name) for name in "abc"}
    for name, log_id in logs.items():
        world.publish(name, log_id, 2)
        look(world.indexer, log_id)
    started = start(world.indexer)
    assert (started.jobs, started.tasks, started.logs) == (1, 3, 3)
    late = world.create("d")
    world.publish("d", late, 2)
    look(world.indexer, late)
    assert start(world.indexer).jobs == 0
    world.work_all()
    world.tick()
    assert all(world.covered(log_id) for log_id in logs.values())
    assert len(world.runs.jobs) == 2


def test_as_many_job_runs_at_once_as_the_settings_say() -> None:
    for allowed in (0, 2):
        world = World(Settings(index_jobs=allowed, index_segments=1, seal_records=10))
        for name in "abc":
            log_id = world.create(name)
            world.publish(name, log_id)
            look(world.indexer, log_id)
            start(world.indexer)
        assert len(world.runs.jobs) == allowed


def test_what_is_published_while_a_job_runs_is_the_next_jobs() -> None:
    world = World()
    log_id = world.create("a")
    world.publish("a", log_id, 2)
    look(world.indexer, log_id)
    start(world.indexer)
    world.publish("a", log_id, 2)
    look(world.indexer, log_id)
    world.work_all()
    world.tick()
    assert len(world.runs.jobs) == 2
    world.work_all()
    world.tick()
    assert [(run.first_offset, run.end_offset) for run in world.check(log_id).runs] == [(0, 6), (6, 12)]


def test_a_poisoned_log_fails_alone_and_ever_later() -> None:
    world = World()
    sick, well = world.create("a"), world.create("b")
    for name, log_id in (("a", sick), ("b", well)):
        world.publish(name, log_id, 2)
        look(world.indexer, log_id)
    world.poisoned = {sick}
    start(world.indexer)
    world.work_all()
    assert follow(world.indexer)[:3] == (1, 1, ((sick, "poisoned"),))
    assert world.covered(well) and not world.covered(sick)
    row = world.jobs.rows[sick]
    assert (row.failures, row.reason, row.job_id) == (1, "poisoned", "")
    assert row.due_ms > world.clock.now_ms()
    world.poisoned = set()
    world.settle()
    assert world.covered(sick)
    assert sick not in world.jobs.rows


def test_a_log_that_kills_job_runs_does_not_keep_others_from_theirs() -> None:
    world = World()
    logs = [world.create(name) for name in "abcd"]
    for name, log_id in zip("abcd", logs, strict=True):
        world.publish(name, log_id, 2)
        look(world.indexer, log_id)
    world.deadly = {logs[1]}
    world.settle()
    assert [world.covered(log_id) for log_id in logs] == [True, False, True, True]
    assert world.jobs.rows[logs[1]].failures >= 2


def test_a_job_run_that_died_leaves_what_it_had_finished() -> None:
    world = World()
    logs = [world.create(name) for name in "ab"]
    for name, log_id in zip("ab", logs, strict=True):
        world.publish(name, log_id, 2)
        look(world.indexer, log_id)
    start(world.indexer)
    (job_id,) = world.runs.under_way
    job = load_input(world.objects, job_id)
    assert job is not None
    done = next(task for task in job.tasks if task.log_id == logs[0])
    world._make(world.objects, done, job.created_ms)
    world.runs.outcomes[world.runs.jobs[job_id]] = "failed"
    followed = follow(world.indexer)
    assert followed.published == 1
    assert [log_id for log_id, _ in followed.failed] == [logs[1]]
    assert world.covered(logs[0]) and not world.covered(logs[1])


def test_a_run_that_is_not_what_was_asked_for_is_not_published() -> None:
    world = World()
    log_id = world.create("a")
    world.publish("a", log_id, 2)
    look(world.indexer, log_id)
    start(world.indexer)
    (job_id,) = world.runs.under_way
    job = load_input(world.objects, job_id)
    assert job is not None
    (task,) = job.tasks
    world.work(job_id)
    world.objects.put(keys.run_descriptor(log_id, task.run_id), b"something else")
    followed = follow(world.indexer)
    assert (followed.jobs, followed.published) == (1, 0)
    assert world.index(log_id).runs == ()
    assert world.jobs.places == {}


def test_a_planner_that_vanished_frees_its_place_and_its_logs() -> None:
    world = World()
    log_id = world.create("a")
    world.publish("a", log_id, 2)
    look(world.indexer, log_id)
    world.jobs.take(Place(0, "gone", "planning", world.clock.now_ms()))
    world.wait((PLANNING_MS - 1000) / 1000)
    world.tick()
    assert world.runs.jobs == {}
    world.wait(1)
    world.tick()
    assert len(world.runs.jobs) == 1


def test_a_start_whose_answer_was_lost_is_found_again() -> None:
    world = World()
    log_id = world.create("a")
    world.publish("a", log_id, 2)
    look(world.indexer, log_id)
    start_run, lost = world.runs.start, []

    def loses(job_id: str, *, requested: bool = False) -> str:
        run_id = start_run(job_id, requested=requested)
        if not lost:
            lost.append(run_id)
            raise StoreTimeout("lost")
        return run_id

    world.runs.start = loses  # type: ignore[method-assign]
    with pytest.raises(StoreTimeout):
        start(world.indexer)
    world.work_all()
    world.wait(STARTING_MS / 1000)
    world.tick()
    world.tick()
    assert world.covered(log_id)
    assert len(world.runs.jobs) == 1


def test_a_job_run_that_nobody_knows_any_more_has_failed_and_is_done_again() -> None:
    world = World()
    log_id = world.create("a")
    world.publish("a", log_id, 2)
    look(world.indexer, log_id)
    start(world.indexer)
    world.runs.outcomes.clear()
    assert len(follow(world.indexer).failed) == 1
    world.settle()
    assert world.covered(log_id)


def test_a_job_run_that_never_ends_is_given_up() -> None:
    world = World()
    log_id = world.create("a")
    world.publish("a", log_id, 2)
    look(world.indexer, log_id)
    start(world.indexer)
    world.wait(GIVE_UP_MS / 1000)
    assert follow(world.indexer).jobs == 1
    assert world.jobs.places == {}
    assert world.jobs.rows[log_id].failures == 1


def compacting() -> tuple[World, str]:
    """Returns a log with two runs, of which a compaction is under way."""
    world = World()
    log_id = world.create("a")
    for _ in range(2):
        world.publish("a", log_id, 2)
        look(world.indexer, log_id)
        start(world.indexer)
        world.work_all()
        follow(world.indexer)
    start(world.indexer)
    return world, log_id


def test_runs_that_were_replaced_keep_their_objects_until_no_reader_can_hold_them() -> None:
    world, log_id = compacting()
    world.work_all()
    world.tick()
    index = world.check(log_id)
    assert [run.level for run in index.runs] == [1]
    old = [retired.run for retired in index.retired]
    assert len(old) == 2
    world.wait(SETTINGS.index_retire_age_ms * 12 / 1000 - 1)
    world.tick()
    assert all(world.keys(log_id, f"index/runs/{run.id}/") for run in old)
    world.wait(1)
    world.tick()
    assert not any(world.keys(log_id, f"index/runs/{run.id}/") for run in old)
    assert world.check(log_id).retired == ()
    assert world.jobs.rows == {}


def test_a_change_of_the_plan_indexes_everything_again_and_retires_the_old_runs() -> None:
    world = World()
    world.logs.create("s", CreateRequest(content_type=JSON))
    log_id = world.logs.head("s").log_id
    world.logs.define("s", installing(schema=NUMBERS, search=SEARCH))
    for value in range(6):
        world.logs.append("s", appending(json.dumps({"n": value}).encode(), content_type=JSON))
    world.seal(log_id)
    world.settle(log_id)
    (before,) = world.check(log_id).runs
    assert before.plan != NONE
    world.logs.define("s", installing(schema=RENAMED, lens=RENAME))
    assert see(world.indexer, log_id).plan != before.plan  # type: ignore[union-attr]
    assert not world.covered(log_id)
    world.settle(log_id)
    (after,) = world.check(log_id).runs
    assert (after.first_offset, after.end_offset) == (before.first_offset, before.end_offset)
    assert after.plan != before.plan


def test_a_log_without_keys_or_search_is_left_alone_and_one_with_keys_is_not() -> None:
    world = World()
    plain = world.create("plain", content_type="text/plain")
    world.logs.append("plain", appending(b"x", content_type="text/plain"))
    world.seal(plain)
    keyed = world.create("keyed")
    world.publish("keyed", keyed)
    assert not look(world.indexer, plain)
    assert look(world.indexer, keyed)


def test_a_deleted_log_is_forgotten_and_a_late_run_of_it_removed() -> None:
    world = World()
    log_id = world.create("a")
    world.publish("a", log_id, 2)
    look(world.indexer, log_id)
    start(world.indexer)
    world.logs.delete("a")
    world.wait(SETTINGS.trim_age_ms / 1000)
    assert purge(world.parts, log_id)
    world.work_all()
    assert world.keys(log_id, "index/")
    world.tick()
    assert world.keys(log_id, "index/") == []
    assert world.jobs.rows == {}
    assert not look(world.indexer, log_id)


def test_a_purge_takes_indexes_along() -> None:
    world = World()
    log_id = world.create("a")
    world.publish("a", log_id, 2)
    world.settle(log_id)
    assert world.index(log_id).runs
    world.logs.delete("a")
    world.wait(SETTINGS.trim_age_ms / 1000)
    assert purge(world.parts, log_id)
    assert world.keys(log_id, "index/") == []


def test_orphans_of_runs_go_after_a_day_and_nothing_else_does() -> None:
    world = World()
    log_id = world.create("a")
    world.publish("a", log_id, 2)
    world.settle(log_id)
    (run,) = world.check(log_id).runs
    refused = world.indexer.new_id()
    stray = keys.run_part(log_id, run.id, "lex", 0, "other-attempt")
    doomed = [stray, keys.run_part(log_id, refused, "kw", 0, "n"), keys.run_descriptor(log_id, refused)]
    for key in doomed:
        world.objects.put(key, b"x")
    kept = set(world.keys(log_id)) - set(doomed)
    assert sweep_orphans(world.indexer, log_id) == 0
    world.wait(DAY_S)
    fresh = keys.run_part(log_id, world.indexer.new_id(), "kw", 0, "n")
    world.objects.put(fresh, b"x")
    assert sweep_orphans(world.indexer, log_id) == 3
    assert set(world.keys(log_id)) == kept | {fresh}


def test_a_compaction_that_a_rebuild_overtook_does_not_bring_old_runs_back() -> None:
    world, log_id = compacting()
    (compaction,) = world.runs.under_way
    assert rebuild(world.indexer, log_id) == 2
    world.work(compaction)
    assert follow(world.indexer).published == 0
    assert world.check(log_id).runs == ()
    world.settle(log_id)
    assert world.covered(log_id)
    planned_ms = keys.made_ms(compaction)
    assert planned_ms is not None and all(run.created_ms > planned_ms for run in world.check(log_id).runs)


@pytest.mark.parametrize(("segments", "gap"), [(23, 0), (23, 9), (8, 0), (41, 17), (41, 40)])
def test_the_newest_unindexed_segments_are_found_behind_sealed_pages(
    monkeypatch: pytest.MonkeyPatch, segments: int, gap: int
) -> None:
    """Against a look at every segment; `gap`: a run of one segment is there."""
    monkeypatch.setattr("headrace.manifest.manifest.PAGE_SEGMENTS", 4)
    world = World()
    log_id = world.create("a")
    world.publish("a", log_id, segments)
    manifest = world.manifest(log_id)
    assert manifest is not None and (manifest.pages or segments <= 8)
    every = list(world.indexer.manifests.segments_from(manifest, 0))
    one = every[gap]
    run = Run("r", 0, NONE, one.first_offset, one.end_offset, 0, 0, None, None, {}, "d", "", 0, 0)
    index = with_runs(world.index(log_id), [run], 0, plan=NONE)
    assert world.indexer.indexes.publish(index)
    found = see(world.indexer, log_id)
    assert found is not None
    missing = [segment for segment in every if segment.number != gap]
    assert list(found.unindexed) == missing[-policy.enough(world.indexer.limits) :]
