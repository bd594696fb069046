"""`headrace doctor` on the emulator: well, and with faults staged one after the other."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx
import pytest

from headrace.aws import aws_stores
from headrace.batch import Batch
from headrace.settings import Settings
from headrace.streams.values import AppendRequest, CreateRequest
from headrace.streams.verbs import Streams
from tests.support.clocks import ManualClock
from tests.support.command_line import headrace
from tests.support.emulated_cloud import DevServer, dev_server
from tests.support.pipeline import NO_METRICS, Pipeline
from tests.unit.features import world

KEYS = {"HEADRACE_API_KEYS": "right:read+write+admin", **NO_METRICS}
JSON = {"content-type": "application/json", "authorization": "Bearer right"}
HOUR_MS = 3_600_000


def doctor(*arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    """Runs `headrace doctor`; returns its exit code, and each check by its name."""
    code, document = headrace("doctor", *arguments, environment=environment)
    assert document["exit_code"] == code
    return code, {check["name"]: check for check in document["checks"]}


def findings(checks: Mapping[str, Any]) -> dict[str, str]:
    """Levels of what is not well."""
    return {name: check["level"] for name, check in checks.items() if check["level"] in ("warn", "fail")}


def append_an_hour_ago(server: DevServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream whose entries were committed an hour ago, by a writer of the deployment."""
    for name, value in server.state["environment"].items():
        monkeypatch.setenv(name, value)
    settings = Settings.from_environment(os.environ)
    stores = aws_stores(settings, "us-east-1", dynamodb_timeout_s=5, s3_read_timeout_s=5)
    logs = Streams(replace(stores, clock=ManualClock(round(time.time() * 1000) - HOUR_MS)))
    logs.create("late", CreateRequest(content_type="application/json"))
    logs.append("late", AppendRequest(content_type="application/json", records=Batch.of([b"{}"])))
    monkeypatch.undo()


def wait_until_sealed(pipeline: Pipeline, name: str) -> None:
    until = time.monotonic() + 60
    while pipeline.of(name).published == 0:
        assert time.monotonic() < until, "not sealed in time"
        time.sleep(0.2)  # polls the bucket


def test_faults_are_found_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with dev_server("--seal-age", "1s", environment=KEYS) as server:
        pipeline = Pipeline(server)
        state = ("--state-file", str(server.state_file))
        with httpx.Client(base_url=f"{server.url}/v1/stream/", headers=JSON, timeout=30) as http:
            assert http.put("orders").status_code == 201
            assert http.post("orders", json=[{"n": 1}]).is_success
            router = {"source": "jobs", "dest": "copies"}
            for path, body in (("topics/jobs", {"type": "queue"}), ("routers/copying", router)):
                assert http.put(f"{server.url}/v0/{path}", json=body).status_code == 201
            for path, body in (("register", {"nodes": [world.event(), world.table()]}), ("push/Tx", world.tx())):
                assert http.post(f"{server.url}/{path}", json=body).status_code == 200
        wait_until_sealed(pipeline, "orders")

        code, checks = doctor(*state, "--key", "right")
        assert (code, findings(checks)) == (0, {})
        assert checks["key"]["found"] == "accepted, with the scope `admin` for every name"
        assert "6 logs looked at" in checks["sealing"]["found"], (
            "orders, copies, jobs, its leases, a lane and its registry"
        )
        assert "1 lane looked at" in checks["folding"]["found"]
        assert "1 namespace looked at" in checks["registrations"]["found"]
        assert "1 router looked at" in checks["routers"]["found"]
        assert "1 queue looked at" in checks["job queues"]["found"]
        code, by_stack = doctor(
            "--stack",
            "headrace",
            "--url",
            server.url,
            "--key",
            "right",
            environment={k: v for k, v in server.state["environment"].items() if k.startswith("AWS_")},
        )
        assert (code, findings(by_stack)) == (0, {})
        assert {name for name in checks if name.startswith("queue")} == {n for n in by_stack if n.startswith("queue")}

        code, checks = doctor(*state, "--key", "wrong")
        assert (code, findings(checks)) == (2, {"key": "fail"})
        code, checks = doctor(*state)
        assert (code, findings(checks)) == (1, {"key": "warn"})

        dispatcher = server.pids["dispatcher"]
        os.kill(dispatcher, signal.SIGSTOP)  # nobody wakes the sealer
        try:
            append_an_hour_ago(server, monkeypatch)
            code, checks = doctor(*state, "--key", "right")
            assert (code, findings(checks)) == (2, {"sealing": "fail"})
            assert "late" in checks["sealing"]["found"]
        finally:
            os.kill(dispatcher, signal.SIGCONT)
        wait_until_sealed(pipeline, "late")
        assert doctor(*state, "--key", "right")[0] == 0

        dead = server.state["outputs"]["DelayDeadLetterQueueUrl"]
        sqs = pipeline.client("sqs")
        sqs.send_message(QueueUrl=dead, MessageBody='{"verb":"seal","log_id":"x"}')
        code, checks = doctor(*state, "--key", "right")
        assert (code, findings(checks)) == (2, {"queue delay dead letters": "fail"})
        without_outputs = {
            k: v for k, v in server.state["environment"].items() if k.startswith(("AWS_", "HEADRACE_"))
        }
        code, checks = doctor("--url", server.url, "--key", "right", environment=without_outputs)
        assert (code, findings(checks)) == (2, {"queue delay dead letters": "fail"})
        sqs.purge_queue(QueueUrl=dead)

        dynamodb = pipeline.client("dynamodb")
        table = pipeline.settings["HEADRACE_JOBS_TABLE"]
        dynamodb.update_table(TableName=table, DeletionProtectionEnabled=False)
        code, checks = doctor(*state, "--key", "right")
        assert (code, findings(checks)) == (1, {"table jobs": "warn"})
        dynamodb.delete_table(TableName=table)
        code, checks = doctor(*state, "--key", "right")
        assert code == 2
        assert findings(checks) == {"table jobs": "fail", "indexing": "fail"}
        assert checks["table jobs"]["docs"].startswith("docs/operations.md#")
