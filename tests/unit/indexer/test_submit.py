"""What EMR Serverless is asked: golden files, and botocore's own opinion of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.stub import Stubber

from functions.indexer.runs import EmrRuns, submission
from headrace.errors import StoreThrottled, StoreTimeout
from headrace.settings import Settings

GOLDEN = Path(__file__).parent / "golden"
SETTINGS = Settings(
    bucket="data",
    spark_application="00fabc123",
    spark_role="arn:aws:iam::123456789012:role/spark",
    spark_entry_point="s3://code/1a.py",
    spark_packages="s3://code/2b.zip",
    spark_environment="s3://code/3c.tgz",
)
REGION = "eu-central-1"
JOB = "1700000000000-0123456789ab"


@pytest.fixture
def emr() -> Any:
    """Returns a client that reaches nothing."""
    session = botocore.session.Session()
    session.set_credentials("test", "test")
    return session.create_client("emr-serverless", region_name=REGION)


def test_the_submission_is_the_golden_one() -> None:
    golden = json.loads((GOLDEN / "index.submission.json").read_text())
    assert submission(JOB, SETTINGS, REGION) == golden


def test_a_requested_job_reads_its_request_and_may_take_hours() -> None:
    index, asked = submission(JOB, SETTINGS, REGION), submission(JOB, SETTINGS, REGION, requested=True)
    assert {name for name in index if index[name] != asked[name]} == {"name", "executionTimeoutMinutes", "jobDriver"}
    assert asked["jobDriver"]["sparkSubmit"]["entryPointArguments"][-1] == f"jobs/{JOB}/request.json.zst"
    assert asked["executionTimeoutMinutes"] == 720


def test_one_executor_is_started_and_more_only_when_tasks_wait() -> None:
    """EMR Serverless starts three unless it is told otherwise, and bills each for a minute at least."""
    asked = confs(submission(JOB, SETTINGS, REGION))
    assert asked["spark.dynamicAllocation.initialExecutors"] == asked["spark.executor.instances"] == "1"
    assert int(asked["spark.dynamicAllocation.maxExecutors"]) > 1


def test_workers_are_told_the_region_of_the_bucket() -> None:
    """By the variable that boto3 reads; it takes no notice of AWS_REGION."""
    asked = confs(submission(JOB, SETTINGS, REGION))
    for worker in ("spark.emr-serverless.driverEnv", "spark.executorEnv"):
        assert asked[f"{worker}.AWS_DEFAULT_REGION"] == REGION


def confs(submitted: dict[str, Any]) -> dict[str, str]:
    """Returns the properties that Spark is given."""
    return dict(re.findall(r"--conf (\S+?)=(\S+)", submitted["jobDriver"]["sparkSubmit"]["sparkSubmitParameters"]))


def test_a_start_sends_the_submission_and_gives_the_run(emr: Any) -> None:
    with Stubber(emr) as stub:
        answer = {"applicationId": "00fabc123", "jobRunId": "00r1", "arn": "arn:aws:emr-serverless:" + "x" * 60}
        stub.add_response("start_job_run", answer, submission(JOB, SETTINGS, REGION))
        assert EmrRuns(emr, SETTINGS).start(JOB) == "00r1"


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        *((state, "running") for state in ("SUBMITTED", "PENDING", "SCHEDULED", "RUNNING", "CANCELLING", "QUEUED")),
        ("SUCCESS", "succeeded"),
        ("FAILED", "failed"),
        ("CANCELLED", "failed"),
    ],
)
def test_every_state_has_an_outcome(emr: Any, state: str, outcome: str) -> None:
    run = {
        "applicationId": "00fabc123",
        "jobRunId": "00r1",
        "arn": "arn:aws:emr-serverless:" + "x" * 60,
        "createdBy": "arn:aws:iam::123456789012:role/x",
        "createdAt": 0,
        "updatedAt": 0,
        "executionRole": SETTINGS.spark_role,
        "state": state,
        "stateDetails": "-",
        "releaseLabel": "emr-spark-8.0.0",
        "jobDriver": {"sparkSubmit": {"entryPoint": "x"}},
    }
    with Stubber(emr) as stub:
        asked = {"applicationId": "00fabc123", "jobRunId": "00r1"}
        stub.add_response("get_job_run", {"jobRun": run}, asked)
        assert EmrRuns(emr, SETTINGS).outcome("00r1") == outcome


def test_a_run_that_is_not_known_has_failed(emr: Any) -> None:
    with Stubber(emr) as stub:
        stub.add_client_error("get_job_run", "ResourceNotFoundException", http_status_code=404)
        assert EmrRuns(emr, SETTINGS).outcome("00r1") == "failed"


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [("ThrottlingException", 400, StoreThrottled), ("Internal", 500, StoreTimeout), ("Busy", 429, StoreThrottled)],
)
def test_what_may_be_tried_again_is_said(emr: Any, code: str, status: int, error: type[Exception]) -> None:
    with Stubber(emr) as stub:
        stub.add_client_error("start_job_run", code, http_status_code=status)
        with pytest.raises(error):
            EmrRuns(emr, SETTINGS).start(JOB)


def test_a_mistake_of_ours_is_seen(emr: Any) -> None:
    with Stubber(emr) as stub:
        stub.add_client_error("start_job_run", "ValidationException", http_status_code=400)
        with pytest.raises(emr.exceptions.ValidationException):
            EmrRuns(emr, SETTINGS).start(JOB)
