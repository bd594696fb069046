"""A crash at any store call of the indexer publishes nothing wrong, and needs no hand."""

from __future__ import annotations

import pytest

from functions.indexer.context import Context
from functions.indexer.follow import PLANNING_MS, follow
from functions.indexer.look import look
from functions.indexer.retire import rebuild
from functions.indexer.start import start
from headrace.errors import StoreError
from headrace.streams.values import CreateRequest
from tests.support.builders import JSON, appending
from tests.unit.indexer.world import SETTINGS, World, each_call
from tests.unit.log.test_definitions import NUMBERS, SEARCH, installing
from tests.unit.sealer.world import Dead, Dies, Interrupts, Stutters


def life(world: World, parts: Context, log_id: str) -> None:
    """Two jobs and a compaction, a retirement, a rebuild: every verb that changes something."""
    for _ in range(2):
        world.publish("a", log_id, 2)
        look(parts, log_id)
        start(parts)
        world.work_all()
        follow(parts)
        start(parts)  # a compaction, the second time
        world.work_all()
        follow(parts)
    world.wait(SETTINGS.index_retire_age_ms * 13 / 1000)
    start(parts)
    rebuild(parts, log_id)
    start(parts)
    world.work_all()
    follow(parts)


def finish(world: World, log_id: str) -> None:
    """Whatever happened: everything healthy, the log is indexed, nobody holds a place."""
    world.publish("a", log_id, 2)
    world.work_all()
    world.settle(log_id)
    world.check(log_id)
    assert world.covered(log_id)
    assert world.jobs.places == {}
    assert world.runs.most == 1
    assert all(not row.job_id for row in world.jobs.rows.values())


def test_the_life_that_is_tested_builds_compacts_retires_and_rebuilds() -> None:
    world = World()
    log_id = world.create("a")
    life(world, world.indexer, log_id)
    index = world.check(log_id)
    assert [(run.level, run.first_offset, run.end_offset) for run in index.runs] == [(0, 0, 6), (0, 6, 12)]
    assert [retired.run.level for retired in index.retired] == [1]
    finish(world, log_id)


@pytest.mark.parametrize("after", [False, True])
def test_an_indexer_that_dies_is_replaced_by_the_next(after: bool, full: bool) -> None:
    def run(at: int) -> bool:
        world = World()
        log_id = world.create("a")
        hook = Dies(at, after=after)
        try:
            life(world, world.watched_indexer(hook), log_id)
            died = False
        except (Dead, StoreError):
            died = True
        world.check(log_id)
        finish(world, log_id)
        return died

    assert each_call(run, every=1 if full else 3) > 100


@pytest.mark.parametrize("after", [False, True])
def test_a_call_that_times_out_is_repeated_without_harm(after: bool, full: bool) -> None:
    def run(at: int) -> bool:
        world = World()
        log_id = world.create("a")
        hook = Stutters(at, after=after)
        parts = world.watched_indexer(hook)
        try:
            life(world, parts, log_id)
        except StoreError:
            world.check(log_id)
        finish(world, log_id)
        return hook.calls >= hook.at

    assert each_call(run, every=1 if full else 3) > 100


def test_two_indexers_interleaved_at_every_call_publish_disjoint_runs(full: bool) -> None:
    twice = 0

    def run(at: int) -> bool:
        nonlocal twice
        world = World()
        log_id = world.create("a")

        def other() -> None:
            look(world.indexer, log_id)
            world.tick()
            world.work_all()
            world.tick()

        hook = Interrupts(at, other)
        life(world, world.watched_indexer(hook), log_id)
        twice += len(world.runs.jobs)
        finish(world, log_id)
        return hook.calls >= at

    assert each_call(run, every=1 if full else 3) > 100
    assert twice > 0


def test_two_indexers_that_lose_their_places_publish_disjoint_runs(full: bool) -> None:
    """As above, and so much time passes in between that the other one thinks that the first is gone."""

    def run(at: int) -> bool:
        world = World()
        log_id = world.create("a")

        def other() -> None:
            world.wait(3600)
            look(world.indexer, log_id)
            world.tick()
            world.work_all()
            world.wait(3600 * 2)
            world.tick()

        hook = Interrupts(at, other)
        life(world, world.watched_indexer(hook), log_id)
        finish(world, log_id)
        return hook.calls >= at

    assert each_call(run, every=1 if full else 3) > 100


def test_a_new_plan_that_comes_while_a_planner_finds_nothing_to_do_is_not_forgotten() -> None:
    """A quiet log: after that one message nothing names it again before the next audit."""
    number = {**SEARCH["fields"]["n"], "exact": False}
    changed = {**SEARCH, "fields": {**SEARCH["fields"], "n": number}}

    def run(at: int) -> bool:
        world = World()
        world.logs.create("s", CreateRequest(content_type=JSON))
        log_id = world.logs.head("s").log_id
        world.logs.define("s", installing(schema=NUMBERS, search=SEARCH))
        for value in range(6):
            world.logs.append("s", appending(b'{"n":%d}' % value, content_type=JSON))
        world.seal(log_id)
        world.wait(SETTINGS.index_age_ms / 1000)
        look(world.indexer, log_id)
        world.wait(SETTINGS.index_age_ms / 1000)
        start(world.indexer)
        look(world.indexer, log_id)  # the message came twice
        world.work_all()
        follow(world.indexer)

        def reconfigure() -> None:
            world.logs.define("s", installing(search=changed))
            world.seal(log_id)
            look(world.indexer, log_id)

        hook = Interrupts(at, reconfigure)
        start(world.watched_indexer(hook))  # finds nothing to do, and drops the row
        if hook.calls < at:
            assert world.covered(log_id)
            assert world.jobs.rows == {}
            return False
        for _ in range(8):
            world.wait(PLANNING_MS / 1000)
            world.tick()
            world.work_all()
        assert world.covered(log_id)
        return True

    assert each_call(run) > 5
