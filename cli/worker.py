"""The worker behind `headrace queue work`: claims jobs, runs a command for each, and settles them by lease id.

Every job in hand has two tasks: one runs the command, one extends the lease. Whichever ends first decides: an exit code
becomes an ack or a nack; a lost lease stops the command. Nothing is written down here, so a worker may be killed at any
time: its leases end, and its jobs are delivered again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import random
from typing import Any, Protocol

from cli.client import RetryPolicy
from cli.errors import CliError, Refused
from cli.jobs import Backoff, Job, Lease, Verdict, judge, parse_job
from cli.processes import STOP_S
from cli.queue_client import QueueClient, Settler, TryLater

FIRST_POLL_S = 0.1
RELEASE_S = 5.0
"""How long a worker that ends tries to settle its last jobs."""
QUICK_S = 1.0
"""A stream that ends sooner, without a job, came through a door that does not hold connections open."""
QUICK_STREAMS = 3
NOT_THERE = (404, 405, 406, 501)
"""What a door without streams answers; 404 is also that of a queue that is gone, which the next claim tells."""

RunCommand = Callable[[bytes, Mapping[str, str]], Coroutine[Any, Any, int]]


class Reporter(Protocol):
    """Tells a person or a script what happens."""

    def event(self, name: str, job: Job | None = None, **facts: object) -> None:
        """Reports an event, of a job or of the worker."""


@dataclass(frozen=True)
class Plan:
    """How a worker works. `max_jobs`: how many jobs it takes, None for no limit. `drains`: whether it ends once no job is
    ready and none is in hand. `streams`: whether it lets the server push jobs.
    """

    concurrency: int
    lease_ms: int
    backoff: Backoff
    poll_s: float
    grace_s: float
    max_jobs: int | None = None
    drains: bool = False
    streams: bool = True


@dataclass
class Held:
    """A job in hand: its lease, the task that runs its command, and a call to renew the lease at once."""

    job: Job
    lease: Lease
    running: asyncio.Task[int] | None = None
    hurry: asyncio.Event = field(default_factory=asyncio.Event)


class Worker:
    """A worker on one queue. `run` works until `stop` is called, or as the plan says."""

    def __init__(self, client: QueueClient, plan: Plan, run_command: RunCommand, reporter: Reporter) -> None:
        self._client = client
        self._plan = plan
        self._run_command = run_command
        self._reporter = reporter
        lease_s = plan.lease_ms / 1000
        self._policy = RetryPolicy()
        # Several tries must fit into what is left of a lease.
        self._hasty = RetryPolicy(
            first_wait_s=0.05, longest_wait_s=min(2.0, lease_s / 12), longest_retry_after_s=lease_s / 6
        )
        timeout_s = Lease(lease_s, 0).timeout_s
        self._acks, self._nacks, self._extends = (
            Settler(client, verb, timeout_s, self._note_retry, self._hasty) for verb in ("ack", "nack", "extend")
        )
        self._held: dict[asyncio.Task[None], Held] = {}
        self._unstarted: list[Held] = []  # leased after the worker was told to stop
        self._taken = 0
        self._is_streaming = False
        self._slots = asyncio.Semaphore(plan.concurrency)
        self._stopping = asyncio.Event()
        self._ending = asyncio.Event()
        self._changed = asyncio.Event()
        """Set when a job in hand was settled, and when the worker is told to stop."""

    def stop(self) -> None:
        """Tells the worker to take no more jobs and to wait for those in hand; a second call, not to wait."""
        if self._stopping.is_set():
            self._ending.set()
        self._stopping.set()
        self._changed.set()

    async def run(self) -> None:
        """Works. Raises CliError if the server refuses to hand out jobs; jobs in hand are finished before."""
        settlers = [asyncio.create_task(settler.run()) for settler in (self._acks, self._nacks, self._extends)]
        source = asyncio.create_task(self._take_jobs())
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({source, stopped, *settlers}, return_when=asyncio.FIRST_COMPLETED)
            await self._finish(source)
        finally:
            tasks = [source, stopped, *settlers, *self._held]
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _finish(self, source: asyncio.Task[None]) -> None:
        """Waits for the jobs in hand, after `stop` as long as the plan says; stops the others, and gives them back."""
        await self._until(lambda: not self._held or self._stopping.is_set())
        if self._stopping.is_set():
            self._reporter.event("stopping", in_hand=len(self._held))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._plan.grace_s):
                    await self._until(lambda: not self._held or self._ending.is_set())
        for held in self._held.values():
            if held.running is not None:
                held.running.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S + RELEASE_S):
                await self._until(lambda: not self._held)
        # The end of its stream makes the server release jobs. A claim may still bring some.
        if not self._is_streaming:
            await asyncio.wait({source}, timeout=RELEASE_S)
        source.cancel()
        with suppress(asyncio.CancelledError, CliError):
            await source
        with suppress(TimeoutError, CliError):
            async with asyncio.timeout(RELEASE_S):
                await asyncio.gather(*(self._nacks.ask(held.job, delay_ms=0) for held in self._unstarted))

    async def _take_jobs(self) -> None:
        """Takes jobs until the worker is told to stop, or has taken all that it should."""
        # A stream pushes a job for each that is acked, so it can't count, and never tells that the queue is empty.
        if self._plan.streams and not self._plan.drains and self._plan.max_jobs is None:
            self._is_streaming = True
            await self._take_pushed()
            self._is_streaming = False
        await self._take_claimed()

    async def _take_pushed(self) -> None:
        """Takes the jobs that the server pushes, until the worker is told to stop, or the door turns out not to stream."""
        failures = quick = 0
        while not self._stopping.is_set() and quick < QUICK_STREAMS:
            began, taken = _now(), self._taken
            wait_s = 0.0
            in_hand = max((held.job.seq for held in self._held.values()), default=None)
            try:
                async with self._client.pushed(self._plan.concurrency, self._plan.lease_ms, in_hand) as events:
                    async for event in events:
                        failures = 0
                        if event.type == "job":
                            self._take(parse_job(event.data), _now())
            except TryLater as later:
                failures += 1
                wait_s = self._policy.wait_s(failures, later.after_s, random)
                self._note_retry(f"work: {later}", wait_s)
            except Refused as refused:
                if refused.status not in NOT_THERE:
                    raise
                return
            # Who saw the stream end may have released what it had pushed.
            for held in self._held.values():
                held.hurry.set()
            is_quick = not wait_s and _now() - began < QUICK_S and taken == self._taken
            quick = quick + 1 if is_quick else 0
            await self._pause(max(wait_s, FIRST_POLL_S if is_quick else 0.0))

    async def _take_claimed(self) -> None:
        """Takes jobs by claims: as many as there is room for, less and less often while there are none."""
        failures = idle = 0
        while not self._stopping.is_set():
            room = self._room()
            if self._plan.max_jobs is not None and self._taken >= self._plan.max_jobs:
                return
            if not room:
                await self._until(lambda: self._stopping.is_set() or self._room() > 0)
                continue
            asked_s = _now()
            try:
                jobs = await self._client.claim(room, self._plan.lease_ms)
            except TryLater as later:
                failures += 1
                wait_s = self._policy.wait_s(failures, later.after_s, random)
                self._note_retry(f"claim: {later}", wait_s)
                await self._pause(wait_s)
                continue
            failures = 0
            for job in jobs:
                self._take(job, asked_s)
            if self._plan.drains and not jobs and not self._held:
                return
            idle = 0 if jobs else idle + 1
            if len(jobs) < room:
                await self._pause(min(self._plan.poll_s, FIRST_POLL_S * 2.0 ** min(idle, 30)))

    def _room(self) -> int:
        """Returns how many jobs may be claimed now."""
        room = self._plan.concurrency - len(self._held)
        return room if self._plan.max_jobs is None else min(room, self._plan.max_jobs - self._taken)

    def _take(self, job: Job, asked_s: float) -> None:
        """Begins a job that was leased at `asked_s` or later; keeps it to be given back once the worker stops."""
        held = Held(job, Lease(self._plan.lease_ms / 1000, asked_s))
        self._taken += 1
        if self._stopping.is_set():
            self._unstarted.append(held)
            return
        task = asyncio.create_task(self._work_on(held))
        self._held[task] = held
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:
            del self._held[task]
        else:  # `run` raises it
            self.stop()
            self._ending.set()
        self._changed.set()

    async def _work_on(self, held: Held) -> None:
        """Runs the command of a job, keeps its lease meanwhile, and settles it."""
        began = _now()
        held.running = running = asyncio.create_task(self._execute(held.job))
        keeping = asyncio.create_task(self._keep(held))
        try:
            await asyncio.wait({running, keeping}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                keeping.cancel()
                await self._settle(held, running, _now() - began)
            else:
                running.cancel()
                await asyncio.wait({running})
                self._reporter.event("lost", held.job, reason=keeping.result())
        finally:
            running.cancel()
            keeping.cancel()
            await asyncio.gather(running, keeping, return_exceptions=True)

    async def _execute(self, job: Job) -> int:
        """Runs the command of a job and returns its exit code."""
        variables = {
            "HEADRACE_QUEUE": self._client.queue.name,
            "HEADRACE_SEQ": str(job.seq),
            "HEADRACE_TAG": job.tag or "",
            "HEADRACE_DELIVERIES": str(job.deliveries),
            "HEADRACE_LEASE_ID": job.lease_id,
        }
        async with self._slots:
            self._reporter.event("begun", job)
            return await self._run_command(job.data, variables)

    async def _keep(self, held: Held) -> str:
        """Extends the lease of a job in time, until it is lost; returns why."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(held.lease.renew_s):
                    await held.hurry.wait()
            held.hurry.clear()
            asked_s = _now()
            try:
                async with asyncio.timeout_at(held.lease.ends_s):
                    became = await self._extends.ask(held.job, lease_ms=self._plan.lease_ms)
            except TimeoutError:
                return "the server did not answer before the lease ended"
            except CliError as error:
                return error.message
            if became != "done":
                return "the lease ended, and the job may be with another worker"
            held.lease = replace(held.lease, asked_s=asked_s)

    async def _settle(self, held: Held, running: asyncio.Task[int], seconds: float) -> None:
        """Acks or nacks a job as its command ended, and reports."""
        job = held.job
        facts: dict[str, object] = {"seconds": round(seconds, 3)}
        if running.cancelled():
            verdict = Verdict("released", 0)
        else:
            error = running.exception()
            code = None if error else running.result()
            facts |= {"reason": str(error)} if error else {"exit_code": code}
            verdict = judge(code, job.deliveries, self._plan.backoff, random)
        try:
            async with asyncio.timeout_at(held.lease.ends_s):
                if verdict.delay_ms is None:
                    became = await self._acks.ask(job)
                    if became == "unknown":  # an earlier try may have deleted it
                        became = "done" if await self._is_gone(held) else "skipped"
                else:
                    became = await self._nacks.ask(job, delay_ms=verdict.delay_ms)
                    facts["retry_in_ms"] = verdict.delay_ms
        except (TimeoutError, CliError):
            became = "unknown"
        if verdict.name != "done" or became == "done":
            self._reporter.event(verdict.name, job, **facts)
        elif became == "skipped":
            self._reporter.event("lost", job, reason="its lease ended before the ack", **facts)
        else:
            self._reporter.event("unconfirmed", job, reason="no ack was confirmed", **facts)

    async def _is_gone(self, held: Held) -> bool:
        """Returns whether a job is not in the queue any more; asks until there is an answer."""
        failures = 0
        while True:
            try:
                return await self._client.is_gone(held.job, held.lease.timeout_s)
            except TryLater as later:
                failures += 1
                await asyncio.sleep(self._hasty.wait_s(failures, later.after_s, random))

    def _note_retry(self, reason: str, wait_s: float) -> None:
        self._reporter.event("retry", reason=reason, wait_s=round(wait_s, 3))

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """Waits until a condition holds that changes with the jobs in hand, or when the worker is told to stop."""
        while not is_so():
            self._changed.clear()
            await self._changed.wait()

    async def _pause(self, seconds: float) -> None:
        """Waits, unless the worker is told to stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()


def _now() -> float:
    """Returns the time of the clock that leases are kept by."""
    return asyncio.get_running_loop().time()
