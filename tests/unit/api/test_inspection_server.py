"""`/v1/server/_details` and `/v1/server/_mem`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message

from functions.api.door.requests import Load, Traffic
from functions.api.streams import live
from functions.api.streams.inspection.server import HighWater
from functions.api.streams.system import emitter
from headrace.settings import Settings
from tests.unit.api.asgi import TEXT, Server

DETAILS, MEM = "/v1/server/_details", "/v1/server/_mem"
FIGURES = {"VmHWM": 30, "VmRSS": 20, "VmData": 50, "RssAnon": 12, "RssFile": 7, "RssShmem": 1}
STATUS = "Name:\tx\n" + "".join(f"{name}:\t  {kilobytes} kB\n" for name, kilobytes in FIGURES.items())


def found(server: Server, path: str) -> Any:
    answer = server("GET", path)
    assert (answer.status, answer.headers["cache-control"]) == (200, "no-store")
    return answer.json


def test_only_an_operator_may_look() -> None:
    server = Server(keys="r:read+write+delete,a:admin,p:admin:some,all")
    for path in (DETAILS, MEM):
        assert {key: server("GET", path, key=key).status for key in ("r", "a", "p", "all")} == {
            "r": 403,
            "a": 200,
            "p": 403,
            "all": 200,
        }
        assert server("GET", path).status == 401
        assert server("POST", path, key="a").status == 405


def test_configured_limits_are_the_settings() -> None:
    settings = Settings(seal_bytes=7, seal_records=8, append_timeout_ms=9, request_timeout_ms=10)
    limits = found(Server(settings=settings), DETAILS)["configured_limits"]
    assert limits["segmenting"] == {"segment_max_bytes": 7, "segment_target_rows": 8, "segmenter_workers": 0}
    timeouts = limits["timeouts"]
    assert (timeouts["append_request_timeout_ms"], timeouts["resolver_timeout_ms"]) == (9, 10)
    assert limits["concurrency"]["ingest"] > 1


def test_both_documents_show_the_same_figures() -> None:
    server = Server()
    memory, mem = found(server, DETAILS)["runtime"]["memory"], found(server, MEM)
    assert set(mem["runtime_bytes"]) == set(memory["subsystems"]) - {"counts"}
    assert set(mem["runtime_counts"]) == set(memory["subsystems"]["counts"])
    assert set(mem["runtime_totals"]) == set(memory["totals"])
    for part in ("process", "process_breakdown", "sqlite", "gc", "high_water"):
        assert set(mem[part]) == set(memory[part])
    assert mem["process"]["rss_bytes"] > 10_000_000
    breakdown, rss = mem["process_breakdown"], mem["process"]["rss_bytes"]
    assert breakdown["unattributed_rss_bytes"] == rss - breakdown["js_managed_bytes"]


def test_a_lambda_function_has_one_call_at_a_time_and_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "api")
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "1024")
    shown = found(server, DETAILS)
    assert shown["configured_limits"]["memory"]["pressure_limit_bytes"] == 1024**3
    assert shown["auto_tune"]["effective_memory_limit_mb"] == 1024
    assert shown["runtime"]["concurrency"]["ingest"]["configured_limit"] == 1


def test_requests_under_way_and_waiters_are_shown() -> None:
    server = Server()
    server("PUT", "/v1/stream/s", TEXT)

    async def run() -> Any:
        target = "/v1/stream/s?offset=now&live=true&timeout=5s"
        async with server.exchange("GET", target):
            while not live.waiters():
                await asyncio.sleep(0.01)
            shown = await server.ask("GET", DETAILS)
            await server.ask("POST", "/v1/stream/s", TEXT, b"x")
        return shown.json["runtime"]

    runtime = asyncio.run(run())
    assert runtime["top_streams"]["notifier_waiters"] == [{"stream": "s", "total_waiters": 1}]
    assert runtime["concurrency"]["read"]["active"] == 1  # the one that asks: who waits holds no thread
    assert live.waiters() == {}
    assert server.parts.traffic.load() == Load(0, 0, 0)


def test_traffic_counts_until_the_end_of_a_request_also_of_a_failed_one() -> None:
    traffic = Traffic()
    waiting: list[Load] = []

    async def receive() -> Message:
        waiting.append(traffic.load())
        return {"type": "http.request", "body": b"12345"}

    async def run() -> None:
        with (
            traffic.request(receive, writes=True) as one,
            traffic.request(receive, writes=True) as other,
            traffic.request(receive, writes=False) as read,
        ):
            assert traffic.load() == Load(2, 0, 1)
            for counted in (one, one, other, read):
                await counted()
            assert waiting == [Load(1, 0, 1), Load(1, 5, 1), Load(1, 10, 1), Load(2, 15, 1)]
            assert traffic.load() == Load(2, 15, 1)
        with pytest.raises(ValueError, match="x"), traffic.request(receive, writes=True) as failing:
            await failing()
            raise ValueError("x")

    asyncio.run(run())
    assert traffic.load() == Load(0, 0, 0)


def test_memory_is_read_as_linux_tells_it() -> None:
    kilobyte = 1024
    assert emitter.parse_status(STATUS, 1) == emitter.Memory(
        20 * kilobyte, 30 * kilobyte, 50 * kilobyte, 12 * kilobyte, 7 * kilobyte, kilobyte
    )


def test_without_linux_only_the_peak_is_known() -> None:
    assert emitter.parse_status("", 99) == emitter.Memory(99, 99, 99, None, None, None)


def test_marks_only_rise() -> None:
    marks = HighWater()
    for at, value in (("1", 5), ("2", 4), ("3", 5), ("4", 6)):
        marks.observe("g", {"a": value, "text": "x", "flag": True, "none": None}, at)
    assert marks.of("g") == {"a": {"value": 6, "at": "4"}}
    assert marks.of("other") == {}
