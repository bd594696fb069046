"""What the model assumes that a request logs, held to the lines that an append writes."""

from __future__ import annotations

import json

import pytest

from functions.access import parse
from functions.api.context import assemble
from functions.metrics import ApiMetric, Meter
from headrace.memory import memory_stores
from infra.doors import ACCESS_LOG_FIELDS
from operators.cost.workload import Assumptions
from tests.unit.api.asgi import JSON, QUIET, Server

REQUEST_ID = "8f507cfc-xmpl-4697-b07a-ac58fc914c95"
# https://docs.aws.amazon.com/lambda/latest/dg/python-logging.html#python-logging-output, with a version for $LATEST
PLATFORM = (
    f"START RequestId: {REQUEST_ID} Version: 1234\n",
    f"END RequestId: {REQUEST_ID}\n",
    f"REPORT RequestId: {REQUEST_ID}\tDuration: 15.74 ms\tBilled Duration: 16 ms\tMemory Size: 1769 MB"
    "\tMax Memory Used: 156 MB\t\n",
)
ACCESS = {
    "request_id": "JKJaXmPLvHcESHA=",
    "route": "ANY /{proxy+}",
    "method": "POST",
    "path": "/v1/stream/orders/eu-central/checkout",
    "status": "204",
    "response_bytes": "0",
    "latency_ms": "21",
    "function_request_id": REQUEST_ID,
    "function_status": "200",
    "function_latency_ms": "18",
    "function_error": "-",
    "door_error": "-",
    "source_ip": "203.0.113.178",
    "user_agent": "python-httpx/0.28.1",
}


def test_an_invocation_logs_what_the_model_assumes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "headrace-prod-api")
    lines: list[str] = []
    meter = Meter(ApiMetric, lines.append, stack="headrace-prod")
    server = Server(parts=assemble(memory_stores(QUIET), parse("k"), meter))
    assert server("PUT", "/v1/stream/s", JSON, key="k").status == 201
    lines.clear()
    meter.fields = {"request_id": REQUEST_ID}
    assert server("POST", "/v1/stream/s", JSON, b'{"id": 1}', key="k").status == 204
    (line,) = lines
    assert {"request_id", "key_id", "Appends"} <= json.loads(line).keys()
    logged = len(f"{line}\n") + sum(map(len, PLATFORM))
    assert Assumptions.log_bytes == pytest.approx(logged, rel=0.03)


def test_a_request_is_logged_by_the_door_as_the_model_assumes() -> None:
    assert ACCESS.keys() == ACCESS_LOG_FIELDS.keys()
    assert Assumptions.access_log_bytes == pytest.approx(len(json.dumps(ACCESS)), rel=0.03)
