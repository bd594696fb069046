"""What a bill is computed from, and the charges that several of its parts have in common: requests, invocations, calls of
stores, segments. Does no I/O.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from operators.cost.counts import Counts, Spent, Template
from operators.cost.prices import Ledger, Prices
from operators.cost.workload import DAYS, GB, SECONDS, Assumptions, Workload

_ROUTE_BYTES = 512 * 1024  # an HTTP API counts a larger request as several
_WRITE_BYTES = 1024
_CALLS = (
    *("PutItem", "GetItem", "Query", "UpdateItem", "DeleteItem"),
    *("BatchWriteItem", "BatchGetItem", "TransactWriteItems"),
)


@dataclass(frozen=True)
class Estimate:
    """The inputs of a bill: the workload, the counts, the prices and the assumptions."""

    work: Workload
    counts: Counts
    prices: Prices
    assumed: Assumptions = field(default_factory=Assumptions)

    @property
    def template(self) -> Template:
        """Returns what is deployed."""
        return self.counts.templates[self.work.environment]

    def operation(self, name: str) -> Spent:
        """Returns what an operation of topics, queues or followers spends."""
        return self.counts.operations[name]

    @property
    def is_spilled(self) -> bool:
        """Returns whether an append's payload is stored in the bucket."""
        return self.counts.stored(self.work.payload_bytes) > self.work.spill_bytes

    @property
    def item_bytes(self) -> float:
        """Returns the size in bytes of the DynamoDB item of an append's entry."""
        if self.is_spilled:
            return self.counts.spilled_item
        return self.counts.item_overhead + self.counts.stored(self.work.payload_bytes)

    @property
    def item_units(self) -> int:
        """Returns the write units that an append's entry costs; its removal costs as many again."""
        return max(1, math.ceil(self.item_bytes / _WRITE_BYTES))


def sealed(estimate: Estimate, ledger: Ledger, part: str, segments: float) -> None:
    """Adds to the ledger the fixed cost of sealing this many segments, whatever they contain: calls, messages, and the
    invocations that they cause.
    """
    spent, messages = estimate.counts.seal.seal, estimate.counts.seal.messages
    fixed = {**spent, "put": spent["put"] - 1}  # the log's description is written once
    stores(ledger, part, fixed, segments)
    invoked(estimate, ledger, part, segments * messages, 0)
    compute(estimate, ledger, part, segments, waits(estimate, fixed))
    ledger.add(part, "sqs.request", segments * messages * estimate.assumed.sqs_requests)


def sealed_entries(estimate: Estimate, ledger: Ledger, part: str, entries: float, units: float) -> None:
    """Adds to the ledger what follows the writing of entries of one log, `units` write units each: they are sealed, trimmed
    and, until then, looked at.
    """
    counts = estimate.counts
    ledger.add(part, "dynamodb.write", units * entries)
    ledger.add(part, "dynamodb.read", 2 * units / 4 * entries)  # by seal and trim; a read unit is four KB
    looks = min(entries, SECONDS / estimate.assumed.stream_batch_s)
    stores(ledger, part, counts.seal.look, looks)
    compute(estimate, ledger, part, looks, waits(estimate, counts.seal.look))
    sealed(estimate, ledger, part, min(entries, SECONDS / estimate.work.seal_age_s))


def lingers(estimate: Estimate) -> float:
    """Returns for how many months the bucket keeps objects that were deleted or replaced."""
    return estimate.work.noncurrent_days / DAYS


def served(estimate: Estimate, ledger: Ledger, part: str, requests: float, milliseconds: float, body: float) -> None:
    """Adds to the ledger the cost of requests through the HTTP API and the api function, each with a body of `body`
    bytes and `milliseconds` of work.
    """
    ledger.add(part, "api_gateway.request", requests * max(1, math.ceil(body / _ROUTE_BYTES)))
    if estimate.template.snapshots:
        ledger.add(part, "lambda.snapshot_restore", requests * estimate.work.cold_share * memory_gb(estimate))
    ledger.add("observe", "cloudwatch.logs_in", requests * estimate.assumed.access_log_bytes / GB)
    invoked(estimate, ledger, part, requests, milliseconds)


def invoked(estimate: Estimate, ledger: Ledger, part: str, invocations: float, milliseconds: float) -> None:
    """Adds to the ledger invocations of a function, each with `milliseconds` of work, and what they log."""
    ledger.add(part, "lambda.request", invocations)
    ledger.add("observe", "cloudwatch.logs_in", invocations * estimate.assumed.log_bytes / GB)
    compute(estimate, ledger, part, invocations, milliseconds + estimate.assumed.invocation_ms)


def compute(estimate: Estimate, ledger: Ledger, part: str, times: float, milliseconds: float) -> None:
    """Adds to the ledger that a function runs so many times for so long."""
    ledger.add(part, "lambda.compute", times * milliseconds / 1000 * memory_gb(estimate))


def memory_gb(estimate: Estimate) -> float:
    """Returns the memory of a function in GB."""
    return estimate.template.memory_mb / 1024


def waits(estimate: Estimate, spent: Spent) -> float:
    """Returns how long a function waits for these calls, made one after the other, in milliseconds."""
    tables = sum(spent.get(call, 0) for call in _CALLS)
    gets, puts = spent.get("get", 0), spent.get("put", 0)
    return (
        tables * estimate.assumed.dynamodb_ms + gets * estimate.assumed.s3_get_ms + puts * estimate.assumed.s3_put_ms
    )


def stores(ledger: Ledger, part: str, spent: Spent, times: float) -> None:
    """Adds to the ledger the DynamoDB units and S3 requests of an operation that happens `times` times."""
    ledger.add(part, "dynamodb.write", spent.get("write_units", 0) * times)
    ledger.add(part, "dynamodb.read", spent.get("read_units", 0) * times)
    ledger.add(part, "s3.put", (spent.get("put", 0) + spent.get("list", 0)) * times)
    ledger.add(part, "s3.get", spent.get("get", 0) * times)
