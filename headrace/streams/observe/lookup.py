"""The request for a view of one request, and the searches that find its events and spans: from the id that is given, one
of the two streams tells the trace, and the trace finds all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace import instants
from headrace.errors import InvalidRequest
from headrace.streams.profiles import strict

MAX_EVENTS, MAX_SPANS = 500, 10_000
_EVENTS, _SPANS = 100, 5000  # by default
_MAX_PADDING_MS = 86_400_000
_MAX_TRACES = 64  # that one request id may lead to: each is a clause of a query
LOOKUPS = ("requestId", "traceId", "spanId")

Record = Mapping[str, Any]


class Lookup(NamedTuple):
    """A request for a view.

    Attributes:
        events, traces: the streams; None if they are not given.
        field, value: what is looked up: one of `LOOKUPS`, and its value.
        from_ms, to_ms: bounds of the time, inclusive, with padding; None if there is none.
        shows_events, shows_trace, shows_timeline: which parts the view has; None for a default.
        raw: whether records are shown whole.
        max_events, max_spans: the most events and spans.
    """

    events: str | None
    traces: str | None
    field: str
    value: str
    from_ms: int | None
    to_ms: int | None
    shows_events: bool | None
    shows_trace: bool | None
    shows_timeline: bool
    raw: bool
    max_events: int
    max_spans: int


class Hit(NamedTuple):
    """A record that was found, with the cursor behind it."""

    offset: str
    record: Record

    @property
    def trace_id(self) -> str | None:
        """The trace that the record belongs to, if it says so."""
        return strict.text_or_none(self.record.get("traceId"))


class Found(NamedTuple):
    """What a search found.

    Attributes:
        query: the text of the query.
        hits: the records, in the order of time.
        total, exact: how many records match; at least so many, if it is not exact.
        pages: the number of searches that it took.
        complete: whether every record was looked at, or decided by an index.
        timed_out: whether the time was over before.
        limited: whether there were more than were asked for.
        families, tail, segments, missing: what the coverage says, added up.
    """

    query: str
    hits: Sequence[Hit]
    total: int
    exact: bool
    pages: int
    complete: bool
    timed_out: bool
    limited: bool
    families: frozenset[str] = frozenset()
    tail: int = 0
    segments: int = 0
    missing: int = 0


Search = Callable[[str, int], Found]
"""A function that searches one of the streams: `search(query, limit)`."""


def parse(body: Any) -> Lookup:
    """Parses the body of a request.

    Raises:
        InvalidRequest: a member is missing or malformed.
    """
    asked = strict.as_object(body, "observe request")
    streams, given = strict.section(asked, "streams", "streams"), strict.section(asked, "lookup", "lookup")
    named = {field: value for field in LOOKUPS if (value := _text(given, field, "lookup")) is not None}
    if len(named) != 1:
        raise InvalidRequest("lookup must have exactly one of requestId, traceId and spanId")
    ((field, value),) = named.items()
    include, limits = strict.section(asked, "include", "include"), strict.section(asked, "limits", "limits")
    from_ms, to_ms = _times(strict.section(asked, "time", "time"))
    return Lookup(
        events=_text(streams, "events", "streams"),
        traces=_text(streams, "traces", "streams"),
        field=field,
        value=value,
        from_ms=from_ms,
        to_ms=to_ms,
        shows_events=_flag(include, "events"),
        shows_trace=_flag(include, "trace"),
        shows_timeline=_flag(include, "timeline") is not False,
        raw=_flag(include, "raw") is True,
        max_events=_limit(limits, "events", _EVENTS, MAX_EVENTS),
        max_spans=_limit(limits, "spans", _SPANS, MAX_SPANS),
    )


def _text(document: Record, key: str, place: str) -> str | None:
    value = document.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(f"{place}.{key} must be a string")
    return (value or "").strip() or None


def _flag(document: Record, key: str) -> bool | None:
    value = document.get(key)
    if value is not None and not isinstance(value, bool):
        raise InvalidRequest(f"include.{key} must be boolean")
    return value


def _limit(document: Record, key: str, default: int, most: int) -> int:
    value = document.get(key, default)
    if type(value) is not int or not 1 <= value <= most:
        raise InvalidRequest(f"limits.{key} must be an integer from 1 to {most}")
    return value


def _times(time: Record) -> tuple[int | None, int | None]:
    padding = time.get("paddingMs", 0)
    if type(padding) is not int or not 0 <= padding <= _MAX_PADDING_MS:
        raise InvalidRequest(f"time.paddingMs must be an integer from 0 to {_MAX_PADDING_MS}")
    bounds: list[int | None] = []
    for key, by in (("from", -padding), ("to", padding)):
        text = _text(time, key, "time")
        moment = None if text is None else instants.parse_ms(text)
        if text is not None and moment is None:
            raise InvalidRequest(f"time.{key} must be an ISO timestamp")
        bounds.append(None if moment is None else moment + by)
    return bounds[0], bounds[1]


def look_up(lookup: Lookup, events: Search | None, traces: Search | None) -> tuple[list[Found], list[Found]]:
    """Searches for the events and the spans of a request: from the id that is given, spans or events tell the trace, and
    the trace finds all others.

    Args:
        events, traces: search the two streams; None for one that is not asked.

    Returns:
        What each search found, of events and of spans, in the order in which they were made.

    Raises:
        Whatever the searches raise.
    """
    of_events: list[Found] = []
    of_traces: list[Found] = []

    def ask(search: Search | None, found: list[Found], field: str, values: Sequence[str], most: int) -> None:
        if search is not None and values:
            found.append(search(_query(lookup, field, values), most))

    def ids() -> list[str]:
        hits = [hit for one in (*of_events, *of_traces) for hit in one.hits]
        return list(dict.fromkeys(hit.trace_id for hit in hits if hit.trace_id))[:_MAX_TRACES]

    if lookup.field == "traceId":
        ask(events, of_events, "traceId", [lookup.value], lookup.max_events)
        ask(traces, of_traces, "traceId", [lookup.value], lookup.max_spans)
        return of_events, of_traces
    if lookup.field == "requestId":
        ask(events, of_events, "requestId", [lookup.value], lookup.max_events)
    if not ids():
        ask(traces, of_traces, lookup.field, [lookup.value], lookup.max_spans)
    if lookup.field == "spanId":
        found = ids()
        ask(events, of_events, "traceId" if found else "spanId", found or [lookup.value], lookup.max_events)
    ask(traces, of_traces, "traceId", ids(), lookup.max_spans)
    return of_events, of_traces


def _query(lookup: Lookup, field: str, values: Sequence[str]) -> str:
    clauses = " OR ".join(f"{field}:{_quoted(value)}" for value in values)
    bounds = ((">=", lookup.from_ms), ("<=", lookup.to_ms))
    times = [f'timestamp:{sign}"{instants.render(moment)}"' for sign, moment in bounds if moment is not None]
    return " ".join([f"({clauses})" if times and len(values) > 1 else clauses, *times])


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
