"""`headrace features training-set`, `snapshot` and `job`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Shell
from tests.cli.fake_features import ASKED, PLAN, FakeFeatures

JOB: dict[str, Any] = {
    "job_id": ASKED["job_id"],
    "kind": "snapshot",
    "table": "Spend",
    "state": "waiting",
    "created_ms": 1_000,
    "started_ms": 0,
    "ended_ms": 0,
    "done": 0,
    "of": 0,
    "reason": "",
    "result": None,
}
RESULT: dict[str, Any] = {
    "objects": ["s3://b/jobs/j/rows/0.parquet", "s3://b/jobs/j/rows/1.parquet"],
    "rows": 12,
    "unmatched": 1,
    "events": 46,
    "skipped": 2,
    "example": "offset 3: bad",
    "view": "from feast import FeatureView\nspend_view = FeatureView()\n",
}
DONE = {**JOB, "state": "succeeded", "ended_ms": 62_000, "result": RESULT}
TRAINING = ("features", "training-set", "Spend", "labels/default/l.parquet")
SNAPSHOT = ("features", "snapshot", "Spend")


def body(features: FakeFeatures) -> Any:
    """Returns the body of the request that asked for an export."""
    return next(json.loads(one.content) for one in features.requests if one.method == "POST")


def test_a_training_set_is_waited_for(headrace: Shell, features: FakeFeatures) -> None:
    features.jobs = [JOB, {**JOB, "state": "running", "done": 1, "of": 3}, DONE]
    result = headrace(*TRAINING, "--feature", "n", "--backfill", "-n", "shop")
    assert (result.exit_code, result.stdout.splitlines()) == (0, RESULT["objects"])
    for told in (
        "`headrace features job 170",
        "12 rows from 46 events in 1m 1s",
        "2 events did not fit",
        "are null: 1 label\n",
    ):
        assert told in result.stderr, result.stderr
    assert body(features) == {
        "table": "Spend",
        "labels": "labels/default/l.parquet",
        "features": ["n"],
        "backfill": True,
    }
    assert {one.url.path.rpartition("/features/shop/")[2].partition("/")[0] for one in features.requests} == {
        "training-set",
        "jobs",
    }
    assert headrace.slept == [2.0, 2.0]


def test_a_snapshot_prints_the_view(headrace: Shell, features: FakeFeatures) -> None:
    features.jobs = [DONE]
    result = headrace(*SNAPSHOT, "--as-of", "5;Txn=42")
    assert (result.exit_code, result.stdout) == (0, RESULT["view"])
    assert RESULT["objects"][0] in result.stderr
    assert body(features) == {"table": "Spend", "as_of": "5;Txn=42"}
    shown = json.loads(headrace(*SNAPSHOT, "--json").stdout)
    assert shown == DONE


def test_a_dry_run_says_what_it_takes(headrace: Shell, features: FakeFeatures) -> None:
    result = headrace(*TRAINING, "--dry-run")
    assert result.stdout.splitlines() == [
        "reads 46 events, 5.0 kB, 2 sealed segments",
        "takes about 1m 30s and 0.01 USD on EMR Serverless",
        "as of 5;Txn=42;Txn.1=7",
        "events of Txn.1 before offset 3 are no longer kept, and do not count",
    ]
    assert json.loads(headrace(*SNAPSHOT, "--dry-run", "--json").stdout) == PLAN
    assert all("jobs" not in one.url.path for one in features.requests)


def test_a_back_fill_is_waited_for(headrace: Shell, features: FakeFeatures) -> None:
    result = {name: RESULT[name] for name in ("rows", "events", "skipped", "example")}
    features.jobs = [{**JOB, "kind": "backfill", "state": "running"}, {**DONE, "kind": "backfill", "result": result}]
    done = headrace("features", "backfill", "Spend")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "12 rows from 46 events in 1m 1s" in done.stderr
    assert body(features) == {"table": "Spend"}
    assert headrace("features", "backfill", "Spend", "--dry-run").stdout.startswith("reads 46 events")


def test_it_need_not_be_waited_for(headrace: Shell, features: FakeFeatures) -> None:
    features.jobs = [{**JOB, "state": "running", "done": 1, "of": 3}, DONE]
    assert headrace(*SNAPSHOT, "--no-wait").stdout == f"{ASKED['job_id']}\n"
    assert json.loads(headrace(*SNAPSHOT, "--no-wait", "--json").stdout) == ASKED
    assert headrace("features", "job", JOB["job_id"]).stdout == "snapshot of Spend: running, 1 of 3 steps\n"
    assert headrace("features", "job", JOB["job_id"]).stdout.splitlines()[1:] == RESULT["objects"]
    assert json.loads(headrace("features", "job", JOB["job_id"], "--json").stdout) == DONE


def test_a_failure_says_why(headrace: Shell, features: FakeFeatures) -> None:
    features.jobs = [{**JOB, "state": "failed", "reason": "labels have no column 'user'"}]
    result = headrace(*TRAINING)
    assert result.exit_code == 1
    assert "the training-set of Spend failed: labels have no column 'user'" in result.stderr
    assert "labels have no column" in headrace("features", "job", JOB["job_id"]).stdout


@pytest.mark.parametrize("command", ["training-set", "snapshot", "backfill", "job"])
def test_help_has_examples(headrace: Shell, command: str) -> None:
    result = headrace("features", command, "--help")
    assert f"headrace features {command}" in result.stdout
    assert command in headrace("features", "--help").stdout
