"""What every `Jobs` adapter does: one suite, on memory, DynamoDB and SQLite."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headrace.tables.dynamodb import Store
from headrace.tables.jobs import DynamoJobs, Jobs, MemoryJobs, Place, Waiting
from local.machine import LocalMachine
from tests.support.aws import create_jobs_table
from tests.support.builders import log_id
from tests.support.machine import declare_tables


@pytest.fixture(params=["memory", "dynamodb", "sqlite"])
def jobs(request: pytest.FixtureRequest) -> Jobs:
    """Returns an empty table."""
    if request.param == "memory":
        return MemoryJobs()
    if request.param == "sqlite":
        machine: LocalMachine = request.getfixturevalue("machine")
        return DynamoJobs(machine.store(), declare_tables(machine)["jobs"])
    store: Store = request.getfixturevalue("store")
    return DynamoJobs(store, create_jobs_table())


def test_a_row_is_written_only_over_the_version_that_was_read(jobs: Jobs) -> None:
    log = log_id()
    assert jobs.get(log) is None
    first = jobs.put(Waiting(log, 5, since_ms=3))
    assert first == Waiting(log, 5, since_ms=3, version=1)
    assert jobs.put(Waiting(log, 6)) is None
    second = jobs.put(replace(first, due_ms=7, failures=2, job_id="j", reason="why"))
    assert second == Waiting(log, 7, 3, 2, "j", "why", 2)
    assert jobs.put(replace(first, due_ms=8)) is None
    assert jobs.get(log) == second


def test_a_row_is_dropped_only_in_the_version_that_was_read(jobs: Jobs) -> None:
    log, other = log_id(), log_id()
    first = jobs.put(Waiting(log, 5))
    assert first is not None
    second = jobs.put(replace(first, due_ms=6))
    assert second is not None
    assert jobs.put(Waiting(other, 5)) is not None
    assert not jobs.drop(first)
    assert not jobs.drop(Waiting(log, 5))
    assert jobs.drop(second)
    assert not jobs.drop(second)
    assert jobs.get(log) is None
    assert jobs.get(other) is not None
    assert jobs.put(Waiting(log, 9)) == Waiting(log, 9, version=1)


def test_due_rows_come_in_order_of_time_up_to_the_limit(jobs: Jobs) -> None:
    logs = [log_id() for _ in range(5)]
    for log, due_ms in zip(logs, (50, 20, 40, 10, 30), strict=True):
        assert jobs.put(Waiting(log, due_ms)) is not None
    jobs.take(Place(0, "j", "planning", 0))
    assert [row.due_ms for row in jobs.due(40, limit=10)] == [10, 20, 30, 40]
    assert [row.log_id for row in jobs.due(40, limit=2)] == [logs[3], logs[1]]
    assert jobs.due(9, limit=10) == []
    row = jobs.due(10, limit=1)[0]
    assert row == jobs.get(logs[3])
    jobs.put(replace(row, due_ms=60))
    assert jobs.due(10, limit=10) == []


def test_a_place_is_one_jobs_at_a_time(jobs: Jobs) -> None:
    place = Place(0, "j1", "planning", 5)
    assert jobs.place(0) is None
    assert jobs.take(place)
    assert not jobs.take(replace(place, job_id="j2"))
    assert not jobs.take(place)
    assert jobs.place(0) == place
    assert jobs.place(1) is None
    assert jobs.take(Place(1, "j2", "planning", 5))


def test_only_the_job_that_holds_a_place_moves_or_releases_it(jobs: Jobs) -> None:
    place = Place(0, "j1", "planning", 5)
    other = Place(0, "j2", "running", 9, "r2")
    assert not jobs.move(place)
    assert not jobs.release(place)
    assert jobs.place(0) is None
    assert jobs.take(place)
    assert not jobs.move(other)
    assert not jobs.release(other)
    running = Place(0, "j1", "running", 7, "r1")
    assert jobs.move(running)
    assert jobs.place(0) == running
    assert jobs.release(place)
    assert not jobs.release(place)
    assert jobs.take(other)
