"""What a process asks of a lease log, decided together: the requests that wait share one entry."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import HeadraceError
from headrace.log.seam import Decision, Ids, Look, Request, Rows
from headrace.queues.cohort import Dealing, Joining, deal, join
from headrace.queues.decide import Claim, Release, Settle, ack, claim, extend, nack, open_queue, release
from headrace.queues.ledger import Points


def decide(
    logs: Sequence[Look | None], requests: Sequence[Request], points: Points, rows: Rows, now_ms: int, ids: Ids
) -> Decision:
    """Decides what workers ask of one queue: `logs` are its lease log and its jobs log. One entry has the events of all
    requests that change something; an answer without an event is checked by the log on fresh state.
    """
    try:
        queue = open_queue(logs, requests, points, rows, now_ms)
    except HeadraceError as error:  # as answers, so that they are checked, too
        return Decision([error] * len(requests))
    ledger = queue.ledger
    answers: list[object] = []
    changing: list[int] = []
    for number, asked in enumerate(requests):
        before = len(ledger.events)
        match asked.request:
            case Claim() as one:
                answers.append(claim(queue, one.request, asked.request_id))
            case Settle(verb="ack", request=one):
                answers.append(ack(queue, one))
            case Settle(verb="nack", request=one):
                answers.append(nack(queue, one))
            case Settle(request=one):
                answers.append(extend(queue, one))
            case Release() as one:
                answers.append(release(queue, one))
            case Joining() as one:
                answers.append(join(queue, one, asked.request_id))
            case Dealing() as one:
                answers.append(deal(queue, one))
        if len(ledger.events) > before:
            changing.append(number)
    if not changing:
        return Decision(answers)
    draft, objects = ledger.draft(ids, tuple(changing))
    return Decision(answers, (draft,), (), objects)
