"""Done jobs at the front of a queue leave the jobs log: its floor rises past them, so that their segments can be dropped
and caps need not count them again. That is silent: no reader misses a job that is done.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.log.seam import Decision, Draft, Ids, Look, Request, Rows
from headrace.queues.ledger import Points, bring_up
from headrace.topics import live, retention
from headrace.topics.retention import Measured
from headrace.topics.runs import Runs
from headrace.topics.values import TopicConfig

JOBS = 10_000  # done at the front, for which the floor rises: one write for so many acks
CAPPED_JOBS = 100  # likewise, if the queue has a cap: until then each append over it reads the lease log


def is_due(config: TopicConfig, jobs: int) -> bool:
    """Returns whether the floor is to rise past so many jobs."""
    return jobs >= (CAPPED_JOBS if config.cap_records or config.cap_bytes else JOBS)


class Forgetting:
    """The decision to raise the floor of a jobs log."""

    def __init__(self, points: Points) -> None:
        self._points = points

    def decide(
        self,
        logs: Sequence[Look | None],
        requests: Sequence[Request],  # noqa: ARG002
        rows: Rows,
        now_ms: int,
        ids: Ids,
    ) -> Decision:
        """Decides: `logs` are the queue's jobs log and lease log. The answer is by how much the floor rises."""
        jobs, leases = logs
        assert jobs is not None and leases is not None, "both logs were found"
        front = bring_up(self._points.load(leases, rows), jobs, now_ms).front
        front = min(front, jobs.state.next_offset)
        removed = live.removed_of(jobs.log_id, jobs.state, rows)
        victims = Runs.of([(jobs.state.floor, front)])
        removal = retention.remove(jobs.state, victims, removed(), _share)
        risen = removal.state.floor - jobs.state.floor
        if not risen:
            return Decision((0,))
        state, objects = live.pack(jobs.log_id, removal.state, rows, ids)
        return Decision((risen,), (Draft(jobs.log_id, "erase", state),), (), objects)


def _share(measured: Measured) -> int:
    """Returns the bytes of done jobs, if all jobs of a mark are equally large: reading them all would cost too much."""
    dying = measured.dying.count_all
    return measured.size * dying // (dying + measured.left)
