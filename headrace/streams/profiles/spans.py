"""Spans of traces in their canonical form, one record each, as the profile `otel-traces` stores them.

The names are those of the Prisma Streams server, so that its clients and screens find them. Secrets, statements and
queries of URLs are removed before anything is derived from an attribute, so that no derived field has what the
attributes no longer have. Normalising twice changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from headrace.errors import InvalidRequest
from headrace.instants import render
from headrace.streams.profiles import strict
from headrace.streams.profiles.cleaning import STATEMENTS, Cleaner, Policy, cut, without_query
from headrace.streams.profiles.numbers import integer_or_none, number_or_none

KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
STATUS_CODES = ("unset", "ok", "error")

# The groups of the semantic conventions: the attributes that each field comes from, old names and new.
_GROUPS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "http": {
        "method": ("http.request.method", "http.method"),
        "route": ("http.route",),
        "path": ("url.path", "http.target"),
        "target": ("http.target",),
        "url": ("url.full", "http.url"),
        "statusCode": (),
        "userAgent": ("user_agent.original", "http.user_agent"),
    },
    "db": {
        "system": ("db.system.name", "db.system"),
        "name": ("db.namespace", "db.name"),
        "operation": ("db.operation.name", "db.operation"),
        "statement": STATEMENTS,
    },
    "rpc": {key: (f"rpc.{key}",) for key in ("system", "service", "method")},
    "messaging": {
        "system": ("messaging.system",),
        "destination": ("messaging.destination.name", "messaging.destination"),
        "operation": ("messaging.operation.name", "messaging.operation"),
    },
}
_MAX_NANOS = 2**64 - 1  # OTLP has them as fixed64
_NANOS = re.compile(r"0|[1-9]\d{0,19}", re.ASCII)
_HEX = {length: re.compile(rf"[0-9a-f]{{{length}}}", re.ASCII) for length in (16, 32)}


def check(span: Mapping[str, Any]) -> None:
    """Checks what makes a span: its ids, and that it does not end before it starts.

    Raises:
        InvalidRequest: an id is not lower-case hexadecimal of its length, or all zeros, or the end is before the start.
    """
    _id(span.get("traceId"), 32, "traceId")
    _id(span.get("spanId"), 16, "spanId")
    _parent_id(span)
    start, end = nanos_of(span.get("startUnixNano")), nanos_of(span.get("endUnixNano"))
    if start is not None and end is not None and end < start:
        raise InvalidRequest("endUnixNano is before startUnixNano")


def normalize(record: Any, policy: Policy, now_ms: int) -> dict[str, Any]:
    """Converts a span to its canonical form.

    Of a span in that form already, the derived fields are kept, since the attributes may not have been stored.

    Args:
        now_ms: the timestamp of a span that has none.

    Raises:
        InvalidRequest: the record is not an object, is nested too deeply, or `check` refuses it.
    """
    span = strict.as_object(record, "otel-traces record")
    check(span)
    limits, store, cleaner = policy.limits, policy.store, Cleaner(policy)
    parts = ("resource", "instrumentationScope", "status", "dropped")
    resource, scope, status, dropped = (_object(span, part) for part in parts)
    resource_attributes, _ = cleaner.attributes(resource.get("attributes"), "resource.attributes")
    scope_attributes, _ = cleaner.attributes(scope.get("attributes"), "instrumentationScope.attributes")
    attributes, left_out = cleaner.attributes(span.get("attributes"), "attributes")
    events, lost_events = _events(span, cleaner)
    links, lost_links = _links(span, cleaner)
    start, end = nanos_of(span.get("startUnixNano")), nanos_of(span.get("endUnixNano"))
    trace_id, span_id = _id(span["traceId"], 32, "traceId"), _id(span["spanId"], 16, "spanId")
    flags, name = integer_or_none(_object(span, "traceFlags").get("raw")), strict.text_or_none(span.get("name")) or ""
    derived = _Derived(span, policy, attributes)
    of_resource = _Derived(span, policy, resource_attributes)
    service = of_resource.text("service", "service.name")
    code, message = (
        _word(status.get("code"), STATUS_CODES, "status_code_"),
        derived.limited(strict.text_or_none(status.get("message"))),
    )
    return {
        "schemaVersion": 1,
        "signal": "trace.span",
        "timestamp": _time(start) or strict.text_or_none(span.get("timestamp")) or render(now_ms),
        "endTimestamp": _time(end),
        "startUnixNano": None if start is None else str(start),
        "endUnixNano": None if end is None else str(end),
        "duration": derived.kept_number("duration") if start is None or end is None else (end - start) / 1_000_000,
        "traceId": trace_id,
        "spanId": span_id,
        "parentSpanId": _parent_id(span),
        "traceState": strict.text_or_none(span.get("traceState")),
        "traceFlags": {"sampled": bool((flags or 0) & 1), "raw": flags},
        "name": name,
        "kind": _word(span.get("kind"), KINDS, "span_kind_"),
        "status": {"code": code, "message": message},
        "service": service,
        "serviceNamespace": of_resource.text("serviceNamespace", "service.namespace"),
        "serviceInstanceId": of_resource.text("serviceInstanceId", "service.instance.id"),
        "environment": of_resource.text("environment", "deployment.environment.name", "deployment.environment"),
        "version": of_resource.text("version", "service.version"),
        "region": of_resource.text("region", "cloud.region"),
        "requestId": derived.limited(strict.text_or_none(span.get("requestId")))
        or derived.attribute(*policy.request_id_attributes),
        **derived.groups(),
        "error": derived.error(code, message, events),
        "instrumentationScope": {
            **{key: strict.text_or_none(scope.get(key)) for key in ("name", "version", "schemaUrl")},
            "attributes": scope_attributes,
        },
        "resource": {
            "schemaUrl": strict.text_or_none(resource.get("schemaUrl")),
            "attributes": resource_attributes if store.raw_resource_attributes else {},
        },
        "attributes": attributes if store.raw_span_attributes else {},
        "events": events if store.raw_events else [],
        "eventNames": derived.event_names(events, limits.max_events_per_span),
        "links": links if store.raw_links else [],
        "dropped": {
            "attributes": _count(dropped.get("attributes")) + left_out,
            "events": _count(dropped.get("events")) + lost_events,
            "links": _count(dropped.get("links")) + lost_links,
        },
        "redaction": {"keys": sorted({*cleaner.redacted, *derived.kept_redactions()})},
        "identity": {
            "spanKey": f"{trace_id}:{span_id}",
            "dedupeKey": sha256(
                "\0".join((trace_id, span_id, "" if start is None else str(start), service or "", name)).encode()
            ).hexdigest(),
        },
    }


class _Derived:
    """The fields of a span that come from its attributes or, of a span in the canonical form, from itself."""

    def __init__(self, span: dict[str, Any], policy: Policy, attributes: Mapping[str, Any]) -> None:
        is_canonical = span.get("schemaVersion") == 1 and span.get("signal") == "trace.span"
        self._kept: dict[str, Any] = span if is_canonical else {}
        self._policy = policy
        self._attributes = attributes

    def limited(self, value: str | None) -> str | None:
        """Returns a text, cut to what an attribute may have."""
        return None if value is None else cut(value, self._policy.limits.max_attribute_value_bytes)

    def attribute(self, *keys: str) -> str | None:
        """Returns the first of these attributes that is a text."""
        return next((found for key in keys if (found := strict.text_or_none(self._attributes.get(key)))), None)

    def text(self, field: str, *keys: str, group: str = "") -> str | None:
        """Returns the field of a canonical span, else the first of these attributes."""
        kept = _object(self._kept, group) if group else self._kept
        return self.limited(strict.text_or_none(kept.get(field))) or self.attribute(*keys)

    def kept_number(self, field: str) -> int | float | None:
        """Returns a number that only a canonical span has."""
        return number_or_none(self._kept.get(field))

    def kept_redactions(self) -> list[str]:
        """Returns the paths that a canonical span says were redacted."""
        return _texts(_object(self._kept, "redaction").get("keys"))

    def event_names(self, events: list[dict[str, Any]], most: int) -> list[str]:
        """Returns the distinct names of events, and those that a canonical span has."""
        names = [event["name"] for event in events if event["name"]]
        return list(dict.fromkeys([*names, *_texts(self._kept.get("eventNames"))]))[:most]

    def groups(self) -> dict[str, dict[str, Any]]:
        """Returns the groups of the semantic conventions."""
        groups: dict[str, dict[str, Any]] = {
            group: {field: self.text(field, *keys, group=group) for field, keys in fields.items()}
            for group, fields in _GROUPS.items()
        }
        http, db = groups["http"], groups["db"]
        http["statusCode"] = self._status()
        if not self._policy.keeps_queries:
            http |= {field: without_query(http[field] or "") or None for field in ("path", "target", "url")}
        statement = db["statement"] if self._policy.keeps_statements else None
        db["statement"] = statement and cut(statement, self._policy.limits.max_statement_bytes)
        return groups

    def _status(self) -> int | None:
        kept = integer_or_none(_object(self._kept, "http").get("statusCode"))
        given = (self._attributes.get(key) for key in ("http.response.status_code", "http.status_code"))
        return (
            kept if kept is not None else next((one for one in map(integer_or_none, given) if one is not None), None)
        )

    def error(self, code: str, message: str | None, events: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns what went wrong: from the attributes, else from the first exception among the events."""
        failed: dict[str, Any] = next((event["attributes"] for event in events if _is_exception(event)), {})
        exception = _Derived({}, self._policy, failed)
        told = {
            field: self.text(field, f"exception.{field}", f"error.{field}", group="error")
            or exception.attribute(f"exception.{field}")
            for field in ("type", "message", "stacktrace")
        }
        status, kept = self._status(), _object(self._kept, "error").get("isError")
        is_error = code == "error" or (status is not None and status >= 500) or told["type"] is not None
        return {
            "isError": kept if isinstance(kept, bool) else is_error,
            **told,
            "message": told["message"] or message,
        }


