"""The document that joins the events and the spans of one request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headrace.streams.observe.lookup import LOOKUPS, Found, Hit, Lookup
from headrace.streams.observe.trace import MAX_DEPTH, Record, Trace, group_of, is_error, number_of


def view(lookup: Lookup, events: Sequence[Found] | None, traces: Sequence[Found] | None) -> dict[str, Any]:
    """Returns the document that joins what was found.

    Args:
        events, traces: what `look_up` found; None for a stream that is not shown.
    """
    event_hits, span_hits = _distinct(events or ()), _distinct(traces or ())
    trace = Trace([hit.record for hit in span_hits])
    distinct = set(map(id, trace.spans))
    once = [hit for hit in span_hits if id(hit.record) in distinct]
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
        "timeline": _timeline(lookup, event_hits, once) if lookup.shows_timeline else [],
        "coverage": {"events": _coverage(events), "traces": _coverage(traces), "warnings": warnings},
    }


def _distinct(found: Iterable[Found]) -> list[Hit]:
    return list({hit.offset: hit for one in found for hit in one.hits}.values())


def _summary(lookup: Lookup, event: Record | None, trace: Trace) -> dict[str, Any]:
    """Returns the head of the view: from the event first, and from the root span."""
    event, span = event or {}, trace.root_span()
    http, error = group_of(span, "http"), group_of(span, "error")

    def first(*values: Any) -> Any:
        return next((value for value in values if value is not None), None)

    method, path = first(event.get("method"), http.get("method")), first(event.get("path"), http.get("path"))
    route, status = http.get("route"), first(event.get("status"), http.get("statusCode"))
    called = " ".join(part for part in (method, route or path) if part)
    failed = event.get("level") == "error" or (number_of(event, "status") or 0) >= 500
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
        "startTime": first(span.get("timestamp"), event.get("timestamp")),
        "endTime": span.get("endTimestamp"),
        "error": {
            "isError": failed or any(map(is_error, trace.spans)),
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
        title, severity = span.get("name") or span.get("spanId"), "error" if is_error(span) else "info"
        spent = {"duration": span.get("duration")}
        add(hit, "otel.span.start", span.get("timestamp"), title, severity, span, **spent)
        for one in span.get("events") or ():
            failed = any(group_of(one, "attributes").get(f"exception.{key}") for key in ("type", "message"))
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
    trace: Trace,
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
        group: {key: group_of(record, group)[key] for key in keys if key in group_of(record, group)}
        for group, keys in _SPAN_GROUPS.items()
    }
    return {key: record[key] for key in _SPAN_FIELDS if key in record} | groups
