"""`/v1/server/_details` and `/v1/server/_mem`: what the server may use and what it uses."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.conformance.contract.client import JSON, Api, expect, refused

pytestmark = pytest.mark.sensitive("it describes one process and its caches")

PROCESS = {"rss_bytes", "heap_total_bytes", "heap_used_bytes", "external_bytes", "array_buffers_bytes"}
SUBSYSTEMS = {
    "heap_estimates",
    "mapped_files",
    "disk_caches",
    "configured_budgets",
    "pipeline_buffers",
    "sqlite_runtime",
}
TOTALS = {
    "heap_estimate_bytes",
    "mapped_file_bytes",
    "disk_cache_bytes",
    "configured_budget_bytes",
    "pipeline_buffer_bytes",
    "sqlite_runtime_bytes",
}
TOP = {"local_storage_bytes", "pending_wal_bytes", "touch_journal_filter_bytes", "notifier_waiters"}
GATES = ("ingest", "read", "search", "async_index")


@pytest.fixture(scope="session")
def described(api: Api) -> dict[str, Any]:
    found: dict[str, Any] = expect(api.get("/v1/server/_details"), 200).json()
    return found


@pytest.fixture(scope="session")
def memory(api: Api) -> dict[str, Any]:
    found: dict[str, Any] = expect(api.get("/v1/server/_mem"), 200).json()
    return found


def test_details_have_every_part(described: dict[str, Any]) -> None:
    assert {"auto_tune", "configured_limits", "runtime"} <= set(described)


def test_auto_tune_says_whether_it_is_on(described: dict[str, Any]) -> None:
    tune = described["auto_tune"]
    assert tune["enabled"] in (True, False)
    assert {"requested_memory_mb", "preset_mb", "effective_memory_limit_mb"} <= set(tune)


def test_every_configured_limit_is_shown(described: dict[str, Any]) -> None:
    limits = described["configured_limits"]
    assert {"caches", "concurrency", "ingest", "segmenting", "timeouts", "memory"} <= set(limits)
    assert set(GATES) <= set(limits["concurrency"])
    assert all(isinstance(limits[part], dict) and limits[part] for part in limits)


def test_the_timeouts_are_those_of_the_contract(described: dict[str, Any]) -> None:
    timeouts = [value for value in described["configured_limits"]["timeouts"].values() if isinstance(value, int)]
    assert {3000, 5000} <= set(timeouts)


def test_memory_of_the_process_is_shown(described: dict[str, Any]) -> None:
    memory = described["runtime"]["memory"]
    assert memory["pressure_active"] in (True, False)
    assert set(memory["process"]) >= PROCESS
    assert memory["process"]["rss_bytes"] > 10_000_000
    assert {"process_breakdown", "sqlite", "gc", "high_water"} <= set(memory)
    assert "unattributed_rss_bytes" in memory["process_breakdown"]


def test_memory_is_grouped_and_summed(described: dict[str, Any]) -> None:
    memory = described["runtime"]["memory"]
    assert set(memory["subsystems"]) >= SUBSYSTEMS | {"counts"}
    assert set(memory["totals"]) >= TOTALS
    assert all(isinstance(memory["totals"][name], int) for name in TOTALS)


def leaves(group: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the marks of a group and of the groups in it."""
    if "value" in group:
        return [group]
    return [mark for part in group.values() for mark in leaves(part)]


def test_high_water_marks_have_times(described: dict[str, Any]) -> None:
    marks = leaves(described["runtime"]["memory"]["high_water"])
    assert marks
    assert all(datetime.fromisoformat(mark["at"]).tzinfo is not None for mark in marks)


def test_queues_and_gates_are_shown(described: dict[str, Any]) -> None:
    runtime = described["runtime"]
    assert set(runtime["ingest_queue"]) >= {"requests", "bytes", "full"}
    assert set(runtime["local_backpressure"]) >= {"enabled", "current_bytes", "max_bytes", "over_limit"}
    assert "pending_segments" in runtime["uploads"]
    for gate in GATES:
        assert set(runtime["concurrency"][gate]) >= {"configured_limit", "current_limit", "active", "queued"}


def test_the_largest_streams_are_few(described: dict[str, Any], memory: dict[str, Any]) -> None:
    for top in (described["runtime"]["top_streams"], memory["top_streams"]):
        assert set(top) >= TOP
        assert all(isinstance(top[name], list) and len(top[name]) <= 5 for name in TOP)


def test_mem_has_every_part(memory: dict[str, Any]) -> None:
    assert {"ts", "process", "process_breakdown", "sqlite", "gc", "high_water", "counters", "top_streams"} <= set(
        memory
    )
    assert {"runtime_counts", "runtime_bytes", "runtime_totals"} <= set(memory)
    assert set(memory["process"]) >= PROCESS


def test_mem_mirrors_the_groups_and_their_sums(memory: dict[str, Any]) -> None:
    assert set(memory["runtime_bytes"]) >= SUBSYSTEMS
    assert "counts" not in memory["runtime_bytes"]
    assert set(memory["runtime_totals"]) >= TOTALS


@pytest.mark.parametrize("path", ["/v1/server/_details", "/v1/server/_mem"])
def test_they_can_only_be_read(api: Api, path: str) -> None:
    for method in ("POST", "PUT", "DELETE"):
        refused(api.request(method, path, JSON, b"{}"), 405)
    assert "no-store" in expect(api.get(path), 200).headers["cache-control"]


def test_they_are_of_the_server_and_not_of_a_stream(api: Api) -> None:
    refused(api.get("/v1/stream/server/_mem"), 404)
    refused(api.get("/v1/server/anything"), 404)