def _is_exception(event: dict[str, Any]) -> bool:
    attributes = event["attributes"]
    return event["name"].lower() == "exception" or bool(
        attributes.get("exception.type") or attributes.get("exception.message")
    )


def _events(span: dict[str, Any], cleaner: Cleaner) -> tuple[list[dict[str, Any]], int]:
    """Returns the events of a span, and how many were left out."""
    given = [event for event in _list(span, "events") if isinstance(event, dict)]
    most = cleaner.policy.limits.max_events_per_span
    events = []
    for number, event in enumerate(given[:most]):
        attributes, left_out = cleaner.attributes(event.get("attributes"), f"events.{number}.attributes")
        nanos = nanos_of(event.get("timeUnixNano"))
        events.append(
            {
                "timestamp": _time(nanos),
                "timeUnixNano": None if nanos is None else str(nanos),
                "name": strict.text_or_none(event.get("name")) or "",
                "attributes": attributes,
                "droppedAttributesCount": _count(event.get("droppedAttributesCount")) + left_out,
            }
        )
    return events, max(0, len(given) - most)


def _links(span: dict[str, Any], cleaner: Cleaner) -> tuple[list[dict[str, Any]], int]:
    """Returns the links of a span, and how many were left out; a link without valid ids is."""
    given = _list(span, "links")
    links: list[dict[str, Any]] = []
    for link in given:
        if not isinstance(link, dict) or len(links) == cleaner.policy.limits.max_links_per_span:
            continue
        try:
            trace_id = _id(link.get("traceId"), 32, "links.traceId")
            span_id = _id(link.get("spanId"), 16, "links.spanId")
        except InvalidRequest:
            continue
        attributes, left_out = cleaner.attributes(link.get("attributes"), f"links.{len(links)}.attributes")
        links.append(
            {
                "traceId": trace_id,
                "spanId": span_id,
                "traceState": strict.text_or_none(link.get("traceState")),
                "attributes": attributes,
                "droppedAttributesCount": _count(link.get("droppedAttributesCount")) + left_out,
            }
        )
    return links, len(given) - len(links)


