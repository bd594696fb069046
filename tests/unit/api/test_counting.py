"""When requests to the object store reach the durable counters, and that no request waits for it."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import mangum
import pytest

from functions import wiring
from functions.access import Access
from functions.api import context
from functions.api.context import assemble
from functions.api.door import background
from functions.api.door.background import CountKeeper
from functions.api.door.streaming import __main__ as streaming
from functions.api.door.streaming.runtime_api import Invocation, RuntimeApiError
from headrace.clock import SystemClock, check_deadline
from headrace.memory import memory_stores
from headrace.objects.observed import RequestCounts
from headrace.settings import Settings
from headrace.streams.values import METRIC_STREAMS
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


def test_a_function_adds_at_the_end_of_an_invocation_that_finds_the_interval_over() -> None:
    """A thread did it beside the next request, and was frozen with it in mid-write."""
    counts, clock = RequestCounts(), ManualClock()
    watermarks = Faulty(MemoryWatermarks())
    keeper = CountKeeper(counts, watermarks, clock, interval_ms=10_000, runs_between_requests=False)
    writers = []
    watermarks.on("count", lambda: writers.append(threading.current_thread()))
    for seconds in (0, 9.9, 0.2, 0.1):
        clock.advance(seconds)
        counts.note("logs/a/wal/1-x", "put")
        keeper.invocation_ended()
    assert writers == [threading.current_thread()]
    assert watermarks.target.usage("a").requests == {"wal_payload.put": 3} and len(counts) == 1


def test_a_function_writes_no_longer_than_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the time does not reach is counted at the next interval."""
    monkeypatch.setattr(background, "FLUSH_MS", 0)
    counts, clock, watermarks = RequestCounts(), ManualClock(), InTime(MemoryWatermarks())
    keeper = CountKeeper(counts, watermarks, clock, interval_ms=1, runs_between_requests=False)
    for log in "ab":
        counts.note(f"logs/{log}/wal/1-x", "put")
    keeper.flush()
    assert len(counts) == 2
    monkeypatch.setattr(background, "FLUSH_MS", 60_000)
    keeper.flush()
    assert len(counts) == 0 and watermarks.target.usage("b").requests == {"wal_payload.put": 1}


class InTime:
    """A port whose calls begin within the request's time or not at all, as those of the real adapters."""

    def __init__(self, target: MemoryWatermarks) -> None:
        self.target = target

    def __getattr__(self, name: str) -> object:
        """Returns a method that checks the deadline first."""
        check_deadline()
        return getattr(self.target, name)


@pytest.mark.parametrize(("left_ms", "written"), [(28_000, 1), (2_000, 0)])
def test_on_lambda_nothing_is_written_after_an_invocation_and_nothing_in_a_thread(
    left_ms: int, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "api")
    monkeypatch.setenv("AWS_LAMBDA_RUNTIME_API", "localhost")
    clock, settings = ManualClock(), Settings(request_counts_ms=1000, metrics_interval_ms=1000)
    stores = memory_stores(settings, clock)
    watermarks = Faulty(stores.watermarks)
    parts = assemble(dataclasses.replace(stores, watermarks=watermarks), Access({}))
    assert not parts.is_server
    server, threads = Server(parts=parts), set(threading.enumerate())
    for _ in range(3):
        server("PUT", "/v1/stream/s", TEXT)
        server("POST", "/v1/stream/s", TEXT, SPILLED)
        clock.advance(2)
    assert not watermarks.calls["count"] and not any(stores.catalog.get("streams", name) for name in METRIC_STREAMS)
    parts.invocation_ended(left_ms)  # begins the interval
    clock.advance(2)
    parts.invocation_ended(left_ms)
    assert watermarks.calls["count"] == written
    assert sum(stores.catalog.get("streams", name) is not None for name in METRIC_STREAMS) == written
    assert set(threading.enumerate()) <= threads


