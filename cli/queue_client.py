"""A worker's requests to a queue: claims, the stream of pushed jobs, and acks, nacks and extends, many in one request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import random
from typing import Literal

import httpx

from cli.client import CONNECT_TIMEOUT_S, RETRYABLE_STATUSES, RetryPolicy, retry_after_s
from cli.documents import document, members
from cli.elements import array_elements
from cli.errors import CliError, refusal
from cli.jobs import Job, parse_job
from cli.options import Target, json_bytes
from cli.sse import Event, EventParser

CLAIM_TIMEOUT_S = 30.0
SILENCE_S = 65.0  # of a stream; a server sends a heartbeat at least once a minute
MAX_SEQS = 1000  # of one request


class TryLater(Exception):
    """A request failed in a way that need not last. `may_be_done`: the server may have carried it out."""

    def __init__(self, reason: str, *, after_s: float | None = None, may_be_done: bool) -> None:
        super().__init__(reason)
        self.after_s = after_s
        self.may_be_done = may_be_done


@dataclass
class QueueClient:
    """Requests about one queue in the name of one worker. None of them is repeated here."""

    http: httpx.AsyncClient
    queue: Target
    node: str
    now: Callable[[], float]
    """The time in seconds since 1970, for dates in answers."""

    async def claim(self, most: int, lease_ms: int) -> list[Job]:
        """Leases up to `most` jobs. Raises `TryLater` or `Refused`."""
        answer = await self.post("claim", {"max": most, "lease_ms": lease_ms}, CLAIM_TIMEOUT_S)
        found = members(answer, "claim")
        try:
            return [parse_job(job) for job in array_elements(found["claimed"])]
        except (ValueError, LookupError, RecursionError) as error:
            raise CliError(f"claim: the answer has no jobs: {error}") from error

    async def is_gone(self, job: Job, timeout_s: float) -> bool:
        """Returns whether a job is not in the queue any more. Raises `TryLater` or `Refused`."""
        answer = await self.post("diff", {"from_seq": job.seq - 1, "limit": 1, "node": []}, timeout_s)
        records = document(answer, "diff").get("records")
        if not isinstance(records, list):
            raise CliError("diff: the answer has no records")
        return not any(isinstance(record, dict) and record.get("$seq") == job.seq for record in records)

    async def post(self, action: str, body: Mapping[str, object], timeout_s: float) -> httpx.Response:
        """Sends a request and returns the answer. Raises `TryLater` or `Refused`."""
        content = json_bytes({"node": self.node, **body})
        timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S))
        headers = {"content-type": "application/json"}
        try:
            answer = await self.http.post(
                f"{self.queue.url}/{action}", content=content, headers=headers, timeout=timeout
            )
        except httpx.RequestError as error:
            refused = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
            raise TryLater(type(error).__name__, may_be_done=not refused) from error
        self._check(action, answer, answer.content)
        return answer

    @asynccontextmanager
    async def pushed(self, most: int, lease_ms: int, in_hand: int | None) -> AsyncIterator[AsyncIterator[Event]]:
        """Opens the stream by which the server pushes jobs, at most `most` at a time, and yields its events. The server
        releases them when the stream is closed. Raises `TryLater` or `Refused`, also while events are read.

        Args:
            in_hand: seq of a job of the stream before this one, whose jobs count towards `most`; None without one.
        """
        params = {"node": self.node, "max": str(most), "lease_ms": str(lease_ms)}
        timeout = httpx.Timeout(SILENCE_S, connect=CONNECT_TIMEOUT_S)
        headers = {"accept": "text/event-stream", **({} if in_hand is None else {"last-event-id": str(in_hand)})}
        url = f"{self.queue.url}/work"
        try:
            async with self.http.stream("GET", url, params=params, headers=headers, timeout=timeout) as answer:
                if answer.status_code >= 400:
                    self._check("work", answer, await answer.aread())
                if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                    raise CliError("work: the answer is no stream of events")
                yield _events(answer)
        except httpx.RequestError as error:
            raise TryLater(type(error).__name__, may_be_done=True) from error

    def _check(self, action: str, answer: httpx.Response, body: bytes) -> None:
        """Raises `TryLater` or `Refused` for an error status."""
        status = answer.status_code
        if status in RETRYABLE_STATUSES:
            after_s = retry_after_s(answer.headers.get("retry-after"), self.now())
            raise TryLater(f"status {status}", after_s=after_s, may_be_done=status != 429)
        if status >= 400:
            raise refusal(f"{action} {self.queue.name}", status, dict(answer.headers), body)


async def _events(answer: httpx.Response) -> AsyncIterator[Event]:
    parser = EventParser()
    async for chunk in answer.aiter_bytes():
        for event in parser.feed(chunk):
            yield event


Settled = Literal["done", "skipped", "unknown"]
"""What became of a job: settled, not held any more, or not held any more after a try that may have settled it."""


@dataclass
class Ask:
    """A job to be acked, nacked or extended. `is_unsure`: an earlier try may have done it."""

    job: Job
    extra: Mapping[str, object]
    answer: asyncio.Future[Settled]
    is_unsure: bool = False

    def resolve(self, skipped: list[object]) -> None:
        """Answers the callers that wait, by the seqs that the server skipped."""
        if not self.answer.done():
            is_done = self.job.seq not in skipped
            self.answer.set_result("done" if is_done else "unknown" if self.is_unsure else "skipped")

    def fail(self, error: CliError) -> None:
        """Answers the callers that wait with an error."""
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass
class Settler:
    """A sender of acks, nacks or extends. What comes together goes in one request; it is repeated until it is answered, or
    nobody waits for it any more.
    """

    client: QueueClient
    verb: str
    timeout_s: float
    on_retry: Callable[[str, float], None]
    policy: RetryPolicy
    waiting: list[Ask] = field(default_factory=list)
    called: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, job: Job, **extra: object) -> Settled:
        """Has a job settled, and returns what became of it. Raises `Refused`."""
        ask = Ask(job, extra, asyncio.get_running_loop().create_future())
        self.waiting.append(ask)
        self.called.set()
        return await ask.answer

    async def run(self) -> None:
        """Sends what is asked for, until it is cancelled."""
        failures = 0
        while True:
            await self.called.wait()
            batch = self._next_batch()
            if not batch:
                self.called.clear()
                continue
            try:
                skipped = await self._send(batch)
            except TryLater as later:
                failures += 1
                for ask in batch:
                    ask.is_unsure |= later.may_be_done
                self.waiting = batch + self.waiting
                wait_s = self.policy.wait_s(failures, later.after_s, random)
                self.on_retry(f"{self.verb}: {later}", wait_s)
                await asyncio.sleep(wait_s)
            except CliError as error:
                failures = 0
                for ask in batch:
                    ask.fail(error)
            else:
                failures = 0
                for ask in batch:
                    ask.resolve(skipped)

    def _next_batch(self) -> list[Ask]:
        """Takes the asks of one request: those that are like the first, for which somebody still waits."""
        alike, others = list[Ask](), list[Ask]()
        for ask in self.waiting:
            if not ask.answer.done():
                is_alike = len(alike) < MAX_SEQS and (not alike or ask.extra == alike[0].extra)
                (alike if is_alike else others).append(ask)
        self.waiting = others
        return alike

    async def _send(self, batch: list[Ask]) -> list[object]:
        """Sends one request and returns the seqs that the server skipped."""
        jobs = [ask.job for ask in batch]
        seqs, lease_ids = [job.seq for job in jobs], [job.lease_id for job in jobs]
        body = {"seqs": seqs, "lease_ids": lease_ids, **batch[0].extra}
        answer = document(await self.client.post(self.verb, body, self.timeout_s), self.verb)
        skipped = answer.get("skipped")
        return skipped if isinstance(skipped, list) else []
