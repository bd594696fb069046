"""`headrace queue work`: what it decides, and what it does against a server behind a port, its commands being processes.

Tests wait for events of the worker and of its commands, never for a time.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli import processes
from cli.client import http_settings
from cli.errors import CliError, Refused
from cli.jobs import LONGEST_DELAY_MS, Backoff, Job, Lease, judge, parse_job
from cli.options import Target
from cli.queue_client import QueueClient
from cli.worker import Plan, Worker
from tests.cli.conftest import Shell
from tests.cli.fake_server import answer_lost, status
from tests.cli.fake_topics import DEFAULTS, FakeTopics, Sent, Topic, serve

ROOT = Path(__file__).parents[2]
LONG_MS = 60_000  # a lease that no test outlives
SHORT_MS = 300

Run = Callable[[bytes, Mapping[str, str]], Coroutine[Any, Any, int]]


def backoffs() -> st.SearchStrategy[Backoff]:
    return st.builds(Backoff, st.integers(0, 10**6), st.integers(0, 10**10))


@given(st.integers(100, LONGEST_DELAY_MS), st.floats(0, 1e9))
def test_a_lease_is_renewed_with_time_for_several_tries(lease_ms: int, asked_s: float) -> None:
    lease = Lease(lease_ms / 1000, asked_s)
    assert asked_s < lease.renew_s < lease.ends_s
    assert lease.renew_s + 2 * lease.timeout_s <= lease.ends_s or lease_ms < 300


@given(backoffs(), st.integers(-1, 10**9), st.floats(0, 1, exclude_max=True))
def test_a_rest_grows_and_is_bounded(backoff: Backoff, deliveries: int, chance: float) -> None:
    delay_ms = backoff.delay_ms(deliveries, lambda: chance)
    longest = min(backoff.limit_ms, LONGEST_DELAY_MS)
    assert 0 <= delay_ms <= longest
    assert delay_ms <= backoff.delay_ms(deliveries + 1, lambda: chance)
    assert delay_ms <= 2 * backoff.delay_ms(deliveries, lambda: 0.0) + 1


@given(st.one_of(st.none(), st.integers(-64, 255)), st.integers(1, 99), backoffs())
def test_only_success_acks(code: int | None, deliveries: int, backoff: Backoff) -> None:
    verdict = judge(code, deliveries, backoff, lambda: 0.5)
    assert (verdict.delay_ms is None) == (code == 0)
    assert verdict.name == {0: "done", 75: "deferred"}.get(-1 if code is None else code, "failed")


@pytest.mark.parametrize(
    "text", ["1", "{}", '{"$seq":"x","lease_id":"a","data":1,"deliveries":1}', '{"$seq":1,"lease_id":', "\x00"]
)
def test_a_job_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(CliError):
        parse_job(text)


@dataclass
class Log:
    """Keeps a worker's events. `on` is called for an event of its name, once."""

    events: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    on: dict[str, Callable[[], None]] = field(default_factory=dict)

    def event(self, name: str, job: Job | None = None, **facts: object) -> None:
        self.events.append((name, {"seq": job.seq, **facts} if job else facts))
        self.on.pop(name, lambda: None)()

    def seqs(self, name: str) -> list[object]:
        return [facts["seq"] for event, facts in self.events if event == name]


@pytest.fixture
def fake() -> FakeTopics:
    """A server with an empty queue `jobs`."""
    fake = FakeTopics()
    fake.topics["jobs"] = Topic({**DEFAULTS, "type": "queue"})
    return fake


@pytest.fixture
def url(fake: FakeTopics) -> Iterator[str]:
    with serve(fake) as url:
        yield url


def push(fake: FakeTopics, count: int, tag: str | None = None) -> None:
    """Adds jobs whose data are their numbers from 1 on."""
    with fake.lock:
        for number in range(1, count + 1):
            fake.add(fake.topics["jobs"], Sent(msgspec.Raw(b'{"n":  %d}' % number), tag), None)


PLAN = Plan(concurrency=2, lease_ms=LONG_MS, backoff=Backoff(0, 0), poll_s=0.05, grace_s=60.0)


