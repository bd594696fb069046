"""When requests to the object store reach the durable counters, and that no request waits for it."""

from __future__ import annotations

import threading
import time

import pytest

from functions.api.context import assemble
from functions.api.door.background import CountKeeper
from functions.api.door.entry import Access
from headrace.clock import SystemClock
from headrace.log.stores import Stores
from headrace.memory import memory_stores
from headrace.objects.observed import RequestCounts
from headrace.settings import Settings
from headrace.tables.watermarks import MemoryWatermarks
from tests.support.clocks import ManualClock
from tests.support.faults import Faulty
from tests.unit.api.asgi import TEXT, Server

SPILLED = b"".join(number.to_bytes(4, "big") for number in range(100_000))  # too large for an item, also compressed


def eventually(check: object, within_s: float = 5) -> None:
    deadline = time.monotonic() + within_s
    while not check():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)  # polls: a background thread flushes, without an event


def test_a_server_adds_an_interval_after_the_first_count() -> None:
    counts, watermarks = RequestCounts(), MemoryWatermarks()
    CountKeeper(counts, watermarks, SystemClock(), interval_ms=50, runs_between_requests=True)
    for round_ in (1, 2):
        counts.note("logs/a/wal/1-x", "put")
        counts.note("logs/a/wal/1-x", "put")
        assert watermarks.usage("a").requests.get("wal_payload.put", 0) == 2 * round_ - 2
        eventually(lambda round_=round_: watermarks.usage("a").requests.get("wal_payload.put") == 2 * round_)
    assert len(counts) == 0


def test_a_function_adds_beside_a_request_that_finds_the_interval_over() -> None:
    counts, clock = RequestCounts(), ManualClock()
    watermarks = Faulty(MemoryWatermarks())
    keeper = CountKeeper(counts, watermarks, clock, interval_ms=10_000, runs_between_requests=False)
    entered, left = threading.Event(), threading.Event()

    def store_is_slow() -> None:
        entered.set()
        assert left.wait(5)

    watermarks.on("count", store_is_slow)
    counts.note("logs/a/wal/1-x", "put")
    keeper.request_began()
    clock.advance(9.9)
    keeper.request_began()
    assert not entered.is_set()
    clock.advance(0.2)
    keeper.request_began()  # returns, although the store does not
    assert entered.wait(5)
    counts.note("logs/a/wal/1-x", "put")
    keeper.request_began()
    left.set()
    eventually(lambda: watermarks.target.usage("a").requests == {"wal_payload.put": 1})
    assert watermarks.calls["count"] == 1


def test_a_function_without_new_counts_starts_nothing() -> None:
    clock, watermarks = ManualClock(), Faulty(MemoryWatermarks())
    keeper = CountKeeper(RequestCounts(), watermarks, clock, interval_ms=1, runs_between_requests=False)
    clock.advance(60)
    threads = threading.active_count()
    keeper.request_began()
    assert threading.active_count() == threads
    assert not watermarks.calls


@pytest.mark.parametrize("runs_between_requests", [True, False])
def test_it_can_be_switched_off(runs_between_requests: bool) -> None:
    counts, clock, watermarks = RequestCounts(), ManualClock(), Faulty(MemoryWatermarks())
    keeper = CountKeeper(counts, watermarks, clock, interval_ms=0, runs_between_requests=runs_between_requests)
    threads = threading.active_count()
    counts.note("logs/a/wal/1-x", "put")
    clock.advance(60)
    keeper.request_began()
    assert threading.active_count() == threads
    assert not watermarks.calls


def test_a_failure_of_any_kind_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    counts, watermarks = RequestCounts(), Faulty(MemoryWatermarks())
    watermarks.fail("count", ValueError)
    keeper = CountKeeper(counts, watermarks, ManualClock(), interval_ms=0, runs_between_requests=True)
    counts.note("logs/a/wal/1-x", "put")
    keeper.flush()
    assert "request counts were not added" in caplog.text


def test_no_route_writes_counts_before_its_answer() -> None:
    stores = memory_stores(Settings(request_counts_ms=60_000))
    watermarks = Faulty(stores.watermarks)
    counted = Stores(stores.wal, stores.catalog, watermarks, stores.producers, stores.objects, stores.settings)
    server = Server(parts=assemble(counted, Access({})))
    server("PUT", "/v1/stream/s", TEXT)
    server("POST", "/v1/stream/s", TEXT, SPILLED)
    assert server("GET", "/v1/stream/s").body == SPILLED
    assert watermarks.calls["count"] == 0
    server.parts.counts.flush()
    log_id = server.parts.logs().head("s").log_id
    assert stores.watermarks.usage(log_id).requests == {"wal_payload.put": 1, "wal_payload.get": 1}
    assert len(server.parts.counts.counts) == 0


def test_counts_of_many_processes_add_up() -> None:
    stores = memory_stores(Settings(request_counts_ms=0))
    processes = [Server(parts=assemble(stores, Access({}))) for _ in range(3)]
    processes[0]("PUT", "/v1/stream/s", TEXT, SPILLED)
    for process in processes:
        assert process("GET", "/v1/stream/s").body == SPILLED
        process.parts.counts.flush()
    requests = processes[0]("GET", "/v1/stream/s/_details").json["object_store_requests"]
    assert (requests["puts"], requests["gets"]) == ("1", "3")
