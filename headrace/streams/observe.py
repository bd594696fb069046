"""One request as a stream of events and a stream of spans tell of it: what is looked up where, and the view that joins
both. Pure: the searches are arguments.

The members of the view are those of Prisma Streams (`POST /v1/observe/request`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace import instants
from headrace.errors import InvalidRequest
from headrace.streams.profiles import strict

MAX_EVENTS, MAX_SPANS = 500, 10_000
_EVENTS, _SPANS = 100, 5000  # by default
_MAX_PADDING_MS = 86_400_000
_MAX_TRACES = 64  # that one request id may lead to: each is a clause of a query
MAX_DEPTH = 64  # of the tree: documents that are nested deeper are refused by many readers
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


class Found(NamedTuple):
    """What a search found.

    Attributes:
        query: the text of the query.
        total: how many records match, or at least do.
        pages: the number of searches that it took.
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


# The request.


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


# Looking up.


def look_up(lookup: Lookup, events: Search | None, traces: Search | None) -> tuple[list[Found], list[Found]]:
    """Returns what was found of events, and of spans. None means that a stream is not asked.

    From the id that is given, spans or events tell the trace, and the trace finds all others.
    """
    of_events: list[Found] = []
    of_traces: list[Found] = []

    def ask(search: Search | None, found: list[Found], field: str, values: Sequence[str], most: int) -> None:
        if search is not None and values:
            found.append(search(_query(lookup, field, values), most))

    def ids() -> list[str]:
        hits = [hit for one in (*of_events, *of_traces) for hit in one.hits]
        return list(dict.fromkeys(trace for hit in hits if (trace := _of(hit.record, "traceId"))))[:_MAX_TRACES]

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


# The view.


def view(lookup: Lookup, events: Sequence[Found] | None, traces: Sequence[Found] | None) -> dict[str, Any]:
    """Returns the document that joins what was found; None for a stream that is not shown."""
    event_hits, span_hits = _distinct(events or ()), _distinct(traces or ())
    trace = _Trace([hit.record for hit in span_hits])
    primary = next((hit for hit in event_hits if trace.id and hit.record.get("traceId") == trace.id), None)
    primary = primary or next(iter(event_hits), None)
    event = None if primary is None else primary.record
    warnings = _warnings(events, traces, event_hits, span_hits, trace)
    show_event, show_span = (_whole, _whole) if lookup.raw else (_compact_event, _compact_span)
    return {
        "lookup": {
            **dict.fromkeys(LOOKUPS),
            "traceId": trace.id or (None if event is None else event.get("traceId")),
            "requestId": None if event is None else event.get("requestId"),
            lookup.field: lookup.value,
        },
        "summary": _summary(lookup, event, trace),
        "evlog": None
        if events is None
        else {
            "stream": lookup.events,
            "primary": None if event is None else show_event(event),
            "matches": [{"offset": hit.offset, "source": show_event(hit.record)} for hit in event_hits],
        },
        "trace": None
        if traces is None
        else {
            "stream": lookup.traces,
            "traceId": trace.id,
            "rootSpanId": trace.root,
            "spans": [show_span(span) for span in trace.spans],
            "tree": trace.tree(),
            "serviceMap": trace.service_map(),
            "criticalPath": trace.critical_path(),
            "errors": trace.errors(),
            "partial": bool(trace.missing) or trace.is_cut or any(one.limited or not one.complete for one in traces),
            "missingParents": trace.missing,
            "duplicateSpans": trace.duplicates,
        },
        "timeline": _timeline(lookup, event_hits, span_hits) if lookup.shows_timeline else [],
        "coverage": {"events": _coverage(events), "traces": _coverage(traces), "warnings": warnings},
    }


def _distinct(found: Iterable[Found]) -> list[Hit]:
    return list({hit.offset: hit for one in found for hit in one.hits}.values())


