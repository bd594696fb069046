"""The resources `/v1/server/_details` and `/v1/server/_mem`: documents for operators about this process and its
settings. They say nothing about other processes.

The documents are those of Prisma Streams, a server with SQLite, caches on disk and a JavaScript heap. Fields that have
no meaning here are zero, null, false or empty; `docs/inspection.md` lists them.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from functions.access import Scope
from functions.api.context import OBJECT_STORE_TIMEOUT_S, Context
from functions.api.door.entry import grant_of
from functions.api.door.requests import Load, capacity
from functions.api.door.routes import serve
from functions.api.streams.live import waiters
from functions.api.streams.records import NO_STORE
from functions.api.streams.system.emitter import Memory, measure_memory
from functions.refusals import Forbidden
from headrace import instants
from headrace.json import jsontext
from headrace.limits import GROUP_BYTES, GROUP_REQUESTS, QUEUE_BYTES, QUEUE_REQUESTS
from headrace.log.requests import JSON
from headrace.settings import Settings


def add_routes(app: FastAPI, context: Context) -> None:
    """Adds the routes of `/v1/server/_details` and `/v1/server/_mem`."""
    marks = HighWater()

    @serve(app, "/v1/server/_details", "GET")
    async def show_server_details(request: Request) -> Response:
        _require_operator(request)
        return _document(details(_sample(context), context.settings, marks))

    @serve(app, "/v1/server/_mem", "GET")
    async def show_server_memory(request: Request) -> Response:
        _require_operator(request)
        return _document(mem(_sample(context), marks))


def _require_operator(request: Request) -> None:
    """Checks that the key is an administrator's and allows every name, because the documents name all streams.

    Raises:
        Forbidden: it is not.
    """
    grant = grant_of(request)
    grant.require(Scope.ADMIN)
    if grant.prefixes:
        raise Forbidden("this key is for some names only")


def _sample(context: Context) -> Sample:
    return Sample(
        at=instants.text_of(context.clock.now_ms()),
        memory=measure_memory(),
        load=context.traffic.load(),
        waiters=waiters(),
        counted_logs=len(context.counts.counts),
        blocks=sys.getallocatedblocks(),
        threads=threading.active_count(),
        calls=capacity(),
        limit_bytes=int(os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "0")) * 1024 * 1024,
    )


def _document(value: Any) -> Response:
    return Response(jsontext.dumps(value), 200, {"Content-Type": JSON, "Cache-Control": NO_STORE})


Json = dict[str, Any]

TOP = 5
SEARCH_TIMEOUT_MS = 3000  # the limit of a search in Prisma Streams
_MIB = 1024 * 1024


class Sample(NamedTuple):
    """The figures of the process at one moment.

    Attributes:
        at: the moment, in RFC 3339.
        waiters: number of requests that wait for a change, by stream.
        counted_logs: number of streams with requests that are not in their durable counters yet.
        blocks, threads: number of memory blocks and of threads of the interpreter.
        calls: number of blocking calls that can run at once.
        limit_bytes: memory that the process may use; 0 if there is no limit.
    """

    at: str
    memory: Memory
    load: Load
    waiters: Mapping[str, int]
    counted_logs: int
    blocks: int
    threads: int
    calls: int
    limit_bytes: int


class Mark(NamedTuple):
    """The highest value of a figure, and when it was seen (RFC 3339)."""

    value: int
    at: str


class HighWater:
    """The highest values of figures, by group and name. Values only count when they are observed. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._marks: dict[str, dict[str, Mark]] = {}

    def observe(self, group: str, values: Mapping[str, object], at: str) -> None:
        """Raises the highest values of a group to these; anything that is not an integer is skipped."""
        with self._lock:
            marks = self._marks.setdefault(group, {})
            for name, value in values.items():
                if isinstance(value, bool) or not isinstance(value, int):
                    continue
                if name not in marks or marks[name].value < value:
                    marks[name] = Mark(value, at)

    def of(self, group: str) -> dict[str, dict[str, object]]:
        """Returns the highest values of a group by name, each with its time, as `{"value", "at"}`; empty if nothing was
        observed.
        """
        with self._lock:
            return {name: mark._asdict() for name, mark in self._marks.get(group, {}).items()}


