"""What functions write to their logs: one line of metrics for an invocation, events as JSON, no key and no record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.test_lambda_handler import event
from tests.support.emulated_cloud import Cloud, emulated_cloud

SECRET, RECORD = "s3cret-of-the-operator", "what-nobody-may-read"
PROGRAM = """
import importlib, json, sys
from types import SimpleNamespace

function, events = sys.argv[1], json.load(sys.stdin)
handler = importlib.import_module(f"functions.{function}.handler").handler
for number, event in enumerate(events):
    context = SimpleNamespace(
        function_name=function, memory_limit_in_mb=1769,
        invoked_function_arn=f"arn:aws:lambda:eu-west-1:1:function:{function}",
        aws_request_id=f"request-{number}", get_remaining_time_in_millis=lambda: 29000,
    )
    try:
        answer = handler(event, context)
        print(f"ANSWER {answer.get('statusCode', 0)}")
    except Exception as exc:
        print(f"ANSWER {type(exc).__name__}")
"""


class Written:
    """What a function wrote."""

    def __init__(self, text: str) -> None:
        self.text = text
        lines = text.splitlines()
        self.answers = [line.removeprefix("ANSWER ") for line in lines if line.startswith("ANSWER ")]
        self.rest = [line for line in lines if line and not line.startswith("ANSWER ")]
        documents = [json.loads(line) for line in self.rest]
        self.metrics = [document for document in documents if "_aws" in document]
        self.events = [document for document in documents if "_aws" not in document]


def run(cloud: Cloud, function: str, *events: dict[str, Any]) -> Written:
    """Runs the events, one after the other, in one fresh execution environment."""
    environment = {**os.environ, **cloud.environment, "HEADRACE_API_KEYS": f"{SECRET},reader:read:other"}
    environment |= {"AWS_LAMBDA_FUNCTION_NAME": function, "HEADRACE_METRICS_INTERVAL_MS": "0"}
    environment["HEADRACE_REQUEST_COUNTS_MS"] = "0"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, function],
        input=json.dumps(events),
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return Written(done.stdout + done.stderr)


def ask(method: str, path: str, body: bytes = b"", key: str = SECRET) -> dict[str, Any]:
    return event(method, f"/v1/stream/{path}", body, key)


def body(text: str) -> bytes:
    return json.dumps([{"text": text}]).encode()


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with emulated_cloud() as cloud:
        yield cloud


@pytest.fixture(scope="module")
def api(cloud: Cloud) -> Written:
    """Good requests, mistakes, and a read of damaged data."""
    done = run(
        cloud, "api", ask("PUT", "orders"), ask("POST", "orders", body(RECORD)), ask("POST", "orders", body(RECORD))
    )
    assert done.answers == ["201", "204", "204"]
    _damage(cloud)
    return run(
        cloud,
        "api",
        ask("PUT", "customers"),
        ask("POST", "customers", body(RECORD)),
        ask("POST", "customers", b"[{" + RECORD.encode()),
        ask("GET", "customers", key="wrong-" + SECRET),
        ask("GET", f"customers?offset={RECORD}"),
        ask("GET", "orders"),
    )


@pytest.fixture(scope="module")
def sealer(cloud: Cloud, api: Written) -> Written:
    """Runs the sealer on a log that can't be sealed, on an event that is none, and sweeps."""
    log_id = _log_id(cloud, "orders")
    message = {"verb": "seal", "log_id": log_id, "force": True}
    record = {"eventSource": "aws:sqs", "messageId": "m", "body": json.dumps(message)}
    return run(cloud, "sealer", {"Records": [record]}, {"none": RECORD}, {"detail-type": "Scheduled Event"})


def _log_id(cloud: Cloud, name: str) -> str:
    items = cloud.client("dynamodb").scan(TableName=cloud.environment["HEADRACE_CATALOG_TABLE"])["Items"]
    (found,) = (item["log_id"]["S"] for item in items if item["name"]["S"] == name)
    return str(found)


def _damage(cloud: Cloud) -> None:
    """A payload that is the record in plain text, and no frames."""
    cloud.client("dynamodb").update_item(
        TableName=cloud.environment["HEADRACE_WAL_TABLE"],
        Key={"log_id": {"S": _log_id(cloud, "orders")}, "slot": {"N": "1"}},
        UpdateExpression="SET payload = :payload",
        ExpressionAttributeValues={":payload": {"B": RECORD.encode()}},
    )


def test_each_invocation_writes_one_line_of_metrics(api: Written, sealer: Written) -> None:
    assert api.answers == ["201", "204", "400", "401", "400", "500"]
    assert len(api.metrics) == len(api.answers)
    assert [line["Requests"] for line in api.metrics] == [[1]] * len(api.answers)
    assert [line.get("ClientErrors") for line in api.metrics] == [None, None, [1], None, [1], None]
    assert api.metrics[-1]["Failures"] == [1]
    assert sealer.answers == ["0", "ValueError", "0"]
    assert [sorted(line.keys() & {"PoisonedLogs", "SealFailures", "Sweeps"}) for line in sealer.metrics] == [
        ["PoisonedLogs", "SealFailures"],
        ["Sweeps"],
    ]
    assert [line.get("PoisonedLogs") for line in sealer.metrics] == [[1], None]


def test_no_log_holds_a_key_or_a_record(api: Written, sealer: Written) -> None:
    for written in (api, sealer):
        for line in written.rest:
            assert SECRET not in line
            assert RECORD not in line


def test_log_lines_say_which_request_and_which_log(api: Written, sealer: Written, cloud: Cloud) -> None:
    (failed,) = (line for line in api.events if line["message"].startswith("request failed"))
    assert failed["level"] == "ERROR" and failed["request_id"] == "request-5" and failed["service"] == "api"
    (poisoned,) = (line for line in sealer.events if line["message"] == "verb failed")
    assert poisoned["request_id"] == "request-0" and poisoned["log_id"] == _log_id(cloud, "orders")
    assert "Damaged" in poisoned["exception"]
