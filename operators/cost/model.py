"""Computes a workload's AWS bill: the counts of each operation, times how often it happens, times prices. Does no I/O.

Each function below adds one part of the bill to a ledger. DynamoDB bills a delete by the size of the deleted item, so
an entry is paid twice: when it is written and when it is trimmed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from operators.cost import features, reactions
from operators.cost.charges import (
    Estimate,
    compute,
    invoked,
    lingers,
    memory_gb,
    sealed,
    sealed_entries,
    served,
    stores,
    waits,
)
from operators.cost.counts import Query, read_units
from operators.cost.prices import Bill, Ledger
from operators.cost.workload import DAYS, GB, SECONDS

_DELETES = 25  # deletes in one batch
_OPEN_PAGE = 512  # segments that a manifest names itself, on average
_FANOUT = 8
_RUN_SEGMENTS = 16
_LEVELS = 3


def bill(estimate: Estimate) -> Bill:
    """Computes the monthly bill of a workload on Headrace."""
    ledger = Ledger(estimate.prices)
    for part in (
        _appends,
        _reads,
        _searches,
        _followers,
        *reactions.PARTS,
        features.features,
        _sealing,
        _trimming,
        _own_metrics,
        _indexing,
        _kept,
        _standing,
    ):
        part(estimate, ledger)
    return ledger.bill("headrace")


def _appends(estimate: Estimate, ledger: Ledger) -> None:
    work, counts, assumed = estimate.work, estimate.counts, estimate.assumed
    part = "append"
    milliseconds = assumed.dynamodb_ms + counts.printed.append_cpu_ms + assumed.record_ms * work.batch
    if estimate.is_spilled:
        stored = counts.stored(work.payload_bytes)
        milliseconds += assumed.s3_put_ms
        ledger.add(part, "s3.put", work.appends)
        ledger.add(part, "s3.storage", work.appends * stored / GB * lingers(estimate))
    served(estimate, ledger, part, work.appends, milliseconds, work.payload_bytes)
    ledger.add(part, "dynamodb.write", work.appends * estimate.item_units)
    ledger.add(part, "dynamodb.read", work.appends * work.cold_share * counts.append_cold["read_units"])


def _reads(estimate: Estimate, ledger: Ledger) -> None:
    """Adds the cost of reads to the ledger: each append is read while it is new; replayed data is read from segments,
    page by page.
    """
    work, counts, assumed = estimate.work, estimate.counts, estimate.assumed
    fresh = work.appends * work.readers
    gets = 1 if estimate.is_spilled else 0
    served(estimate, ledger, "read, new", fresh, assumed.dynamodb_ms + gets * assumed.s3_get_ms, work.payload_bytes)
    ledger.add("read, new", "dynamodb.read", fresh * math.ceil(read_units(estimate.item_bytes)))
    ledger.add("read, new", "s3.get", fresh * gets)
    page_bytes = min(assumed.page_bytes, assumed.page_records * work.record_bytes)
    pages = work.replayed_gb * GB / page_bytes
    spent = counts.read_segment.spent
    milliseconds = assumed.dynamodb_ms + assumed.s3_get_ms + page_bytes / counts.printed.replay_mb_per_cpu_s / 1000
    served(estimate, ledger, "read, segments", pages, milliseconds, page_bytes)
    stores(ledger, "read, segments", spent, pages)


def mean_query(queries: Mapping[str, Query]) -> Query:
    """Returns a query with the mean time, GETs and bytes of all query classes; its `cold_wall_ms` is None."""
    count = len(queries)
    return Query(
        wall_ms=sum(one.wall_ms for one in queries.values()) / count,
        cpu_ms=sum(one.cpu_ms for one in queries.values()) / count,
        gets=round(sum(one.gets for one in queries.values()) / count),
        bytes=round(sum(one.bytes for one in queries.values()) / count),
    )


def _searches(estimate: Estimate, ledger: Ledger) -> None:
    work, counts = estimate.work, estimate.counts
    queries = counts.printed.queries
    query = mean_query(queries) if work.query is None else queries[work.query]
    warm, cold = counts.searches["warm"], counts.searches["cold"]
    cold_searches = work.searches * work.cold_share
    served(estimate, ledger, "search", work.searches, query.wall_ms, 0)
    if query.cold_wall_ms is not None:
        compute(estimate, ledger, "search", cold_searches, query.cold_wall_ms - query.wall_ms)
    stores(ledger, "search", {"read_units": warm["read_units"], "get": query.gets}, work.searches)
    extra = {name: cold[name] - warm.get(name, 0) for name in ("read_units", "get")}
    stores(ledger, "search", {**extra, "list": cold.get("list", 0)}, cold_searches)


def _followers(estimate: Estimate, ledger: Ledger) -> None:
    """Adds to the ledger the cost of connections held open on Lambda: each is billed by the second, and polls several
    times per second.
    """
    assumed, followers = estimate.assumed, estimate.work.followers
    polls = followers * SECONDS / assumed.long_poll_s
    served(estimate, ledger, "follow", polls, assumed.long_poll_s * 1000, 0)
    ledger.add("follow", "dynamodb.read", followers * SECONDS / assumed.follower_poll_s)


def _sealing(estimate: Estimate, ledger: Ledger) -> None:
    work, counts, assumed = estimate.work, estimate.counts, estimate.assumed
    look, part = counts.seal.look, "seal"
    windows = SECONDS / assumed.stream_batch_s
    invocations = max(min(work.entries, windows), work.entries / 1000)
    looks = min(work.appends, work.streams * windows)
    invoked(estimate, ledger, part, invocations, 0)
    compute(estimate, ledger, part, looks, waits(estimate, look))
    stores(ledger, part, look, looks)
    sealed(estimate, ledger, part, work.segments)
    if work.appends:
        stores(ledger, part, {"put": 1}, work.streams)
    spilled = work.appends if estimate.is_spilled else 0
    compute(estimate, ledger, part, spilled, assumed.s3_get_ms)
    compute(estimate, ledger, part, work.gb, 1000 / counts.printed.seal_mb_per_cpu_s * 1000)
    ledger.add(part, "dynamodb.read", work.appends * estimate.item_bytes / 4096)
    ledger.add(part, "s3.get", spilled)


def _trimming(estimate: Estimate, ledger: Ledger) -> None:
    work, counts, part = estimate.work, estimate.counts, "trim"
    fixed = {name: count for name, count in counts.seal.trim.items() if name not in ("write_units", "BatchWriteItem")}
    stores(ledger, part, fixed, work.segments)
    ledger.add(part, "dynamodb.read", work.appends * estimate.item_bytes / 4096)
    ledger.add(part, "dynamodb.write", work.appends * estimate.item_units)
    compute(estimate, ledger, part, work.segments, waits(estimate, fixed))
    compute(estimate, ledger, part, work.appends / _DELETES, estimate.assumed.dynamodb_ms)


def _own_metrics(estimate: Estimate, ledger: Ledger) -> None:
    """Adds to the ledger the cost of the stream `__stream_metrics__`, and of the counters of requests to the bucket.
    The cost of its index is added by `_indexing`.
    """
    work, own, part = estimate.work, estimate.counts.own_metrics, "own metrics"
    stores(ledger, part, own.flush, work.flushes)
    sealed_entries(estimate, ledger, part, work.flushes, own.flush["write_units"])
    touching = work.searches + (work.appends * (1 + work.readers) if estimate.is_spilled else 0)
    stores(ledger, part, own.count, min(touching, work.streams * work.flushes))


@dataclass(frozen=True)
class Jobs:
    """The index jobs of a month: number of job runs, of index runs that they build, how often each byte is merged, and
    seconds of work.
    """

    runs: float
    built: float
    levels: float
    wall_s: float


def jobs(estimate: Estimate) -> Jobs:
    """Estimates the index jobs of a month: at most one job runs at a time, and each does everything that is waiting."""
    work, build, size = estimate.work, estimate.counts.printed.index, estimate.template.job
    own = work.metrics_segments if estimate.counts.own_metrics.indexed else 0
    segments, logs = (work.segments + own, work.streams + 1) if work.indexed else (own, 1)
    if not segments:
        return Jobs(0, 0, 0, 0)
    runs = min(segments, SECONDS / (work.index_age_s + estimate.assumed.job_least_s))
    built = max(segments / _RUN_SEGMENTS, min(segments, runs * logs))
    kept = max(1.0, built / logs * work.retention_days / DAYS)
    levels = min(_LEVELS, math.floor(math.log(kept, _FANOUT)))
    gb = work.gb if work.indexed else 0
    cpu_s = (build.build_cpu_s + levels * build.compact_cpu_s) * gb * GB / (build.events * build.event_bytes)
    busy_s = runs * estimate.assumed.job_start_s + cpu_s / (size.executors * size.executor_vcpus)
    return Jobs(runs, built, levels, max(busy_s, runs * estimate.assumed.job_least_s))


def _indexing(estimate: Estimate, ledger: Ledger) -> None:
    """Adds the cost of indexing to the ledger: job runs, the requests and invocations around them, and storage of runs
    that were replaced. A job run has the workers that it starts with (`functions/indexer/runs.py`): more, which come
    while tasks wait, would end it sooner, at about the same cost.
    """
    part, size, done = "index", estimate.template.job, jobs(estimate)
    hours = done.wall_s / 3600
    ledger.add(part, "emr_serverless.vcpu", hours * (size.driver_vcpus + size.executors * size.executor_vcpus))
    ledger.add(part, "emr_serverless.memory", hours * (size.driver_gb + size.executors * size.executor_gb))
    if not done.runs:
        return
    for step in ("look", "start", "follow"):
        spent = estimate.counts.index[step]
        stores(ledger, part, spent, done.built)
        invoked(estimate, ledger, part, done.built, waits(estimate, spent))
    stores(ledger, part, estimate.counts.index["job"], done.built * (1 + done.levels / _FANOUT))
    ledger.add(
        part, "sqs.request", (estimate.work.segments + estimate.work.metrics_segments) * estimate.assumed.sqs_requests
    )
    if estimate.work.indexed:
        ledger.add("keep", "s3.storage", estimate.work.gb * _index_ratio(estimate) * done.levels * lingers(estimate))


def _index_ratio(estimate: Estimate) -> float:
    build = estimate.counts.printed.index
    return build.bytes / (build.events * build.event_bytes)


def _kept(estimate: Estimate, ledger: Ledger) -> None:
    """Adds to the ledger the cost of storage: segments, key pages, manifests, the index, and the write-ahead log until
    it is trimmed.
    """
    work, counts = estimate.work, estimate.counts
    months = work.retention_days / DAYS
    small, full = counts.seal.object_bytes, counts.seal_full.object_bytes
    segments = work.segments * months
    fullness = min(1.0, work.gb * GB / work.segments / work.seal_bytes) if work.segments else 0
    described = counts.seal.manifest_bytes_of_each_segment + fullness * (full["manifest"] - small["manifest"])
    named = min(_OPEN_PAGE, segments / work.streams / 2)
    ledger.add("keep", "s3.storage", work.kept_gb * counts.segment_ratio)
    ledger.add("keep", "s3.storage", segments * (small["segment"] + small["keys"]) / GB)
    ledger.add("keep", "s3.storage", segments * (small["manifest"] + described * named) / GB)
    if work.indexed:
        ledger.add("keep", "s3.storage", work.kept_gb * _index_ratio(estimate))
    unsealed_s = work.trim_age_s + work.seal_age_s
    in_log = work.appends * estimate.item_bytes / GB * min(1.0, unsealed_s / SECONDS)
    ledger.add("keep", "dynamodb.storage", in_log)
    ledger.add("keep", "dynamodb.pitr", in_log)


def _standing(estimate: Estimate, ledger: Ledger) -> None:
    """Adds to the ledger what a deployment costs without any request: also the metrics that its schedules write; all
    of its metrics, if there are appends or searches.
    """
    has, assumed, part = estimate.template, estimate.assumed, "standing"
    ledger.add(part, "kms.key", has.keys)
    ledger.add(part, "kms.request", has.keys * assumed.kms_requests)
    ledger.add(part, "secrets.secret", has.secrets)
    ledger.add(part, "cloudwatch.alarm", has.alarm_metrics)
    ledger.add(part, "cloudwatch.dashboard", has.dashboards)
    ledger.add(part, "lambda.snapshot_cache", has.snapshots * memory_gb(estimate) * SECONDS)
    ledger.add(part, "sqs.request", has.queues_polled * assumed.pollers * SECONDS / assumed.poll_s)
    rounds = has.schedules_a_day * DAYS / 3  # a third of them the sealer's, one the indexer's, one the relay's
    for spent in (estimate.counts.sweep_idle, estimate.counts.tick_idle, estimate.counts.relay_idle):
        stores(ledger, part, spent, rounds)
        invoked(estimate, ledger, part, rounds, waits(estimate, spent))
    idle = len(estimate.counts.idle_metrics)
    ledger.add(part, "cloudwatch.metric", idle)
    if estimate.work != estimate.work.idle():
        ledger.add("observe", "cloudwatch.metric", estimate.counts.printed.metrics - idle)
