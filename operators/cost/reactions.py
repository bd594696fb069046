"""The parts of a bill for queues, and for what follows an append: routers, watches, sockets and webhooks. Does no I/O.

What an operation spends was counted with one small record; an entry's write units follow from the workload's record size.
"""

from __future__ import annotations

import math
from dataclasses import replace

from headrace.sockets.session import LIFE_MS
from headrace.watch.values import FEW
from operators.cost.charges import (
    Estimate,
    compute,
    invoked,
    memory_gb,
    sealed_entries,
    served,
    stores,
    waits,
)
from operators.cost.prices import Ledger
from operators.cost.workload import DAYS, GB, SECONDS

_MESSAGE_BYTES = 32 * 1024  # a WebSocket API counts a larger message as several


def queues(estimate: Estimate, ledger: Ledger) -> None:
    """Adds the cost of jobs to the ledger: each batch of them is one request to enqueue, one to claim and one to
    acknowledge. Claims and acks are entries of a log, too.
    """
    work, part = estimate.work, "queue"
    batches = work.jobs / work.job_batch
    at = replace(estimate, work=replace(work, batch=work.job_batch))
    spills = batches if at.is_spilled else 0
    for step, units, body in (
        ("enqueue", at.item_units, at.work.payload_bytes),
        ("claim", estimate.operation("claim")["write_units"], at.work.payload_bytes),
        ("ack", estimate.operation("ack")["write_units"], 0),
    ):
        spent = {**estimate.operation(step), "write_units": units}
        milliseconds = waits(estimate, spent) + estimate.counts.printed.append_cpu_ms
        served(estimate, ledger, part, batches, milliseconds, body)
        stores(ledger, part, spent, batches)
    ledger.add(part, "s3.put", spills)
    ledger.add(part, "s3.get", spills)
    compute(estimate, ledger, part, spills, estimate.assumed.s3_put_ms + estimate.assumed.s3_get_ms)
    sealed_entries(estimate, ledger, part, batches, at.item_units)
    lease_units = sum(estimate.operation(step)["write_units"] for step in ("claim", "ack"))
    sealed_entries(estimate, ledger, part, 2 * batches, lease_units / 2)


def routers(estimate: Estimate, ledger: Ledger) -> None:
    """Adds the cost of appends that routers copy: each is one invocation of the relay, and an entry of the destination."""
    work, part = estimate.work, "route"
    spent = estimate.operation("append copied by a router")
    gets = work.copies if estimate.is_spilled else 0
    invoked(estimate, ledger, part, work.copies, waits(estimate, spent))
    stores(ledger, part, {**spent, "write_units": estimate.item_units}, work.copies)
    ledger.add(part, "s3.get", gets)
    ledger.add(part, "s3.put", gets)
    compute(estimate, ledger, part, gets, estimate.assumed.s3_get_ms + estimate.assumed.s3_put_ms)
    sealed_entries(estimate, ledger, part, work.copies, estimate.item_units)
    kept_gb = work.copies * work.payload_bytes / GB * work.retention_days / DAYS
    ledger.add(part, "s3.storage", kept_gb * estimate.counts.segment_ratio)


def watches(estimate: Estimate, ledger: Ledger) -> None:
    """Adds the cost of watches that are always open on the streaming door, and silent: Lambda is paid while a stream is
    open, and the stream looks at its topics, or at its bell and a few topics in turn.
    """
    work, assumed, part = estimate.work, estimate.assumed, "watch"
    look, bell = estimate.operation("watch looks at a topic"), estimate.operation("watch looks at its bell")
    streams = work.watches * SECONDS / assumed.stream_s
    invoked(estimate, ledger, part, streams, assumed.stream_s * 1000)
    stores(ledger, part, estimate.operation("watch stream opened"), streams)
    polls = work.watches * SECONDS / assumed.follower_poll_s
    is_rung = work.watch_topics > FEW
    stores(ledger, part, bell, polls if is_rung else 0)
    stores(ledger, part, look, polls * (assumed.watch_in_turn if is_rung else work.watch_topics))
    checks = work.watches * SECONDS / assumed.watch_check_s
    stores(ledger, part, estimate.operation("watch looks for a newer stream"), checks)


def sockets(estimate: Estimate, ledger: Ledger) -> None:
    """Adds the cost of sockets that are always open, and of what is pushed to them: one invocation of the relay for each
    append and socket.
    """
    work, part = estimate.work, "socket"
    opened = work.sockets * SECONDS / (LIFE_MS / 1000)
    ledger.add(part, "api_gateway.socket_minute", work.sockets * SECONDS / 60)
    ledger.add(
        part, "api_gateway.socket_message", work.pushes * max(1, math.ceil(work.payload_bytes / _MESSAGE_BYTES))
    )
    for step, times in (
        ("socket opened", opened),
        ("socket subscribed to a topic", opened),
        ("message pushed to a socket", work.pushes),
    ):
        spent = estimate.operation(step)
        invoked(estimate, ledger, part, times, waits(estimate, spent))
        stores(ledger, part, spent, times)


def webhooks(estimate: Estimate, ledger: Ledger) -> None:
    """Adds the cost of webhooks, one append each: the relay is told of the append, and by a message of the call that is
    due; it waits for the function that posts, and this one for the receiver.
    """
    work, assumed, part = estimate.work, estimate.assumed, "webhook"
    for step, more_ms in (("subscription woken", 0.0), ("webhook delivered", assumed.receiver_ms)):
        spent = estimate.operation(step)
        invoked(estimate, ledger, part, work.webhooks, waits(estimate, spent) + more_ms)
        stores(ledger, part, spent, work.webhooks)
    ledger.add(part, "sqs.request", work.webhooks * assumed.sqs_requests)
    ledger.add(part, "lambda.request", work.webhooks)
    seconds = (assumed.receiver_ms + assumed.invocation_ms) / 1000
    share = estimate.template.webhook_memory_mb / estimate.template.memory_mb
    ledger.add(part, "lambda.compute", work.webhooks * seconds * memory_gb(estimate) * share)


PARTS = (queues, routers, watches, sockets, webhooks)
"""Each adds a part to the ledger of a bill."""
