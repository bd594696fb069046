"""Three workers of the command line on one queue, against the emulator; each is killed again and again, at every stage of
its work, and all three at once. Then the queue's own events say that every job was acked once, by who held it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from headrace.log.logs import Log
from headrace.log.stores import Stores
from headrace.queues import events as lease_events
from headrace.queues.events import AnyEvent
from headrace.queues.verbs import Queues
from headrace.topics.values import LEASES
from tests.chaos.rest import stores_of
from tests.support.emulated_cloud import dev_server
from tests.unit.queues.model import offsets, replay

ROOT = Path(__file__).parents[2]
JOBS = 120
AT_ONCE = 4
WITHIN_S = 120
LEASE = "4s"
# A worker that has its jobs pushed is seen to go, and they are released; the jobs of one that polls come back in time.
WORKERS = {"a": ("--poll", "100ms"), "b": (), "c": ()}
# Runs once for each delivery. It waits until the test lets it go on; where asked to, its last act is to stop its worker, so
# that this is killed after the work and before the ack.
COMMAND = """
echo "$HEADRACE_SEQ $HEADRACE_DELIVERIES" >> {runs}
read go < {gate}
test {kind} != frozen || kill -STOP $PPID
"""


class Events:
    """The events that workers have printed so far, each with its worker's name."""

    def __init__(self) -> None:
        self.all: list[tuple[str, dict[str, Any]]] = []
        self._more = threading.Condition()

    def read(self, name: str, process: subprocess.Popen[str]) -> None:
        """Reads a worker's output to its end. Of one that is killed the last line may be cut."""
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("\n"):
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


class Worker:
    """A worker in a process, whose commands wait until they are let go."""

    def __init__(self, url: str, events: Events, folder: Path, slot: str, kind: str) -> None:
        self.name = f"{slot}-{kind}"
        self.events = events
        gate, command = folder / f"gate-{self.name}", folder / f"command-{self.name}"
        os.mkfifo(gate)
        self._gate = os.open(gate, os.O_RDWR)
        command.write_text(COMMAND.format(runs=folder / "runs", gate=gate, kind=kind))
        argv = [
            *("--url", url, "queue", "work", "jobs", "--json", "--node", self.name, "--exec", f"sh {command}"),
            *("--concurrency", str(AT_ONCE), "--lease", LEASE, *WORKERS[slot]),
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cli.main", *argv], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=events.read, args=(self.name, self.process))
        self._reader.start()

    def wait_for(self, kind: str, count: int) -> None:
        """Waits until the worker has printed so many events of a kind."""
        self.events.wait_for(lambda: len(self.events.of(kind, worker=self.name)) >= count)

    def let_go(self, commands: int) -> None:
        """Lets so many commands end, those that wait or the next."""
        os.write(self._gate, b"\n" * commands)

    def wait_until_frozen(self) -> None:
        """Waits until a command has stopped the worker."""
        found = os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert found is not None and found.si_code == os.CLD_STOPPED, found

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def finish(self) -> None:
        """Tells the worker to stop, and has it end by itself."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(WITHIN_S) == 0

    def close(self) -> None:
        """Ends the worker, and the commands that it has left behind."""
        with self.process:
            self.process.kill()
        os.close(self._gate)
        self._reader.join()


def kill_again_and_again(start: Callable[[str], list[Worker]]) -> None:
    """Kills workers in every stage of their work. `start` starts three new ones of a kind."""
    crew = start("blocked")
    for one in crew:
        one.wait_for("begun", AT_ONCE)
    for one in crew:  # all at once, each with its hands full
        one.process.kill()
    for one in crew:
        one.kill()
    for one in start("frozen"):
        one.let_go(1)
        one.wait_until_frozen()
        one.kill()
    for turn in range(2):
        crew = start(f"turn-{turn}")
        early, acking, busy = (*crew[turn:], *crew[:turn])
        for one in crew:
            one.wait_for("begun", AT_ONCE)
            one.let_go(AT_ONCE)
        early.kill()  # somewhere between the ends of its commands and their acks
        acking.wait_for("done", 1)
        acking.kill()
        busy.wait_for("begun", 2 * AT_ONCE)
        busy.kill()


def read_events(stores: Stores) -> list[AnyEvent]:
    """Returns the events of the lease log."""
    page = Log.records(Queues(stores), ("jobs", LEASES), 0, max_records=100_000, max_bytes=2**30)
    return [lease_events.decode(record.data, "jobs") for record in page.records]


def test_every_job_is_acked_once_though_workers_are_killed_again_and_again(tmp_path: Path) -> None:
    events = Events()
    with ExitStack() as stack:
        server = stack.enter_context(dev_server())
        topic = f"{server.url}/v0/topics/jobs"
        assert httpx.put(topic, json={"type": "queue"}).status_code == 201
        records = [{"data": number} for number in range(JOBS)]
        assert httpx.post(topic, json={"records": records}).status_code == 200

        def start(kind: str) -> list[Worker]:
            crew = []
            for slot in WORKERS:
                crew.append(Worker(server.url, events, tmp_path, slot, kind))
                stack.callback(crew[-1].close)
            return crew

        kill_again_and_again(start)
        last = start("last")
        for one in last:
            one.let_go(JOBS)
        events.wait_for(lambda: not httpx.get(topic).json()["count"])
        for one in last:
            one.finish()
        state = httpx.get(topic).json()
        with stores_of(server.state) as stores:
            found = read_events(stores)
    assert state["queue"] == {"ready": 0, "in_flight": 0, "dead_lettered": 0}

    model = replay(found, JOBS, most=1000)  # a job has one holder at a time, who alone acks it
    assert model.acked == JOBS and model.count("live") == 0
    ran = [tuple(map(int, line.split())) for line in (tmp_path / "runs").read_text().splitlines()]
    assert {seq for seq, _ in ran} == set(range(1, JOBS + 1)), "an ack without the command"
    assert len(set(ran)) == len(ran), "a delivery that ran twice"
    acked = Counter(at + 1 for event in found if isinstance(event, lease_events.Ack) for at in offsets(event.jobs))
    assert acked == dict.fromkeys(range(1, JOBS + 1), 1)
    told = [event["seq"] for event in events.of("done")]
    assert len(set(told)) == len(told)

    lost = {event["seq"] for event in events.of("lost", "unconfirmed", "released")}
    again = {seq for seq, number in ran if number > 1}
    for slot in WORKERS:
        for kind in ("blocked", "frozen"):
            assert not events.of("done", worker=f"{slot}-{kind}")
            assert {event["seq"] for event in events.of("begun", worker=f"{slot}-{kind}")} <= again
        last = {event["seq"] for event in events.of("begun", worker=f"{slot}-last")}
        done = {event["seq"] for event in events.of("done", worker=f"{slot}-last")}
        assert last <= done | lost, "a worker that was not killed left a job"
