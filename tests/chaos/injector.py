"""Faults at the HTTP layer of botocore, below its retries and above the socket, for every client of the process; in what
stands in for it (`headrace.tables.dynamodb.Wire`); and in the puts of obstore.

A request is refused, fails, is executed without its answer arriving, arrives late, or arrives twice. Which, the process's
own random numbers say. Every fault is written down at once, since the process may be killed the next moment. When the file
`calm` is in the folder there are no more faults.
"""

from __future__ import annotations

import copy
import io
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import parse_qs, urlsplit

import obstore
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError, EndpointConnectionError, ReadTimeoutError
from botocore.httpsession import URLLib3Session
from obstore.exceptions import GenericError
from urllib3.response import HTTPResponse

from headrace.tables.dynamodb import Wire

FOLDER, RATE, SEED = "HEADRACE_CHAOS_FOLDER", "HEADRACE_CHAOS_RATE", "HEADRACE_CHAOS_SEED"
CALM = "calm"
FAST_PUT = "s3.PutObject-by-obstore"
# Well below the trim age: what arrives later than that, the design does not promise to fence.
LATEST_S = 1.5
LONGEST_WAIT_S = 0.3
# A run sends few requests to the bucket and the queue, so more of them meet a fault.
MORE_OFTEN = 3
Send = Callable[[Any], Any]
SENDERS: tuple[Any, ...] = (URLLib3Session, Wire)  # of the requests to AWS, below retries and above the socket

_DYNAMODB_THROTTLES = ("ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded")
# Not executed: throttled, failing, unreachable. Executed, answer lost: failed, reset, timeout, cut. Executed later: late.
# Executed, and again later: twice.
_EVERYWHERE = ("failing", "unreachable", "failed", "reset", "timeout", "late", "twice")


def operation(method: str, url: str, headers: Mapping[str, Any]) -> str:
    """`dynamodb.PutItem`, `s3.GetObject` and the like, from a request as it is sent."""
    target = headers.get("X-Amz-Target", b"")
    target = target.decode() if isinstance(target, bytes) else str(target)
    if target:
        service, _, name = target.partition(".")
        return f"{'dynamodb' if service.startswith('DynamoDB') else 'sqs'}.{name}"
    parts = urlsplit(url)
    query = parse_qs(parts.query, keep_blank_values=True)
    if method == "POST":
        return "s3.DeleteObjects" if "delete" in query else "s3.Post"
    if method == "GET":
        return "s3.ListObjects" if "list-type" in query else "s3.GetObject"
    return {"PUT": "s3.CreateObject" if "If-None-Match" in headers else "s3.PutObject"}.get(method, f"s3.{method}")


def faults_of(name: str) -> tuple[str, ...]:
    """Returns the faults that an operation can meet."""
    service, _, action = name.partition(".")
    extra = ("throttled",) if service in ("dynamodb", "s3") else ()
    return (*_EVERYWHERE, *extra, *(("cut",) if action == "GetObject" else ()))


