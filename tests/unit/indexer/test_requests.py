"""Jobs that a surface asks for: one is started for each request, and its end is told, whatever process dies."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import pytest

from functions.indexer.context import Context
from functions.indexer.follow import STARTING_MS, follow
from functions.indexer.handler import messages
from functions.indexer.requests import PLACE, remind, request
from functions.queue import Message
from headrace import jobs
from headrace.errors import StoreError
from headrace.jobs import Progress
from headrace.objects import keys, packed
from tests.unit.indexer.world import World, each_call
from tests.unit.sealer.world import Dead, Dies, Stutters

JOB, OTHER = "1700000000000-aaaaaaaaaaaa", "1700000000000-bbbbbbbbbbbb"


class What(msgspec.Struct):
    """The input of a job of no kind that exists."""

    number: int


def asked(world: World, *job_ids: str) -> World:
    for number, job_id in enumerate(job_ids):
        jobs.ask(world.objects, job_id, "some", world.indexer.now_ms(), What(number))
    return world


def state(world: World, job_id: str = JOB) -> str:
    found = jobs.status(world.objects, job_id)
    assert found is not None
    return found.state


def deliver(world: World, parts: Context | None = None) -> list[Message]:
    """Runs the requests that wait in the queue, as far as their time has come."""
    found = [one for one in world.wakes.receive(world.indexer.now_ms()) if one.verb == "request"]
    for message in found:
        request(parts or world.indexer, message.job_id)
    return found


def over(world: World, job_id: str, outcome: Any = "succeeded") -> None:
    world.runs.outcomes[world.runs.jobs[job_id]] = outcome


def test_a_request_is_started_followed_and_its_end_is_noted() -> None:
    world = asked(World(), JOB)
    assert state(world) == "waiting"
    assert request(world.indexer, JOB)
    assert (state(world), list(world.runs.jobs)) == ("running", [JOB])
    world.objects.put(keys.job_progress(JOB), packed.encode(Progress(1, 3, 7)))
    world.tick()
    found = jobs.status(world.objects, JOB)
    assert found is not None
    assert (found.state, found.done, found.of) == ("running", 3, 7)
    over(world, JOB)
    world.tick()
    assert state(world) == "succeeded"
    assert world.jobs.places == {}
    assert not request(world.indexer, JOB)  # a message that comes twice
    assert len(world.runs.jobs) == 1


def test_what_a_job_gives_as_the_reason_of_its_failure_is_told() -> None:
    world = asked(World(), JOB, OTHER)
    for job_id, error in ((JOB, "no labels"), (OTHER, "")):
        request(world.indexer, job_id)
        if error:
            world.objects.put(keys.job_progress(job_id), packed.encode(Progress(1, 0, 0, error)))
        over(world, job_id, "failed")
        world.tick()
    reasons = [found.reason for found in (jobs.status(world.objects, one) for one in (JOB, OTHER)) if found]
    assert reasons == ["no labels", "job run failed: run_id=run1"]


def test_a_second_request_waits_until_the_first_is_over_and_indexing_does_not_wait() -> None:
    world = asked(World(), JOB, OTHER)
    log_id = world.create("a")
    request(world.indexer, JOB)
    assert not request(world.indexer, OTHER)
    world.publish("a", log_id, 2)
    world.indexer.queue.send([], 0)
    deliver(world)
    world.wait(31)
    assert deliver(world)
    assert list(world.runs.jobs) == [JOB]
    over(world, JOB)
    world.tick()
    world.wait(31)
    assert deliver(world)
    assert list(world.runs.jobs) == [JOB, OTHER]
    assert set(world.jobs.places) == {PLACE}


def test_a_deployment_without_jobs_says_so() -> None:
    world = asked(World(msgspec.structs.replace(World().stores.settings, index_jobs=0)), JOB)
    request(world.indexer, JOB)
    assert (state(world), world.runs.jobs) == ("failed", {})


def test_the_bucket_tells_of_requests_and_the_audit_of_those_whose_message_was_lost() -> None:
    world = asked(World(), JOB, OTHER)
    told = {"Records": [{"s3": {"object": {"key": key}}} for key in world.objects.list("jobs/")]}
    found = list(messages(json.dumps(told)))
    assert found == [Message("request", job_id=JOB), Message("request", job_id=OTHER)]
    assert not list(messages(json.dumps({"Records": [{"s3": {"object": {"key": keys.job_started(JOB)}}}]})))
    request(world.indexer, JOB)
    over(world, JOB)
    world.tick()
    assert remind(world.indexer) == 1
    assert [one.job_id for one in deliver(world)] == [OTHER]
    assert state(world, OTHER) == "running"


def live(world: World, parts: Context) -> None:
    request(parts, JOB)
    follow(parts)
    over(world, JOB)
    follow(parts)


def finish(world: World) -> None:
    remind(world.indexer)
    for _ in range(3):
        deliver(world)
        world.wait(STARTING_MS / 1000)
        world.tick()
        for job_id in world.runs.jobs:
            over(world, job_id)
    assert state(world) == "succeeded"
    assert list(world.runs.jobs) == [JOB]
    assert world.jobs.places == {}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("fault", [Dies, Stutters])
def test_whoever_dies_while_starting_or_following_the_job_is_done_once(fault: Any, after: bool) -> None:
    def run(at: int) -> bool:
        world = asked(World(), JOB)
        hook = fault(at, after=after)
        with contextlib.suppress(Dead, StoreError, KeyError):
            live(world, world.watched_indexer(hook))
        finish(world)
        return hook.calls >= at

    assert each_call(run) > 8
