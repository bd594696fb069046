"""The route `/v1/search`, which searches several streams at once: those that patterns match, or that are named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from functions.access import Grant, Scope
from functions.api.context import Context
from functions.api.door import requests
from functions.api.door.entry import grant_of
from functions.api.door.requests import run
from functions.api.door.routes import add
from functions.api.streams.records import NO_STORE, STREAMS
from functions.api.streams.search import MAX_BODY_BYTES, asked_of, hit_of
from functions.metrics import ApiMetric
from headrace.clock import Threads, within_deadline
from headrace.errors import Gone, InvalidRequest, NotFound
from headrace.json import jsontext
from headrace.log.requests import JSON
from headrace.query.language.search_request import timeout_ms
from headrace.streams.values import OWN_STREAMS
from headrace.subscriptions import patterns

if TYPE_CHECKING:  # at run time it would cost every process the import of numpy and pyarrow
    from headrace.query.engine.search import SearchAnswer

PATH = "/v1/search"
MAX_STREAMS = 64  # that one search looks into
_MAX_PATTERNS = 16
_MAX_LOOKED = 20_000  # names, among which those that match are searched
_PAGE = 1000
_SEARCHES = Threads(4, "search")  # each holds what it scans


class Target(NamedTuple):
    """A stream to search, and whether the request names it; if not, a pattern has found it."""

    name: str
    is_named: bool


def add_routes(app: FastAPI, context: Context) -> None:
    """Adds the route. Must be called before the routes of streams are added."""

    async def search_by_query(request: Request) -> Response:
        asked = asked_of(request.scope)
        if "streams" in asked:
            asked["streams"] = asked["streams"].split(",")
        if isinstance(asked.get("search_after"), list):
            raise InvalidRequest("search_after must be an object of places by stream")
        return await _search(request, asked)

    async def search_by_body(request: Request) -> Response:
        body = jsontext.loads(await requests.read(request, MAX_BODY_BYTES))
        if not isinstance(body, dict):
            raise InvalidRequest("search request must be an object")
        return await _search(request, body)

    async def _search(request: Request, asked: Mapping[str, Any]) -> Response:
        grant = grant_of(request)
        grant.require(Scope.READ)
        began = context.clock.monotonic()
        document = await run(_search_streams, context, grant, asked)
        context.meter.add(ApiMetric.SearchMs, context.ms_since(began))
        context.meter.add(ApiMetric.SearchTimeouts, int(document["timed_out"]))
        context.meter.add(ApiMetric.SearchHits, len(document["hits"]))
        status = 408 if document["timed_out"] else 200
        return Response(jsontext.dumps(document), status, {"Content-Type": JSON, "Cache-Control": NO_STORE})

    add(app, PATH, GET=search_by_query, POST=search_by_body)


def _search_streams(context: Context, grant: Grant, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the answer to a search: that of each stream, joined.

    Raises:
        InvalidRequest: the request is malformed; or a stream that is named, or every one that matches, refuses it.
        Forbidden: the key may not read a stream that is named.
        NotFound: no stream matches, or one that is named does not exist.
    """
    began = context.clock.monotonic()
    timeout, after = timeout_ms(asked.get("timeout_ms")), _places(asked.get("search_after"))
    sort = asked.get("sort") or ["_time:desc"]
    if not isinstance(sort, list) or any(str(item).partition(":")[0] in ("offset", "_bm25") for item in sort):
        raise InvalidRequest(
            "sort must be an array of texts, without offset and _bm25: they tell no order of streams"
        )
    engine = context.engine()  # the first call imports what follows
    from headrace.query.engine.search import REQUEST_MS, search

    def search_one(target: Target) -> SearchAnswer | InvalidRequest | None:
        left = max(0, timeout - context.ms_since(began))  # a stream that is late says what it left out
        body = {key: value for key, value in asked.items() if key != "streams"}
        body |= {"sort": sort, "search_after": after.get(target.name), "timeout_ms": left}
        try:
            return search(engine, target.name, body)
        except (InvalidRequest, NotFound, Gone) as exc:
            if target.is_named:
                raise
            return exc if isinstance(exc, InvalidRequest) else None  # one that ended meanwhile is no match

    with within_deadline(REQUEST_MS):
        targets = find(context, grant, asked.get("streams"))
        with context.query():
            outcomes = list(zip(targets, _SEARCHES.map(search_one, targets), strict=True))
    context.meter.add(ApiMetric.Searches, len(outcomes))
    refused = {target.name: outcome for target, outcome in outcomes if isinstance(outcome, InvalidRequest)}
    searched = {
        target.name: outcome
        for target, outcome in outcomes
        if outcome is not None and not isinstance(outcome, InvalidRequest)
    }
    if not searched:
        raise next(iter(refused.values()), NotFound("no stream matches"))
    joined = _join(searched, refused, after)
    return {"took_ms": context.ms_since(began), "timeout_ms": timeout, **joined}