class Injector:
    """Sits between botocore and the network.

    Args:
        rate: share of the requests to tables that meet a fault; of others `MORE_OFTEN` times as many.
        folder: where the faults are written down, a line each, in a file of this process.
    """

    def __init__(self, random: Random, rate: float, folder: Path, role: str) -> None:
        self._random = random
        self._rate = rate
        self._calm = folder / CALM
        self._lock = threading.Lock()
        self._notes = os.open(folder / f"faults-{role}-{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def send(self, really: Send, request: Any) -> Any:
        """Sends the request by `really`, or does what the fault says."""
        name = operation(request.method, request.url, request.headers)
        fault, wait_s, late_s = self._chosen(name)
        if not fault:
            return really(request)
        return self._act(fault, name, really, request, wait_s, late_s)

    def _chosen(self, name: str) -> tuple[str, float, float]:
        """Returns the fault that a request meets ("" for none), how long its answer takes, and how late it may arrive,
        in seconds; writes the fault down.
        """
        with self._lock:
            rate = self._rate if name.startswith("dynamodb.") else self._rate * MORE_OFTEN
            fault = self._random.choice(faults_of(name)) if self._random.random() < rate else ""
            wait_s, late_s = self._random.random() * LONGEST_WAIT_S, self._random.random() * LATEST_S
        if not fault or self._calm.exists():
            return "", 0, 0
        os.write(self._notes, f"{name} {fault}\n".encode())
        return fault, wait_s, late_s

    def _act(self, fault: str, name: str, really: Send, request: Any, wait_s: float, late_s: float) -> Any:
        url = request.url
        match fault:
            case "throttled":
                return refusal(request, name, throttled=True, code=self._random.choice(_DYNAMODB_THROTTLES))
            case "failing":
                return refusal(request, name)
            case "unreachable":
                raise EndpointConnectionError(endpoint_url=url, error="injected")
            case "late":
                self._later(really, request, late_s)
                time.sleep(wait_s)  # a timeout takes time
                raise ReadTimeoutError(endpoint_url=url, error="injected")
            case "twice":
                answer = really(request)
                self._later(really, request, late_s)
                return answer
        answer = really(request)
        content = answer.content
        time.sleep(wait_s)  # a lost answer takes time, in which kills and other requests come in between
        match fault:
            case "failed":
                return refusal(request, name)
            case "timeout":
                raise ReadTimeoutError(endpoint_url=url, error="injected")
            case "cut":
                return _response(url, answer.status_code, dict(answer.headers), content[: len(content) // 2])
        raise ConnectionClosedError(endpoint_url=url, request=request, error="injected")

    def put(self, really: Callable[[], Any]) -> Any:
        """Makes a put of obstore by `really`, or does what the fault says, in the way that obstore tells it."""
        fault, wait_s, late_s = self._chosen(FAST_PUT)
        answer = {"throttled": "503 <Code>SlowDown</Code>", "failing": "500 Error", "failed": "500 Error"}.get(fault)
        reason = f" Server returned non-2xx status code: {answer}" if answer else "injected"
        if fault == "late":
            _after(late_s, really)
        elif fault == "twice":
            _after(late_s, really)
            return really()
        elif fault not in ("throttled", "failing", "unreachable"):
            written = really()
            if not fault:
                return written
            time.sleep(wait_s)  # a lost answer takes time
        raise GenericError(reason)

    def _later(self, really: Send, request: Any, late_s: float) -> None:
        late = copy.copy(request)
        late.body = _bytes(request.body)  # its own: a repeat of the request reads the same file

        _after(late_s, lambda: really(late).content)  # reads the answer to its end


def _after(seconds: float, call: Callable[[], Any]) -> None:
    """Makes a call later, for whose outcome nobody waits."""

    def make() -> None:
        with suppress(Exception):
            call()

    timer = threading.Timer(seconds, make)
    timer.daemon = True
    timer.start()


def _bytes(body: Any) -> bytes:
    """Returns a request's body, all of it; a file is left at its start."""
    if body is None or isinstance(body, bytes | bytearray):
        return bytes(body or b"")
    body.seek(0)
    found: bytes = body.read()
    body.seek(0)
    return found


def refusal(request: Any, name: str, *, throttled: bool = False, code: str = "") -> AWSResponse:
    """Returns the answer of a service that refuses, or fails."""
    if name.startswith("s3."):
        code, status = ("SlowDown", 503) if throttled else ("InternalError", 500)
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>"
        return _response(request.url, status, {"content-type": "application/xml"}, body.encode())
    code, status = (code, 400) if throttled else ("InternalServerError", 500)
    kind = "application/x-amz-json-1.0"
    body = f'{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"injected"}}'
    return _response(request.url, status, {"content-type": kind}, body.encode())


def _response(url: str, status: int, headers: dict[str, str], body: bytes) -> AWSResponse:
    raw = HTTPResponse(io.BytesIO(body), headers, status, preload_content=False, enforce_content_length=False)
    return AWSResponse(url, status, headers, raw)


def install(environment: Mapping[str, str], role: str) -> None:
    """Puts an injector under every client of this process, and under obstore's puts, as the environment says."""
    folder, seed = Path(environment[FOLDER]), environment[SEED]
    injector = Injector(Random(f"{seed} {role} {os.getpid()}"), float(environment[RATE]), folder, role)
    put = obstore.put

    def faulty_put(*args: Any, **options: Any) -> Any:
        return injector.put(lambda: put(*args, **options))

    for owner in SENDERS:
        owner.send = _faulty(injector, owner.send)
    obstore.put = faulty_put


def _faulty(injector: Injector, send: Any) -> Any:
    return lambda self, request: injector.send(lambda given: send(self, given), request)


def met(folder: Path) -> Counter[tuple[str, str]]:
    """Returns how often each pair of operation and fault was met, from the notes of all processes."""
    lines: Iterable[str] = (line for path in folder.glob("faults-*") for line in path.read_text().splitlines())
    return Counter((name, fault) for name, _, fault in (line.partition(" ") for line in lines))
