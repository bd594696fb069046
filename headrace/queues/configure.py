"""Changes of a queue's configuration: they are events of its lease log, too.

A claim may be decided on an older picture of the jobs log. Without an event it could still follow the configuration before,
in another process, after the change was answered. The event takes the slot of a claim on an older picture of the lease
log; and since both logs number the changes, a claim on a newer one finds that its picture of the jobs log is older.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from headrace.log.commit import Found
from headrace.log.control import Controls
from headrace.log.seam import Decision, Ids, Look, Request, Rows
from headrace.queues import events
from headrace.queues.decide import open_queue
from headrace.queues.ledger import Points, leases_of
from headrace.topics.configure import decide_put
from headrace.topics.decide import TopicSurface
from headrace.topics.values import topic_of


def find_queue(controls: Controls, name: str) -> Found:
    """Returns the logs of a queue: the jobs log, and the lease log if there is one that lives; else as `find_any` does."""
    found = controls.find_any(name)
    (jobs,) = found.pictures
    return found if jobs is None or jobs.state.ended else controls.find_all(name)


class Configuring:
    """The decision of a PUT of a queue."""

    def __init__(self, topics: TopicSurface, points: Points) -> None:
        self._topics = topics
        self._points = points

    def decide(
        self, logs: Sequence[Look | None], requests: Sequence[Request], rows: Rows, now_ms: int, ids: Ids
    ) -> Decision:
        """Decides: `logs` has the name's current log, None if there is none, and its lease log if it has one. The answer is
        a `Configured`.
        """
        decision = decide_put(self._topics, logs[:1], requests, rows, now_ms, ids)
        if len(logs) == 1 or [entry.kind for entry in decision.entries] != ["configure"]:
            return decision
        jobs, leases = logs
        assert jobs is not None and leases is not None, "both logs were found"
        (configure,) = decision.entries
        topic = topic_of(configure.state)
        # The lease log was read later: another PUT may have come between, which also has the slot of this one.
        number = max(topic.configured, leases_of(leases.state).configured) + 1
        state = replace(configure.state, extension=replace(topic, configured=number))
        looks = (leases, jobs._replace(state=state))
        ledger = open_queue(looks, requests, self._points, rows, now_ms).ledger
        ledger.add(events.Configure(at=ledger.at))
        draft, objects = ledger.draft(ids, ())
        return decision._replace(
            entries=(configure._replace(state=state), draft._replace(kind="configure")),
            objects=(*decision.objects, *objects),
        )
