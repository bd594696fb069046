"""The api as it is, on a write-ahead log that refuses writes, or takes them and does not say so, while a file says so."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from botocore.exceptions import ReadTimeoutError

from headrace.tables.dynamodb import Wire
from tests.chaos.injector import Send, operation, refusal

FOLDER = "HEADRACE_TEST_FAULTS"
THROTTLED, SILENT = "throttled", "silent"
APP = "tests.observability.faulty:create_app"
_WRITES = frozenset({"dynamodb.PutItem", "dynamodb.UpdateItem", "dynamodb.TransactWriteItems"})


def send(really: Send, request: Any, folder: Path, table: str) -> Any:
    """Sends a request, or does what the folder says if it writes to the table."""
    name = operation(request.method, request.url, request.headers)
    if name not in _WRITES or json.dumps(table).encode() not in request.body:
        return really(request)
    if (folder / THROTTLED).exists():
        return refusal(request, name, throttled=True, code="ThrottlingException")
    if (folder / SILENT).exists():
        really(request)
        raise ReadTimeoutError(endpoint_url=request.url, error="injected")
    return really(request)


def create_app() -> Any:
    """Returns the API's application, in a process whose writes meet the faults that the folder names."""
    folder, table = Path(os.environ[FOLDER]), os.environ["HEADRACE_WAL_TABLE"]
    really = Wire.send
    Wire.send = lambda self, request: send(lambda given: really(self, given), request, folder, table)  # type: ignore[assignment, method-assign]
    from functions.api.app import create_app as create

    return create()