def details(sample: Sample, settings: Settings, marks: HighWater) -> Json:
    """Returns the JSON document of `/v1/server/_details`: settings, memory and load of this process. Before that, the
    highest memory figures seen so far, `marks`, are updated with this sample.
    """
    figures = _Figures(sample, marks)
    return {
        "auto_tune": {
            "enabled": False,
            "requested_memory_mb": None,
            "preset_mb": None,
            "effective_memory_limit_mb": sample.limit_bytes // _MIB or None,
        },
        "configured_limits": _limits(sample, settings),
        "runtime": {
            "memory": {
                "pressure_active": 0 < sample.limit_bytes <= sample.memory.resident,
                "pressure_limit_bytes": sample.limit_bytes,
                "last_rss_bytes": sample.memory.resident,
                "max_rss_bytes": sample.memory.peak,
                "process": figures.process,
                "process_breakdown": figures.breakdown,
                "sqlite": figures.sqlite,
                "gc": _GC,
                "subsystems": {**figures.groups, "counts": figures.counts},
                "totals": figures.totals,
                "high_water": figures.high_water(),
            },
            "ingest_queue": {
                "requests": sample.load.writes,
                "bytes": sample.load.write_bytes,
                "full": sample.load.full,
            },
            "local_backpressure": {"enabled": False, "current_bytes": 0, "max_bytes": 0, "over_limit": False},
            "uploads": {"pending_segments": 0},
            "concurrency": _concurrency(sample),
            "top_streams": _top(sample),
        },
    }


def mem(sample: Sample, marks: HighWater) -> Json:
    """Returns the JSON document of `/v1/server/_mem`: memory and counters of this process. Before that, the highest memory
    figures seen so far, `marks`, are updated with this sample.
    """
    figures = _Figures(sample, marks)
    return {
        "ts": sample.at,
        "process": figures.process,
        "process_breakdown": figures.breakdown,
        "sqlite": figures.sqlite,
        "gc": _GC,
        "high_water": figures.high_water(),
        "counters": {
            "headrace.request_counts.streams": sample.counted_logs,
            "headrace.waiters.streams": len(sample.waiters),
            "python.allocated_blocks": sample.blocks,
            "python.threads": sample.threads,
        },
        "runtime_counts": figures.counts,
        "runtime_bytes": figures.groups,
        "runtime_totals": figures.totals,
        "top_streams": _top(sample),
    }


def _fill(names: str, value: int | None = 0) -> Json:
    """Returns a dict with each of the space-separated `names`, all with the same value, for members that have no
    meaning here.
    """
    return dict.fromkeys(names.split(), value)


_GC = {
    **_fill("forced_gc_count forced_gc_reclaimed_bytes_total heap_snapshots_written"),
    **_fill("last_forced_gc_at_ms last_forced_gc_before_bytes last_forced_gc_after_bytes", None),
    **_fill("last_forced_gc_reclaimed_bytes last_heap_snapshot_at_ms", None),
}
_SQLITE = _fill(
    "memory_used_bytes memory_highwater_bytes pagecache_used_slots pagecache_used_slots_highwater"
    " pagecache_overflow_bytes pagecache_overflow_highwater_bytes malloc_count malloc_count_highwater"
    " open_connections prepared_statements"
)


_NO_GROUPS = ("mapped_files", "disk_caches", "configured_budgets", "pipeline_buffers", "sqlite_runtime")


