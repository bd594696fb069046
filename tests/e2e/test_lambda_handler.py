"""The api function as Lambda calls it: the deployed handler, API Gateway events, the emulated tables and bucket."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from typing import Any

from tests.support.emulated_cloud import emulated_cloud

PROGRAM = """
import json, sys
from types import SimpleNamespace
from functions.api.handler import handler

context = SimpleNamespace(
    function_name="api", memory_limit_in_mb=1769, invoked_function_arn="arn:aws:lambda:eu-west-1:1:function:api",
    aws_request_id="r", get_remaining_time_in_millis=lambda: 29000,
)
answers = [handler(event, context) for event in json.load(sys.stdin)]
print("ANSWERS " + json.dumps(answers))
"""


def event(method: str, path: str, body: bytes = b"", key: str = "k", **headers: str) -> dict[str, Any]:
    """Returns an event of an HTTP API, payload format 2.0."""
    given = {"host": "api.example", "authorization": f"Bearer {key}", "content-type": "application/json", **headers}
    path, _, query = path.partition("?")
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": given,
        "requestContext": {
            "domainName": "x.execute-api.eu-west-1.amazonaws.com",
            "http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "1.2.3.4", "userAgent": "t"},
        },
        "body": base64.b64encode(body).decode(),
        "isBase64Encoded": True,
    }


def invoke(environment: dict[str, str], *events: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Runs the events, one after the other, in one fresh execution environment."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(events),
        env={**os.environ, **environment, "AWS_LAMBDA_FUNCTION_NAME": "api"},
        capture_output=True,
        text=True,
        timeout=60,
    )


def answers(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("ANSWERS ")]
    return list(json.loads(line.removeprefix("ANSWERS ")))


def test_the_deployed_handler_serves_streams_and_refuses_to_serve_without_keys() -> None:
    with emulated_cloud() as cloud:
        keys = {**cloud.environment, "HEADRACE_API_KEYS": "k,reader:read:other"}
        stream = "/v1/stream/orders"
        first = answers(
            done := invoke(
                keys,
                event("PUT", stream),
                event("POST", stream, b'[{"id": 1},{"id": 2}]'),
                event("GET", stream),
                event("GET", stream, key="reader"),
                event("GET", stream, key="wrong"),
                event("GET", f"{stream}?offset=-1&live=sse"),
            )
        )
        assert [answer["statusCode"] for answer in first] == [201, 204, 200, 403, 401, 200]
        assert first[2]["body"] == '[{"id": 1},{"id": 2}]'
        # The buffered door: what is there, the control event, and the end of the response.
        assert 'data:[{"id": 1},{"id": 2}]' in first[5]["body"]
        assert '"upToDate":true' in first[5]["body"]
        metrics = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"_aws"')]
        assert sum(sum(line.get("Appends", [])) for line in metrics) == 1
        assert {line["_aws"]["CloudWatchMetrics"][0]["Namespace"] for line in metrics} == {"Headrace"}
        asked = [line for line in metrics if "Requests" in line]
        key, reader = (hashlib.sha256(text.encode()).hexdigest()[:8] for text in ("k", "reader"))
        assert [line.get("key_id") for line in asked] == [key, key, key, reader, None, key]
        assert {line["request_id"] for line in asked} == {"r"}
        assert "wrong" not in done.stdout
        (another,) = answers(invoke(keys, event("GET", stream)))
        assert another["body"] == '[{"id": 1},{"id": 2}]'
        refused = invoke(cloud.environment, event("GET", stream))
        assert refused.returncode != 0
        assert "HEADRACE_API_KEYS" in refused.stderr
