"""The emulator's EMR Serverless, through boto3: idempotent starts, states in order, events for each change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from functions.indexer.runs import EmrRuns
from headrace.settings import Settings
from local.deployment import EventTrigger
from local.emr_runs import KEPT_EVENTS, JobFailed, JobRuns
from local.emr_serverless import EmrServer
from local.environment import client
from local.lambda_runtime import FunctionFailed
from local.pumps import EventPump, events_at
from local.spark_worker import NO_JAVA, SparkWorker

APPLICATION = "00app"
SETTINGS = Settings(
    bucket="data",
    spark_application=APPLICATION,
    spark_role="arn:aws:iam::123456789012:role/emulator",
    spark_entry_point="s3://code/1a.py",
    spark_packages="s3://code/2b.zip",
    spark_environment="s3://code/3c.tgz",
)


class FakeWorker:
    """Runs jobs when told to."""

    def __init__(self) -> None:
        self.done = threading.Semaphore(0)
        self.jobs: list[list[str]] = []
        self.error: str | None = None
        self.interrupted = False

    def run(self, arguments: list[str], running: Callable[[], None]) -> None:
        """Waits for `done`."""
        self.jobs.append(arguments)
        running()
        self.done.acquire()
        if self.interrupted:
            self.interrupted = False
            raise JobFailed("interrupted")
        if self.error is not None:
            raise JobFailed(self.error)

    def interrupt(self) -> None:
        """Ends the job at hand."""
        self.interrupted = True
        self.done.release()


@pytest.fixture
def worker() -> FakeWorker:
    return FakeWorker()


@pytest.fixture
def server(worker: FakeWorker) -> Iterator[EmrServer]:
    server = EmrServer(worker)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.fixture
def emr(server: EmrServer) -> Any:
    return client("emr-serverless", server.url)


def eventually(found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 20
    while not (value := found()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)  # polls, as clients of EMR Serverless do
    return value


def states(server: EmrServer) -> list[str]:
    return [event["detail"]["state"] for event in server.runs.events(0, 0)["events"]]


def test_a_job_run_goes_through_its_states_and_tells_of_each(server: EmrServer, worker: FakeWorker, emr: Any) -> None:
    runs = EmrRuns(emr, SETTINGS)
    run_id = runs.start("job-1")
    eventually(lambda: worker.jobs)
    assert worker.jobs == [["--bucket", "data", "--input", "jobs/job-1/input.json.zst"]]
    assert runs.outcome(run_id) == "running"
    worker.done.release()
    eventually(lambda: runs.outcome(run_id) == "succeeded")
    assert states(server) == ["SUBMITTED", "SCHEDULED", "RUNNING", "SUCCESS"]
    event = server.runs.events(0, 0)["events"][-1]
    assert (event["source"], event["detail-type"]) == (
        "aws.emr-serverless",
        "EMR Serverless Job Run State Change",
    )
    assert event["detail"]["previousState"] == "RUNNING"
    assert event["detail"]["jobRunId"] == run_id
    assert event["detail"]["applicationId"] == APPLICATION


def test_a_start_that_is_sent_again_starts_nothing_new(worker: FakeWorker, emr: Any) -> None:
    runs = EmrRuns(emr, SETTINGS)
    first = runs.start("job-1")
    assert runs.start("job-1") == first
    assert runs.start("job-2") != first
    listed = emr.list_job_runs(applicationId=APPLICATION)["jobRuns"]
    assert [run["name"] for run in listed] == ["headrace-index-job-2", "headrace-index-job-1"]
    other = {
        "applicationId": APPLICATION,
        "clientToken": "job-1",
        "executionRoleArn": SETTINGS.spark_role,
        "jobDriver": {"sparkSubmit": {"entryPoint": "other"}},
    }
    with pytest.raises(emr.exceptions.ConflictException):
        emr.start_job_run(**other)


def test_a_job_that_fails_says_why(worker: FakeWorker, emr: Any) -> None:
    runs = EmrRuns(emr, SETTINGS)
    worker.error = "bad input"
    run_id = runs.start("job-1")
    worker.done.release()
    eventually(lambda: runs.outcome(run_id) == "failed")
    run = emr.get_job_run(applicationId=APPLICATION, jobRunId=run_id)["jobRun"]
    assert (run["state"], run["stateDetails"]) == ("FAILED", "bad input")


def test_one_run_at_a_time_and_waiting_or_running_ones_can_be_cancelled(
    server: EmrServer, worker: FakeWorker, emr: Any
) -> None:
    runs = EmrRuns(emr, SETTINGS)
    running, waiting = runs.start("job-1"), runs.start("job-2")
    eventually(lambda: len(worker.jobs) == 1)
    emr.cancel_job_run(applicationId=APPLICATION, jobRunId=waiting)
    emr.cancel_job_run(applicationId=APPLICATION, jobRunId=running)
    eventually(lambda: runs.outcome(running) == "failed")
    assert states(server).count("CANCELLED") == 2
    third = runs.start("job-3")
    worker.done.release()
    eventually(lambda: runs.outcome(third) == "succeeded")
    assert len(worker.jobs) == 2


def test_unknown_runs_and_bad_requests_are_refused(emr: Any) -> None:
    assert EmrRuns(emr, SETTINGS).outcome("00none") == "failed"
    with pytest.raises(emr.exceptions.ValidationException):
        emr.start_job_run(applicationId=APPLICATION, clientToken="t", executionRoleArn=SETTINGS.spark_role)


@pytest.mark.parametrize("headers", [{"Origin": "http://localhost:5173"}, {"Host": "evil.example"}])
def test_it_serves_no_web_page(server: EmrServer, headers: dict[str, str]) -> None:
    runs = f"{server.url}/applications/{APPLICATION}/jobruns"
    assert httpx.get(runs).status_code == 200
    assert httpx.get(runs, headers=headers).status_code == 403


def test_events_and_runs_are_not_kept_for_ever() -> None:
    runs = JobRuns(FakeWorker())
    request = {"executionRoleArn": "r", "jobDriver": {"sparkSubmit": {}}, "clientToken": "t"}
    request["jobDriver"] = {"sparkSubmit": {"entryPoint": "x"}}
    for number in range(KEPT_EVENTS + 10):
        started = runs.start(APPLICATION, {**request, "clientToken": f"t{number}"})
        runs.cancel(APPLICATION, started["jobRunId"])
    kept = runs.events(0, 0)
    assert len(kept["events"]) == KEPT_EVENTS
    assert kept["newest"] == 2 * (KEPT_EVENTS + 10)
    assert len(runs.list(APPLICATION, [])["jobRuns"]) <= 1_001
    assert len(runs.events(kept["newest"] - 3, 0)["events"]) == 3


class Function:
    """A function that fails as often as told."""

    def __init__(self, failures: int = 0) -> None:
        self.events: list[Any] = []
        self._failures = failures

    def invoke(self, event: Any) -> tuple[Any, str]:
        self.events.append(event)
        if len(self.events) <= self._failures:
            raise FunctionFailed("no", "r")
        return {}, "r"


def test_rules_hear_of_the_events_that_match_and_repeat_what_failed(
    server: EmrServer, worker: FakeWorker, emr: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("local.pumps.RETRY_SECONDS", 0.01)
    pattern = {
        "source": ["aws.emr-serverless"],
        "detail": {"applicationId": [APPLICATION], "state": ["SUCCESS", "FAILED"]},
    }
    over, everything, never = Function(failures=2), Function(), Function()
    triggers = [
        EventTrigger("over", "Over", pattern),
        EventTrigger("everything", "Every", {"source": ["aws.emr-serverless"]}, input='{"verb":"tick"}'),
        EventTrigger("never", "Never", {"detail": {"applicationId": ["00other"]}}),
    ]
    runs = EmrRuns(emr, SETTINGS)
    runs.start("before")
    worker.done.release()
    eventually(lambda: "SUCCESS" in states(server))
    functions = {"over": over, "everything": everything, "never": never}
    pump = EventPump(triggers, functions, events_at(server.url))  # type: ignore[arg-type]
    pump.prepare()
    stop = threading.Event()
    thread = threading.Thread(target=pump.run, args=(stop,), daemon=True)
    thread.start()
    run_id = runs.start("job-1")
    worker.done.release()
    eventually(lambda: len(over.events) == 3)
    stop.set()
    thread.join(5)
    assert {event["detail"]["jobRunId"] for event in over.events} == {run_id}
    assert {event["detail"]["state"] for event in over.events} == {"SUCCESS"}
    assert everything.events and all(event == {"verb": "tick"} for event in everything.events)
    assert never.events == []


def test_without_java_a_job_fails_with_what_to_do() -> None:
    worker = SparkWorker({"PATH": "/nonexistent"})
    with pytest.raises(JobFailed) as failed:
        worker.run([], lambda: None)
    assert str(failed.value) == NO_JAVA
    worker.close()
