"""The worker of `headrace queue work`, in this process, against a server behind a port; its commands are processes.

Tests wait for events of the worker, never for a time.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli import processes
from cli.errors import CliError, Refused
from cli.jobs import Backoff
from cli.worker import Worker
from tests.cli.fake_server import answer_lost, status
from tests.cli.fake_topics import FakeTopics, serve
from tests.cli.working import PLAN, Log, push, stop_at, succeed, work

SHORT_MS = 300


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_drain_does_every_job_and_ends(fake: FakeTopics, url: str, concurrency: int) -> None:
    push(fake, 10)
    seen = list[bytes]()

    async def run(data: bytes, variables: Mapping[str, str]) -> int:
        seen.append(data)
        return 0

    log = Log()
    work(url, run, log, replace(PLAN, drains=True, concurrency=concurrency))
    assert sorted(seen) == sorted(b'{"n":  %d}' % number for number in range(1, 11)), "data keeps its text"
    assert sorted(seq for seq, _ in fake.acked) == list(range(1, 11))
    assert len(fake.deliveries) == 10 == len(log.seqs("done"))


def test_no_more_jobs_are_taken_than_said(fake: FakeTopics, url: str) -> None:
    push(fake, 10)
    work(url, succeed, Log(), replace(PLAN, max_jobs=5))
    assert len(fake.acked) == len(fake.deliveries) == 5


@pytest.mark.parametrize("streams", [True, False])
def test_jobs_are_pushed_where_the_door_streams_and_claimed_elsewhere(
    fake: FakeTopics, url: str, streams: bool
) -> None:
    fake.streams = streams
    push(fake, 3)
    log = Log()
    at_once, most = 0, 0

    async def run(data: bytes, variables: Mapping[str, str]) -> int:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        if variables["HEADRACE_SEQ"] == "3":
            push(fake, 7)
        await asyncio.sleep(0)
        at_once -= 1
        return 0

    work(url, run, log, beside=stop_at(log, "done", 10))
    assert sorted(seq for seq, _ in fake.acked) == list(range(1, 11))
    assert most <= 2
    paths = {request.url.path.rpartition("/")[2] for request in fake.requests}
    assert ("claim" in paths) is not streams and "work" in paths


def test_a_stream_that_ends_at_once_is_not_asked_for_ever(fake: FakeTopics, url: str) -> None:
    def end(request: httpx.Request, apply: Callable[[], httpx.Response]) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=iter([b": hb 1\n\n"]))

    fake.faulty, fake.faults = "/work", [end] * 9
    push(fake, 1)
    log = Log()
    work(url, succeed, log, beside=stop_at(log, "done"))
    assert [seq for seq, _ in fake.acked] == [1]
    assert len(fake.faults) == 6


def test_a_job_that_fails_rests_longer_each_time(fake: FakeTopics, url: str) -> None:
    push(fake, 1)
    codes = iter([1, 2, 75, 0])
    now_ms = count(step=8000)  # longer than any rest

    async def run(data: bytes, variables: Mapping[str, str]) -> int:
        return next(codes)

    fake.now_ms = lambda: next(now_ms)
    log = Log()
    work(url, run, log, replace(PLAN, max_jobs=4, backoff=Backoff(1000, 7000), lease_ms=10**6))
    ends = [name for name, _ in log.events if name in ("failed", "deferred", "done")]
    assert ends == ["failed", "failed", "deferred", "done"]
    first, second, third = (delay for _, delay in fake.nacked)
    assert 500 <= first <= 1000 <= second <= 2000 and third == 7000
    assert [delivery.deliveries for delivery in fake.deliveries] == [1, 2, 3, 4]


def test_a_command_that_can_not_be_started_fails_its_job(fake: FakeTopics, url: str) -> None:
    push(fake, 1)
    log = Log()
    run = partial(processes.run, ["./not-there"], stdout=None)
    work(url, run, log, replace(PLAN, max_jobs=1, backoff=Backoff(5000, 5000)))
    assert log.seqs("failed") == [1] and len(fake.nacked) == 1 and not fake.acked


def test_a_command_may_outlive_its_first_lease(fake: FakeTopics, url: str) -> None:
    push(fake, 1)
    lease_ms = 3000

    async def run(data: bytes, variables: Mapping[str, str]) -> int:
        extended, loop = asyncio.Event(), asyncio.get_running_loop()

        def tell(request: httpx.Request, apply: Callable[[], httpx.Response]) -> httpx.Response:
            loop.call_soon_threadsafe(extended.set)
            return apply()

        fake.faulty, fake.faults = "/extend", [None, None, None, tell]
        await extended.wait()
        return 0

    log = Log()
    work(url, run, log, replace(PLAN, max_jobs=1, lease_ms=lease_ms, streams=False))
    (_, acked_with), (delivery,) = fake.acked[0], fake.deliveries
    assert acked_with == delivery.lease_id, "by the lease of the one delivery"
    assert float(str(log.events[-1][1]["seconds"])) > lease_ms / 1000


# Its processes hold the pipe `alive` open, a grandchild that ignores SIGTERM among them.
GROUP = ["sh", "-c", "exec 3>alive; (trap '' TERM; exec sleep 600) & wait"]


@pytest.fixture
def alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipe whose end can be read once every process of `GROUP` is gone."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "alive")
    return tmp_path / "alive"


def skipped(request: httpx.Request, apply: Callable[[], httpx.Response]) -> httpx.Response:
    return httpx.Response(200, json={"extended": 0, "skipped": json.loads(request.content)["seqs"]})


@pytest.mark.parametrize("answer", [skipped, status(503), status(404)])
def test_a_command_is_stopped_with_all_its_processes_when_its_lease_is_lost(
    fake: FakeTopics, url: str, alive: Path, answer: Any
) -> None:
    push(fake, 1)
    fake.faulty, fake.faults = "/extend", [answer] * 100
    log = Log()

    async def see_the_end(worker: Worker) -> None:
        await asyncio.to_thread(alive.read_bytes)

    run = partial(processes.run, GROUP, stdout=None)
    work(url, run, log, replace(PLAN, max_jobs=1, lease_ms=SHORT_MS, streams=False), beside=see_the_end)
    assert log.seqs("lost") == [1]
    assert not fake.acked and not fake.nacked


def test_a_lost_stream_makes_sure_of_its_leases_at_once(fake: FakeTopics, url: str) -> None:
    push(fake, 1)
    runs = 0

    async def run(data: bytes, variables: Mapping[str, str]) -> int:
        nonlocal runs
        runs += 1
        if runs == 1:
            fake.dropped += 1  # the server releases the job
            await asyncio.Event().wait()
        return 0

    log = Log()
    work(url, run, log, beside=stop_at(log, "done"))
    assert log.seqs("lost") == [1] == log.seqs("done")
    assert [delivery.deliveries for delivery in fake.deliveries] == [1, 2]
    streams = [request for request in fake.requests if request.url.path.endswith("/work")]
    assert [request.headers.get("last-event-id") for request in streams] == [None, "1"], "what it still has, counts"


@pytest.mark.parametrize("fault", [answer_lost, status(503), status(429), status(500)])
def test_an_ack_without_an_answer_is_repeated(fake: FakeTopics, url: str, fault: Any) -> None:
    push(fake, 1)
    fake.faulty, fake.faults = "/ack", [fault, fault]
    log = Log()
    work(url, succeed, log, replace(PLAN, drains=True))
    assert [seq for seq, _ in fake.acked] == [1] == log.seqs("done")
    assert len(fake.deliveries) == 1


def test_whether_an_ack_counted_is_asked_until_there_is_an_answer(fake: FakeTopics, url: str) -> None:
    push(fake, 1)

    def lose_answers(request: httpx.Request, apply: Callable[[], httpx.Response]) -> httpx.Response:
        fake.faulty, fake.faults = "/diff", [status(503), answer_lost]
        return answer_lost(request, apply)

    fake.faulty, fake.faults = "/ack", [lose_answers]
    log = Log()
    work(url, succeed, log, replace(PLAN, drains=True))
    assert log.seqs("done") == [1] and not fake.faults


def test_a_server_that_is_away_for_a_while_costs_nothing(fake: FakeTopics) -> None:
    push(fake, 2)
    log = Log()
    first = ExitStack()
    url = first.enter_context(serve(fake))
    port = int(url.rpartition(":")[2])
    with ExitStack() as second:

        def come_back() -> None:
            second.enter_context(serve(fake, port))

        async def run(data: bytes, variables: Mapping[str, str]) -> int:
            if variables["HEADRACE_SEQ"] == "1":
                await asyncio.to_thread(first.close)
                log.on["retry"] = come_back
            return 0

        work(url, run, log, replace(PLAN, concurrency=1, max_jobs=2))
    assert log.seqs("done") == [1, 2]
    assert len(fake.deliveries) == 2
    assert any(name == "retry" for name, _ in log.events)


def test_a_worker_that_stops_waits_for_its_jobs(fake: FakeTopics, url: str) -> None:
    push(fake, 5)
    going = asyncio.Event()

    async def run(data: bytes, variables: Mapping[str, str]) -> int:
        await going.wait()
        return 0

    log = Log(on={"stopping": going.set})
    work(url, run, log, beside=stop_at(log, "begun", 2))
    assert log.seqs("done") == [1, 2]
    assert sorted(fake.topics["jobs"].records) == [3, 4, 5]
    fake.wait_for_streams()
    assert len(fake.ready(fake.topics["jobs"])) == 3, "what was pushed meanwhile is given back"


@pytest.mark.parametrize(("grace_s", "calls"), [(0.0, 1), (60.0, 2)])
def test_a_worker_that_waits_no_longer_gives_its_jobs_back(
    fake: FakeTopics, url: str, alive: Path, grace_s: float, calls: int
) -> None:
    push(fake, 2)
    log = Log()
    run = partial(processes.run, GROUP, stdout=None)

    async def stop(worker: Worker) -> None:
        await asyncio.to_thread(lambda: alive.open("rb").close())  # once the command runs
        for _ in range(calls):
            worker.stop()

    work(url, run, log, replace(PLAN, concurrency=1, grace_s=grace_s), beside=stop)
    assert log.seqs("released") == [1]
    assert fake.nacked[0] == (1, 0)
    fake.wait_for_streams()
    assert len(fake.ready(fake.topics["jobs"])) == 2


def test_a_refused_claim_ends_the_worker_after_its_jobs(fake: FakeTopics, url: str) -> None:
    push(fake, 5)
    fake.faulty, fake.faults = "/claim", [None, status(403)]
    log = Log()
    with pytest.raises(Refused):
        work(url, succeed, log, replace(PLAN, concurrency=1, streams=False))
    assert log.seqs("done") == [1]


def test_a_deleted_queue_ends_the_worker(fake: FakeTopics, url: str) -> None:
    push(fake, 1)

    async def run(data: bytes, variables: Mapping[str, str]) -> int:
        del fake.topics["jobs"]
        return 0

    log = Log()
    with pytest.raises(Refused):
        work(url, run, log)
    assert log.seqs("unconfirmed") == [1]


@pytest.mark.parametrize("body", [b"", b"[]", b'{"claimed": 1}', b'{"claimed": [{"$seq": {}}]}', b"\xff"])
def test_a_claim_of_nonsense_ends_the_worker(fake: FakeTopics, url: str, body: bytes) -> None:
    fake.faulty = "/claim"
    fake.faults = [lambda request, apply: httpx.Response(200, headers={"content-type": "x"}, content=body)]
    with pytest.raises(CliError):
        work(url, succeed, Log(), replace(PLAN, streams=False))
