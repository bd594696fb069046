"""The same workload elsewhere: Kinesis Data Streams on demand, and a server of the protocol that one runs oneself. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from operators.cost.bill import Bill, Ledger
from operators.cost.model import Reckoning
from operators.cost.workload import DAYS, GB, HOURS, SECONDS

_KIB = 1024
_LONGEST_DAYS = 365
_SEGMENT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class SelfHosted:
    """What is assumed of servers that one runs oneself.

    Attributes:
        servers: at least: one that serves and one that takes over.
        appends_s, bytes_s: that a server takes in a second (docs/benchmarks.md, on disk), with half of it kept in reserve.
        disk_gb: of each.
    """

    servers: int = 2
    appends_s: float = 350
    bytes_s: float = 39e6
    disk_gb: float = 100


def kinesis(it: Reckoning) -> Bill:
    """One stream on demand. A batch is put as one aggregated record; a record is rounded up to 1 KB."""
    work, ledger = it.work, Ledger(it.prices)
    billed_gb = work.appends * math.ceil(work.payload_bytes / _KIB) * _KIB / GB
    ledger.add("stream", "kinesis.stream", HOURS)
    ledger.add("data in", "kinesis.data_in", billed_gb)
    ledger.add("data out", "kinesis.data_out", billed_gb * work.readers + work.replayed_gb)
    days = min(work.retention_days, _LONGEST_DAYS)
    ledger.add("keep", "kinesis.retention_week", billed_gb * max(0.0, min(days, 7) - 1) / DAYS)
    ledger.add("keep", "kinesis.retention_year", billed_gb * max(0.0, days - 7) / DAYS)
    notes = ["one stream, a batch as one aggregated record, readers that share throughput"]
    notes += ["no search, no HTTP to clients, no exactly-once by producer id: what gives these is not in the sum"]
    if work.retention_days > _LONGEST_DAYS:
        notes.append(f"keeps {_LONGEST_DAYS} days at most")
    return ledger.bill("kinesis", tuple(notes))


def self_hosted(it: Reckoning, host: SelfHosted = SelfHosted()) -> Bill:
    """Servers with disks, and what is older in S3, compressed as our segments are."""
    work, ledger = it.work, Ledger(it.prices)
    pairs = max(
        work.appends / SECONDS / host.appends_s,
        work.gb * GB / SECONDS / host.bytes_s,
        1.0,
    )
    servers = math.ceil(pairs) * host.servers
    ledger.add("servers", "ec2.server", servers * HOURS)
    ledger.add("disks", "ebs.storage", servers * host.disk_gb)
    ledger.add("keep", "s3.storage", work.kept_gb * it.counts.segment_ratio)
    ledger.add("keep", "s3.put", work.gb * GB / _SEGMENT_BYTES)
    notes = (
        f"{servers} servers (2 vCPU, 8 GB), half of them to take over, with {host.disk_gb:g} GB of disk each",
        "no load balancer, no transfer between zones, no backup, and nobody's time",
    )
    return ledger.bill("self-hosted", notes)
