"""Three workers of the command line on 200 jobs, against the emulator; one is killed with jobs in hand. Every job is done,
and each delivery after a job's first is explained by a lease that ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.emulated_cloud import dev_server

ROOT = Path(__file__).parents[2]
JOBS = 200
AT_ONCE = 4
WITHIN_S = 120


class Events:
    """The events that workers have printed so far, each with its worker's name."""

    def __init__(self) -> None:
        self.all: list[tuple[str, dict[str, Any]]] = []
        self._more = threading.Condition()

    def read(self, name: str, process: subprocess.Popen[str]) -> None:
        """Reads a worker's output to its end."""
        assert process.stdout is not None
        for line in process.stdout:
            with self._more:
                self.all.append((name, json.loads(line)))
                self._more.notify_all()

    def of(self, *kinds: str, worker: str = "") -> list[dict[str, Any]]:
        """Returns the events of these kinds, of one worker if it is named."""
        return [event for name, event in self.all if event["event"] in kinds and worker in ("", name)]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Waits until a condition on the events holds."""
        with self._more:
            assert self._more.wait_for(condition, WITHIN_S), self.all[-20:]


def headrace(url: str, *args: str, text: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "--url", url, *args],
        cwd=ROOT, input=text, capture_output=True, text=True, timeout=WITHIN_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def worker(url: str, events: Events, name: str, command: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a worker in a process; in the end it is told to stop, and has to."""
    argv = ["queue", "work", "jobs", "--json", "--node", name, "--exec", command, "--concurrency", str(AT_ONCE)]
    with subprocess.Popen(
        [sys.executable, "-m", "cli.main", "--url", url, *argv, *options], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        reader = threading.Thread(target=events.read, args=(name, process))
        reader.start()
        try:
            yield process
            process.terminate()
            process.wait(WITHIN_S)
        finally:
            process.kill()
            reader.join()


# A worker that has its jobs pushed is seen to go, and they are released; the jobs of one that polls come back in time.
@pytest.mark.parametrize("polls", [True, False], ids=["polled", "pushed"])
def test_every_job_is_done_though_a_worker_is_killed(tmp_path: Path, polls: bool) -> None:
    os.mkfifo(tmp_path / "go")
    blocked = f"sh -c 'read x < {tmp_path}/go'"
    options = ("--lease", "5s", *(("--poll", "100ms") if polls else ()))
    events = Events()
    with ExitStack() as stack:
        url = stack.enter_context(dev_server()).url
        headrace(url, "queue", "create", "jobs")
        headrace(url, "queue", "push", "jobs", text="\n".join(map(str, range(JOBS))))
        try:
            with worker(url, events, "killed", blocked, *options) as process:
                events.wait_for(lambda: len(events.of("begun")) == AT_ONCE)
                process.send_signal(signal.SIGKILL)
                process.wait()
            for name in ("a", "b"):
                stack.enter_context(worker(url, events, name, "true", *options))
            events.wait_for(lambda: len({event["seq"] for event in events.of("done", "unconfirmed")}) == JOBS)
        finally:
            os.close(os.open(tmp_path / "go", os.O_RDWR))  # ends the commands that it left behind
        state = json.loads(headrace(url, "queue", "show", "jobs", "--json"))
    assert state["count"] == 0 and state["queue"] == {"ready": 0, "in_flight": 0, "dead_lettered": 0}
    done = [event["seq"] for event in events.of("done")]
    unconfirmed = {event["seq"] for event in events.of("unconfirmed")} - {*done}
    assert sorted([*done, *unconfirmed]) == list(range(1, JOBS + 1)), "each once"
    orphans = {event["seq"] for event in events.of("begun", worker="killed")}
    assert not orphans & {event["seq"] for event in events.of("done", worker="killed")}
    # A worker that had a job before lost its lease: by the kill, or as it said itself.
    lost = orphans | {event["seq"] for event in events.of("lost", "unconfirmed", "released")}
    again = {event["seq"] for event in events.of("begun") if event["deliveries"] > 1}
    assert orphans <= again <= lost
