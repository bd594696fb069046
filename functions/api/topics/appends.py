"""The routes that append, read and delete records (§ 2 to § 5)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.responses import Response

from functions.access import Grant, Scope
from functions.api.context import Context
from functions.api.door.requests import ENDS_AT, is_buffered, run
from functions.api.door.waiting import woken_by
from functions.api.topics.calls import Call, committed, decode
from functions.api.topics.config import Number, clamped
from functions.api.topics.records import WriteBody, array, check_text, fitting, request_of
from functions.metrics import ApiMetric
from functions.refusals import Forbidden
from headrace.errors import InvalidRequest
from headrace.topics.diff import shown
from headrace.topics.errors import TopicNotFound
from headrace.topics.values import (
    DEFAULT_LIMIT,
    DEFAULT_PAGE_BYTES,
    MAX_BODY_BYTES,
    MAX_LIMIT,
    MAX_NODE_BYTES,
    MAX_PAGE_BYTES,
    MAX_WAIT_MS,
    DiffPage,
    DiffRequest,
    Gap,
    Match,
    WriteRequest,
    Written,
)

BUFFERED_WAIT_MS = 25_000  # of a function behind an API that gives up after 30 s


class DiffBody(msgspec.Struct, frozen=True):
    """The body of a read (§ 3)."""

    from_seq: Number = 0
    limit: Number = 0
    node: str | list[str] | None = None
    include_tags: bool = False
    include_meta: bool = True
    wait_ms: Number = 0
    max_batch_bytes: Number = 0


class DeleteBody(msgspec.Struct, frozen=True):
    """The body of a delete (§ 5)."""

    before_seq: Number | None = None
    match: str | list[str] | None = None
    seqs: list[Number] | None = None


async def append(call: Call) -> Response:
    """Appends records (§ 2)."""
    name = call.name(Scope.WRITE)
    return_seqs = call.query("return_seqs").flag("return_seqs", True)
    request, written = await run(_write, call, name, await call.read(MAX_BODY_BYTES))
    measured = count_write(call.context, request, written, call.verb_ms)
    document = shown_write(name, written, return_seqs)
    return await call.reply(document, status=201 if written.created else 200, measured=measured, tries=written.tries)


async def diff(call: Call) -> Response:
    """Reads the records after a cursor (§ 3)."""
    name = call.name(Scope.READ, "/diff")
    body = await call.body(DiffBody)
    page = await _diff(call, name, body)
    call.context.meter.add(ApiMetric.Diffs)
    call.context.meter.add(ApiMetric.DiffRecords, len(page.records))
    call.context.meter.add(ApiMetric.DiffMs, round(call.verb_ms))
    texts = [shown(record, tag=body.include_tags, meta=body.include_meta) for record in page.records]
    if is_buffered(call.request.scope) and fitting(texts) < len(texts):
        texts = texts[: fitting(texts)]
        page = page._replace(next_seq=page.records[len(texts) - 1].offset + 1)
    return await call.reply(_page(name, page), array("records", texts), measured={"records_scanned": page.examined})


async def delete(call: Call) -> Response:
    """Deletes records for good (§ 5)."""
    name = call.name(Scope.DELETE, "/delete")
    body = await call.body(DeleteBody)
    erased = await call.run(call.logs.erase, name, body.before_seq, match_of(body.match), body.seqs)
    call.context.meter.add(ApiMetric.RecordsErased, erased.deleted)
    document = erased._asdict()
    document["count"] = document.pop("live")
    return await call.reply({"topic": name, **document})


def _write(call: Call, name: str, data: bytes) -> tuple[WriteRequest, Written]:
    """Appends as `_append` does, and now and then measures how long a queue's jobs have waited: also if no worker asks."""
    request, written = _append(call, name, data)
    waited_ms = call.logs.oldest_wait_ms(name)
    if waited_ms is not None:
        call.context.meter.add(ApiMetric.JobWaitMs, waited_ms)
    return request, written


def _append(call: Call, name: str, data: bytes) -> tuple[WriteRequest, Written]:
    """Appends the records of a body, and returns them with the answer."""
    body = decode(data, WriteBody)
    request = write_request(call.grant, body, call.headers.get("idempotency-key") or None)
    with call.timed():
        return request, write(call.context, call.grant, name, request, configures=body.config is not None)


def write_request(grant: Grant, body: WriteBody, header_key: str | None = None) -> WriteRequest:
    """Returns the request to append the records of a body. Raises what `request_of` does, and Forbidden if it names a topic
    that the key may not touch.
    """
    request = request_of(body, header_key)
    if request.config.dead_letter is not None:
        grant.require(Scope.WRITE, request.config.dead_letter)
    return request


