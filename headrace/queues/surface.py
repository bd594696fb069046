"""The surface of queues, as the log knows it: what a process asks of a lease log is decided together, and shares one entry.
Appends to the jobs log are those of any topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.clock import Bounded
from headrace.errors import HeadraceError
from headrace.log.seam import Decision, Ids, Look, Request, Rows, Which, split
from headrace.queues.cohort import deal, join
from headrace.queues.decide import (
    Claim,
    Dealing,
    Queue,
    Release,
    Settle,
    ack,
    claim,
    extend,
    nack,
    open_queue,
    release,
)
from headrace.queues.forget import is_due
from headrace.queues.ledger import Points, bring_up
from headrace.topics.decide import TopicSurface
from headrace.topics.runs import NONE, Runs
from headrace.topics.values import LEASES, topic_of

_REMEMBERED = 4096  # queues of one process


class QueueSurface(TopicSurface):
    """The rules of topics and queues. It caches projections, and where the fresh jobs of queues begin; both are checked
    whenever they are used.

    Attributes:
        points: the projections.
        cursors: the offset of the first fresh job, by name; a hint.
        behind: the number of done jobs at the front that the jobs log still has, by name, if they are to leave it.
    """

    def __init__(self, find_leases: Callable[[Look], Look]) -> None:
        """Creates the rules. `find_leases` reads the lease log that belongs to a jobs log."""
        self.points = Points()
        self.cursors: Bounded[str, int] = Bounded(_REMEMBERED)
        self.behind: Bounded[str, int] = Bounded(_REMEMBERED)
        self._find_leases = find_leases

    def look_at(self, which: Which) -> tuple[Which, ...]:
        """Returns, for a lease log, also its jobs log, whose configuration must not be an older one (`open_queue`)."""
        name, role = split(which)
        return (which, name) if role == LEASES else (which,)

    def hidden(self, look: Look, rows: Rows) -> Runs:
        """Returns the done jobs of a queue; nothing for other topics. Reads the lease log."""
        if topic_of(look.state).config.type != "queue" or look.state.ended:
            return NONE
        now = bring_up(self.points.load(self._find_leases(look), rows), look, 0)
        return now.hidden

    def decide(
        self, logs: Sequence[Look | None], requests: Sequence[Request], rows: Rows, now_ms: int, ids: Ids
    ) -> Decision:
        """Decides appends to a topic, or what workers ask of a queue."""
        look = logs[0]
        if look is None or look.config.role != LEASES:
            return super().decide(logs, requests, rows, now_ms, ids)
        try:
            queue = open_queue(logs, requests, self.points, rows, now_ms)
        except HeadraceError as error:  # as answers, so that they are checked, too
            return Decision([error] * len(requests))
        decision = decide(queue, requests, ids)
        name, ledger = queue.ledger.jobs.row.name, queue.ledger
        self.cursors.put(name, ledger.now.cursor)
        behind = ledger.now.front - ledger.jobs.state.floor
        if is_due(queue.config, behind):
            self.behind.put(name, behind)
        return decision


def decide(queue: Queue, requests: Sequence[Request], ids: Ids) -> Decision:
    """Decides what workers ask of one queue. One entry has the events of all requests that change something. An answer
    without an event, or one that depends on where the jobs log ends, is checked by the log on fresh state.
    """
    ledger = queue.ledger
    answers: list[object] = []
    changing: list[int] = []
    for number, asked in enumerate(requests):
        before = len(ledger.events)
        is_proved = True
        match asked.request:
            case Claim(request=one) if queue.config.claim_jitter_ms:
                answers.append(join(queue, one, asked.request_id))
            case Claim(request=one, is_fresh=is_fresh):
                taken = claim(queue, one, asked.request_id)
                # Fewer jobs than asked for say that there are no more: perhaps the picture of the jobs log is too old.
                is_proved = is_fresh or len(taken.claimed.jobs) == one.max
                answers.append(taken)
            case Dealing() as dealing:
                answers.append(deal(queue, dealing))
            case Settle(verb="ack", request=settle):
                answers.append(ack(queue, settle))
            case Settle(verb="nack", request=settle):
                answers.append(nack(queue, settle))
            case Settle(request=settle):
                answers.append(extend(queue, settle))
            case Release() as release_:
                answers.append(release(queue, release_))
        if len(ledger.events) > before and is_proved:
            changing.append(number)
    if not ledger.events:
        return Decision(answers)
    draft, objects = ledger.draft(ids, tuple(changing))
    return Decision(answers, (draft,), (), objects)