def test_a_function_without_new_counts_starts_nothing() -> None:
    clock, watermarks = ManualClock(), Faulty(MemoryWatermarks())
    keeper = CountKeeper(RequestCounts(), watermarks, clock, interval_ms=1, runs_between_requests=False)
    clock.advance(60)
    threads = threading.active_count()
    keeper.invocation_ended()
    assert threading.active_count() == threads
    assert not watermarks.calls


@pytest.mark.parametrize("runs_between_requests", [True, False])
def test_it_can_be_switched_off(runs_between_requests: bool) -> None:
    counts, clock, watermarks = RequestCounts(), ManualClock(), Faulty(MemoryWatermarks())
    keeper = CountKeeper(counts, watermarks, clock, interval_ms=0, runs_between_requests=runs_between_requests)
    threads = threading.active_count()
    counts.note("logs/a/wal/1-x", "put")
    clock.advance(60)
    keeper.invocation_ended()
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
    counted = dataclasses.replace(stores, watermarks=watermarks)
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


DOORS = "functions.api.instance", "functions.api.handler"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, float]]]:
    """Makes an instance on memory adapters, which a door imports; yields what its context was told, in order."""
    found: list[tuple[str, float]] = []
    parts = assemble(memory_stores(Settings(metrics_interval_ms=0)), Access({}))
    ended = lambda _, left_ms: found.append(("ended", left_ms))  # noqa: E731
    monkeypatch.setattr(context.Context, "invocation_ended", ended)
    monkeypatch.setattr(context, "open_context", lambda: parts)
    monkeypatch.setattr(wiring, "spare_start_up", lambda: None)
    for module in DOORS:
        monkeypatch.delitem(sys.modules, module, raising=False)
    yield found
    for module in DOORS:
        sys.modules.pop(module, None)
        package, _, name = module.rpartition(".")
        vars(sys.modules[package]).pop(name, None)


@pytest.mark.parametrize("fails", [False, True])
def test_the_buffered_door_ends_each_invocation_before_lambda_has_its_answer(
    told: list[tuple[str, float]], monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    def answer(event: Any, _: Any) -> Any:
        told.append((event["path"], 0))
        if fails:
            raise RuntimeError("no answer")
        return {"statusCode": 204}

    monkeypatch.setattr(mangum, "Mangum", lambda *_, **__: answer)  # it would open an event loop
    handler = importlib.import_module("functions.api.handler")
    lambda_context = SimpleNamespace(aws_request_id="r", get_remaining_time_in_millis=lambda: 28_000)
    with pytest.raises(RuntimeError, match="no answer") if fails else nullcontext():
        assert handler.handler({"path": "/x"}, lambda_context) == {"statusCode": 204}
    assert told == [("/x", 0), ("ended", 28_000)]


def test_the_streaming_door_ends_each_invocation_before_it_asks_for_the_next(
    told: list[tuple[str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    invocations = iter([Invocation(name, clock.now_ms() + 90_000, {}) for name in ("a", "b")])

    class Api:
        def __init__(self, _: str) -> None:
            """As RuntimeApi."""

        def next(self) -> Invocation:
            told.append(("next", 0))
            return next(invocations, None) or self._stop()

        def _stop(self) -> Invocation:
            raise RuntimeApiError("gone")

    async def answer(_: Any, __: Any, invocation: Invocation, ___: Any) -> None:
        told.append((invocation.request_id, 0))
        clock.advance(1)

    monkeypatch.setenv("AWS_LAMBDA_RUNTIME_API", "x")
    monkeypatch.setattr(streaming, "RuntimeApi", Api)
    monkeypatch.setattr(streaming, "answer", answer)
    monkeypatch.setattr(streaming, "SystemClock", lambda: clock)
    with pytest.raises(RuntimeApiError):
        streaming.main()
    assert told == [("next", 0), ("a", 0), ("ended", 89_000), ("next", 0), ("b", 0), ("ended", 88_000), ("next", 0)]
