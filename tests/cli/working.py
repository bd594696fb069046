"""A worker against a fake server, in this process, and what it says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from cli.client import http_settings
from cli.jobs import Backoff, Job
from cli.options import Target
from cli.queue_client import QueueClient
from cli.worker import Plan, Worker
from tests.cli.fake_topics import FakeTopics, Sent

LONG_MS = 60_000  # a lease that no test outlives

Run = Callable[[bytes, Mapping[str, str]], Coroutine[Any, Any, int]]


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
