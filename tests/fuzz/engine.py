"""Runs a worker process, shows its progress, and says how it ended."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

TIMEOUT_S = 10  # one execution
MEMORY_MB = 1024  # the whole process
INPUT_BYTES = 1024
# They take an input apart several times, in many ways, or read it as a few edits.
_SHORTER = {
    "elements": 192,
    "events": 384,
    "filter": 160,
    "search_config": 48,
    "lens": 48,
    "profile": 96,
    "touch": 96,
    "topic_body": 96,
    "socket_command": 96,
    "lease_event": 192,
}

_STATUS = re.compile(r"^#(\d+)\s+(\w+)\s+cov: \d+ ft: (\d+) corp: (\d+)/.* rss: (\d+)Mb")
_FINDING = re.compile(r"Test unit written to (\S+)")
_REASON = re.compile(r"^(?:[\w.]*(?:Error|Exception|Damaged|Interrupt)\b.*|==\d+== ERROR: .*)$")


class Outcome(NamedTuple):
    """How a run ended.

    Attributes:
        executions, per_second: what was run.
        features: what the engine counts of coverage.
        new_inputs: inputs found that reach further than the committed corpus.
        peak_mb: memory of the process.
        finding, reason: the input that broke a law, and how; None and "" if none did.
    """

    name: str
    executions: int
    per_second: int
    features: int
    new_inputs: int
    peak_mb: int
    finding: Path | None
    reason: str


def fuzz(name: str, executions: int, seconds: int, seed: int, *, corpus: list[Path], findings: Path) -> Outcome:
    """Runs one target until it has had so many executions, or so many seconds (0: no limit). New inputs go to the first
    directory of `corpus`, a finding to `findings`.
    """
    command = [
        sys.executable, "-m", "tests.fuzz.worker", name,
        f"-runs={executions}", f"-max_total_time={seconds}", f"-seed={seed}",
        f"-timeout={TIMEOUT_S}", f"-rss_limit_mb={MEMORY_MB}", f"-max_len={_SHORTER.get(name, INPUT_BYTES)}",
        f"-artifact_prefix={findings / name}-", *map(str, corpus),
    ]  # fmt: skip
    done = features = peak_mb = 0
    finding: Path | None = None
    said: list[str] = []
    started = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if status := _STATUS.match(line):
                done, features, peak_mb = (int(status[group]) for group in (1, 3, 5))
                if sys.stdout.isatty():
                    print(f"\r{name:<14} {done:>10,} of {executions:,}", end="", flush=True)
            elif found := _FINDING.search(line):
                finding = Path(found[1])
            elif _REASON.match(line.rstrip()):
                said.append(line.strip())
    seconds = max(time.monotonic() - started, 0.001)
    if child.returncode and finding is None:
        raise RuntimeError(f"the worker failed: target={name} status={child.returncode} said={said[-1:]}")
    new_inputs = len(list(corpus[0].iterdir()))
    raised = [line for line in said if not line.startswith("==")]  # the rest is the engine's own summary
    reason = (raised or said or ["unknown"])[0] if finding else ""
    return Outcome(name, done, int(done / seconds), features, new_inputs, peak_mb, finding, reason)
