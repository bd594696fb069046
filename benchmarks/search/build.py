"""Indexes a bucket: the real indexer plans and publishes, the real job runs on local Spark in a measured process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.search.directory import DirectoryObjects
from benchmarks.search.load import reopened
from benchmarks.search.spend import Spent, spend
from functions.indexer.context import Context, assemble
from functions.indexer.follow import follow
from functions.indexer.look import look
from functions.indexer.runs import Outcome
from functions.indexer.start import start
from functions.queue import MemoryQueue
from headrace.index.descriptors import Run
from headrace.objects import keys
from headrace.settings import Settings
from headrace.tables.jobs import MemoryJobs

_NEVER = 1_000_000
LEVELS = {
    "L0": Settings(index_age_ms=1, compact_fanout=_NEVER),
    "compacted": Settings(index_age_ms=1, compact_fanout=2),
}


class Built(NamedTuple):
    """One job run: what it took, and the runs that are read after it."""

    spent: Spent
    runs: tuple[Run, ...]

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes by family."""
        found: dict[str, int] = {}
        for run in self.runs:
            for family, size in run.sizes.items():
                found[family] = found.get(family, 0) + size
        return found


class _ChildRuns:
    """Job runs as processes, one at a time; `start` returns when the run is over."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.spent: list[Spent] = []

    def start(self, job_id: str, *, requested: bool = False) -> str:  # noqa: ARG002 - as the port has it
        """Runs the job."""
        self.spent.append(
            spend([sys.executable, "-m", "benchmarks.search.job", str(self._root), keys.job_input(job_id)])
        )
        return job_id

    def outcome(self, run_id: str) -> Outcome:  # noqa: ARG002 - as the port has it
        """Returns the outcome of the last job."""
        return "failed" if self.spent[-1].status else "succeeded"


def build(root: Path, log_id: str, level: str) -> list[Built]:
    """Runs jobs until nothing is due at a level: `L0` builds, `compacted` merges the existing runs.

    Raises:
        RuntimeError: a job failed.
    """
    runs = _ChildRuns(root)
    stores = reopened(DirectoryObjects(root), LEVELS[level])
    parts = assemble(stores, MemoryJobs(), runs, MemoryQueue())
    built: list[Built] = []
    while look(parts, log_id) and _start(parts, log_id):
        followed = follow(parts)
        if followed.failed or not followed.published:
            raise RuntimeError(f"the job failed: {followed}")
        built.append(Built(runs.spent[-1], parts.indexes.newest(log_id).runs))
    return built


def _start(parts: Context, log_id: str) -> bool:
    """Waits until the job of the log is due and starts it; returns whether a job run was started."""
    row = parts.jobs.get(log_id)
    if row is not None and row.due_ms > parts.now_ms():
        parts.stores.clock.sleep((row.due_ms - parts.now_ms()) / 1000)
    return start(parts).jobs > 0
