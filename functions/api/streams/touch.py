"""The resources `…/touch/*`: waiting for changes of a state-protocol stream.

Nothing is kept only in memory: a cursor is a position in the log, so a request waiting on any process sees what other
processes append, and the active templates are stored in the log's note.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from functions.access import Scope
from functions.api.context import Context
from functions.api.door.requests import query_of, read, run
from functions.api.door.routes import add
from functions.api.streams.definitions import document
from functions.api.streams.live import after, listening
from functions.api.streams.records import PATH, STREAMS
from headrace.clock import Bounded
from headrace.errors import BelowFloor, InvalidRequest, NotFound, Overloaded, RequestTimeout
from headrace.json import jsontext
from headrace.log.requests import At, Head, ReadPage
from headrace.streams import profiles
from headrace.streams.profiles.touch import activate, meta, templates, wait
from headrace.streams.profiles.touch.config import TouchConfig
from headrace.streams.profiles.touch.cursor import TouchCursor
from headrace.streams.profiles.touch.meta import Counters, Place
from headrace.streams.profiles.touch.templates import TemplateBook
from headrace.streams.profiles.touch.wait import Interest
from headrace.streams.verbs import Streams
from headrace.wal.state import Cursor

MAX_BODY_BYTES = 1024 * 1024
WAITING = ("/touch/wait",)


def add_routes(app: FastAPI, context: Context) -> None:
    """Adds the routes of `touch/*`. Must be called before the routes of streams are added."""
    counters = TouchCounters()

    async def show(request: Request) -> Response:
        name = STREAMS.allowed_name(request, Scope.READ, "/touch/meta")
        given = query_of(request.scope, frozenset({"settle", "timeoutMs"}))
        meta.parse_meta(given.get("settle"), given.get("timeoutMs"))  # nothing is ever pending here
        return document(await run(show_meta, context.logs(), name, counters, context.clock.now_ms()))

    async def wait(request: Request) -> Response:
        name = STREAMS.allowed_name(request, Scope.READ, "/touch/wait")
        body = await _body(request)
        if isinstance(body, dict) and body.get("declareTemplates"):
            STREAMS.require(request, Scope.WRITE, name)  # it changes what is kept of the stream
        return document(await wait_for_touch(context, context.logs(), request, name, body, counters))

    async def activate(request: Request) -> Response:
        name = STREAMS.allowed_name(request, Scope.WRITE, "/touch/templates/activate")
        body = await _body(request)
        return document(await run(activate_templates, context.logs(), name, body, context.clock.now_ms()))

    add(app, PATH + "/touch/meta", GET=show)
    add(app, PATH + "/touch/wait", POST=wait)
    add(app, PATH + "/touch/templates/activate", POST=activate)


async def _body(request: Request) -> Any:
    return jsontext.loads(await read(request, MAX_BODY_BYTES))


_BROAD_KEYS = 64
_STREAMS = 1024  # whose counters a process keeps
_TRIES = 8  # tries to store the templates, if other requests store theirs at the same time


class Touching(NamedTuple):
    """The head (newest state) of a stream whose profile has touch routes, and the configuration of these."""

    head: Head
    config: TouchConfig


class TouchCounters:
    """The counters of waits on each stream in this process, kept for up to 1,024 streams."""

    def __init__(self) -> None:
        self._counts: Bounded[str, Counter[str]] = Bounded(_STREAMS)

    def add(self, log_id: str, **counts: int) -> None:
        """Adds to a log's counters, which are named as in `Counters`; a negative number subtracts."""

        def grow(kept: Counter[str] | None) -> Counter[str]:
            grown = Counter(kept)
            grown.update(counts)
            return grown

        self._counts.update(log_id, grow)

    def of(self, log_id: str) -> Counters:
        """Returns the counters of a log; all zero if nothing was counted."""
        return Counters(**dict(self._counts.get(log_id) or Counter()))

    @contextmanager
    def waiting(self, log_id: str, interest: Interest) -> Iterator[None]:
        """Counts a request as waiting while the block runs."""
        kind = "coarse_waiters" if interest.kind == "tableKey" else "fine_waiters"
        broad = int(len(interest.keys) + len(interest.key_ids) > _BROAD_KEYS)
        self.add(log_id, **{kind: 1, "broad_waiters": broad})
        try:
            yield
        finally:
            self.add(log_id, **{kind: -1, "broad_waiters": -broad})


def open_touching(logs: Streams, name: str) -> Touching:
    """Returns the newest state and the touch configuration of a stream whose profile has touch routes that are enabled.

    Raises:
        NotFound: there is no such stream, its profile has no touch routes, or they are not enabled.
    """
    head = logs.head(name)
    config = profiles.of(logs.definition_of(head)).touch
    if config is None or not config.enabled:
        raise NotFound("touch not enabled")
    return Touching(head, config)


def show_meta(logs: Streams, name: str, counters: TouchCounters, now_ms: int) -> dict[str, Any]:
    """Returns the JSON document of `touch/meta`: configuration, position, number of active templates, and counters.
    Raises NotFound if the stream has no enabled touch routes.
    """
    head, config = open_touching(logs, name)
    active = _book(logs, head).active(now_ms)
    return meta.answer_meta(
        config,
        _end(head),
        next_offset=head.next_offset,
        active_templates=len(active),
        counters=counters.of(head.log_id),
    )


