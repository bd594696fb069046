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
from contextlib import aclosing

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as Asgi

from functions.access import Scope
from functions.api.door.requests import ENDS_AT, is_buffered, is_event, run
from functions.api.door.waiting import disconnected, woken_by
from functions.api.topics.calls import TOPICS, Call
from functions.api.topics.jobs import check_node, claim_request, count_claim, take_jobs
from functions.api.topics.records import shown_job
from functions.metrics import ApiMetric
from headrace.errors import HeadraceError, Overloaded, StoreError, StoreThrottled
from headrace.queues.values import ClaimRequest, Job, Lease
from headrace.topics.values import LEASES

HEARTBEAT_S = 15.0
RETRY_MS = 2000
LAST_SEND_S = 2.0  # for an answer that comes at the end of a stream's time
_REST_S = 1  # after the store has throttled
_DIGITS = 19
_EVENTS = "text/event-stream"

_log = logging.getLogger(__name__)


async def work(call: Call) -> Response:
    """Opens the stream of jobs of a worker."""
    name = call.name(Scope.READ | Scope.WRITE, "/work")
    accepted = (call.headers.get("accept") or "*/*").lower()
    if not any(kind in accepted for kind in (_EVENTS, "text/*", "*/*")):
        raise HTTPException(406, f"accept must be {_EVENTS}")
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


class JobStream(Response):
    """A response that delivers jobs to a worker until its time is over or the worker has gone.

    Args:
        request: the claim that the stream repeats, with as many jobs as it may hold.
    """

    media_type = None

    def __init__(self, call: Call, name: str, request: ClaimRequest) -> None:
        headers = {
            "Content-Type": f"{_EVENTS}; charset=utf-8",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
        }
        super().__init__(None, 200, headers)
        del self.headers["content-length"]
        self._call = call
        self._clock = call.context.clock
        self._name = name
        self._request = request
        self._held = Holdings()
        scope = call.request.scope
        self._buffered = is_buffered(scope)
        self._sees_client = not is_event(scope)
        open_s = float(call.context.settings.sse_seconds)
        if ENDS_AT in scope:  # the door closes then, in the middle of an event if need be
            open_s = min(open_s, (scope[ENDS_AT] - self._clock.now_ms()) / 1000)
        self._deadline = self._clock.monotonic() + open_s  # by then its slot expires, too
        self.ends_ms = self._clock.now_ms() + round(open_s * 1000)

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

    async def __call__(self, scope: Asgi, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        gone = asyncio.ensure_future(disconnected(receive))
        is_over = False
        try:
            async with aclosing(self._events(gone)) as events:
                with self._call.context.commits.stream():
                    async for event in events:
                        await self._send(send, event)
            is_over = not gone.done()  # a server says that the client has left after the end, too
            await self._send(send, b"", more=False)
        except TimeoutError:
            _log.info("stream of jobs broke off: its client reads too slowly: queue=%s", self._name)
        finally:
            if gone.done() and not is_over and not self._buffered:
                await self._release()
            gone.cancel()

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        """Sends a part of the answer. Raises TimeoutError if the client does not take it before the time is over."""
        left_s = self._deadline - self._clock.monotonic()
        async with asyncio.timeout(max(LAST_SEND_S, left_s)):
            await send({"type": "http.response.body", "body": body, "more_body": more})

    async def _events(self, gone: asyncio.Future[None]) -> AsyncGenerator[bytes, None]:
        deadline = self._deadline
        yield b"retry: %d\n\n" % RETRY_MS + self._heartbeat()
        quiet_since = self._clock.monotonic()
        with woken_by(self._call.logs, self._name, (self._name, LEASES)) as waiter:
            loop = asyncio.get_running_loop()
            gone.add_done_callback(lambda _: waiter.wake(loop))
            while not gone.done():
                jobs: list[Job] = []
                try:
                    jobs = await self._refill()
                except (HeadraceError, StoreError) as exc:
                    yield self._error(exc)
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

    async def _release(self) -> None:
        """Gives back what this stream delivered, since its client has gone."""
        try:
            await run(self._call.logs.release, self._name, self._request.node, self._request.connection)
        except (HeadraceError, StoreError) as exc:  # the leases end by themselves
            _log.info("jobs were not released: error=%s", type(exc).__name__)

    def _heartbeat(self) -> bytes:
        return b": hb %d\n\n" % self._clock.now_ms()

    def _event(self, job: Job) -> bytes:
        document = b'{"topic":%s,' % orjson.dumps(self._name) + shown_job(job)[1:]
        lines = b"\ndata: ".join(document.splitlines())  # white space inside data may be line breaks
        return b"id: %d\nevent: job\ndata: %s\n\n" % (job.record.offset + 1, lines)

    def _error(self, error: Exception) -> bytes:
        answer = TOPICS.response_to(error, "GET")
        told = orjson.loads(answer.body)["error"]
        document = {"code": answer.status_code, "error": told["message"], "topic": self._name}
        if "retry-after" in answer.headers:
            document["retry_after_ms"] = int(answer.headers["retry-after"]) * 1000
        return b"event: error\ndata: %s\n\n" % orjson.dumps(document)
