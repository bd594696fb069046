"""The routes that read features (§ 4)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from starlette.responses import Response

from functions.access import Scope
from functions.api.features.calls import AS_OF, Call, KeyNotFound, NameNotFound, convert, parse
from functions.metrics import ApiMetric
from headrace.errors import HeadraceError, PayloadTooLarge
from headrace.features.documents import Answers
from headrace.features.pipeline.text import MAX_NAME_CHARS
from headrace.features.rows import write_as_of
from headrace.features.values import MAX_READ, GetRequest

MAX_READ_BYTES = 6_000_000  # of a body; an answer may have as many
_MAX_AS_OF = 4096  # bytes of the header: proxies allow 8 KB or 10 KB for all
Key = str | int | float | bool | list[Any]
Consistency = Literal["strong", "stale"]


class EntryBody(msgspec.Struct, frozen=True):
    """An entry of a batch: whose features are asked for."""

    table: str
    key: Key
    features: list[str] | None = None


class GetBody(EntryBody, frozen=True):
    """The body of `/get`."""

    consistency: Consistency = "strong"


class BatchBody(msgspec.Struct, frozen=True):
    """The body of `/batch_get`."""

    requests: list[EntryBody]
    consistency: Consistency = "strong"


async def get(call: Call) -> Response:
    """Reads the features of one entity."""
    answers = await _read(call, _get)
    (row,) = answers.rows
    if isinstance(row, HeadraceError):
        raise row
    return await _reply(call, row, answers)


async def batch_get(call: Call) -> Response:
    """Reads the features of several entities, all as of one time. An entry that can't be answered has its error."""
    answers = await _read(call, _batch_get)
    rows = [_error(row) if isinstance(row, HeadraceError) else row for row in answers.rows]
    return await _reply(call, {"results": rows}, answers)


async def legacy_get(call: Call) -> Response:
    """Reads the row of an entity in the table that the path names, or the value of the feature that it names."""
    name, key = call.part(1), call.rest(2)
    table = await call.run(_table_of, call, name)
    request = GetRequest(table, key, None if table == name else [name])
    answers = await _read(call, lambda call, _: _find(call, [request], stale=False))
    (row,) = answers.rows
    if isinstance(row, HeadraceError):
        raise row
    if not row:
        raise KeyNotFound
    return await _reply(call, row if table == name else {"value": row[name]}, answers)


async def _read(call: Call, verb: Any) -> Answers:
    data = await call.read(MAX_READ_BYTES)
    began = call.context.clock.monotonic()
    answers: Answers = await call.run(verb, call, data)
    call.context.meter.add(ApiMetric.FeatureReads)
    call.context.meter.add(ApiMetric.FeatureRows, len(answers.rows))
    call.context.meter.add(ApiMetric.FeatureReadMs, call.context.ms_since(began))
    return answers


async def _reply(call: Call, document: Any, answers: Answers) -> Response:
    as_of = write_as_of(answers.as_of)
    return await call.reply(document, {AS_OF: as_of} if len(as_of) <= _MAX_AS_OF else {})


def _get(call: Call, data: bytes) -> Answers:
    body = convert(parse(data), GetBody)
    return _find(call, [_request_of(body)], stale=body.consistency == "stale")


def _batch_get(call: Call, data: bytes) -> Answers:
    body = parse(data)
    entries = body.get("requests") if isinstance(body, dict) else None
    if isinstance(entries, list) and len(entries) > MAX_READ:
        raise PayloadTooLarge(f"too many entities in one request: limit={MAX_READ} received={len(entries)}")
    batch = convert(body, BatchBody)
    return _find(call, [_request_of(entry) for entry in batch.requests], stale=batch.consistency == "stale")


def _request_of(entry: EntryBody) -> GetRequest:
    # a longer name is that of no table, and is not repeated in full
    return GetRequest(entry.table[: MAX_NAME_CHARS + 1], entry.key, entry.features)


def _find(call: Call, requests: list[GetRequest], *, stale: bool) -> Answers:
    for table in {request.table for request in requests}:
        call.require(Scope.READ, table)
    return call.features.get(call.namespace, requests, stale=stale)


def _error(error: HeadraceError) -> dict[str, Any]:
    return {"error": {"code": error.code, "message": str(error)}}


def _table_of(call: Call, name: str) -> str:
    """Returns the table that has a name, or a feature with this name. Raises NameNotFound if there is none that the key may
    read.
    """
    call.grant.require(Scope.READ)
    table = call.features.find_table(call.namespace, name)
    if table is None or not call.may_touch(table):
        raise NameNotFound(name)
    return table
