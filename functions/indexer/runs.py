"""Job runs: the port that starts them and tells their outcomes, what EMR Serverless is asked, and a job's two objects.

What EMR Serverless is asked is pure, so that each submission is a golden file. The settings name the code, each deployment
its own; the job's whole task is the input object that its arguments name. The client token is the job's id: a start that
is sent again starts nothing new.

Guarantees every adapter of the port keeps:
 1. `start` of one job gives one run, however often it is called; after a failure the run may or may not have been started.
 2. `outcome` of a run that is over never changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeVar

from headrace.errors import Damaged, StoreThrottled, StoreTimeout
from headrace.index.job import VERSION, JobInput, JobResult
from headrace.objects import ObjectMissing, Objects, keys, packed
from headrace.settings import Settings

TIMEOUT_MINUTES = 60  # then EMR Serverless ends the run
_PYTHON = "./environment/bin/python"

_SPARK = {
    "spark.driver.cores": "2",
    "spark.driver.memory": "4g",
    "spark.executor.cores": "4",
    "spark.executor.memory": "8g",
    "spark.executor.memoryOverheadFactor": "0.4",  # Python workers live beside the JVM
    "spark.dynamicAllocation.maxExecutors": "16",
    "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": _PYTHON,
    "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": _PYTHON,
    "spark.executorEnv.PYSPARK_PYTHON": _PYTHON,
}


def submission(job_id: str, settings: Settings) -> dict[str, Any]:
    """Returns the arguments of `StartJobRun` for a job whose input is in the bucket."""
    spark = {
        "spark.archives": f"{settings.spark_environment}#environment",
        "spark.submit.pyFiles": settings.spark_packages,
        **_SPARK,
    }
    return {
        "applicationId": settings.spark_application,
        "clientToken": job_id,
        "executionRoleArn": settings.spark_role,
        "name": f"headrace-index-{job_id}",
        "executionTimeoutMinutes": TIMEOUT_MINUTES,
        "jobDriver": {
            "sparkSubmit": {
                "entryPoint": settings.spark_entry_point,
                "entryPointArguments": ["--bucket", settings.bucket, "--input", keys.job_input(job_id)],
                "sparkSubmitParameters": " ".join(f"--conf {name}={value}" for name, value in spark.items()),
            }
        },
    }


Outcome = Literal["running", "succeeded", "failed"]

_OUTCOMES: Mapping[str, Outcome] = {"SUCCESS": "succeeded", "FAILED": "failed", "CANCELLED": "failed"}
_THROTTLED = frozenset({"ThrottlingException", "TooManyRequestsException", "ServiceQuotaExceededException"})


class JobRuns(Protocol):
    """Job runs of one application. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def start(self, job_id: str) -> str:
        """Starts the run of a job, or finds it; its id."""

    def outcome(self, run_id: str) -> Outcome:
        """Returns the state of a run. One that is not known any more has failed."""


class EmrRuns:
    """The port on EMR Serverless."""

    def __init__(self, client: Any, settings: Settings) -> None:
        """Calls through `client`, a boto3 client of `emr-serverless`."""
        self._client = client
        self._settings = settings

    def start(self, job_id: str) -> str:
        """Returns one call. The client token is the job's id."""
        answer = self._call("start_job_run", **submission(job_id, self._settings))
        run_id: str = answer["jobRunId"]
        return run_id

    def outcome(self, run_id: str) -> Outcome:
        """Returns one call."""
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


T = TypeVar("T", JobInput, JobResult)


def put_input(objects: Objects, job: JobInput) -> None:
    """Writes what a job run is told."""
    objects.put(keys.job_input(job.job_id), packed.encode(job))


def load_input(objects: Objects, job_id: str) -> JobInput | None:
    """Returns what a job run was told; None if it was never written.

    Raises:
        Damaged: it is something else.
    """
    return _load(objects, keys.job_input(job_id), JobInput, job_id)


def load_result(objects: Objects, job_id: str) -> JobResult | None:
    """Returns what a job run answered; None if it did not come to that.

    Raises:
        Damaged: it is something else.
    """
    return _load(objects, keys.job_result(job_id), JobResult, job_id)


def _load(objects: Objects, key: str, kind: type[T], job_id: str) -> T | None:
    try:
        found = packed.decode(objects.get(key), kind, key)
    except ObjectMissing:
        return None
    if (found.version, found.job_id) != (VERSION, job_id):
        raise Damaged(f"object is not that of the job: object={key} version={found.version} job_id={found.job_id}")
    return found
