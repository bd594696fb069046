"""One logger and one meter for every function.

Log events are short texts; everything else is a field, never a payload or a key. Metrics are EMF lines
(`functions/metrics.py` names them): on Lambda on standard output, elsewhere nowhere, or in the file that
`HEADRACE_METRICS_FILE` names. Writing them calls no store.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from aws_lambda_powertools import Logger
from aws_lambda_powertools.logging.utils import copy_config_to_registered_loggers
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import AmazonCloudWatchEMFProvider
from botocore.exceptions import BotoCoreError, ClientError

from functions.metrics import NAMESPACE, Metric
from headrace.errors import HeadraceError, StoreError
from headrace.objects.observed import Request

METRICS_FILE = "HEADRACE_METRICS_FILE"
_PACKAGES = {"functions", "headrace"}  # they log with the standard library; in a function that becomes structured
# Of one metric in one EMF line:
# https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
_MAX_VALUES = 100

M = TypeVar("M", bound=Metric)
Write = Callable[[str], None]


def make_logger(service: str) -> Logger:
    """Returns the structured logger of a function, and of the packages that it is made of."""
    logger = Logger(service=service)
    for package in _PACKAGES:
        logging.getLogger(package)
    copy_config_to_registered_loggers(logger, include=_PACKAGES)
    return logger


class Meter(Generic[M]):
    """Metrics of one function; `flush` writes what was added since the last flush. Thread-safe.

    Args:
        metrics: the only ones that it takes.
        write: takes a line; without it nothing is kept.
    """

    def __init__(self, metrics: type[M], write: Write | None = None) -> None:
        self._metrics = metrics
        self._emf = AmazonCloudWatchEMFProvider(namespace=NAMESPACE, service=metrics.service)
        self._write = write
        self._lock = threading.Lock()
        self._values: dict[M, list[int]] = {}

    def add(self, metric: M, value: int = 1) -> None:
        """Adds to a counter, or notes a value of another metric."""
        if self._write is None:
            return
        is_counter = metric.spec.kind == "counter"
        if is_counter and not value and not metric.spec.zeros:
            return
        with self._lock:
            values = self._values.setdefault(metric, [])
            if is_counter and values:
                values[0] += value
            else:
                values.append(value)

    def observe(self, request: Request) -> None:
        """Counts a request to the object store: every function has metrics of these names."""
        if request.operation == "get":
            self.add(self._metrics["ObjectGets"], len(request.keys))
        elif request.operation == "put":
            self.add(self._metrics["ObjectPuts"])
        if request.outcome == "throttled":
            self.count_throttle()

    def count_throttle(self) -> None:
        """Counts a call that a store refused for load."""
        self.add(self._metrics["StoreThrottles"])

    def flush(self) -> None:
        """Writes one line if there is anything; more only for more than 100 values of one metric. Never raises."""
        with self._lock:
            values, self._values = self._values, {}
        while values and self._write is not None:
            self._write(self._line({metric: some[:_MAX_VALUES] for metric, some in values.items()}))
            values = {metric: some[_MAX_VALUES:] for metric, some in values.items() if len(some) > _MAX_VALUES}

    def _line(self, values: Mapping[M, list[int]]) -> str:
        metrics = {metric.name: {"Unit": metric.spec.unit, "Value": some} for metric, some in values.items()}
        found: Any = self._emf.serialize_metric_set(metrics=metrics)
        return json.dumps(found, separators=(",", ":"))


def make_meter(metrics: type[M], environment: Mapping[str, str]) -> Meter[M]:
    """Returns the meter of a function in this environment."""
    path = environment.get(METRICS_FILE)
    if path:
        return Meter(metrics, _to_file(path))
    return Meter(metrics, _print if "AWS_LAMBDA_FUNCTION_NAME" in environment else None)


def is_poison(error: BaseException | None) -> bool:
    """No repeat heals this failure: damaged data, or a bug. What a store or a queue refuses, it may take later."""
    if isinstance(error, HeadraceError):
        return not (error.retryable or error.may_have_written)
    return not isinstance(error, StoreError | BotoCoreError | ClientError)


def _print(line: str) -> None:
    print(line, flush=True)


def _to_file(path: str) -> Write:
    """Returns one write for each line, so that processes can share the file."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(line: str) -> None:
        os.write(file, f"{line}\n".encode())

    return write
