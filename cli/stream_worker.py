"""The worker behind `headrace work`: shares the streams of a pattern with other workers of the same name, and runs a
command for what is appended to them.

    listen    the wake stream says which stream has something new
    discover  the list of streams says which ones the pattern covers; each gets a subscription `NAME/STREAM`
    dispatch  a stream whose turn it is: claim, read, run the command, ack, until nothing is pending

Wakes are hints. A stream is also claimed when it is found, and every now and then. Nothing is written down here, so a
worker may be killed at any time: its leases end, and what it had not acknowledged is read again, by another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import random
from typing import Any

from cli.consumer import Busy, Consumer, Holding, Lost, now_s, wake_of
from cli.errors import Refused
from cli.jobs import Backoff
from cli.options import Target
from cli.output import LINE_BREAKS
from cli.pages import Page, elements, is_json
from cli.queue_client import TryLater
from cli.subscriptions import consumer_id

RECHECK_S = 60.0
"""How long a stream that nobody woke is left alone, less up to half of it at random."""
LOST_S = 1.0
OWN_S = 3.0
"""How soon a stream is tried again that this worker claimed by a request whose answer was lost: until that lease ends."""
GONE = (404, 410)

RunCommand = Callable[[bytes, Mapping[str, str]], Coroutine[Any, Any, int]]
Report = Callable[..., None]


@dataclass(frozen=True)
class Plan:
    """How a worker works.

    Args:
        start: where a stream begins that the name has not had yet: `-1` or `now`.
        concurrency: how many commands run at a time.
        batch_records: how many records a command gets at most; None for all that a read returns.
        discover_s: how often new streams are looked for.
        drains: whether it ends once nothing is pending that no other worker has.
    """

    start: str
    lease_ms: int
    concurrency: int
    backoff: Backoff
    batch_records: int | None
    discover_s: float
    grace_s: float
    drains: bool = False


@dataclass(frozen=True)
class Batch:
    """What one run of the command gets: its data, and where that is. `offset` and `index` name the same data at each try:
    `index` counts records from the page that begins after `offset`.
    """

    stream: str
    offset: str
    next_offset: str
    index: int
    records: int
    content_type: str
    data: bytes

    def variables(self, consumer: str) -> dict[str, str]:
        """Returns what the command finds in its environment."""
        return {
            "HEADRACE_CONSUMER": consumer,
            "HEADRACE_STREAM": self.stream,
            "HEADRACE_OFFSET": self.offset,
            "HEADRACE_INDEX": str(self.index),
            "HEADRACE_NEXT_OFFSET": self.next_offset,
            "HEADRACE_RECORDS": str(self.records),
            "HEADRACE_CONTENT_TYPE": self.content_type,
        }


def batches(stream: str, offset: str, page: Page, content_type: str, most: int | None) -> list[Batch]:
    """Splits a page into batches of at most `most` records: of a JSON stream one record per line, of any other stream the
    bytes as they are, in one batch.
    """
    if not is_json(content_type):
        whole = Batch(stream, offset, page.next_offset, 0, 1, content_type, page.body)
        return [whole] if page.body else []
    records = [record.translate(LINE_BREAKS) for record in elements(page.body)]
    size = most or max(len(records), 1)
    return [
        Batch(
            stream=stream,
            offset=offset,
            next_offset=page.next_offset,
            index=first,
            records=len(records[first : first + size]),
            content_type=content_type,
            data=b"".join(record + b"\n" for record in records[first : first + size]),
        )
        for first in range(0, len(records), size)
    ]


@dataclass
class StreamWorker:
    """A worker under one name. `run` works until `stop` is called, or as the plan says.

    Args:
        pattern: the streams to share.
        stream: returns the stream with a name.
    """

    consumer: Consumer
    plan: Plan
    pattern: str
    stream: Callable[[str], Target]
    run_command: RunCommand
    report: Report
    due_s: dict[str, float] = field(default_factory=dict)
    """When each stream's turn is; a stream in hand has none."""
    active: dict[asyncio.Task[None], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.plan.concurrency)
        self._by_id = dict[str, str]()  # the known streams, by the ids of their subscriptions
        self._heard = dict[str, int]()  # the generation of the newest wake of each stream
        self._stopping = asyncio.Event()
        self._ending = asyncio.Event()
        self._own = set[str]()  # streams that were claimed by a request whose answer was lost
        self._resting = 0  # streams in hand whose command failed, and that wait for the next try
        self._changed = asyncio.Event()
        """Set when a stream's turn has come earlier, a stream in hand has ended, or the worker is told to stop."""

    def stop(self) -> None:
        """Tells the worker to take no more batches and to wait for those that run; a second call, not to wait."""
        if self._stopping.is_set():
            self._ending.set()
        self._stopping.set()
        self._changed.set()

    async def run(self) -> None:
        """Works. Raises CliError if the server refuses something for good."""
        # The end of the wake stream is fixed before the first claim, so that no wake after a claim is missed.
        wakes_offset = await self.consumer.patiently(self.consumer.create_wakes)
        await self._discover()
        loops = [
            asyncio.create_task(self._listen(wakes_offset)),
            asyncio.create_task(self._keep_discovering()),
            asyncio.create_task(self._dispatch()),
        ]
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({stopped, *loops}, return_when=asyncio.FIRST_COMPLETED)
            await self._finish()
        finally:
            tasks = [stopped, *loops, *self.active]
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _finish(self) -> None:
        """Waits for the commands that run, as long as the plan says."""
        if not self._stopping.is_set():
            return
        self.report("stopping", in_hand=len(self.active))
        with suppress(TimeoutError):
            async with asyncio.timeout(self.plan.grace_s):
                while self.active and not self._ending.is_set():
                    self._changed.clear()
                    await self._changed.wait()

    async def _keep_discovering(self) -> None:
        while True:
            await asyncio.sleep(self.plan.discover_s)
            await self._discover()

    async def _discover(self) -> None:
        """Takes the streams in that the pattern covers and that were not known."""
        for name in await self.consumer.patiently(partial(self.consumer.find, self.pattern)):
            id_ = consumer_id(self.consumer.name, name)
            if id_ not in self._by_id:
                await self.consumer.patiently(
                    partial(self.consumer.subscribe, name, lease_ms=self.plan.lease_ms, start=self.plan.start)
                )
                self._by_id[id_] = name
                self.report("found", stream=name)
                self._schedule(name, 0.0)

    async def _listen(self, offset: str) -> None:
        """Reads the wake stream, and calls the streams up that it names."""
        cursor: str | None = None
        while True:
            began = now_s()
            try:
                page, _ = await self.consumer.patiently(
                    partial(self.consumer.read, self.consumer.wakes, offset, live=True, cursor=cursor)
                )
            except Refused as refused:
                if refused.status not in GONE:
                    raise
                await self.consumer.patiently(self.consumer.create_wakes)
                offset, cursor = "-1", None
                continue
            for record in elements(page.body):
                id_, generation = wake_of(record) or ("", 0)
                stream = self._by_id.get(id_)
                if stream is not None:
                    self._heard[stream] = generation
                    if stream not in self.active.values():
                        self._schedule(stream, 0.0)
            if page.next_offset == offset and now_s() - began < 1.0:
                await asyncio.sleep(1.0)  # this door does not hold requests open
            offset, cursor = page.next_offset, page.cursor

    def _schedule(self, stream: str, after_s: float) -> None:
        """Has a stream's turn come after some seconds, or earlier if that was said before."""
        at = now_s() + after_s
        self.due_s[stream] = min(at, self.due_s.get(stream, at))
        self._changed.set()

    async def _dispatch(self) -> None:
        """Takes streams whose turn it is, as many as commands may run; ends if the plan drains and all is done."""
        while not self._stopping.is_set():
            stream = min(self.due_s, key=self.due_s.__getitem__, default=None)
            wait_s = None if stream is None else self.due_s[stream] - now_s()
            has_room = len(self.active) - self._resting < self.plan.concurrency
            if stream is not None and wait_s is not None and wait_s <= 0 and has_room:
                del self.due_s[stream]
                task = asyncio.create_task(self._serve(stream))
                self.active[task] = stream
                task.add_done_callback(self._forget)
                continue
            if self.plan.drains and not self.active and not self._own and (wait_s is None or wait_s > 0):
                return
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s if has_room else None):
                    await self._changed.wait()

    def _forget(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:  # `run` raises it
            self.stop()
            self._ending.set()
        else:
            del self.active[task]
        self._changed.set()

    async def _serve(self, stream: str) -> None:
        """Claims a stream, works until nothing is pending in it, and says when its turn is next."""
        after_s = RECHECK_S * (0.5 + 0.5 * random())
        asked_s, generation = now_s(), self._heard.get(stream, 0)
        try:
            claim = await self.consumer.claim(stream)
            if claim is not None:
                generation = claim.generation
            self._own.discard(stream)
            if isinstance(claim, Busy) and claim.holder == self.consumer.worker:
                self._own.add(stream)
                after_s = OWN_S
            elif isinstance(claim, Busy):
                self.report("busy", stream=stream, holder=claim.holder)
            elif claim is not None:
                self.report("claimed", stream=stream, generation=claim.generation, offset=claim.offset)
                if await self.consumer.hold(stream, claim, asked_s, self._drain):
                    after_s = 0.0
        except TryLater as later:
            self._own.add(stream)  # perhaps; the next try tells
            after_s = self.consumer.policy.wait_s(3, later.after_s, random)
            self.report("retry", reason=str(later), wait_s=round(after_s, 3))
        except Lost as lost:
            after_s = LOST_S
            self.report("lost", stream=stream, reason=str(lost))
        except Refused as refused:
            if refused.status not in GONE:
                raise
            self._own.discard(stream)
            del self._by_id[consumer_id(self.consumer.name, stream)]  # it is taken in again once it is there again
            self.report("gone", stream=stream, reason=refused.message)
            return
        # A wake that came while the stream was in hand is of what the claim did not see.
        self._schedule(stream, 0.0 if self._heard.get(stream, 0) > generation else after_s)

    async def _drain(self, held: Holding) -> bool:
        """Runs the command for what is pending in a stream, batch by batch, and acknowledges it page by page.

        Returns:
            Whether more is pending.
        """
        target, offset = self.stream(held.stream), held.claim.offset
        while not self._stopping.is_set():
            page, content_type = await self.consumer.patiently(
                partial(self.consumer.read, target, offset, live=False)
            )
            for batch in batches(held.stream, offset, page, content_type, self.plan.batch_records):
                if not await self._succeed(batch):
                    return True  # the worker stops; the claim is released, so that another one goes on
            held.owed = page.next_offset if page.next_offset != offset else ""
            offset = page.next_offset
            if page.up_to_date or page.closed:
                return await held.ack(held.owed, done=True)
            await held.ack(held.owed)
        return True

    async def _succeed(self, batch: Batch) -> bool:
        """Runs the command for a batch until it succeeds. Returns False if the worker is told to stop before."""
        tries = 0
        while not self._stopping.is_set():
            tries += 1
            facts: dict[str, object] = {
                "stream": batch.stream, "offset": batch.offset, "index": batch.index, "records": batch.records,
            }  # fmt: skip
            async with self._slots:
                began = now_s()
                self.report("begun", **facts)
                try:
                    code = await self.run_command(batch.data, batch.variables(self.consumer.name))
                except OSError as error:
                    code, facts["reason"] = None, str(error)
                except asyncio.CancelledError:
                    self.report("stopped", **facts)
                    raise
            facts["seconds"] = round(now_s() - began, 3)
            if code == 0:
                self.report("done", **facts)
                return True
            delay_ms = self.plan.backoff.delay_ms(tries, random)
            self.report("failed", **facts, exit_code=code, tries=tries, retry_in_ms=delay_ms)
            await self._rest(delay_ms / 1000)
        return False

    async def _rest(self, seconds: float) -> None:
        """Waits with a stream in hand, so that another one may be worked on; shorter if the worker is told to stop."""
        self._resting += 1
        self._changed.set()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stopping.wait()
        finally:
            self._resting -= 1
