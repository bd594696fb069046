"""Job runs: the port that starts them and returns their state, its adapter on EMR Serverless, and the input and result
objects of a job.

The request to EMR Serverless is computed without I/O, so that tests can compare it with a golden file. Settings name
the code of this deployment; the job's arguments name only its input object. The client token is the job's id, so a
repeated start starts nothing new.

Guarantees that every adapter keeps:
 1. Calls of `start` for one job give one run, however many there are; after a failure the run may or may not have been
    started.
 2. `outcome` of a run that has ended never changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeVar

from headrace.errors import Damaged, StoreThrottled, StoreTimeout
from headrace.index.job import JobInput, JobResult
from headrace.objects import ObjectMissing, Objects, keys, packed
from headrace.settings import Settings

TIMEOUT_MINUTES = 60  # then EMR Serverless ends the run
REQUESTED_TIMEOUT_MINUTES = 12 * 60  # a fold reads the whole log
_PYTHON = "./environment/bin/python"

_SPARK = {
    # It plans and writes a descriptor; the work is the executors'.
    "spark.driver.cores": "1",
    "spark.driver.memory": "3g",
    "spark.executor.cores": "4",
    "spark.executor.memory": "8g",
    "spark.executor.memoryOverheadFactor": "0.4",  # Python workers live beside the JVM
    # EMR Serverless starts 3 executors unless both say otherwise; Spark takes the larger one, and more when tasks wait.
    "spark.dynamicAllocation.initialExecutors": "1",
    "spark.executor.instances": "1",
    "spark.dynamicAllocation.maxExecutors": "16",
    "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": _PYTHON,
    "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": _PYTHON,
    "spark.executorEnv.PYSPARK_PYTHON": _PYTHON,
}


def submission(job_id: str, settings: Settings, region: str, *, requested: bool = False) -> dict[str, Any]:
    """Returns the arguments of the `StartJobRun` call for a job; its input object, or its request if a surface asked for
    it, must exist before the call.

    Driver and executors are told the region by the variable that boto3 reads: without it their client of S3 would take
    us-east-1 for the bucket's.
    """
    spark = {
        "spark.archives": f"{settings.spark_environment}#environment",
        "spark.submit.pyFiles": settings.spark_packages,
        **_SPARK,
        "spark.emr-serverless.driverEnv.AWS_DEFAULT_REGION": region,
        "spark.executorEnv.AWS_DEFAULT_REGION": region,
    }
    source = keys.job_request(job_id) if requested else keys.job_input(job_id)
    return {
        "applicationId": settings.spark_application,
        "clientToken": job_id,
        "executionRoleArn": settings.spark_role,
        "name": f"headrace-{'requested' if requested else 'index'}-{job_id}",
        "executionTimeoutMinutes": REQUESTED_TIMEOUT_MINUTES if requested else TIMEOUT_MINUTES,
        "jobDriver": {
            "sparkSubmit": {
                "entryPoint": settings.spark_entry_point,
                "entryPointArguments": ["--bucket", settings.bucket, "--input", source],
                "sparkSubmitParameters": " ".join(f"--conf {name}={value}" for name, value in spark.items()),
            }
        },
    }


Outcome = Literal["running", "succeeded", "failed"]

_OUTCOMES: Mapping[str, Outcome] = {"SUCCESS": "succeeded", "FAILED": "failed", "CANCELLED": "failed"}
_THROTTLED = frozenset({"ThrottlingException", "TooManyRequestsException", "ServiceQuotaExceededException"})


class JobRuns(Protocol):
    """The port of job runs of one application. Every method may raise `StoreTimeout` or `StoreThrottled`."""

    def start(self, job_id: str, *, requested: bool = False) -> str:
        """Starts the run of a job, or finds it if it was started before. Returns the run's id. `requested`: a surface asked
        for the job (`headrace.jobs`).
        """

    def outcome(self, run_id: str) -> Outcome:
        """Returns the state of a run. An unknown run counts as failed."""


class EmrRuns:
    """The port of job runs on EMR Serverless."""

    def __init__(self, client: Any, settings: Settings) -> None:
        """Creates an adapter that uses a boto3 client of `emr-serverless`."""
        self._client = client
        self._settings = settings

    def start(self, job_id: str, *, requested: bool = False) -> str:
        """Starts the run with one call and returns its id. The client token is the job's id, so a repeated call returns
        the same run.
        """
        region = self._client.meta.region_name
        answer = self._call("start_job_run", **submission(job_id, self._settings, region, requested=requested))
        run_id: str = answer["jobRunId"]
        return run_id

    def outcome(self, run_id: str) -> Outcome:
        """Returns the state of a run with one call; "failed" for an unknown run, "running" for every state that is not
        final.
        """
        try:
            answer = self._call("get_job_run", applicationId=self._settings.spark_application, jobRunId=run_id)
        except self._client.exceptions.ResourceNotFoundException:
            return "failed"
        return _OUTCOMES.get(answer["jobRun"]["state"], "running")

    def _call(self, operation: str, **arguments: Any) -> Any:
        """Calls EMR Serverless and returns its answer. Raises StoreThrottled or StoreTimeout for errors that may go
        away; errors that are our own mistake (validation, access) pass unchanged.
        """
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
    """Writes the input object of a job, over one that exists."""
    objects.put(keys.job_input(job.job_id), packed.encode(job))


def load_input(objects: Objects, job_id: str) -> JobInput | None:
    """Loads the input object of a job; None if it does not exist.

    Raises:
        Damaged: the object is no job input.
    """
    return _load(objects, keys.job_input(job_id), JobInput, job_id)


def load_result(objects: Objects, job_id: str) -> JobResult | None:
    """Loads the result object of a job; None if it does not exist.

    Raises:
        Damaged: the object is no job result.
    """
    return _load(objects, keys.job_result(job_id), JobResult, job_id)


def _load(objects: Objects, key: str, kind: type[T], job_id: str) -> T | None:
    try:
        found = packed.decode(objects.get(key), kind, key)
    except ObjectMissing:
        return None
    if found.job_id != job_id:
        raise Damaged(f"object is not that of the job: object={key} job_id={found.job_id}")
    return found
