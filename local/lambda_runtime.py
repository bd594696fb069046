"""Calls a Lambda handler as Lambda does: one event at a time per function, with a context, errors told apart.

`Invoker` is what the pumps need of a function. Here it runs in this process; `lambda_sandbox` gives it one of its own.
"""

from __future__ import annotations

import importlib
import logging
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol
from uuid import uuid4

import msgspec

from local.account import ACCOUNT, REGION
from local.deployment import Function

log = logging.getLogger("headrace.dispatcher")
Clock = Callable[[], float]


class FunctionFailed(Exception):
    """The handler raised, or could not be loaded. `request_id` is that of the failed invocation."""

    def __init__(self, message: str, request_id: str) -> None:
        super().__init__(message)
        self.request_id = request_id


class Invoker(Protocol):
    """A function that can be called."""

    def invoke(self, event: Any) -> tuple[Any, str]:
        """The answer and the request id. Raises FunctionFailed."""


class LambdaContext:
    """The part of Lambda's context object that Python handlers use. Deadlines are told, not enforced."""

    def __init__(self, function: Function, request_id: str, clock: Clock) -> None:
        self.aws_request_id = request_id
        self.function_name = function.name
        self.function_version = "$LATEST"
        self.invoked_function_arn = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{function.name}"
        self.memory_limit_in_mb = str(function.memory_mb)
        self.log_group_name = f"/aws/lambda/{function.name}"
        self.log_stream_name = "emulator"
        self.identity = None
        self.client_context = None
        self._clock = clock
        self._deadline = clock() + function.timeout_seconds

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda would stop the invocation; never negative."""
        return max(0, round((self._deadline - self._clock()) * 1000))


class FunctionRuntime:
    """One instance of a function. The handler is imported at the first event, as a cold start is."""

    def __init__(
        self, function: Function, new_id: Callable[[], str] = lambda: str(uuid4()), clock: Clock = time.monotonic
    ) -> None:
        self.function = function
        self._new_id = new_id
        self._clock = clock
        self._one_at_a_time = threading.Lock()
        self._handler: Callable[[Any, Any], Any] | None = None

    def invoke(self, event: Any) -> tuple[Any, str]:
        """The handler's answer and the request id. Raises FunctionFailed; the traceback goes to the log."""
        request_id = self._new_id()
        # Through JSON, as on AWS: the handler cannot see or change objects of the dispatcher.
        return self.call(msgspec.json.decode(msgspec.json.encode(event)), request_id), request_id

    def call(self, event: Any, request_id: str) -> Any:
        """The handler's answer to an event that came as JSON. Raises FunctionFailed."""
        with self._one_at_a_time:
            context = LambdaContext(self.function, request_id, self._clock)
            try:
                handler = self._handler = self._handler or load_handler(self.function.handler)
                answer = handler(event, context)
            except Exception as exc:
                log.error("%s failed: %s\n%s", self.function.name, exc, traceback.format_exc())
                raise FunctionFailed(f"{type(exc).__name__}: {exc}", request_id) from exc
            if context.get_remaining_time_in_millis() == 0:
                log.warning("%s ran past its timeout of %d s", self.function.name, self.function.timeout_seconds)
        return answer


def load_handler(name: str) -> Callable[[Any, Any], Any]:
    """The function behind a dotted name. Raises ImportError or AttributeError."""
    module, _, attribute = name.rpartition(".")
    handler: Callable[[Any, Any], Any] = getattr(importlib.import_module(module), attribute)
    return handler
