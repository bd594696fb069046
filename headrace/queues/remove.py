"""Deletes of records of a queue: events of its lease log, so that no claim can overtake them."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.log.seam import Decision, Ids, Look, Request, Rows
from headrace.queues import events
from headrace.queues.decide import open_queue
from headrace.queues.ledger import Points
from headrace.queues.projection import before
from headrace.topics import live, retention
from headrace.topics.decide import EraseRequest
from headrace.topics.runs import NONE
from headrace.topics.values import Erased
from headrace.wal.state import incarnation_of


class Removal:
    """The decision to delete jobs."""

    def __init__(self, points: Points) -> None:
        self._points = points

    def decide(
        self, logs: Sequence[Look | None], requests: Sequence[Request], rows: Rows, now_ms: int, ids: Ids
    ) -> Decision:
        """Decides: `logs` are the queue's lease log and jobs log. The answer is an `Erased`."""
        request: EraseRequest = requests[0].request
        found = request.found
        queue = open_queue(logs, requests, self._points, rows, now_ms)
        ledger, jobs = queue.ledger, queue.ledger.jobs
        removed = live.removed_of(jobs.log_id, jobs.state, rows)
        state = live.expire(jobs.state, now_ms, live.times_of(jobs.row, rows), removed, lambda: ledger.now.hidden)
        is_same = (jobs.log_id, incarnation_of(jobs.config, jobs.state)) == (found.log_id, found.incarnation)
        victims = request.victims.within(state.floor, ledger.end) if is_same else NONE
        victims = victims.minus(ledger.now.hidden)
        if victims:
            ledger.add(events.Remove(at=ledger.at, jobs=victims.flat()))
        hidden = before(ledger.now, ledger.end).hidden
        count, size = retention.counted(state, removed, hidden)
        floor = min(removed().union(hidden).live_at(state.floor), ledger.end)
        answer = Erased(victims.count_all, ledger.end, floor + 1, count, size)
        if not victims:
            return Decision((answer,))
        draft, objects = ledger.draft(ids, (0,))
        return Decision((answer,), (draft,), (), objects)
