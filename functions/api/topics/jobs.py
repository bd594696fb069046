"""The routes that lease jobs of a queue, and settle them (§ 10.2 to § 10.6)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.responses import Response

from functions.access import Scope
from functions.api.door.requests import is_buffered, run
from functions.api.topics.calls import Call, committed
from functions.api.topics.config import Number, clamped
from functions.api.topics.records import array, check_text, shown_job
from functions.metrics import ApiMetric
from headrace.errors import InvalidRequest
from headrace.queues.values import Claimed, ClaimRequest, Settled, SettleRequest
from headrace.queues.verbs import Window
from headrace.topics.errors import BatchTooLarge
from headrace.topics.values import LEASE_MS, MAX_CLAIM, MAX_NODE_BYTES

# Of records: as a JSON string inside a result they may grow threefold (quotes twofold, letters of two bytes threefold).
BUFFERED_CLAIM_BYTES = 1_250_000
CLAIM_BYTES = 4 * 1024 * 1024
LEASES = 100  # of an answer, if nothing else is asked for


class ClaimBody(msgspec.Struct, frozen=True):
    """The body of a claim (§ 10.2)."""

    node: str
    max: Number = 1
    lease_ms: Number | None = None


class SettleBody(msgspec.Struct, frozen=True):
    """The body of an ack (§ 10.4), and what nacks and extends have in common with it."""

    node: str
    seqs: list[Number]
    lease_ids: list[str] | None = None


class NackBody(SettleBody, frozen=True):
    """The body of a nack (§ 10.5)."""

    delay_ms: Number = 0


class ExtendBody(SettleBody, frozen=True, kw_only=True):
    """The body of an extend (§ 10.6)."""

    lease_ms: Number


async def claim(call: Call) -> Response:
    """Leases jobs to a worker (§ 10.2)."""
    name = call.name(Scope.READ | Scope.WRITE, "/claim")
    body = await call.body(ClaimBody)
    request = claim_request(call, body.node, body.max, body.lease_ms)
    with call.timed():
        claimed = await take_jobs(call, name, request)
    count_claim(call, claimed)
    call.context.meter.add(ApiMetric.ClaimMs, round(call.verb_ms))
    document = {"topic": name, "count": len(claimed.jobs), "ready": claimed.ready}
    jobs = array("claimed", map(shown_job, claimed.jobs))
    return await call.reply(document, jobs, measured={"throttle_wait_ms": 0.0}, tries=claimed.tries)


async def ack(call: Call) -> Response:
    """Completes jobs, which deletes them (§ 10.4)."""
    name = call.name(Scope.WRITE, "/ack")
    body = await call.body(SettleBody)
    settled = await call.run(call.logs.ack, name, _settle(body))
    call.context.meter.add(ApiMetric.JobsAcked, len(settled.done))
    return await _reply(call, name, "acked", settled)


async def nack(call: Call) -> Response:
    """Gives leased jobs back (§ 10.5)."""
    name = call.name(Scope.WRITE, "/nack")
    body = await call.body(NackBody)
    request = _settle(body)._replace(delay_ms=min(body.delay_ms, LEASE_MS[1]))
    settled = await call.run(call.logs.nack, name, request)
    call.context.meter.add(ApiMetric.JobsNacked, len(settled.done))
    return await _reply(call, name, "nacked", settled)


async def extend(call: Call) -> Response:
    """Moves the end of leases (§ 10.6)."""
    name = call.name(Scope.WRITE, "/extend")
    body = await call.body(ExtendBody)
    request = _settle(body)._replace(lease_ms=clamped(body.lease_ms, *LEASE_MS))
    settled = await call.run(call.logs.extend, name, request)
    call.context.meter.add(ApiMetric.JobsExtended, len(settled.done))
    document = {
        "topic": name,
        "extended": len(settled.done),
        "skipped": settled.skipped,
        "deadlines": {str(seq): deadline for seq, deadline in settled.deadlines.items()},
    }
    return await call.reply(document, measured=_measured(call, settled), tries=settled.tries)


async def list_leases(call: Call) -> Response:
    """Lists the leases of a queue, those first that end first."""
    name = call.name(Scope.READ, "/leases")
    query = call.query("node", "limit")
    limit = clamped(query.number("limit", LEASES), 1, MAX_CLAIM)
    found = await call.run(call.logs.leases, name, query.text("node") or None, limit)
    leases = [
        {
            "$seq": lease.seq,
            "node": lease.node,
            "claimed_ts": lease.claimed_ms,
            "deadline": lease.deadline_ms,
            "deliveries": lease.deliveries,
        }
        for lease in found
    ]
    return await call.reply({"topic": name, "leases": leases})


def claim_request(call: Call, node: str, most: int, lease_ms: int | None, connection: str = "") -> ClaimRequest:
    """Returns the request to lease at most `most` jobs, with numbers clamped. Raises InvalidRequest if the worker has no
    name, or wants none.
    """
    check_node(node)
    if not most:
        raise InvalidRequest("max must be at least 1")
    return ClaimRequest(
        node,
        min(most, MAX_CLAIM),
        None if lease_ms is None else clamped(lease_ms, *LEASE_MS),
        connection,
        BUFFERED_CLAIM_BYTES if is_buffered(call.request.scope) else CLAIM_BYTES,
    )


async def take_jobs(call: Call, name: str, request: ClaimRequest) -> Claimed:
    """Leases jobs to a worker. No thread is held while a claim window is open."""
    outcome = await run(call.logs.begin_claim, name, request)
    while isinstance(outcome, Window):
        await asyncio.sleep(outcome.wait_ms / 1000)
        outcome = await run(call.logs.end_claim, name, request, outcome)
    return outcome


def check_node(node: str) -> None:
    """Raises InvalidRequest if a text can't be the name of a worker."""
    if not node:
        raise InvalidRequest("node is required")
    check_text("node", node, MAX_NODE_BYTES)