def work(
    url: str,
    run: Run,
    log: Log,
    plan: Plan = PLAN,
    beside: Callable[[Worker], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Runs a worker until it ends, and `beside` with it."""

    async def main() -> None:
        queue = Target(f"{url}/v0/topics/jobs", "jobs")
        async with httpx.AsyncClient(**http_settings(url, "k")) as http:
            worker = Worker(QueueClient(http, queue, "me", time.time), plan, run, log)
            other = asyncio.create_task(beside(worker)) if beside else None
            await worker.run()
            if other:
                await other

    asyncio.run(asyncio.wait_for(main(), 60))


async def succeed(data: bytes, variables: Mapping[str, str]) -> int:
    return 0


def stop_at(log: Log, name: str, count: int = 1, calls: int = 1) -> Callable[[Worker], Coroutine[Any, Any, None]]:
    """Returns what tells a worker to stop, `calls` times, once it had `count` events of a name."""

    async def wait(worker: Worker) -> None:
        happened = asyncio.Event()
        while sum(event == name for event, _ in log.events) < count:
            happened.clear()
            log.on[name] = happened.set
            await happened.wait()
        for _ in range(calls):
            worker.stop()

    return wait


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


@contextmanager
def started(url: str, command: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Runs `headrace queue work jobs` in a process, whose output are its events; kills it in the end."""
    argv = [sys.executable, "-m", "cli.main", "--url", url, "queue", "work", "jobs", "--exec", command, "--json"]
    with subprocess.Popen(
        [*argv, *options], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def events_until(process: subprocess.Popen[str], name: str, count: int = 1) -> list[dict[str, Any]]:
    """Reads a worker's events up to the `count`-th of a name. Fails if it ends before."""
    assert process.stdout is not None
    found = list[dict[str, Any]]()
    for line in process.stdout:
        found.append(json.loads(line))
        if sum(event["event"] == name for event in found) == count:
            return found
    raise AssertionError(f"no {name}: {found}")


@pytest.mark.parametrize("options", [("--poll", "20ms", "--lease", "2s"), ()], ids=["polled", "pushed"])
def test_a_worker_that_is_killed_loses_no_job_and_acks_none_twice(
    fake: FakeTopics, url: str, tmp_path: Path, options: tuple[str, ...]
) -> None:
    push(fake, 5)
    os.mkfifo(tmp_path / "go")
    try:
        with started(url, f"sh -c 'read x < {tmp_path}/go'", "--concurrency", "2", *options) as worker:
            events_until(worker, "begun", 2)
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        log = Log()
        work(url, succeed, log, beside=stop_at(log, "done", 5))
    finally:
        os.close(os.open(tmp_path / "go", os.O_RDWR))  # ends the commands that it left behind
    assert sorted(seq for seq, _ in fake.acked) == [1, 2, 3, 4, 5]
    in_hand = {delivery.seq for delivery in fake.deliveries if delivery.node != "me"}
    assert in_hand == {1, 2}
    assert {delivery.seq: delivery.deliveries for delivery in fake.deliveries} == {1: 2, 2: 2, 3: 1, 4: 1, 5: 1}


def test_a_command_gets_its_job_and_a_signal_lets_it_finish(fake: FakeTopics, url: str, tmp_path: Path) -> None:
    push(fake, 1, tag="a\0 é")
    os.mkfifo(tmp_path / "go")
    script = f"cd {tmp_path}; cat > data; env > variables; echo noise; read x < go"
    with started(url, f'sh -c "{script}"', "--node", "n") as worker:
        begun = events_until(worker, "begun")
        worker.send_signal(signal.SIGTERM)
        events_until(worker, "stopping")
        (tmp_path / "go").write_text("now\n")
        ended = events_until(worker, "ended")
        assert worker.wait() == 0
    assert begun[0]["event"] == "started" and begun[0]["node"] == "n" and begun[0]["lease_ms"] == 30_000
    assert ended[-1] | {"event": "ended", "done": 1, "failed": 0} == ended[-1]
    assert (tmp_path / "data").read_bytes() == b'{"n":  1}'
    variables = dict(line.split("=", 1) for line in (tmp_path / "variables").read_text().splitlines() if "=" in line)
    assert {name: text for name, text in variables.items() if name.startswith("HEADRACE_")} | {
        "HEADRACE_QUEUE": "jobs",
        "HEADRACE_SEQ": "1",
        "HEADRACE_TAG": "a\\u0000 é",
        "HEADRACE_DELIVERIES": "1",
        "HEADRACE_LEASE_ID": fake.deliveries[0].lease_id,
    } == {name: text for name, text in variables.items() if name.startswith("HEADRACE_")}
    assert [seq for seq, _ in fake.acked] == [1]


def test_what_is_said_to_people(fake: FakeTopics, url: str) -> None:
    push(fake, 2)
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "--url", url, "queue", "work", "jobs", "--exec",
         "sh -c 'exit $((HEADRACE_SEQ + 6))'", "--max-jobs", "2", "--backoff", "1m"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
    assert "job 1 failed (exit code 7), delivery 1: again in " in done.stderr
    assert done.stderr.splitlines()[-1] == "0 done, 2 failed"


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("log", "--exec", "true"), 1),
        (("none", "--exec", "true"), 1),
        (("jobs", "--exec", "no-such-command x"), 2),
        (("jobs", "--exec", "'"), 2),
        (("jobs", "--exec", ""), 2),
        (("jobs", "--exec", "true", "--lease", "1ms"), 2),
    ],
)
def test_what_can_not_work_is_told_before(headrace: Shell, args: tuple[str, ...], code: int) -> None:
    headrace("topic", "create", "log")
    headrace("queue", "create", "jobs")
    assert headrace("queue", "work", *args).exit_code == code
