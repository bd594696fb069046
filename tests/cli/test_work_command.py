"""`headrace queue work` as a process, whose commands are processes, too; tests wait for its events."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Shell
from tests.cli.fake_topics import FakeTopics
from tests.cli.working import Log, push, stop_at, succeed, work

ROOT = Path(__file__).parents[2]


@contextmanager
def started(url: str, command: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Runs `headrace queue work jobs` in a process, whose output are its events; kills it in the end."""
    argv = [sys.executable, "-m", "cli.main", "--url", url, "queue", "work", "jobs", "--exec", command, "--json"]
    with subprocess.Popen(
        [*argv, *options], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def events_until(process: subprocess.Popen[str], name: str, count: int = 1) -> list[dict[str, Any]]:
    """Reads a worker's events up to the `count`-th of a name. Fails if it ends before."""
    assert process.stdout is not None
    found = list[dict[str, Any]]()
    for line in process.stdout:
        found.append(json.loads(line))
        if sum(event["event"] == name for event in found) == count:
            return found
    raise AssertionError(f"no {name}: {found}")


@pytest.mark.parametrize("options", [("--poll", "20ms", "--lease", "2s"), ()], ids=["polled", "pushed"])
def test_a_worker_that_is_killed_loses_no_job_and_acks_none_twice(
    fake: FakeTopics, url: str, tmp_path: Path, options: tuple[str, ...]
) -> None:
    push(fake, 5)
    os.mkfifo(tmp_path / "go")
    try:
        with started(url, f"sh -c 'read x < {tmp_path}/go'", "--concurrency", "2", *options) as worker:
            events_until(worker, "begun", 2)
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        log = Log()
        work(url, succeed, log, beside=stop_at(log, "done", 5))
    finally:
        os.close(os.open(tmp_path / "go", os.O_RDWR))  # ends the commands that it left behind
    assert sorted(seq for seq, _ in fake.acked) == [1, 2, 3, 4, 5]
    in_hand = {delivery.seq for delivery in fake.deliveries if delivery.node != "me"}
    assert in_hand == {1, 2}
    assert {delivery.seq: delivery.deliveries for delivery in fake.deliveries} == {1: 2, 2: 2, 3: 1, 4: 1, 5: 1}


def test_a_command_gets_its_job_and_a_signal_lets_it_finish(fake: FakeTopics, url: str, tmp_path: Path) -> None:
    push(fake, 1, tag="a\0 é")
    os.mkfifo(tmp_path / "go")
    script = f"cd {tmp_path}; cat > data; env > variables; echo noise; read x < go"
    with started(url, f'sh -c "{script}"', "--node", "n") as worker:
        begun = events_until(worker, "begun")
        worker.send_signal(signal.SIGTERM)
        events_until(worker, "stopping")
        (tmp_path / "go").write_text("now\n")
        ended = events_until(worker, "ended")
        assert worker.wait() == 0
    assert begun[0]["event"] == "started" and begun[0]["node"] == "n" and begun[0]["lease_ms"] == 30_000
    assert ended[-1] | {"event": "ended", "done": 1, "failed": 0} == ended[-1]
    assert (tmp_path / "data").read_bytes() == b'{"n":  1}'
    variables = dict(line.split("=", 1) for line in (tmp_path / "variables").read_text().splitlines() if "=" in line)
    assert {name: text for name, text in variables.items() if name.startswith("HEADRACE_")} | {
        "HEADRACE_QUEUE": "jobs",
        "HEADRACE_SEQ": "1",
        "HEADRACE_TAG": "a\\u0000 é",
        "HEADRACE_DELIVERIES": "1",
        "HEADRACE_LEASE_ID": fake.deliveries[0].lease_id,
    } == {name: text for name, text in variables.items() if name.startswith("HEADRACE_")}
    assert [seq for seq, _ in fake.acked] == [1]


def test_what_is_said_to_people(fake: FakeTopics, url: str) -> None:
    push(fake, 2)
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "--url", url, "queue", "work", "jobs", "--exec",
         "sh -c 'exit $((HEADRACE_SEQ + 6))'", "--max-jobs", "2", "--backoff", "1m"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
    assert "job 1 failed (exit code 7), delivery 1: again in " in done.stderr
    assert done.stderr.splitlines()[-1] == "0 done, 2 failed"


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("log", "--exec", "true"), 1),
        (("none", "--exec", "true"), 1),
        (("jobs", "--exec", "no-such-command x"), 2),
        (("jobs", "--exec", "'"), 2),
        (("jobs", "--exec", ""), 2),
        (("jobs", "--exec", "true", "--lease", "1ms"), 2),
    ],
)
def test_what_can_not_work_is_told_before(headrace: Shell, args: tuple[str, ...], code: int) -> None:
    headrace("topic", "create", "log")
    headrace("queue", "create", "jobs")
    assert headrace("queue", "work", *args).exit_code == code
