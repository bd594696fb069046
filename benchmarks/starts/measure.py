"""Starts of a built artifact, each in a process that knows nothing of this one's environment."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROBE = Path(__file__).with_name("probe.py")
# The first thing each is asked for: a page of a stream that is not there, the schedules' verbs, and a
# webhook that it refuses to post.
EVENTS: dict[str, dict[str, Any]] = {
    "api": {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": "/v1/stream/absent",
        "rawQueryString": "",
        "headers": {"host": "api.example", "authorization": "Bearer k"},
        "requestContext": {
            "domainName": "x.execute-api.us-east-1.amazonaws.com",
            "http": {"method": "GET", "path": "/", "protocol": "HTTP/1.1", "sourceIp": "1.2.3.4", "userAgent": "t"},
        },
        "isBase64Encoded": False,
    },
    "sealer": {"verb": "sweep"},
    "indexer": {"verb": "tick"},
    "relay": {"verb": "sweep"},
    "folder": {
        "Records": [
            {
                "messageId": "1",
                "eventSource": "aws:sqs",
                "attributes": {"ApproximateReceiveCount": "1"},
                "body": '{"log_id":"0","name":"default/absent"}',
            }
        ]
    },
    "webhook": {"url": "https://10.0.0.1/", "body": "{}", "headers": {}},
}


@dataclass(frozen=True)
class Start:
    """One start. `import_ms` and `answer_ms` are wall time, `cpu_ms` all that the process used, `total_ms` from outside."""

    answer: Any
    import_ms: float
    answer_ms: float
    cpu_ms: float
    total_ms: float
    modules: frozenset[str]
    files: tuple[str, ...]


class StartFailed(RuntimeError):
    """The function did not answer; the message holds what it printed."""


def start(artifact: str, folder: Path, python: str, environment: Mapping[str, str]) -> Start:
    """Starts the function once.

    Args:
        python: an interpreter; it sees neither its own site-packages nor its user's.
        environment: `AWS_*` and `HEADRACE_*`, of an emulated cloud.
    Raises:
        StartFailed: it did not answer.
    """
    began = time.perf_counter()
    finished = subprocess.run(
        [python, "-I", "-S", "-B", str(PROBE), str(folder), artifact, json.dumps(EVENTS[artifact])],
        env={"PATH": os.defpath, "AWS_LAMBDA_FUNCTION_NAME": artifact, "HEADRACE_API_KEYS": "k", **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    total_ms = round((time.perf_counter() - began) * 1000, 1)
    if finished.returncode != 0:
        raise StartFailed(f"{artifact} did not start:\n{finished.stdout}{finished.stderr}")
    said = json.loads(finished.stdout.splitlines()[-1])
    return Start(
        **{**said, "modules": frozenset(said["modules"]), "files": tuple(said["files"])},
        total_ms=total_ms,
    )