def _id(value: Any, length: int, place: str) -> str:
    text = (strict.text_or_none(value) or "").lower()
    if not _HEX[length].fullmatch(text):
        raise InvalidRequest(f"{place} must be {length} lowercase hex characters")
    if not text.strip("0"):
        raise InvalidRequest(f"{place} must not be all zeroes")
    return text


def _parent_id(span: Mapping[str, Any]) -> str | None:
    text = strict.text_or_none(span.get("parentSpanId"))
    return None if text is None or not text.strip("0") else _id(text, 16, "parentSpanId")


def nanos_of(value: Any) -> int | None:
    """Returns nanoseconds since 1970, from a number or a decimal text; None for anything else."""
    if isinstance(value, str) and _NANOS.fullmatch(value.strip()):
        value = int(value)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and 0 <= value <= _MAX_NANOS else None


def _time(nanos: int | None) -> str | None:
    return None if nanos is None else render(nanos // 1_000_000)


def _word(value: Any, words: Sequence[str], prefix: str) -> str:
    """Returns the word for a value of an enum, which is its number or, perhaps after `prefix`, its name; the first word for
    a value that is not known.
    """
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(words):
        return words[value]
    text = (strict.text_or_none(value) or "").lower().removeprefix(prefix)
    return text if text in words else words[0]


def _count(value: Any) -> int:
    return max(0, integer_or_none(value) or 0)


def _object(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _list(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    return found if isinstance(found, list) else []


def _texts(value: Any) -> list[str]:
    return [text for item in (value if isinstance(value, list) else ()) if (text := strict.text_or_none(item))]