def activate_templates(logs: Streams, name: str, body: Any, now_ms: int) -> dict[str, Any]:
    """Activates the templates in the body, and returns the JSON document of the answer. They apply to records after the
    end of the log as read before they are stored.

    Raises:
        InvalidRequest: the body is invalid.
        Overloaded: other requests keep changing the stored templates.
    """
    head, config = open_touching(logs, name)
    asked = activate.parse_activate(body, config)
    outcomes = _store(logs, name, head, config, asked.templates, asked.ttl_ms, now_ms)
    return activate.answer(outcomes, _end(head).cursor, config.limits)


async def wait_for_touch(
    context: Context, logs: Streams, request: Request, name: str, body: Any, counters: TouchCounters
) -> dict[str, Any]:
    """Waits until a record changes something that the body names, or the time is over, and returns the JSON document of
    the answer; at once if the body's cursor is stale.

    Raises:
        RequestTimeout: the requested wait is longer than a request may take, and nothing changed.
    """
    now_ms = context.clock.now_ms()
    head, config = await run(open_touching, logs, name)
    asked = wait.parse_wait(body, config)
    limit_ms = context.settings.request_timeout_ms
    deadline = context.clock.monotonic() + min(asked.timeout_ms, limit_ms) / 1000
    if asked.declared:
        await run(_store, logs, name, head, config, asked.declared, asked.ttl_ms, now_ms)
    if asked.template_ids and not asked.coarse:
        await run(_use, logs, head, config, asked.template_ids, now_ms)
    book = await run(_book, logs, head)
    active = book.active(now_ms)
    interest = wait.interest_of(asked, active)
    cursor = asked.cursor or _end(head).cursor
    if cursor.incarnation != head.incarnation or cursor.generation > head.state.next_offset:
        counters.add(head.log_id, waits_stale=1)
        return meta.answer_stale(interest, _end(head))
    of_entity = templates.by_entity(active)

    def touched(page: ReadPage) -> bool:
        found = any(
            wait.wakes(interest, record, offset, of_entity, config)
            for offset, record in enumerate(map(_record, page.data), start=page.start)
        )
        counters.add(
            head.log_id, records_scanned=len(page.data), scans=int(bool(page.data)), empty_scans=int(not found)
        )
        return found

    with listening(logs, name) as waiter, counters.waiting(head.log_id, interest):
        at = At(Cursor(cursor.incarnation, cursor.generation))
        while True:
            try:
                page = await run(logs.read, name, at, touch=False)
            except BelowFloor:  # what has changed is not known any more
                counters.add(head.log_id, waits_stale=1)
                return meta.answer_stale(interest, _end(await run(logs.head, name)), "cursor is below the floor")
            if page.data and touched(page):
                counters.add(head.log_id, waits_touched=1)
                return meta.answer_wait(interest, _end(page.head), was_touched=True)
            left_s = deadline - context.clock.monotonic()
            if left_s <= 0 or await request.is_disconnected():
                counters.add(head.log_id, waits_timed_out=1)
                if asked.timeout_ms > limit_ms:
                    raise RequestTimeout  # the cursor that the client has stays good
                seen = Place(TouchCursor(page.head.incarnation, page.next), page.head.state.append_time_ms)
                return meta.answer_wait(interest, seen, was_touched=False)
            if page.up_to_date:
                await waiter.pause(left_s)
            at = after(page)


def _record(data: bytes) -> Any:
    """Parses a stored record; returns None, which counts as no change, if it is not JSON."""
    try:
        return jsontext.loads(data)
    except InvalidRequest:
        return None


def _end(head: Head) -> Place:
    return Place(TouchCursor(head.incarnation, head.state.next_offset), head.state.append_time_ms)


def _book(logs: Streams, head: Head) -> TemplateBook:
    data = logs.note(head.log_id)
    return templates.load(data) if data is not None else TemplateBook()


def _use(logs: Streams, head: Head, config: TouchConfig, ids: frozenset[int], now_ms: int) -> None:
    """Stores in the log's note that templates were used, but only from time to time. If another request changes the
    note at the same time, nothing is stored.
    """
    data = logs.note(head.log_id)
    if data is None:
        return
    book = templates.load(data)
    used = book.used(ids, now_ms, config.limits.persist_interval_ms)
    if used is not book:
        logs.set_note(head.log_id, templates.dump(used), data)


def _store(
    logs: Streams,
    name: str,
    head: Head,
    config: TouchConfig,
    declared: Any,
    ttl_ms: int,
    now_ms: int,
) -> tuple[templates.Activation, ...]:
    for _ in range(_TRIES):
        data = logs.note(head.log_id)
        book = templates.load(data) if data is not None else TemplateBook()
        next_offset = logs.head(name).state.next_offset
        changed, outcomes = book.activate(
            declared, ttl_ms=ttl_ms, limits=config.limits, next_offset=next_offset, now_ms=now_ms
        )
        if changed == book or logs.set_note(head.log_id, templates.dump(changed), data):
            return outcomes
    raise Overloaded(f"others keep activating templates: name={name}")
