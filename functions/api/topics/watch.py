"""Watches: `POST /v0/watch` creates a session, and `GET /v0/watch/{wid}` opens its stream of server-sent events (§ 7).

A stream sends what it finds in the topics, and saves its cursors after that: a client that lost an event, but not its id,
goes back to that id, and one that lost both may get an event twice. A stream that is slow to send reads nothing meanwhile,
so that its records come in fewer and larger frames afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from typing import Any, Literal

import msgspec
import orjson
from starlette.requests import Request
from starlette.responses import Response

from functions.access import Scope
from functions.api.door.answers import fits, grown
from functions.api.door.requests import raw_path, refresh, run
from functions.api.door.waiting import Waiter
from functions.api.topics.calls import Call
from functions.api.topics.events import EVENTS, RETRY, EventStream, check_accept, error_event, event, event_of
from functions.api.topics.records import array, check_text
from functions.refusals import Forbidden, Unauthorized
from headrace.errors import InvalidRequest, Overloaded, StoreError
from headrace.topics.diff import shown
from headrace.topics.values import (
    DEFAULT_LIMIT,
    DEFAULT_PAGE_BYTES,
    MAX_LIMIT,
    MAX_NODE_BYTES,
    MAX_NUMBER,
    MAX_PAGE_BYTES,
    check_name,
)
from headrace.watch.errors import Fenced, WatchNotFound
from headrace.watch.frames import CaughtUp, Frame, Records, Tombstone
from headrace.watch.stream import News, Stream
from headrace.watch.values import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_HEARTBEAT_MS,
    HEARTBEAT_MS,
    TTL_MS,
    Options,
    Start,
)

PATH = "/v0/watch/"
SLOW_S = 30.0  # a client that does not take an event within this time is let go (§ 7.6)
_POLL_S = 0.25
_CHECK_S = 2.0  # how often a stream looks whether there is a newer one
_SAVE_S = 1.0
_REST_S = 1.0  # after a store has failed
_IN_TURN = 3  # topics that are read at each poll although they have not rung: twelve a second
_AT_ONCE = 16  # topics
_ROUND_BYTES = 8 * 1024 * 1024  # of the frames that are read at once
_BUFFERED_BYTES = 2 * 1024 * 1024  # after so much, as it goes through a buffered door, the client comes again
_PAUSES = (StoreError, Overloaded)

_log = logging.getLogger(__name__)


class TopicBody(msgspec.Struct, frozen=True):
    """Where a watch begins in a topic."""

    from_seq: int = 0
    tail: bool = False

    def start(self) -> Start:
        """Returns it as a value. Raises InvalidRequest if the seq is none."""
        if not 0 <= self.from_seq <= MAX_NUMBER:
            raise InvalidRequest(f"from_seq must be a whole number from 0 on: {self.from_seq}")
        return Start(self.from_seq, self.tail)


class WatchBody(msgspec.Struct, frozen=True):
    """The body of `POST /v0/watch` (§ 7.2)."""

    topics: dict[str, TopicBody]
    node: str | None = None
    limit: int = DEFAULT_LIMIT
    max_batch_bytes: int = DEFAULT_BATCH_BYTES
    heartbeat_ms: int = DEFAULT_HEARTBEAT_MS
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    consistency: Literal["eventual", "strong"] = "eventual"  # all that is shown is committed

    def options(self) -> Options:
        """Returns what it asks for, clamped. Raises InvalidRequest."""
        check_text("node", self.node, MAX_NODE_BYTES)
        if min(self.limit, self.max_batch_bytes, self.heartbeat_ms) < 0:
            raise InvalidRequest("limit, max_batch_bytes and heartbeat_ms must be whole numbers from 0 on")
        return Options(
            node=self.node,
            limit=min(self.limit or DEFAULT_LIMIT, MAX_LIMIT),
            max_bytes=min(self.max_batch_bytes or DEFAULT_PAGE_BYTES, MAX_PAGE_BYTES),
            heartbeat_ms=max(HEARTBEAT_MS[0], min(self.heartbeat_ms, HEARTBEAT_MS[1])),
            meta=self.include_meta,
            tags=self.include_tags,
            data=self.include_data,
        )


async def create(call: Call) -> Response:
    """Creates a session."""
    settings, grant = call.context.settings, call.grant
    grant.require(Scope.READ)
    lenient = call.query("lenient").flag("lenient", False)
    body = await call.body(WatchBody)
    most = settings.max_watch_topics
    if not body.topics or (most and len(body.topics) > most):
        raise InvalidRequest(f"a watch has 1 to {most or 'any number of'} topics: received={len(body.topics)}")
    starts = {check_name(name): topic.start() for name, topic in body.topics.items()}
    for name in starts:
        grant.require(Scope.READ, name)
    wid, watched = await call.run(
        call.context.watches().create,
        starts,
        body.options(),
        grant.key_id,
        lenient=lenient,
        limit=settings.max_watch_sessions,
    )
    topics = {
        name: {"from_seq": one.from_seq, "head_seq": one.extent.head_seq, "earliest_seq": one.extent.earliest_seq}
        for name, one in watched.items()
    }
    document = {"wid": wid, "stream_url": PATH + wid, "session_ttl_ms": TTL_MS, "topics": topics}
    return await call.reply(document)


async def stream(call: Call) -> Response:
    """Opens the stream of a session."""
    check_accept(call)
    wid = _wid(call.request)
    call.query()
    found = await call.run(call.context.watches().find, wid)
    grant = call.grant
    if found.session.key_id and grant.key_id != found.session.key_id:
        raise Unauthorized
    grant.require(Scope.READ)
    for name in found.definition.names:
        grant.require(Scope.READ, name)
    events = WatchStream(call, wid)
    return await call.context.slots.hold(events, grant.key_id, events.ends_ms)


def _wid(request: Request) -> str:
    """Returns the id in a request's path. Raises WatchNotFound if it can't be one."""
    wid = raw_path(request.scope)[len(PATH) :]
    if not wid.replace(b"_", b"").replace(b"-", b"").isalnum() or len(wid) > _WID_BYTES:
        raise WatchNotFound
    return wid.decode()


_WID_BYTES = 64


class WatchStream(EventStream):
    """A response that sends the frames of a watch."""

    slow_s = SLOW_S

    def __init__(self, call: Call, wid: str) -> None:
        super().__init__(call)
        self._wid = wid
        self._stream: Stream | None = None
        self._next_in_turn = 0
        self._checked_at = self._clock.monotonic()

    async def _begin(self) -> None:
        last = self._call.headers.get("last-event-id") or ""
        self._stream = await run(self._call.context.watches().open, self._wid, last, self.ends_ms)
        if self._buffered:
            self._stream.bound(DEFAULT_PAGE_BYTES)

    @property
    def _opened(self) -> Stream:
        assert self._stream is not None, "it has begun"
        return self._stream

    async def _end(self, *, is_gone: bool) -> None:  # noqa: ARG002
        await run(self._opened.close)

    async def _events(self, gone: asyncio.Future[None]) -> AsyncGenerator[bytes, None]:
        yield RETRY
        watch, now = self._opened, self._clock.monotonic
        width = max(1, min(_AT_ONCE, _ROUND_BYTES // watch.options.max_bytes))
        heartbeat_s = watch.options.heartbeat_ms / 1000
        due = dict.fromkeys(watch.living)
        quiet_since = polled_at = now()
        saved_at = quiet_since - _SAVE_S
        sent = 0
        loop = asyncio.get_running_loop()
        with self._listening() as (waiter, woken):
            gone.add_done_callback(lambda _: waiter.wake(loop))
            while watch.living and not gone.done():
                batch = list(islice(due, width))
                rests = False
                try:
                    news = await run(watch.read, batch) if batch else []
                    await self._check_key([watch.names[one.number] for one in news if one.frames])
                    for one in news:
                        due.pop(one.number, None)
                        for frame in one.frames:
                            body = self._event(one, frame)
                            if self._buffered and not fits(body, EVENTS, sent):
                                return  # the next answer begins with it
                            yield body
                            watch.sent(one, frame)
                            waiter.reset()
                            quiet_since = now()
                            sent += grown(body, EVENTS) if self._buffered else 0
                        if one.error is None:
                            watch.passed(one)
                        if not one.is_drained or isinstance(one.error, _PAUSES):
                            due[one.number] = None
                    for error, numbers in _failures(news):
                        yield event_of(error, topics=[watch.names[number] for number in numbers])
                        rests = True
                        if not isinstance(error, _PAUSES):
                            return
                    if not due and woken:
                        due.update(dict.fromkeys(number for number in _drained(woken) if number in watch.living))
                    over = now() >= self._deadline
                    if self._buffered and (not due or sent >= _BUFFERED_BYTES or rests):
                        return
                    if now() >= saved_at + _SAVE_S and not watch.is_saved:
                        await run(watch.save)
                        saved_at = now()
                    if over:
                        return
                    if now() >= quiet_since + heartbeat_s:
                        yield self._heartbeat()
                        quiet_since = now()
                    if rests:
                        await asyncio.wait({gone}, timeout=min(_REST_S, max(0.0, self._deadline - now())))
                    elif not due:
                        until = min(self._deadline, quiet_since + heartbeat_s, polled_at + _POLL_S)
                        await waiter.pause(until - now())
                    due.update(dict.fromkeys(number for number in _drained(woken) if number in watch.living))
                    if not due or now() >= polled_at + _POLL_S:
                        due.update(dict.fromkeys(await self._poll(is_whole=now() >= polled_at + _POLL_S)))
                        polled_at = now()
                except (Unauthorized, Forbidden) as exc:
                    yield event_of(exc)
                    return
                except (Fenced, WatchNotFound) as exc:
                    code = 410 if isinstance(exc, WatchNotFound) else 409
                    yield error_event(code, str(exc))
                    return
                except _PAUSES as exc:
                    yield event_of(exc)
                    await asyncio.wait({gone}, timeout=_REST_S)

    async def _check_key(self, names: Sequence[str]) -> None:
        """Checks what the key of the stream allows now, if anything is to be sent of topics.

        Raises:
            Unauthorized, Forbidden: it was revoked, or may not read one of them any more.
        """
        if not names:
            return
        access = self._call.context.access
        await refresh(access)
        grant = access.grant_of(self._call.grant.key_id)
        for name in names:
            grant.require(Scope.READ, name)

    async def _poll(self, *, is_whole: bool) -> Iterable[int]:
        """Returns the numbers of the topics to read now.

        Args:
            is_whole: whether so much time has passed that topics are read in turn, too.
        """
        watch, now = self._opened, self._clock.monotonic()
        heard: list[int] = [*watch.living] if not watch.rings else []
        checks = now >= self._checked_at + _CHECK_S
        if checks:
            self._checked_at = now
            await run(watch.check)
        if watch.rings:
            heard += (number for number in await run(watch.hear) if number in watch.living)
            if is_whole:
                in_turn = [*watch.living]
                for _ in range(_IN_TURN - checks):
                    self._next_in_turn = (self._next_in_turn + 1) % len(in_turn)
                    heard.append(in_turn[self._next_in_turn])
        return heard

    @contextmanager
    def _listening(self) -> Iterator[tuple[Waiter, deque[int]]]:
        """Yields a waiter that is woken when this process changes a topic, and the numbers of those topics."""
        waiter, woken, watch = Waiter(), deque[int](), self._opened
        loop = asyncio.get_running_loop()

        def wake(number: int) -> None:
            woken.append(number)
            waiter.wake(loop)

        with ExitStack() as stack:
            for number, name in enumerate(watch.names):
                stack.enter_context(self._call.logs.wakeups.listen(name, partial(wake, number)))
            yield waiter, woken

    def _event(self, news: News, frame: Frame) -> bytes:
        watch = self._opened
        kind, members = _shown(frame, watch.options)
        document = b'{"topic":%s%s}' % (orjson.dumps(watch.names[news.number]), members)
        return event(kind, document, watch.event_id(news, frame))


def _drained(woken: deque[int]) -> Iterator[int]:
    while woken:
        yield woken.popleft()


def _failures(news: list[News]) -> list[tuple[Exception, list[int]]]:
    """Returns the errors among news, one of each type, with the numbers of the topics that it is about."""
    failures: dict[type, tuple[Exception, list[int]]] = {}
    for one in news:
        if one.error is not None:
            failures.setdefault(type(one.error), (one.error, []))[1].append(one.number)
    return list(failures.values())


def _shown(frame: Frame, options: Options) -> tuple[bytes, bytes]:
    """Returns the event's name of a frame, and its members as JSON text that begins with a comma."""
    if isinstance(frame, Records):
        records = (shown(one, tag=options.tags, meta=options.meta, data=options.data) for one in frame.records)
        rest: dict[str, Any] = {"from_seq": frame.from_seq, "to_seq": frame.seq, "head_seq": frame.head_seq}
        return b"record", array("records", records) + b"," + orjson.dumps(rest)[1:-1]
    if isinstance(frame, Tombstone):
        rest = {
            "reason": frame.reason,
            "gap_from": frame.gap_from,
            "gap_to": frame.gap_to,
            "earliest_seq": frame.earliest_seq,
            "head_seq": frame.head_seq,
        }
        return b"tombstone", b"," + orjson.dumps(rest)[1:-1]
    if isinstance(frame, CaughtUp):
        return b"caught-up", b',"head_seq":%d' % frame.head_seq
    return b"topic-deleted", b',"head_seq":%d,"reason":"%s"' % (frame.head_seq, frame.reason.encode())