def count_claim(call: Call, claimed: Claimed) -> None:
    """Counts a claim."""
    meter = call.context.meter
    meter.add(ApiMetric.Claims)
    fresh_ms = [job.record.time_ms for job in claimed.jobs if job.deliveries == 1]
    meter.add(ApiMetric.JobsClaimed, len(claimed.jobs))
    meter.add(ApiMetric.JobsRedelivered, len(claimed.jobs) - len(fresh_ms))
    if fresh_ms:
        meter.add(ApiMetric.JobWaitMs, max(0, call.context.clock.now_ms() - min(fresh_ms)))
    meter.add(ApiMetric.EmptyClaims, int(not claimed.jobs))
    meter.add(ApiMetric.DeadLetters, claimed.dead)


def _settle(body: SettleBody) -> SettleRequest:
    check_node(body.node)
    if not body.seqs:
        raise InvalidRequest("seqs is empty")
    if len(body.seqs) > MAX_CLAIM:
        raise BatchTooLarge(f"too many seqs: limit={MAX_CLAIM} received={len(body.seqs)}")
    if body.lease_ids is not None and len(body.lease_ids) != len(body.seqs):
        raise InvalidRequest("lease_ids must have one entry for each of seqs")
    return SettleRequest(body.node, tuple(body.seqs), None if body.lease_ids is None else tuple(body.lease_ids))


async def _reply(call: Call, name: str, what: str, settled: Settled) -> Response:
    document: dict[str, Any] = {
        "topic": name,
        what: len(settled.done),
        "skipped": settled.skipped,
        "ready": settled.ready,
        "in_flight": settled.in_flight,
    }
    return await call.reply(document, measured=_measured(call, settled), tries=settled.tries)


def _measured(call: Call, settled: Settled) -> dict[str, float]:
    return committed(call.context, call.verb_ms, 1, 0, durable=settled.durable) if settled.done else {}