class _Figures:
    """The figures that both documents show. Creating them updates `marks`, the highest memory figures seen so far, with
    the sample.
    """

    def __init__(self, sample: Sample, marks: HighWater) -> None:
        self._marks = marks
        memory = sample.memory
        heap = memory.anonymous if memory.anonymous is not None else memory.resident
        self.process: Json = {
            "rss_bytes": memory.resident,
            "heap_total_bytes": memory.private,
            "heap_used_bytes": heap,
            "external_bytes": 0,
            "array_buffers_bytes": 0,
        }
        self.breakdown: Json = {
            "source": "process_memory_usage_only" if memory.anonymous is None else "linux_proc_status",
            "rss_anon_bytes": memory.anonymous,
            "rss_file_bytes": memory.file,
            "rss_shmem_bytes": memory.shared,
            "js_managed_bytes": heap,
            "js_external_non_array_buffers_bytes": 0,
            "mapped_file_bytes": 0,
            "sqlite_runtime_bytes": 0,
            "unattributed_anon_bytes": None if memory.anonymous is None else 0,
            "unattributed_rss_bytes": max(0, memory.resident - heap),
        }
        self.sqlite: Json = {"available": False, "source": "unavailable", **_SQLITE}
        self.groups: dict[str, Json] = {
            "heap_estimates": {"ingest_queue_payload_bytes": sample.load.write_bytes},
            **{group: {} for group in _NO_GROUPS},
        }
        self.counts: Json = {
            "ingest_queue_requests": sample.load.writes,
            "notifier_waiters": sum(sample.waiters.values()),
            "pending_upload_segments": 0,
            "sqlite_open_connections": 0,
        }
        self.totals: Json = {
            "heap_estimate_bytes": sum(self.groups["heap_estimates"].values()),
            **_fill("mapped_file_bytes disk_cache_bytes configured_budget_bytes pipeline_buffer_bytes"),
            "sqlite_runtime_bytes": 0,
        }
        marks.observe("process", {**self.process, "rss_bytes": memory.peak}, sample.at)
        marks.observe("process_breakdown", self.breakdown, sample.at)
        marks.observe("sqlite", self.sqlite, sample.at)
        marks.observe("runtime_bytes.heap_estimates", self.groups["heap_estimates"], sample.at)
        marks.observe("runtime_totals", self.totals, sample.at)

    def high_water(self) -> Json:
        """Returns the highest memory figures seen so far, in any request for one of the two documents, each with its
        time, by group.
        """
        marks = self._marks
        return {
            **{group: marks.of(group) for group in ("process", "process_breakdown", "sqlite", "runtime_totals")},
            "runtime_bytes": {group: marks.of(f"runtime_bytes.{group}") for group in self.groups},
        }


def _limits(sample: Sample, settings: Settings) -> Json:
    return {
        "caches": _fill(
            "sqlite_cache_bytes worker_sqlite_cache_bytes index_run_memory_cache_bytes index_run_disk_cache_bytes"
            " lexicon_index_cache_bytes segment_cache_bytes companion_toc_cache_bytes companion_section_cache_bytes"
            " companion_file_cache_bytes"
        ),
        "concurrency": {
            "ingest": sample.calls,
            "read": sample.calls,
            **_fill("search async_index upload index_build index_compact"),
        },
        "ingest": {
            "max_batch_requests": GROUP_REQUESTS,
            "max_batch_bytes": GROUP_BYTES,
            "max_queue_requests": QUEUE_REQUESTS,
            "max_queue_bytes": QUEUE_BYTES,
            "busy_timeout_ms": settings.append_timeout_ms,
            "local_backlog_max_bytes": 0,
        },
        "search": _fill(
            "companion_batch_segments companion_yield_blocks wal_overlay_quiet_period_ms wal_overlay_max_bytes"
        ),
        "segmenting": {
            "segment_max_bytes": settings.seal_bytes,
            "segment_target_rows": settings.seal_records,
            "segmenter_workers": 0,
        },
        "timeouts": {
            "append_request_timeout_ms": settings.append_timeout_ms,
            "search_request_timeout_ms": SEARCH_TIMEOUT_MS,
            "resolver_timeout_ms": settings.request_timeout_ms,
            "object_store_timeout_ms": round(OBJECT_STORE_TIMEOUT_S * 1000),
        },
        "memory": {"pressure_limit_bytes": sample.limit_bytes},
    }


def _concurrency(sample: Sample) -> Json:
    reads = max(0, sample.load.reads - sum(sample.waiters.values()))  # a waiting request holds no thread
    return {
        "ingest": _gate(sample.calls, sample.load.writes),
        "read": _gate(sample.calls, reads),
        "search": _gate(0, 0),
        "async_index": _gate(0, 0),
    }


def _gate(limit: int, under_way: int) -> Json:
    active = min(limit, under_way)
    return {"configured_limit": limit, "current_limit": limit, "active": active, "queued": under_way - active}


def _top(sample: Sample) -> Json:
    waited = sorted(sample.waiters.items(), key=lambda found: (-found[1], found[0]))[:TOP]
    return {
        "local_storage_bytes": [],
        "pending_wal_bytes": [],
        "touch_journal_filter_bytes": [],
        "notifier_waiters": [{"stream": name, "total_waiters": count} for name, count in waited],
    }