def _join(
    searched: Mapping[str, SearchAnswer], refused: Mapping[str, InvalidRequest], after: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the members of the answer from those of the streams that were searched, by name: the first hits of all. The
    next page begins in each stream after its last hit on this one.
    """
    from headrace.query.engine import several

    names, answers = list(searched), list(searched.values())
    page = several.first_hits(answers, by_offset=False)
    ends = {names[number]: answers[number].place_of(hit) for number, hit in page}
    document = several.summary(answers)
    document["coverage"] |= {
        "streams": names,
        "streams_skipped": [{"stream": name, "reason": str(exc)} for name, exc in refused.items()],
    }
    explained = {name: answer.explained for name, answer in searched.items() if answer.explained is not None}
    return {
        **document,
        "hits": [{"stream": names[number], **hit_of(answers[number], hit)} for number, hit in page],
        "next_search_after": {**after, **ends} if len(page) == answers[0].request.size else None,
        **({"explain": explained} if explained else {}),
    }


def _places(raw: Any) -> dict[str, Any]:
    """Returns where the page begins in each stream.

    Raises:
        InvalidRequest: it is not an object, or has too many members.
    """
    if raw is None:
        return {}
    if not isinstance(raw, dict) or len(raw) > MAX_STREAMS:
        raise InvalidRequest("search_after must be an object of places by stream")
    return raw


def find(context: Context, grant: Grant, asked: Any) -> list[Target]:
    """Returns the streams that names and patterns ask for, in the order of their names. A pattern finds only streams that
    the key may read, and none of the server's own.

    Raises:
        InvalidRequest: the names or patterns are malformed, or stand for too many streams.
        Forbidden: the key may not read a stream that is named.
    """
    given = [asked] if isinstance(asked, str) else asked
    is_list = isinstance(given, list) and 0 < len(given) <= _MAX_PATTERNS
    if not is_list or not all(isinstance(one, str) and one for one in given):
        raise InvalidRequest(f"streams must be a name or a pattern, or an array of at most {_MAX_PATTERNS}")
    found: dict[str, Target] = {}
    looked = 0
    for text in sorted(given):
        if not _is_pattern(text):
            grant.require(Scope.READ, STREAMS.check(text))
            found[text] = Target(text, True)
            continue
        for prefix in grant.within(patterns.literal_prefix(text)):
            after = ""
            while page := context.logs().list(after=after, prefix=prefix, limit=_PAGE):
                after = page[-1].name
                looked += len(page)
                for name in (row.name for row in page):
                    if name not in OWN_STREAMS and patterns.matches(text, name):
                        found.setdefault(name, Target(name, False))
                _check_number(found, looked, text)
    _check_number(found, looked, "")
    return [found[name] for name in sorted(found)]


def _is_pattern(text: str) -> bool:
    """Returns whether a text has a wildcard. Raises InvalidRequest if it is no pattern."""
    try:
        return not all(patterns.split(text))
    except ValueError as exc:
        raise InvalidRequest(f"streams has a pattern that is malformed: {exc}") from exc


def _check_number(found: Sequence[Any] | Mapping[str, Any], looked: int, text: str) -> None:
    if len(found) > MAX_STREAMS:
        raise InvalidRequest(f"too many streams match: limit={MAX_STREAMS}: narrow the pattern")
    if looked > _MAX_LOOKED:
        raise InvalidRequest(f"too many names begin like the pattern {text[:64]}: limit={_MAX_LOOKED}")