def write(context: Context, grant: Grant, name: str, request: WriteRequest, *, configures: bool) -> Written:
    """Appends records. A key that may not create topics with a configuration of its own only appends to one that exists.

    Args:
        configures: whether the request has a configuration.

    Raises:
        Forbidden: it would have to create it.
    """
    logs = context.topics()
    if not configures or Scope.ADMIN in grant.scopes:
        return logs.append(name, request, limit=context.settings.max_topics)
    try:
        return logs.append(name, replace(request, create=False))
    except TopicNotFound:
        if request.create is False or (request.create is None and not request.config.auto_create):
            raise
    raise Forbidden("this key may not create a topic with a configuration: it lacks the scope admin")


def count_write(context: Context, request: WriteRequest, written: Written, verb_ms: float) -> dict[str, float]:
    """Counts a write that took so long, unless it was a repeat, and returns what `performance` says of it."""
    if written.deduped:
        return {}
    context.meter.add(ApiMetric.TopicAppends)
    context.meter.add(ApiMetric.TopicRecords, len(request.records))
    context.meter.add(ApiMetric.TopicAppendMs, round(verb_ms))
    return committed(context, verb_ms, len(request.records), request.size, durable=written.durable)


def shown_write(name: str, written: Written, return_seqs: bool) -> dict[str, Any]:
    """Returns the answer to a write as a document."""
    document: dict[str, Any] = {"topic": name, "first_seq": written.first_seq, "last_seq": written.last_seq}
    if return_seqs:
        document["seqs"] = list(range(written.first_seq, written.last_seq + 1))
    document["head_seq"] = written.head_seq
    document["count"] = written.last_seq - written.first_seq + 1
    document["created"] = written.created
    document["deduped"] = written.deduped
    return document


async def _diff(call: Call, name: str, body: DiffBody) -> DiffPage:
    """Reads a page; if there is nothing to show, waits for more records as long as the request says."""
    nodes = [body.node] if isinstance(body.node, str) else body.node or []
    for node in nodes:
        check_text("node", node, MAX_NODE_BYTES)
    request = DiffRequest(
        from_seq=body.from_seq,
        limit=min(body.limit or DEFAULT_LIMIT, MAX_LIMIT),
        nodes=frozenset(nodes),
        max_bytes=clamped(body.max_batch_bytes or DEFAULT_PAGE_BYTES, 1, MAX_PAGE_BYTES),
    )
    logs, clock = call.logs, call.context.clock
    wait_ms = min(body.wait_ms, _most_wait_ms(call))
    if not wait_ms:
        return await call.run(logs.diff, name, request)
    deadline = clock.monotonic() + wait_ms / 1000
    with woken_by(logs, name) as waiter:
        while True:
            page = await call.run(logs.diff, name, request)
            left_s = deadline - clock.monotonic()
            if page.records or page.gap or left_s <= 0:
                return page
            if page.caught_up:
                await waiter.pause(left_s)
            if await call.request.is_disconnected():
                return page
            request = request._replace(from_seq=page.next_seq)


def _most_wait_ms(call: Call) -> int:
    scope = call.request.scope
    if is_buffered(scope):
        return BUFFERED_WAIT_MS
    if ENDS_AT in scope:
        return clamped(scope[ENDS_AT] - call.context.clock.now_ms(), 0, MAX_WAIT_MS)
    return MAX_WAIT_MS


def _page(name: str, page: DiffPage) -> dict[str, Any]:
    return {
        "topic": name,
        "next_from_seq": page.next_seq,
        "head_seq": page.head_seq,
        "earliest_seq": page.earliest_seq,
        "caught_up": page.caught_up,
        "tombstone": page.gap and _tombstone(page, page.gap),
        "lag": page.head_seq - page.next_seq,
    }


def _tombstone(page: DiffPage, gap: Gap) -> dict[str, Any]:
    return {
        "gap_from": gap.first,
        "gap_to": gap.last,
        "reason": gap.reason,
        "missed_estimate": gap.missed_estimate,
        "earliest_seq": page.earliest_seq,
        "head_seq": page.head_seq,
    }


def match_of(given: str | list[str] | None) -> Match | None:
    """Returns the condition on tags in a request: a tag, `["tag", "Eq", tag]`, or `["tag", "Glob", "prefix*"]`; None if
    there is none. Raises InvalidRequest for all others.
    """
    if given is None or isinstance(given, str):
        return given if given is None else Match(given)
    match given:
        case ["tag", "Eq", text]:
            return Match(text)
        case ["tag", "Glob", text] if text.endswith("*") and "*" not in text[:-1]:
            return Match(text[:-1], is_prefix=True)
    raise InvalidRequest('match must be a tag, ["tag","Eq",tag] or ["tag","Glob","prefix*"]')
