"""The job runs of the emulated EMR Serverless: states, idempotency tokens, and the event of each state change.

States go SUBMITTED, SCHEDULED, RUNNING, then SUCCESS, FAILED or CANCELLED. One run is active at a time; others wait in
state SCHEDULED.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import uuid4

from local.access_calls import ACCOUNT, REGION

RELEASE = "emr-spark-8.0.0"
OVER = frozenset({"SUCCESS", "FAILED", "CANCELLED"})
# Runs and events that are remembered: an emulator may run for weeks.
KEPT_RUNS = 1_000
KEPT_EVENTS = 1_000

Json = dict[str, Any]


class Refused(Exception):
    """A request that EMR Serverless answers with an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class JobFailed(Exception):
    """The job ended in an error; the message is for people."""


class Worker(Protocol):
    """The port of a process that executes jobs."""

    def run(self, arguments: list[str], running: Callable[[], None]) -> None:
        """Runs one job to its end; calls `running` when the job really starts. Raises JobFailed if the job fails or
        can't be started.
        """

    def interrupt(self) -> None:
        """Ends the current job; its `run` then raises."""


class JobRuns:
    """The job runs of every application. Thread-safe."""

    def __init__(self, worker: Worker, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._worker = worker
        self._now = now
        self._changed = threading.Condition()
        self._runs: dict[str, Json] = {}
        self._requests: dict[str, tuple[Json, str]] = {}
        self._waiting: list[str] = []
        self._events: list[Json] = []
        self._forgotten = 0

    def start(self, application: str, request: Json) -> Json:
        """Handles StartJobRun: queues a run, and returns its application, id and ARN. The same token with the same
        request returns the same run. Raises Refused if the token belongs to another request, or something is missing.
        """
        token = request.get("clientToken")
        spark = request.get("jobDriver", {}).get("sparkSubmit")
        if not token or not spark or not request.get("executionRoleArn"):
            raise Refused(
                400, "ValidationException", "clientToken, executionRoleArn and jobDriver.sparkSubmit are needed"
            )
        with self._changed:
            if token in self._requests:
                known, run_id = self._requests[token]
                if known != request:
                    raise Refused(409, "ConflictException", "the client token belongs to another request")
                return _started(self._runs[run_id])
            run_id = uuid4().hex[:16]
            arn = f"arn:aws:emr-serverless:{REGION}:{ACCOUNT}:/applications/{application}/jobruns/{run_id}"
            self._runs[run_id] = {
                "applicationId": application,
                "jobRunId": run_id,
                "name": request.get("name", ""),
                "arn": arn,
                "createdBy": f"arn:aws:iam::{ACCOUNT}:role/emulator",
                "createdAt": self._now().timestamp(),
                "executionRole": request["executionRoleArn"],
                "releaseLabel": RELEASE,
                "jobDriver": request["jobDriver"],
                "state": "",
            }
            self._requests[token] = request, run_id
            self._move(run_id, "SUBMITTED")
            self._waiting.append(run_id)
            self._forget()
            return _started(self._runs[run_id])

    def get(self, application: str, run_id: str) -> Json:
        """Handles GetJobRun. Raises Refused if there is no such run."""
        with self._changed:
            return {"jobRun": dict(self._known(application, run_id))}

    def list(self, application: str, states: list[str]) -> Json:
        """Handles ListJobRuns: returns the runs in one of these states (in any, if none is given), newest first, all in
        one page.
        """
        with self._changed:
            runs = [run for run in self._runs.values() if run["applicationId"] == application]
        found = [run for run in reversed(runs) if not states or run["state"] in states]
        return {"jobRuns": [{**run, "id": run["jobRunId"]} for run in found]}

    def cancel(self, application: str, run_id: str) -> Json:
        """Handles CancelJobRun; a run that has ended is not changed. Raises Refused if there is no such run."""
        with self._changed:
            run = self._known(application, run_id)
            if run_id in self._waiting:
                self._waiting.remove(run_id)
                self._move(run_id, "CANCELLED")
            elif run["state"] not in OVER:
                self._move(run_id, "CANCELLING")
                self._worker.interrupt()
        return {"applicationId": application, "jobRunId": run_id}

    def events(self, after: int | None, wait_seconds: float) -> Json:
        """Returns the events after number `after`, and the number of the newest event; if there are none yet, waits up
        to `wait_seconds` for one. With `after` None, returns no events, and does not wait.
        """
        with self._changed:
            if after is not None and after >= self._newest():
                self._changed.wait(wait_seconds)
            start = 0 if after is None else max(0, after - self._forgotten)
            return {"events": [] if after is None else self._events[start:], "newest": self._newest()}

    def work(self) -> None:
        """Executes the jobs one after the other, forever."""
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                run_id = self._waiting.pop(0)
                self._move(run_id, "SCHEDULED")
                arguments = self._runs[run_id]["jobDriver"]["sparkSubmit"].get("entryPointArguments", [])
            state, details = "SUCCESS", ""
            try:
                self._worker.run(arguments, lambda run_id=run_id: self._run(run_id))  # type: ignore[misc]
            except JobFailed as exc:
                state, details = "FAILED", str(exc)
            with self._changed:
                was_cancelled = self._runs[run_id]["state"] == "CANCELLING"
                self._move(run_id, "CANCELLED" if was_cancelled else state, details)

    def _run(self, run_id: str) -> None:
        with self._changed:
            if self._runs[run_id]["state"] == "SCHEDULED":
                self._move(run_id, "RUNNING")

    def _known(self, application: str, run_id: str) -> Json:
        run = self._runs.get(run_id)
        if run is None or run["applicationId"] != application:
            raise Refused(404, "ResourceNotFoundException", f"Job run {run_id} does not exist.")
        return run

    def _move(self, run_id: str, state: str, details: str = "") -> None:
        run = self._runs[run_id]
        now = self._now()
        previous = run["state"]
        run.update(state=state, stateDetails=(details or state)[:256], updatedAt=now.timestamp())
        self._events.append(_event(run, previous, now))
        if len(self._events) > KEPT_EVENTS:
            self._forgotten += 1
            del self._events[0]
        self._changed.notify_all()

    def _newest(self) -> int:
        return self._forgotten + len(self._events)

    def _forget(self) -> None:
        over = [run_id for run_id, run in self._runs.items() if run["state"] in OVER]
        for run_id in over[: max(0, len(self._runs) - KEPT_RUNS)]:
            del self._runs[run_id]
        self._requests = {token: known for token, known in self._requests.items() if known[1] in self._runs}


def _started(run: Json) -> Json:
    return {name: run[name] for name in ("applicationId", "jobRunId", "arn")}


def _event(run: Json, previous: str, now: datetime) -> Json:
    """Returns the event that EMR Serverless sends to EventBridge for a change of state."""
    created = datetime.fromtimestamp(run["createdAt"], UTC)
    return {
        "version": "0",
        "id": str(uuid4()),
        "detail-type": "EMR Serverless Job Run State Change",
        "source": "aws.emr-serverless",
        "account": ACCOUNT,
        "time": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": REGION,
        "resources": [],
        "detail": {
            "jobRunId": run["jobRunId"],
            "jobRunName": run["name"],
            "applicationId": run["applicationId"],
            "arn": run["arn"],
            "releaseLabel": run["releaseLabel"],
            "state": run["state"],
            "previousState": previous,
            "createdBy": run["createdBy"],
            "updatedAt": now.isoformat().replace("+00:00", "Z"),
            "createdAt": created.isoformat().replace("+00:00", "Z"),
        },
    }
