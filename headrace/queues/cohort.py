"""Claim windows: with `claim_jitter_ms`, workers that claim at about the same time share the jobs evenly.

The first claim opens a window by its join, and the others join it. After the window any member deals: it leases jobs to
all members in turn, in the order of their joins, in one event, and the other members read what they got. A member that
goes away costs its jobs one lease. A window that nobody deals lapses with its joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.batch import Record
from headrace.queues import events
from headrace.queues.decide import Dealing, Joined, Queue, Taken, answer, candidates, pick
from headrace.queues.events import Join
from headrace.queues.feed import size_of
from headrace.queues.values import ClaimRequest
from headrace.topics.runs import Runs


class Waiting(NamedTuple):
    """The answer that a window is still open, for so many milliseconds."""

    ms: int


def join(queue: Queue, request: ClaimRequest, claim_id: str) -> Joined:
    """Joins the window that is open, or opens one."""
    ledger = queue.ledger
    is_open = [one.closes for one in ledger.now.joins if one.closes > ledger.at]
    closes = max(is_open, default=ledger.at + queue.config.claim_jitter_ms)
    ledger.add(
        Join(
            at=ledger.at,
            id=claim_id,
            node=request.node,
            max=request.max,
            lease_ms=request.lease_ms or queue.config.lease_ms,
            max_bytes=request.max_bytes,
            closes=closes,
            connection=request.connection,
        )
    )
    return Joined(claim_id, closes)


def deal(queue: Queue, asked: Dealing) -> Taken | Waiting:
    """Deals the window of a member, if it is over and not dealt, and returns the member's share."""
    ledger, joined = queue.ledger, asked.joined
    if any(one.id == joined.id for one in ledger.now.joins):
        if ledger.at < joined.closes_ms:
            return Waiting(joined.closes_ms - ledger.at)
        members = [one for one in ledger.now.joins if one.closes == joined.closes_ms]
        most, room = sum(one.max for one in members), sum(one.max_bytes for one in members)
        records, gone = pick(queue, candidates(ledger.now, queue.config, ledger.end), most, room)
        hands = tuple(
            events.Dealt(
                member.id,
                member.node,
                ledger.at + member.lease_ms,
                Runs.of_offsets(record.offset for record in hand).flat(),
                member.connection,
            )
            for member, hand in zip(members, share(members, records), strict=True)
            if hand
        )
        dealt = events.Deal(at=ledger.at, closes=joined.closes_ms, hands=hands, gone=Runs.of_offsets(gone).flat())
        ledger.add(dealt, records)
    return answer(queue, joined.id)


def share(members: Sequence[Join], records: Sequence[Record]) -> list[list[Record]]:
    """Divides records among members in turn: each gets at most as many as it takes, and as have room in its answer, but
    one at least. Records that nobody has room for are left.
    """
    hands: list[list[Record]] = [[] for _ in members]
    rooms = [member.max_bytes for member in members]
    turns = list(range(len(members)))
    at = 0
    for record in records:
        while turns:
            number = turns[at % len(turns)]
            if hands[number] and rooms[number] < size_of(record):
                turns.pop(at % len(turns))
                continue
            hands[number].append(record)
            rooms[number] -= size_of(record)
            at = at % len(turns)
            if len(hands[number]) == members[number].max:
                turns.pop(at)
            else:
                at += 1
            break
        else:
            break
    return hands
