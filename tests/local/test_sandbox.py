"""Laws of a function's own process, and of what a dispatcher remembers: a death costs one try, never an event."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from local.deployment import Function, StreamTrigger
from local.dispatcher import Dispatcher
from local.lambda_runtime import FunctionFailed, Sandbox
from local.stream_pump import KEPT_RECORDS, Checkpoint, Position
from tests.local.test_dispatcher import eventually, write
from tests.support.emulated_cloud import Cloud

TIMEOUT_S = 4  # also to start a process, on a busy machine
HERE = "tests.local.test_sandbox"


def act(event: dict[str, Any], context: Any) -> Any:
    """Does what the event asks for. This is the function under test, in its own process."""
    match event["do"]:
        case "raise":
            raise RuntimeError("no")
        case "exit":
            os._exit(3)
        case "sleep":
            time.sleep(event["seconds"])  # beyond its timeout, or until it is killed
    return {"pid": os.getpid(), "id": context.aws_request_id, "left_ms": context.get_remaining_time_in_millis()}


@pytest.fixture
def sandbox(tmp_path: Path) -> Any:
    function = Function("Act", f"{HERE}.act", timeout_seconds=TIMEOUT_S)
    sandbox = Sandbox(function, lambda: uuid4().hex, tmp_path / "Act.pid")
    yield sandbox
    sandbox.close()


def test_one_instance_serves_event_after_event_in_its_own_process(sandbox: Sandbox, tmp_path: Path) -> None:
    first, first_id = sandbox.invoke({"do": "answer"})
    second, second_id = sandbox.invoke({"do": "answer"})
    assert first["pid"] == second["pid"] == int((tmp_path / "Act.pid").read_text()) != os.getpid()
    assert (first["id"], second["id"]) == (first_id, second_id)
    assert 0 < first["left_ms"] <= TIMEOUT_S * 1000


def test_an_error_fails_the_invocation_and_keeps_the_instance(sandbox: Sandbox) -> None:
    before, _ = sandbox.invoke({"do": "answer"})
    with pytest.raises(FunctionFailed, match="RuntimeError: no"):
        sandbox.invoke({"do": "raise"})
    assert sandbox.invoke({"do": "answer"})[0]["pid"] == before["pid"]


def test_a_death_fails_the_invocation_and_the_next_one_finds_a_new_instance(sandbox: Sandbox) -> None:
    before, _ = sandbox.invoke({"do": "answer"})
    with pytest.raises(FunctionFailed, match="runtime exited: exit code 3"):
        sandbox.invoke({"do": "exit"})
    killer = threading.Timer(0.2, lambda: os.kill(int(sandbox._pid_file.read_text()), signal.SIGKILL))
    between, _ = sandbox.invoke({"do": "answer"})
    killer.start()
    with pytest.raises(FunctionFailed, match="runtime exited: signal 9"):
        sandbox.invoke({"do": "sleep", "seconds": 0.9})
    after, _ = sandbox.invoke({"do": "answer"})
    assert len({before["pid"], between["pid"], after["pid"]}) == 3


def test_an_instance_that_died_between_two_events_is_not_missed(sandbox: Sandbox) -> None:
    before, _ = sandbox.invoke({"do": "answer"})
    os.kill(before["pid"], signal.SIGKILL)
    time.sleep(0.1)  # the process is gone a moment after the signal
    assert sandbox.invoke({"do": "answer"})[0]["pid"] != before["pid"]


def test_the_timeout_of_a_function_is_enforced(sandbox: Sandbox) -> None:
    before, _ = sandbox.invoke({"do": "answer"})
    with pytest.raises(FunctionFailed, match=f"timed out after {TIMEOUT_S} s"):
        sandbox.invoke({"do": "sleep", "seconds": 60})
    assert sandbox.invoke({"do": "answer"})[0]["pid"] != before["pid"]


class Remembering:
    """A function in this process that says which slots it has finished, and can be made to hang."""

    def __init__(self, log: str) -> None:
        self.log = log
        self.finished: list[int] = []
        self.hangs = threading.Event()
        self.invoked = threading.Event()

    def invoke(self, event: Any) -> tuple[Any, str]:
        self.invoked.set()
        if self.hangs.is_set():
            time.sleep(0.3)  # a hung instance is killed at its timeout
            raise FunctionFailed("killed", "id")
        keys = [record["dynamodb"]["Keys"] for record in event.get("Records", [])]
        self.finished += [int(key["slot"]["N"]) for key in keys if key.get("log_id") == {"S": self.log}]
        return None, "id"


def run_dispatcher(cloud: Cloud, function: Remembering, state_dir: Path, trigger: StreamTrigger) -> Dispatcher:
    deployment = msgspec.structs.replace(cloud.deployment, streams=(trigger,), queues=(), schedules=())
    dispatcher = Dispatcher(deployment, seed=1, instance=lambda *_: function, state_dir=state_dir)
    dispatcher.start()
    return dispatcher


def test_a_dispatcher_that_is_started_again_repeats_what_was_not_finished_and_loses_nothing(
    cloud: Cloud, tmp_path: Path
) -> None:
    log = uuid4().hex
    # Repeats for ever: a slow machine must not use up the tries while the records are written.
    trigger = msgspec.structs.replace(
        cloud.deployment.streams[0], batch_size=100, bisect=False, maximum_retries=-1, maximum_age_seconds=-1
    )
    first = Remembering(log)
    for slot in range(250):
        write(cloud, log, slot)
    dispatcher = run_dispatcher(cloud, first, tmp_path, trigger)
    eventually(lambda: len(first.finished) >= 250)
    first.hangs.set()
    for slot in range(250, 250 + 3 * KEPT_RECORDS):  # more than the stream keeps behind a reader
        write(cloud, log, slot)
    first.invoked.clear()
    eventually(first.invoked.is_set)
    dispatcher.stop()
    assert dispatcher.failed is None
    assert len(first.finished) == 250

    second = Remembering(log)
    dispatcher = run_dispatcher(cloud, second, tmp_path, trigger)
    eventually(lambda: len(second.finished) >= 3 * KEPT_RECORDS)
    dispatcher.stop()
    assert dispatcher.failed is None
    assert second.finished == list(range(250, 250 + 3 * KEPT_RECORDS))


def test_a_checkpoint_is_read_by_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "one.checkpoint"
    assert Checkpoint(path).load() == Position("TRIM_HORIZON")
    Checkpoint(path).save(Position("AT_SEQUENCE_NUMBER", "12"))
    assert Checkpoint(path).load() == Position("AT_SEQUENCE_NUMBER", "12")
