"""The commands that measure a server: `headrace ping` and `headrace bench`."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable

import httpx
import pytest

from cli.errors import EXIT_INTERRUPTED
from cli.latencies import percentile, show_ms
from tests.cli.conftest import Shell
from tests.cli.fake_server import FakeServer, Stream, status


@pytest.fixture
def health(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> list[httpx.Response | type[Exception]]:
    """Answers to `/health`, taken one by one; then it is well."""
    answers: list[httpx.Response | type[Exception]] = []
    serve = FakeServer.serve

    def serve_health(self: FakeServer, request: httpx.Request) -> httpx.Response:
        if request.url.path != "/health":
            return serve(self, request)
        answer = answers.pop(0) if answers else httpx.Response(200, headers={"headrace-version": "1.2.3"})
        if isinstance(answer, httpx.Response):
            return answer
        raise answer("no route", request=request)  # type: ignore[call-arg]

    monkeypatch.setattr(FakeServer, "serve", serve_health)
    return answers


def test_ping_says_the_version_and_how_soon_it_is_answered(headrace: Shell, health: list[object]) -> None:
    shown = headrace("ping", "-c", "4", "--interval", "3s")
    assert shown.exit_code == 0 and headrace.slept == [3.0] * 3
    assert "Headrace 1.2.3" in shown.stdout and "4 requests, 4 answered" in shown.stdout
    facts = json.loads(headrace("ping", "-c", "3", "--json").stdout)
    assert (facts["version"], facts["sent"], facts["answered"]) == ("1.2.3", 3, 3)
    assert 0 < facts["min_ms"] <= facts["median_ms"] <= facts["max_ms"]
    assert json.loads(headrace("ping", "-c", "1", "--json").stdout)["median_ms"] is None


def test_ping_of_a_server_that_does_not_answer_is_exit_code_1(
    headrace: Shell, health: list[httpx.Response | type[Exception]]
) -> None:
    health += [httpx.ConnectError, httpx.Response(503)]
    some = headrace("ping", "-c", "3")
    assert some.exit_code == 1 and "3 requests, 1 answered" in some.stdout
    assert "no answer: no route" in some.stderr and "status 503" in some.stderr
    assert "hint" not in some.stderr
    health += [httpx.ConnectError]
    assert "hint: is `headrace dev` running?" in headrace("ping", "-c", "1").stderr
    health += [httpx.ReadTimeout]
    none = headrace("ping", "-c", "1", "--json")
    assert (none.exit_code, json.loads(none.stdout)["answered"]) == (1, 0)


@pytest.mark.parametrize("clients", [1, 3])
def test_bench_measures_appends_a_read_and_a_tail(headrace: Shell, server: FakeServer, clients: int) -> None:
    server.streams["mine"] = Stream("application/json", [b"1"])
    server.on_long_poll = lambda _stream: time.sleep(0.002)  # the fake does not hold polls: spare the processor
    args = ["--duration", "60ms", "--clients", str(clients), "--batch-records", "2", "--record-size", "80"]
    done = headrace("bench", *args, "--json")
    assert done.exit_code == 0, done.output
    append, read, tail = json.loads(done.stdout)["loads"]
    assert [load["load"] for load in (append, read, tail)] == ["append", "read", "tail"]
    assert append["records"] == 2 * append["samples"] > 0 and append["bytes"] > 80 * append["records"]
    assert read["records"] <= append["records"] and read["records_per_s"] > 0
    assert tail["samples"] == tail["records"] > 0 and "records_per_s" not in tail
    assert all(load["p50_ms"] <= load["p99_ms"] <= load["max_ms"] for load in (append, read, tail))
    assert list(server.streams) == ["mine"], "its own stream is deleted, and no other"
    table = headrace("bench", *args).stdout
    assert table.split()[:2] == ["load", "records"] and max(map(len, table.splitlines())) <= 80


def test_a_bench_that_fails_deletes_its_stream(headrace: Shell, server: FakeServer) -> None:
    server.faults = [None, status(403)]
    assert headrace("bench", "--duration", "1s").exit_code == 1
    assert server.streams == {}


def test_a_bench_that_is_interrupted_stops_at_once_and_deletes_its_stream(
    headrace: Shell, server: FakeServer
) -> None:
    def interrupt(request: httpx.Request, apply: Callable[[], httpx.Response]) -> httpx.Response:
        os.kill(os.getpid(), signal.SIGTERM)
        return apply()

    server.faults = [None, interrupt]
    started = time.monotonic()
    assert headrace("bench", "--duration", "60s", "--clients", "2").exit_code == EXIT_INTERRUPTED
    assert server.streams == {} and time.monotonic() - started < 30


@pytest.mark.parametrize("args", [["--duration", "2m"], ["--record-size", "10"], ["--record-size", "200KiB"]])
def test_a_bench_has_bounds(headrace: Shell, server: FakeServer, args: list[str]) -> None:
    assert headrace("bench", *args).exit_code == 2
    assert server.requests == []


def test_percentiles_are_by_rank() -> None:
    ranks = [percentile([4.0, 1.0, 3.0, 2.0], rank) for rank in (0, 25, 50, 99, 100)]
    assert ranks == [1.0, 1.0, 2.0, 4.0, 4.0] and percentile([], 50) is None
    assert [show_ms(ms) for ms in (None, 0.123, 1.25, 12.34, 1234.5)] == ["-", "0.12", "1.2", "12.3", "1,234"]
