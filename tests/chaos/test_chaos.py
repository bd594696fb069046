"""The small version of `python -m tests.chaos`: an emulator under load, with HTTP faults and kills, keeps every law."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from local.fork_server import fork_server, spawn
from tests.chaos.__main__ import text
from tests.chaos.killer import kill, next_kind, victims
from tests.chaos.run import Options, run
from tests.conformance.contract.client import eventually
from tests.support.machine import machine_folder

SMALL = Options(
    appends=600,
    kills=6,
    kill_pause_s=0.5,
    writers=8,
    forks=4,
    seal_age="1s",
    trim_age="7s",
    sweep_every="10s",
    visibility_s=5,
    limit_s=120,
    rest_s=90,
)


def test_the_laws_hold_under_faults_and_kills(capsys: pytest.CaptureFixture[str]) -> None:
    report = run(SMALL, lambda what, share: None)
    with capsys.disabled():
        print("\n" + text(report, report.load_s + report.rest.seconds))
    assert report.problems() == []
    assert report.kills.total() == SMALL.kills
    assert min(report.kills[kind] for kind in ("api", "dispatcher", "sealer")) >= 1
    assert report.faults.total() > 20
    assert report.metrics["SegmentsSealed"] > 0
    assert report.metrics["ItemsTrimmed"] > 0


@pytest.mark.full  # 30 s of CPU; each push has one kill of a whole server (tests/local/test_data.py)
def test_the_laws_hold_on_a_disk_whose_server_is_killed_as_a_whole(capsys: pytest.CaptureFixture[str]) -> None:
    with machine_folder() as folder:
        report = run(replace(SMALL, faults=0.0, appends=400, kills=12, data=str(folder)), lambda what, share: None)
    with capsys.disabled():
        print("\n" + text(report, report.load_s + report.rest.seconds))
    assert report.problems() == []
    assert min(report.kills[kind] for kind in ("api", "dispatcher", "sealer", "server")) >= 2


def test_kills_are_spread_evenly_over_what_lives() -> None:
    state = {"pids": {"aws": 1, "dispatcher": 2, "api-0": 3, "api-1": 4, "proxy": 5}, "functions": {"Sealer": 6}}
    assert victims(state) == {"api": [3, 4], "dispatcher": [2], "sealer": [6]}
    done: Counter[str] = Counter()
    for _ in range(60):
        kind = next_kind(done, victims(state), Random(sum(done.values())))
        assert kind is not None
        done[kind] += 1
    assert max(done.values()) - min(done.values()) <= 2
    assert next_kind(Counter(api=9, dispatcher=9), {"api": [3], "dispatcher": [2], "sealer": []}, Random(1)) is None


def test_only_a_process_that_still_is_what_it_was_is_killed() -> None:
    with fork_server() as forks:
        stdin, lifeline = os.pipe()
        child = spawn(["tests.local.forked", "wait"], {**os.environ, **forks}, stdin=stdin)
        eventually(lambda: Path(f"/proc/{child.pid}/comm").read_text(), lambda name: name == "tests.local.for\n")
        assert not kill(child.pid, "local.api_process")
        assert child.poll() is None
        assert kill(child.pid, "tests.local.forked")
        assert child.wait(5) == -9
        assert not kill(child.pid, "tests.local.forked")
    for end in (stdin, lifeline):
        os.close(end)


def test_the_command_says_what_it_takes() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert "--appends" in said
    assert "--kills" in said