class _Trace:
    """The spans of a trace, each once, as a forest. A span whose parent is not among them is a root; so is the earliest of
    spans that are each other's parents, which only a broken exporter sends.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        ordered = sorted(records, key=_begin)
        distinct: dict[tuple[Any, Any], Record] = {}
        for span in ordered:
            distinct.setdefault((span.get("traceId"), span.get("spanId")), span)
        self.spans = list(distinct.values())
        self.duplicates = len(records) - len(self.spans)
        self.id = _of(self.spans[0], "traceId") if self.spans else None
        self._by_id = {_id(span): span for span in self.spans}
        self._children: dict[str, list[str]] = {one: [] for one in self._by_id}
        self.missing: list[str] = []
        roots: list[str] = []
        for one, span in self._by_id.items():
            parent = _of(span, "parentSpanId")
            if parent is not None and parent in self._by_id and parent != one:
                self._children[parent].append(one)
                continue
            roots.append(one)
            if parent is not None and parent != one:
                self.missing.append(parent)
        self.missing = sorted(set(self.missing))
        self._order: list[tuple[str, int]] = []  # each span before its children, with its depth
        reached: set[str] = set()
        self._roots: list[str] = []
        for root in (*roots, *self._by_id):  # the latter: spans that no root leads to
            if root not in reached:
                self._roots.append(root)
                self._walk(root, reached)
        self.root = max(self._roots, key=self._likely_root, default=None)

    def _walk(self, root: str, reached: set[str]) -> None:
        stack = [(root, 0)]
        while stack:
            one, depth = stack.pop()
            reached.add(one)
            self._order.append((one, depth))
            self._children[one] = [child for child in self._children[one] if child not in reached]
            stack += [(child, depth + 1) for child in self._children[one]]

    def _likely_root(self, one: str) -> tuple[bool, bool, bool, bool, float]:
        span = self._by_id[one]
        http = _group(span, "http")
        has_http = any(http.get(key) is not None for key in ("method", "route", "path", "statusCode"))
        return (
            span.get("parentSpanId") is None,
            span.get("kind") == "server",
            has_http,
            span.get("requestId") is not None,
            _number(span, "duration") or 0,
        )

    def tree(self) -> list[dict[str, Any]]:
        """Returns the forest; what is deeper than `MAX_DEPTH` is left out, and the trace is partial."""
        nodes: dict[str, dict[str, Any]] = {}
        for one, depth in self._order:
            span = self._by_id[one]
            nodes[one] = {
                "spanId": one,
                "parentSpanId": span.get("parentSpanId"),
                "children": [],
                "depth": depth,
                **{key: span.get(key) for key in ("service", "name", "kind")},
                "startTime": span.get("timestamp"),
                "endTime": span.get("endTimestamp"),
                "duration": span.get("duration"),
                "statusCode": _group(span, "status").get("code"),
            }
        for one, depth in self._order:
            if depth < MAX_DEPTH:
                nodes[one]["children"] = [nodes[child] for child in self._children[one]]
        return [nodes[one] for one in self._roots]

    @property
    def is_cut(self) -> bool:
        """Whether the tree leaves out spans that are too deep."""
        return any(depth > MAX_DEPTH for _, depth in self._order)

    def critical_path(self) -> list[str]:
        """Returns the ids from the root on, at each span that child whose own time and that of its longest descendants is
        the greatest. Time in which a child runs is not its parent's own.
        """
        score: dict[str, float] = {}
        for one, _ in reversed(self._order):
            score[one] = self._own_ms(one) + max((score[child] for child in self._children[one]), default=0.0)
        path, here = [], self.root
        while here is not None:
            path.append(here)
            here = max(self._children[here], key=lambda child: score[child], default=None)
        return path

    def _own_ms(self, one: str) -> float:
        begin, end = _interval(self._by_id[one])
        covered, reached = 0.0, begin
        for first, last in sorted(_interval(self._by_id[child]) for child in self._children[one]):
            first, last = max(first, reached), min(last, end)
            if last > first:
                covered, reached = covered + last - first, last
        return max(0.0, end - begin - covered)

    def service_map(self) -> list[dict[str, Any]]:
        """Returns the calls between services, by caller and callee."""
        edges: dict[tuple[str, str], list[Record]] = {}
        for parent, children in self._children.items():
            caller = _of(self._by_id[parent], "service")
            for child in children:
                callee = _of(self._by_id[child], "service")
                if caller and callee and caller != callee:
                    edges.setdefault((caller, callee), []).append(self._by_id[child])
        return [
            {
                "from": caller,
                "to": callee,
                "count": len(calls),
                "errorCount": sum(map(_is_error, calls)),
                "latency": _latency([ms for call in calls if (ms := _number(call, "duration")) is not None]),
            }
            for (caller, callee), calls in sorted(edges.items())
        ]

    def errors(self) -> list[dict[str, Any]]:
        """Returns the spans that failed."""
        return [
            {
                "spanId": _id(span),
                "service": span.get("service"),
                "name": span.get("name"),
                "time": span.get("timestamp"),
                "type": _group(span, "error").get("type"),
                "message": _group(span, "error").get("message") or _group(span, "status").get("message"),
            }
            for span in self.spans
            if _is_error(span)
        ]

    def root_span(self) -> Record:
        """Returns the span of the root; an empty one without spans."""
        return {} if self.root is None else self._by_id[self.root]


def _latency(values: Sequence[float]) -> dict[str, Any]:
    return {
        "count": len(values),
        "sum": sum(values),
        "min": min(values, default=None),
        "max": max(values, default=None),
    }


def _summary(lookup: Lookup, event: Record | None, trace: _Trace) -> dict[str, Any]:
    """Returns the head of the view: from the event first, and from the root span."""
    event, span = event or {}, trace.root_span()
    http, error = _group(span, "http"), _group(span, "error")

    def first(*values: Any) -> Any:
        return next((value for value in values if value is not None), None)

    method, path = first(event.get("method"), http.get("method")), first(event.get("path"), http.get("path"))
    route, status = http.get("route"), first(event.get("status"), http.get("statusCode"))
    called = " ".join(part for part in (method, route or path) if part)
    failed = event.get("level") == "error" or (_number(event, "status") or 0) >= 500
    return {
        "title": event.get("message") or called or span.get("name") or lookup.value,
        "service": first(event.get("service"), span.get("service")),
        "environment": first(event.get("environment"), span.get("environment")),
        "method": method,
        "path": path,
        "route": route,
        "status": status,
        "level": event.get("level"),
        "duration": first(event.get("duration"), span.get("duration")),
        "startTime": first(event.get("timestamp"), span.get("timestamp")),
        "endTime": span.get("endTimestamp"),
        "error": {
            "isError": failed or any(map(_is_error, trace.spans)),
            "type": error.get("type"),
            "message": first(error.get("message"), event.get("message")),
            **{key: event.get(key) for key in ("why", "fix", "link")},
        },
    }


def _timeline(lookup: Lookup, events: Sequence[Hit], spans: Sequence[Hit]) -> list[dict[str, Any]]:
    """Returns what happened in the order of time: events, and starts, events and ends of spans."""
    items: list[dict[str, Any]] = []

    def add(hit: Hit, kind: str, time: Any, title: Any, severity: Any, data: Record, **more: Any) -> None:
        if not isinstance(time, str):
            return
        is_event = kind.startswith("evlog")
        source = (lookup.events, "evlog") if is_event else (lookup.traces, "otel-traces")
        ids = {key: hit.record.get(key) for key in (*LOOKUPS, "parentSpanId")}
        item = {"kind": kind, "time": time, **more, "service": hit.record.get("service"), "title": title}
        item |= {"severity": severity, "ids": ids}
        item["source"] = {"stream": source[0], "offset": hit.offset, "profile": source[1]}
        items.append({**item, "data": data} if lookup.raw else item)

    for hit in events:
        event = hit.record
        title = event.get("message") or " ".join(str(event[key]) for key in ("method", "path") if event.get(key))
        add(hit, "evlog.event", event.get("timestamp"), title or "event", event.get("level"), event)
    for hit in spans:
        span = hit.record
        title, severity = span.get("name") or span.get("spanId"), "error" if _is_error(span) else "info"
        spent = {"duration": span.get("duration")}
        add(hit, "otel.span.start", span.get("timestamp"), title, severity, span, **spent)
        for one in span.get("events") or ():
            failed = any(_group(one, "attributes").get(f"exception.{key}") for key in ("type", "message"))
            failed = failed or str(one.get("name")).lower() == "exception"
            kind = "otel.exception" if failed else "otel.span.event"
            add(hit, kind, one.get("timestamp"), one.get("name"), "error" if failed else severity, one)
        add(hit, "otel.span.end", span.get("endTimestamp"), title, severity, span, **spent)
    return sorted(items, key=lambda item: (item["time"], item["kind"]))


def _coverage(found: Sequence[Found] | None) -> dict[str, Any]:
    found = found or ()
    hits = len(_distinct(found))
    limited, timed_out = any(one.limited for one in found), any(one.timed_out for one in found)
    complete = all(one.complete for one in found) and not limited and not timed_out
    exact = complete and all(one.exact for one in found)
    return {
        "searched": bool(found),
        "complete": complete,
        "timed_out": timed_out,
        "limit_reached": limited,
        "hits": hits,
        "unique_hits": hits,
        "query_count": len(found),
        "batch_count": sum(one.pages for one in found),
        "total": {"value": hits, "relation": "eq" if exact else "gte"},
        "index_families_used": sorted({family for one in found for family in one.families}),
        "scanned_tail_docs": sum(one.tail for one in found),
        "scanned_segments": sum(one.segments for one in found),
        "possible_missing_events_upper_bound": max((one.missing for one in found), default=0),
        "queries": [
            {
                "q": one.query,
                "hits": len(one.hits),
                "total": {"value": one.total, "relation": "eq" if one.exact else "gte"},
                "pages": one.pages,
                "complete": one.complete,
                "timed_out": one.timed_out,
                "limit_reached": one.limited,
            }
            for one in found
        ],
    }


def _warnings(
    events: Sequence[Found] | None,
    traces: Sequence[Found] | None,
    event_hits: Sequence[Hit],
    span_hits: Sequence[Hit],
    trace: _Trace,
) -> list[str]:
    warnings: list[str] = []
    for what, found, hits in (("events", events, event_hits), ("spans", traces, span_hits)):
        if found is None:
            continue
        if not hits:
            warnings.append(f"no {what} were found")
        if any(one.limited for one in found):
            warnings.append(f"there are more {what} than the limit")
        if not all(one.complete for one in found):
            warnings.append(f"not every record was searched for {what}")
    if trace.missing:
        warnings.append(f"parents of spans are missing: {len(trace.missing)}")
    if trace.is_cut:
        warnings.append(f"the tree is cut at a depth of {MAX_DEPTH}: spans has all")
    return warnings


_EVENT_FIELDS = (
    *("timestamp", "level", "service", "environment", "version", "region", "requestId", "traceId", "spanId"),
    *("method", "path", "status", "duration", "message", "why", "fix", "link"),
)
_SPAN_FIELDS = (
    *("schemaVersion", "signal", "timestamp", "endTimestamp", "startUnixNano", "endUnixNano", "duration", "traceId"),
    *("spanId", "parentSpanId", "name", "kind", "service", "serviceNamespace", "serviceInstanceId", "environment"),
    *("version", "region", "requestId", "eventNames", "dropped"),
)
_SPAN_GROUPS = {
    "traceFlags": ("sampled",),
    "status": ("code", "message"),
    "http": ("method", "route", "path", "statusCode"),
    "db": ("system", "name", "operation"),
    "rpc": ("system", "service", "method"),
    "messaging": ("system", "destination", "operation"),
    "error": ("isError", "type", "message"),
}


def _whole(record: Record) -> Record:
    return record


def _compact_event(record: Record) -> Record:
    return {key: record[key] for key in _EVENT_FIELDS if key in record}


def _compact_span(record: Record) -> Record:
    groups = {
        group: {key: _group(record, group)[key] for key in keys if key in _group(record, group)}
        for group, keys in _SPAN_GROUPS.items()
    }
    return {key: record[key] for key in _SPAN_FIELDS if key in record} | groups


def _begin(span: Record) -> tuple[str, float, str]:
    return _of(span, "timestamp") or "", -(_number(span, "duration") or -1), _of(span, "name") or ""


def _interval(span: Record) -> tuple[float, float]:
    """Returns when a span began and ended, in milliseconds since 1970."""
    try:
        begin = int(span.get("startUnixNano") or "") / 1_000_000
    except (TypeError, ValueError):
        begin = float(instants.parse_ms(_of(span, "timestamp") or "") or 0)
    return begin, begin + (_number(span, "duration") or 0)


def _is_error(span: Record) -> bool:
    return _group(span, "status").get("code") == "error" or _group(span, "error").get("isError") is True


def _id(span: Record) -> str:
    return _of(span, "spanId") or ""


def _of(record: Record, key: str) -> str | None:
    value = record.get(key)
    return value if isinstance(value, str) and value else None


def _number(record: Record, key: str) -> float | None:
    value = record.get(key)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _group(record: Record, key: str) -> Record:
    value = record.get(key)
    return value if isinstance(value, dict) else {}
