"""Calls Lambda handlers as Lambda does: one event at a time per function, with a context, and errors distinguished from
results.

`Invoker` is the port that pumps use. `FunctionRuntime` runs a function in this process; `Sandbox` runs it in a child
process, which may be killed: the next event starts another one.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import msgspec

from headrace import decoding
from local.access_calls import ACCOUNT, REGION
from local.deployment import Function
from local.environment import as_role
from local.fork_server import Process, spawn

log = logging.getLogger("headrace.dispatcher")
Clock = Callable[[], float]


class FunctionFailed(Exception):
    """The handler raised an error, or could not be loaded. `request_id` identifies the failed invocation."""

    def __init__(self, message: str, request_id: str) -> None:
        super().__init__(message)
        self.request_id = request_id


class Invoker(Protocol):
    """The port of a function that can be invoked."""

    def invoke(self, event: Any) -> tuple[Any, str]:
        """Invokes the function and returns its answer and the request id. Raises FunctionFailed if it fails."""


class LambdaContext:
    """The part of Lambda's context object that Python handlers use. Deadlines are reported, but not enforced."""

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
        """Returns the milliseconds until Lambda would stop the invocation; never negative."""
        return max(0, round((self._deadline - self._clock()) * 1000))


class FunctionRuntime:
    """One instance of a function in this process. The handler is imported at the first event, as in a cold start."""

    def __init__(
        self, function: Function, new_id: Callable[[], str] = lambda: str(uuid4()), clock: Clock = time.monotonic
    ) -> None:
        self.function = function
        self._new_id = new_id
        self._clock = clock
        self._one_at_a_time = threading.Lock()
        self._handler: Callable[[Any, Any], Any] | None = None

    def invoke(self, event: Any) -> tuple[Any, str]:
        """Invokes the handler and returns its answer and the request id. If it fails, logs the traceback and raises
        FunctionFailed.
        """
        request_id = self._new_id()
        # Through JSON, as on AWS: the handler cannot see or change objects of the dispatcher.
        return self.call(msgspec.json.decode(msgspec.json.encode(event)), request_id), request_id

    def call(self, event: Any, request_id: str) -> Any:
        """Calls the handler with an event that was JSON, and returns its answer. Raises FunctionFailed if the handler
        can't be loaded, or raises an error.
        """
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
    """Imports and returns the function with a dotted name. Raises ImportError or AttributeError if it does not exist."""
    module, _, attribute = name.rpartition(".")
    handler: Callable[[Any, Any], Any] = getattr(importlib.import_module(module), attribute)
    return handler


# An invocation outlives the dispatcher that asked for it, as on Lambda, but not for long.
FINISH_SECONDS = 2.0


class Invocation(msgspec.Struct, frozen=True):
    """One event for the function, as sent to the child process."""

    function: Function
    request_id: str
    event: Any


class Result(msgspec.Struct, frozen=True):
    """The result of an invocation, as the child process returns it: the handler's answer, or the error that it
    raised.
    """

    answer: Any = None
    error: str | None = None


class Sandbox:
    """A function whose instance is a child process. The first event starts it, and the next event after it has died.

    Args:
        pid_file: a file that holds the process id of the instance while it runs.
    """

    def __init__(self, function: Function, new_id: Callable[[], str], pid_file: Path) -> None:
        self.function = function
        self._new_id = new_id
        self._pid_file = pid_file
        self._one_at_a_time = threading.Lock()
        self._process: Process | None = None
        self._lifeline = -1  # the other end of its standard input
        self._pipe: Connection | None = None

    def invoke(self, event: Any) -> tuple[Any, str]:
        """Invokes the handler in the child process, and returns its answer and the request id. Raises FunctionFailed,
        also if the process dies or takes too long.
        """
        request_id = self._new_id()
        with self._one_at_a_time:
            pipe = self._started()
            try:
                pipe.send_bytes(msgspec.json.encode(Invocation(self.function, request_id, event)))
                if not pipe.poll(self.function.timeout_seconds):
                    raise TimeoutError(f"timed out after {self.function.timeout_seconds} s")
                result = decoding.from_json(pipe.recv_bytes(), Result)
            except (EOFError, OSError) as exc:
                why = str(exc) if isinstance(exc, TimeoutError) else f"runtime exited: {self._ending()}"
                log.error("%s %s: request_id=%s", self.function.name, why, request_id)
                self._forget()
                raise FunctionFailed(why, request_id) from exc
        if result.error is not None:
            raise FunctionFailed(result.error, request_id)
        return result.answer, request_id

    def close(self) -> None:
        """Ends the child process after its current invocation."""
        with self._one_at_a_time:
            if self._process is not None:
                self._forget()

    def kill(self) -> None:
        """Kills the child process at once. May be called by a signal handler."""
        process = self._process
        if process is not None:
            process.kill()

    def _started(self) -> Connection:
        if self._process is not None and self._process.poll() is not None:
            log.error("%s exited between two events: %s", self.function.name, self._ending())
            self._forget()
        if self._pipe is None:
            self._pipe, other = Pipe()
            stdin, self._lifeline = os.pipe()
            with other:
                self._process = spawn(
                    ["local.lambda_runtime", "--fd", str(other.fileno())],
                    {**os.environ, **as_role(self.function.role)},
                    stdin=stdin,
                    fds=[other.fileno()],
                )
            os.close(stdin)
            self._pid_file.write_text(str(self._process.pid))
        return self._pipe

    def _ending(self) -> str:
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(1)
            return f"signal {-code}" if code < 0 else f"exit code {code}"
        return "it closed its pipe"

    def _forget(self) -> None:
        assert self._process is not None
        assert self._pipe is not None
        self._pid_file.unlink(missing_ok=True)
        self._process.kill()
        self._process.wait()
        os.close(self._lifeline)
        self._pipe.close()
        self._process = self._pipe = None


def serve(pipe: Connection) -> None:
    """Runs in the child process: answers events until the other end of the pipe is closed."""
    runtime: FunctionRuntime | None = None
    while True:
        try:
            asked = decoding.from_json(pipe.recv_bytes(), Invocation)
        except (EOFError, ConnectionResetError):
            return
        runtime = runtime or FunctionRuntime(asked.function)
        try:
            result = Result(answer=runtime.call(asked.event, asked.request_id))
        except FunctionFailed as exc:
            result = Result(error=str(exc))
        with suppress(BrokenPipeError):
            pipe.send_bytes(msgspec.json.encode(result))


def main(arguments: list[str] | None = None) -> None:
    """Runs the child process until the dispatcher has ended."""
    parser = argparse.ArgumentParser(prog="python -m local.lambda_runtime", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="the pipe that events come from")
    options = parser.parse_args(arguments)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)
    threading.Thread(target=_end_after_parent, name="lifeline", daemon=True).start()
    serve(Connection(options.fd))


def _end_after_parent() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    time.sleep(FINISH_SECONDS)
    os._exit(0)


if __name__ == "__main__":
    main()
