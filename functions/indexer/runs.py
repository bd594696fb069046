"""Port: job runs. Starts them, and says what became of them.

Guarantees every adapter keeps:
 1. `start` of one job gives one run, however often it is called; after a failure the run may or may not have been started.
 2. `outcome` of a run that is over never changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from functions.indexer.submit import submission
from headrace.errors import StoreThrottled, StoreTimeout
from headrace.settings import Settings

Outcome = Literal["running", "succeeded", "failed"]

_OUTCOMES: Mapping[str, Outcome] = {"SUCCESS": "succeeded", "FAILED": "failed", "CANCELLED": "failed"}
_THROTTLED = frozenset({"ThrottlingException", "TooManyRequestsException", "ServiceQuotaExceededException"})


class JobRuns(Protocol):
    """Job runs of one application. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def start(self, job_id: str) -> str:
        """Starts the run of a job, or finds it; its id."""

    def outcome(self, run_id: str) -> Outcome:
        """How a run stands. One that is not known any more has failed."""


class EmrRuns:
    """The port on EMR Serverless."""

    def __init__(self, client: Any, settings: Settings) -> None:
        """Calls through `client`, a boto3 client of `emr-serverless`."""
        self._client = client
        self._settings = settings

    def start(self, job_id: str) -> str:
        """One call. The client token is the job's id."""
        answer = self._call("start_job_run", **submission(job_id, self._settings))
        run_id: str = answer["jobRunId"]
        return run_id

    def outcome(self, run_id: str) -> Outcome:
        """One call."""
        try:
            answer = self._call("get_job_run", applicationId=self._settings.spark_application, jobRunId=run_id)
        except self._client.exceptions.ResourceNotFoundException:
            return "failed"
        return _OUTCOMES.get(answer["jobRun"]["state"], "running")

    def _call(self, operation: str, **arguments: Any) -> Any:
        """Translates what means "try again"; a mistake of ours (validation, access) is let through, to be seen."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(self._client, operation)(**arguments)
        except ClientError as exc:
            code = str(exc.response.get("Error", {}).get("Code", ""))
            status = int(exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            if code in _THROTTLED or status == 429:
                raise StoreThrottled(f"{operation}: {code}") from exc
            if status >= 500 or not status:
                raise StoreTimeout(f"{operation}: {code} {status}") from exc
            raise
        except BotoCoreError as exc:
            raise StoreTimeout(f"{operation}: {exc}") from exc
