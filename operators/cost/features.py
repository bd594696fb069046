"""The part of a bill for feature tables: pushes, the folder, reads, and what is kept. Does no I/O.

What an operation spends was counted with one small event; an entry's write units follow from the workload's record size,
those of a row from its own.
"""

from __future__ import annotations

import math
from dataclasses import replace

from operators.cost.charges import Estimate, compute, invoked, sealed_entries, served, stores, waits
from operators.cost.counts import Spent
from operators.cost.prices import Ledger
from operators.cost.workload import DAYS, GB, SECONDS

_PART = "feature"
_WRITE_BYTES, _READ_BYTES = 1024, 4096


def features(estimate: Estimate, ledger: Ledger) -> None:
    """Adds the cost of feature tables to the ledger."""
    at = replace(estimate, work=replace(estimate.work, batch=estimate.work.event_batch))
    _pushed(at, ledger)
    _folded(at, ledger)
    _read(estimate, ledger)
    work = estimate.work
    kept_gb = work.events * work.record_bytes / GB * work.retention_days / DAYS
    ledger.add(_PART, "s3.storage", kept_gb * estimate.counts.segment_ratio)
    for price in ("dynamodb.storage", "dynamodb.pitr"):
        ledger.add(_PART, price, work.feature_rows * work.row_bytes / GB)


def _pushed(at: Estimate, ledger: Ledger) -> None:
    """Adds pushes: each is one entry of a lane; with dedupe values a transaction, with a row for each event."""
    work, pushes = at.work, at.work.event_pushes
    spent = at.operation("event pushed with a dedupe value" if work.deduped else "event pushed")
    more = 2 * (at.item_units - 1 + work.event_batch - 1) if work.deduped else at.item_units - 1
    spent = {**spent, "write_units": spent["write_units"] + more}
    spills = pushes if at.is_spilled else 0
    milliseconds = waits(at, spent) + at.counts.printed.append_cpu_ms + at.assumed.record_ms * work.event_batch
    served(at, ledger, _PART, pushes, milliseconds, work.payload_bytes)
    stores(ledger, _PART, spent, pushes)
    ledger.add(_PART, "s3.put", spills)
    ledger.add(_PART, "s3.get", 2 * spills)  # by the folder and by the sealer
    compute(at, ledger, _PART, spills, at.assumed.s3_put_ms + 2 * at.assumed.s3_get_ms)
    for _ in range(work.lanes):
        sealed_entries(at, ledger, _PART, pushes / work.lanes, at.item_units)


def _folded(at: Estimate, ledger: Ledger) -> None:
    """Adds the relay's part, and the passes of the folder: each reads a lane's mark and new entries, then reads and writes
    every row that they change.
    """
    work, assumed, pushes = at.work, at.assumed, at.work.event_pushes
    heard = at.operation("event heard by the relay")
    invoked(at, ledger, _PART, pushes, waits(at, heard))
    stores(ledger, _PART, heard, pushes)
    passes = min(pushes, work.lanes * SECONDS / assumed.fold_s)
    fold = at.operation("fold of 1 row")
    invoked(at, ledger, _PART, passes, waits(at, fold))
    ledger.add(_PART, "sqs.request_fifo", pushes + 2 * passes)  # sent; received and deleted
    ledger.add(_PART, "dynamodb.read", at.item_units / 4 * pushes)
    stores(ledger, _PART, {**fold, **{unit: fold[unit] - 1 for unit in ("write_units", "read_units")}}, passes)
    rows = work.events * work.feature_tables
    stores(ledger, _PART, _row(at), rows)
    compute(at, ledger, _PART, rows, assumed.dynamodb_ms / assumed.fold_writers)


def _read(estimate: Estimate, ledger: Ledger) -> None:
    work, spent = estimate.work, estimate.operation("row read")
    spent = {**spent, "read_units": spent["read_units"] - 1 + _row(estimate)["read_units"]}
    served(estimate, ledger, _PART, work.feature_reads, waits(estimate, spent), 0)
    stores(ledger, _PART, spent, work.feature_reads)


def _row(estimate: Estimate) -> Spent:
    """Returns what one write and one read of a row spend."""
    size = estimate.work.row_bytes
    return {"write_units": math.ceil(size / _WRITE_BYTES), "read_units": math.ceil(size / _READ_BYTES)}
