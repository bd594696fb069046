"""The stream of jobs, `GET /v0/topics/{name}/work` (§ 10.8), as server-sent events.

The stream keeps up to `max` jobs leased to its worker: it claims more when some were settled, or their leases ended. What
it holds it reads from the queue each time, because acks may come through any process. So nothing is kept in memory alone.

When the client is seen to go, its jobs are released. A stream that ends by itself, because its time is over, releases
nothing: the worker comes again with `Last-Event-ID`, and the next stream counts the jobs that the one before delivered.

A Lambda function is not told that its client has gone. There a lease that ended without a word from the worker is taken
for that: the stream claims nothing more until it hears of the worker, and ends when it holds nothing. Otherwise it would
deliver to nobody, until all jobs were delivered too often.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Mapping

import orjson
from starlette.responses import Response

from functions.access import Scope
from functions.api.door.requests import is_event, run
from functions.api.door.waiting import woken_by
from functions.api.topics.calls import Call
from functions.api.topics.events import RETRY, EventStream, check_accept, event, event_of
from functions.api.topics.jobs import check_node, claim_request, count_claim, take_jobs
from functions.api.topics.records import shown_job
from functions.metrics import ApiMetric
from headrace.errors import HeadraceError, Overloaded, StoreError, StoreThrottled
from headrace.queues.values import ClaimRequest, Job, Lease
from headrace.topics.values import LEASES

HEARTBEAT_S = 15.0
_REST_S = 1  # after the store has throttled
_DIGITS = 19

_log = logging.getLogger(__name__)


async def work(call: Call) -> Response:
    """Opens the stream of jobs of a worker."""
    name = call.name(Scope.READ | Scope.WRITE, "/work")
    check_accept(call)
    query = call.query("node", "max", "lease_ms")
    node = query.text("node")
    check_node(node)
    lease_ms = query.number("lease_ms", 0) if query.text("lease_ms") else None
    request = claim_request(call, node, query.number("max", 1), lease_ms, secrets.token_hex(16))
    stream = JobStream(call, name, request)
    await stream.adopt()
    held = await call.context.slots.hold(stream, call.grant.key_id, stream.ends_ms)
    call.context.meter.add(ApiMetric.WorkStreams)
    return held


class Holdings:
    """The jobs that a stream has delivered, or an earlier stream of its worker, and that are still leased."""

    def __init__(self) -> None:
        self.deadlines: dict[int, int] = {}
        self.lost_touch = False  # a lease ended, and nothing was heard of the worker since

    def deliver(self, jobs: list[Job]) -> None:
        """Adds jobs that were leased now."""
        self.deadlines.update((job.record.offset + 1, job.deadline_ms) for job in jobs)

    def compare(self, leases: Mapping[int, Lease], now_ms: int) -> None:
        """Takes note of the leases that the worker has now, by seq."""
        for seq, deadline_ms in list(self.deadlines.items()):
            lease = leases.get(seq)
            if lease is not None and lease.deadline_ms == deadline_ms:
                continue
            self.lost_touch = lease is None and now_ms >= deadline_ms
            if lease is None:
                del self.deadlines[seq]
            else:
                self.deadlines[seq] = lease.deadline_ms


class JobStream(EventStream):
    """A response that delivers jobs to a worker until its time is over or the worker has gone.

    Args:
        request: the claim that the stream repeats, with as many jobs as it may hold.
    """

    def __init__(self, call: Call, name: str, request: ClaimRequest) -> None:
        super().__init__(call)
        self._name = name
        self._request = request
        self._held = Holdings()
        self._sees_client = not is_event(call.request.scope)

    async def adopt(self) -> None:
        """Takes note of the jobs that an earlier stream delivered, as `Last-Event-ID` says. Raises the errors that are
        answered with their status: there is no such topic, or it is no queue.
        """
        leases = await self._leases()
        last = self._call.headers.get("last-event-id") or ""
        before = leases.get(int(last)) if last.isascii() and last.isdecimal() and len(last) < _DIGITS else None
        if before is not None and before.connection:
            own = [lease for lease in leases.values() if lease.connection == before.connection]
            self._held.deadlines = {lease.seq: lease.deadline_ms for lease in own}

    async def _events(self, gone: asyncio.Future[None]) -> AsyncGenerator[bytes, None]:
        deadline = self._deadline
        yield RETRY + self._heartbeat()
        quiet_since = self._clock.monotonic()
        with woken_by(self._call.logs, self._name, (self._name, LEASES)) as waiter:
            loop = asyncio.get_running_loop()
            gone.add_done_callback(lambda _: waiter.wake(loop))
            while not gone.done():
                jobs: list[Job] = []
                try:
                    jobs = await self._refill()
                except (HeadraceError, StoreError) as exc:
                    yield event_of(exc, topic=self._name)
                    if not isinstance(exc, Overloaded | StoreThrottled):
                        return
                    rest_s = exc.retry_after_s if isinstance(exc, Overloaded) else _REST_S
                    await asyncio.wait({gone}, timeout=min(rest_s, max(0.0, deadline - self._clock.monotonic())))
                if jobs:
                    yield b"".join(map(self._event, jobs))
                    waiter.reset()
                    quiet_since = self._clock.monotonic()
                now = self._clock.monotonic()
                if self._buffered or now >= deadline or (self._held.lost_touch and not self._held.deadlines):
                    return
                if now >= quiet_since + HEARTBEAT_S:
                    yield self._heartbeat()
                    quiet_since = now
                await waiter.pause(min(deadline, quiet_since + HEARTBEAT_S) - now)

    async def _refill(self) -> list[Job]:
        """Returns the jobs that were leased in place of those that were settled."""
        if self._held.deadlines:
            self._held.compare(await self._leases(), self._clock.now_ms())
            if self._sees_client:
                self._held.lost_touch = False
        return [] if self._held.lost_touch else await self._claim()

    async def _claim(self) -> list[Job]:
        room = self._request.max - len(self._held.deadlines)
        if room <= 0:
            return []
        claimed = await take_jobs(self._call, self._name, self._request._replace(max=room))
        count_claim(self._call, claimed)
        self._held.deliver(claimed.jobs)
        return claimed.jobs

    async def _leases(self) -> dict[int, Lease]:
        found = await run(self._call.logs.leases, self._name, self._request.node)
        return {lease.seq: lease for lease in found}

    async def _end(self, *, is_gone: bool) -> None:
        """Gives back what this stream delivered, if its client has gone."""
        if not is_gone:
            return
        try:
            await run(self._call.logs.release, self._name, self._request.node, self._request.connection)
        except (HeadraceError, StoreError) as exc:  # the leases end by themselves
            _log.info("jobs were not released: error=%s", type(exc).__name__)

    def _event(self, job: Job) -> bytes:
        document = b'{"topic":%s,' % orjson.dumps(self._name) + shown_job(job)[1:]
        return event(b"job", document, str(job.record.offset + 1))
