"""The routes that search the live records of a topic, and that show and replace what is searched: tag, node and time of
each record (`tag`, `node`, `ts`), and fields of the data by choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from functions.access import Scope
from functions.api.context import Context
from functions.api.topics.calls import Call
from functions.api.topics.records import array
from functions.metrics import ApiMetric
from headrace.batch import Record
from headrace.definition import Definition
from headrace.errors import InvalidRequest
from headrace.json import jsontext
from headrace.queues.verbs import Queues
from headrace.topics import fields
from headrace.topics.diff import shown

if TYPE_CHECKING:  # at run time it would cost every process the import of numpy and pyarrow
    from headrace.query.engine.search import Hit, SearchAnswer


async def search(call: Call) -> Response:
    """Searches the live records of a topic. If the time was over, the answer has what was found, and `timed_out` says so:
    with another status than 200 it would have to be an error.
    """
    name = call.name(Scope.READ, "/search")
    asked = await _body(call)
    meter = call.context.meter
    meter.add(ApiMetric.Searches)
    answer = await call.run(_find, call.context, name, asked)
    meter.add(ApiMetric.SearchMs, round(call.verb_ms))
    meter.add(ApiMetric.SearchTimeouts, int(answer.timed_out))
    meter.add(ApiMetric.SearchHits, len(answer.hits))
    return await call.reply(
        _document(name, answer),
        array("hits", [_hit(answer, hit) for hit in answer.hits]),
        measured={"search_ms": call.verb_ms},
    )


async def show(call: Call) -> Response:
    """Shows what is searched in a topic."""
    name = call.name(Scope.READ, "/search")
    definition = await call.run(_definition, call.logs, name)
    return await call.reply({"topic": name, "search": fields.shown(definition)})


async def configure(call: Call) -> Response:
    """Replaces what is searched in a topic, besides tag, node and time. The body is a stream's search configuration."""
    name = call.name(Scope.ADMIN, "/search")
    change = fields.change_to(await _body(call))
    definition = await call.run(call.logs.define, name, change)
    return await call.reply({"topic": name, "search": fields.shown(definition)})


def _definition(logs: Queues, name: str) -> Definition:
    with logs.in_time():
        return logs.definition_of(logs.head(name))


async def _body(call: Call) -> dict[str, Any]:
    body = jsontext.loads(await call.read() or b"{}")
    if not isinstance(body, dict):
        raise InvalidRequest("the body must be an object")
    return body


def _find(context: Context, name: str, asked: dict[str, Any]) -> SearchAnswer:
    engine = context.topic_engine()  # the first call imports what follows
    from headrace.query.engine.search import search

    with context.query():
        return search(engine, name, asked)


def _document(name: str, answer: SearchAnswer) -> dict[str, Any]:
    coverage = answer.coverage.members(int)
    coverage["head_seq"] = coverage.pop("stream_head_offset")
    coverage["visible_through_seq"] = coverage.pop("visible_through_offset")
    document: dict[str, Any] = {
        "topic": name,
        "head_seq": answer.snapshot.end,
        "took_ms": round(answer.took_ms),
        "timed_out": answer.timed_out,
        "timeout_ms": answer.request.timeout_ms,
        "coverage": {
            **coverage,
            "indexed_segments": answer.indexed_segments,
            "scanned_segments": answer.scanned_segments,
            "scanned_tail_docs": answer.scanned_tail,
            "index_families_used": list(answer.families),
        },
        "total": {"value": answer.total, "relation": "eq" if answer.exact else "gte"},
        "next_search_after": None,
    }
    if answer.explained is not None:
        document["explain"] = answer.explained
    if answer.hits and len(answer.hits) == answer.request.size:
        document["next_search_after"] = answer.place_of(answer.hits[-1])
    return document


def _hit(answer: SearchAnswer, hit: Hit) -> bytes:
    found, columns = hit.document, hit.document.columns
    assert columns is not None, "a topic has fields that are bound to them"
    record = Record(found.offset, columns.time_ms, columns.key, found.data, columns.node)
    snippet = answer.snippet_of(hit)
    more = {"score": hit.score, "sort": answer.place_of(hit)} | ({} if snippet is None else {"snippet": snippet})
    return shown(record, tag=True, meta=False, lease=b"," + jsontext.dumps(more)[1:-1])
