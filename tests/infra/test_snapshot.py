"""The api is resumed from a snapshot of a process that has imported its handler: it may hold nothing of that moment.

SnapStart runs the module's top level once for each published version, and every instance goes on from there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.infra.resources import Resources
from tests.support.emulated_cloud import Cloud, emulated_cloud

SECRET = "keys"
# Imports the handler as Lambda does, then tells what the snapshot would hold. Each clone creates a stream.
PROGRAM = """
import json, os, random, secrets, socket, sys, threading, time, types, uuid

asked = []

def watched(module, name):
    real = getattr(module, name)
    def call(*args, **kwargs):
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.split(".")[0] in ("functions", "headrace"):
            asked.append(f"{module.__name__}.{name} by {caller}")
        return real(*args, **kwargs)
    setattr(module, name, call)

for module, names in (
    (time, ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")),
    (os, ("urandom", "getpid")),
    (random, ("random", "randint", "randrange", "choice", "uniform", "getrandbits", "seed")),
    (secrets, ("randbelow", "token_bytes", "token_hex", "token_urlsafe")),
    (uuid, ("uuid1", "uuid4")),
):
    for name in names:
        watched(module, name)

from functions.api.handler import handler

def connects(fd):
    \"\"\"It is a socket to elsewhere; the event loop's own pair leads nowhere.\"\"\"
    try:
        with socket.socket(fileno=os.dup(fd)) as found:
            return found.family in (socket.AF_INET, socket.AF_INET6)
    except OSError:
        return False

found = {
    "asked": list(asked),
    "threads": [thread.name for thread in threading.enumerate()],
    "sockets": [fd for fd in map(int, os.listdir("/proc/self/fd")) if connects(fd)],
}
context = types.SimpleNamespace(
    function_name="api", memory_limit_in_mb=1769, invoked_function_arn="arn:aws:lambda:us-east-1:1:function:api",
    aws_request_id="r", get_remaining_time_in_millis=lambda: 29000,
)
import boto3
boto3.client("secretsmanager").create_secret(Name=os.environ["HEADRACE_API_KEYS_SECRET"], SecretString="k")
found["clones"] = []
for clone in range(2):
    answers, answer = os.pipe()
    if os.fork() == 0:
        path = f"/v1/stream/clone-{clone}"
        event = {
            "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "",
            "headers": {"host": "a.example", "authorization": "Bearer k", "content-type": "application/json"},
            "requestContext": {
                "domainName": "a.example",
                "http": {"method": "PUT", "path": path, "protocol": "HTTP/1.1", "sourceIp": "1.2.3.4", "userAgent": "t"},
            },
            "isBase64Encoded": False,
        }
        os.write(answer, str(handler(event, context)["statusCode"]).encode())
        os._exit(0)
    os.close(answer)
    os.wait()
    found["clones"].append(os.read(answers, 100).decode())
print("FOUND " + json.dumps(found))
"""


@pytest.fixture(scope="module")
def cloud() -> Any:
    with emulated_cloud() as found:
        yield found


@pytest.fixture(scope="module")
def snapshot(cloud: Cloud) -> dict[str, Any]:
    environment = {**cloud.environment, "HEADRACE_API_KEYS_SECRET": SECRET, "AWS_LAMBDA_FUNCTION_NAME": "api"}
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert finished.returncode == 0, finished.stderr
    (line,) = (line for line in finished.stdout.splitlines() if line.startswith("FOUND "))
    found: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return found


def test_a_snapshot_holds_no_random_number_and_no_moment(snapshot: dict[str, Any]) -> None:
    """Keys, too, are read by the instances that are restored from it: the secret does not exist while it is taken."""
    assert snapshot["asked"] == []


def test_a_snapshot_holds_no_thread_and_no_connection(snapshot: dict[str, Any]) -> None:
    """A thread would be resumed in the middle of something; a connection would be one that the other side has forgotten."""
    assert snapshot["threads"] == ["MainThread"]
    assert snapshot["sockets"] == []


def test_instances_of_one_snapshot_serve_and_make_different_ids(snapshot: dict[str, Any], cloud: Cloud) -> None:
    assert snapshot["clones"] == ["201", "201"]
    table = cloud.deployment.outputs["CatalogTableName"]
    rows = cloud.client("dynamodb").scan(TableName=table)["Items"]
    made = {row["name"]["S"]: row["log_id"]["S"] for row in rows if row["name"]["S"].startswith("clone-")}
    assert len(made) == 2
    assert len(set(made.values())) == 2


def test_what_is_called_is_a_version_that_was_snapshotted(resources: Resources) -> None:
    """SnapStart knows no `$LATEST`."""
    _, version = resources.one("Lambda::Version", "Api")
    _, alias = resources.one("Lambda::Alias", "Api")
    assert resources.by_id[version["FunctionName"]["Ref"]]["Properties"] == resources.function("api")
    key, _ = resources.one("Lambda::Version", "Api")
    assert alias["FunctionVersion"] == {"Fn::GetAtt": [key, "Version"]}
    assert resources.function("api")["SnapStart"] == {"ApplyOn": "PublishedVersions"}
    assert "ProvisionedConcurrencyConfig" not in alias, "Lambda refuses both together"
