"""Spans of traces in their canonical form, one record each, as the profile `otel-traces` stores them.

The names are those of the Prisma Streams server, so that its clients and screens find them. Secrets, statements and
queries of URLs are removed before anything is derived from an attribute, so that no derived field has what the
attributes no longer have. Normalising twice changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

import msgspec

from headrace.errors import InvalidRequest
from headrace.instants import render
from headrace.json import jsontext
from headrace.streams.profiles import strict
from headrace.streams.profiles.numbers import integer_or_none, number_or_none

KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
STATUS_CODES = ("unset", "ok", "error")
REDACTED = "[REDACTED]"
REDACT_KEYS = (
    *("password", "token", "secret", "authorization", "cookie"),
    *("apikey", "api_key", "set-cookie", "x-api-key"),
)
REQUEST_ID_ATTRIBUTES = (
    *("request.id", "http.request_id"),
    *("http.request.header.x_request_id", "http.request.header.x-request-id"),
    *("http.request.header.x_correlation_id", "http.request.header.x-correlation-id", "correlation.id"),
)
# maximum depth of an attribute's value: those of events are four levels deep, and stored records must be readable again
MAX_DEPTH = jsontext.MAX_DEPTH - 5

_MAX_NANOS = 2**64 - 1  # OTLP has them as fixed64
_NANOS = re.compile(r"0|[1-9]\d{0,19}", re.ASCII)
_HEX = {length: re.compile(rf"[0-9a-f]{{{length}}}", re.ASCII) for length in (16, 32)}
_SEPARATORS = re.compile(r"[._-]+")
_STATEMENTS = ("db.statement", "db.query.text")
_URLS = ("url.full", "http.url", "http.target")
_QUERIES = ("url.query",)


class Limits(msgspec.Struct, frozen=True, rename="camel"):
    """What one span may have; more is cut off, and counted under `dropped`."""

    max_attribute_value_bytes: int = 8192
    max_attributes_per_span: int = 256
    max_events_per_span: int = 128
    max_links_per_span: int = 128
    max_statement_bytes: int = 4096


class Store(msgspec.Struct, frozen=True, rename="camel"):
    """Which parts of a span are stored as they came, in addition to the fields that are derived from them."""

    raw_resource_attributes: bool = True
    raw_span_attributes: bool = True
    raw_events: bool = True
    raw_links: bool = True


class Policy(msgspec.Struct, frozen=True):
    """How spans are normalised.

    Attributes:
        secrets: keys of attributes that are redacted, in lower case and without separators.
        request_id_attributes: where the request id may be; the first that has one counts.
        keeps_statements: whether statements of databases are stored.
        keeps_queries: whether URLs keep their query and fragment.
    """

    secrets: frozenset[str]
    request_id_attributes: tuple[str, ...] = REQUEST_ID_ATTRIBUTES
    limits: Limits = Limits()
    store: Store = Store()
    keeps_statements: bool = False
    keeps_queries: bool = False


def secrets(*names: str) -> frozenset[str]:
    """Returns the built-in keys to redact, and others, in the form in which `is_secret` compares them."""
    return frozenset(_SEPARATORS.sub("", name.lower()) for name in (*REDACT_KEYS, *names))


@lru_cache(8192)
def is_secret(key: str, keys: frozenset[str]) -> bool:
    """Returns whether an attribute is redacted: its key, or the end of it from a separator on, is one of `keys`. So
    `authorization` redacts `http.request.header.authorization`, and `x-api-key` redacts `rpc.metadata.x_api_key`.
    """
    end, longest = "", max(map(len, keys))
    for part in reversed(_SEPARATORS.split(key.lower())):
        end = part + end
        if end in keys:
            return True
        if len(end) > longest:
            return False
    return False


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
    resource, scope, status = (
        _object(span, "resource"),
        _object(span, "instrumentationScope"),
        _object(span, "status"),
    )
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
    code, message = _status_code(status.get("code")), derived.limited(strict.text_or_none(status.get("message")))
    dropped = _object(span, "dropped")
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
        "kind": _kind(span.get("kind")),
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


class Cleaner:
    """The removal of what must not be stored from attributes, with the paths of what it redacted."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.redacted: list[str] = []

    def attributes(self, given: Any, place: str) -> tuple[dict[str, Any], int]:
        """Returns the attributes that are stored, and how many were left out because there are too many."""
        if not isinstance(given, dict):
            return {}, 0
        most = self.policy.limits.max_attributes_per_span
        kept = list(given.items())[:most]
        return self._clean(dict(kept), place, 0), max(0, len(given) - most)

    def _clean(self, given: dict[str, Any], place: str, depth: int) -> dict[str, Any]:
        clean: dict[str, Any] = {}
        for key, value in given.items():
            path = f"{place}.{key}"
            if value is not None and self._is_hidden(key):
                self.redacted.append(path)
                clean[key] = REDACTED
            else:
                clean[key] = self._value(key, value, path, depth + 1)
        return clean

    def _is_hidden(self, key: str) -> bool:
        policy = self.policy
        if key in _STATEMENTS:
            return not policy.keeps_statements
        return (key in _QUERIES and not policy.keeps_queries) or is_secret(key, policy.secrets)

    def _value(self, key: str, value: Any, path: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise InvalidRequest(f"otel-traces record is nested too deeply: limit={MAX_DEPTH}")
        if isinstance(value, str):
            if key in _URLS and not self.policy.keeps_queries:
                value = _without_query(value)
            return _cut(value, self.policy.limits.max_attribute_value_bytes)
        if isinstance(value, list):
            return [self._value(key, item, f"{path}.{index}", depth + 1) for index, item in enumerate(value)]
        return self._clean(value, path, depth) if isinstance(value, dict) else value


class _Derived:
    """The fields of a span that come from its attributes or, of a span in the canonical form, from itself."""

    def __init__(self, span: dict[str, Any], policy: Policy, attributes: Mapping[str, Any]) -> None:
        is_canonical = span.get("schemaVersion") == 1 and span.get("signal") == "trace.span"
        self._kept: dict[str, Any] = span if is_canonical else {}
        self._policy = policy
        self._attributes = attributes

    def limited(self, value: str | None) -> str | None:
        """Returns a text, cut to what an attribute may have."""
        return None if value is None else _cut(value, self._policy.limits.max_attribute_value_bytes)

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
        """Returns the groups of the semantic conventions, old names and new."""
        url = self.text("url", "url.full", "http.url", group="http")
        statement = self.text("statement", *_STATEMENTS, group="db") if self._policy.keeps_statements else None
        target = self.text("target", "http.target", group="http")
        path = self.text("path", "url.path", "http.target", group="http")
        if not self._policy.keeps_queries:
            url, target, path = (value and (_without_query(value) or None) for value in (url, target, path))
        return {
            "http": {
                "method": self.text("method", "http.request.method", "http.method", group="http"),
                "route": self.text("route", "http.route", group="http"),
                "path": path,
                "target": target,
                "url": url,
                "statusCode": self._status(),
                "userAgent": self.text("userAgent", "user_agent.original", "http.user_agent", group="http"),
            },
            "db": {
                "system": self.text("system", "db.system.name", "db.system", group="db"),
                "name": self.text("name", "db.namespace", "db.name", group="db"),
                "operation": self.text("operation", "db.operation.name", "db.operation", group="db"),
                "statement": statement and _cut(statement, self._policy.limits.max_statement_bytes),
            },
            "rpc": {key: self.text(key, f"rpc.{key}", group="rpc") for key in ("system", "service", "method")},
            "messaging": {
                "system": self.text("system", "messaging.system", group="messaging"),
                "destination": self.text(
                    "destination", "messaging.destination.name", "messaging.destination", group="messaging"
                ),
                "operation": self.text(
                    "operation", "messaging.operation.name", "messaging.operation", group="messaging"
                ),
            },
        }

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
        kind = self.text("type", "exception.type", "error.type", group="error") or exception.attribute(
            "exception.type"
        )
        status, kept = self._status(), _object(self._kept, "error").get("isError")
        is_error = code == "error" or (status is not None and status >= 500) or kind is not None
        return {
            "isError": kept if isinstance(kept, bool) else is_error,
            "type": kind,
            "message": self.text("message", "exception.message", "error.message", group="error")
            or exception.attribute("exception.message")
            or message,
            "stacktrace": self.text("stacktrace", "exception.stacktrace", "error.stacktrace", group="error")
            or exception.attribute("exception.stacktrace"),
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


def _kind(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(KINDS):
        return KINDS[value]
    text = (strict.text_or_none(value) or "").lower().removeprefix("span_kind_")
    return text if text in KINDS else "unspecified"


def _status_code(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(STATUS_CODES):
        return STATUS_CODES[value]
    text = (strict.text_or_none(value) or "").lower().removeprefix("status_code_")
    return text if text in STATUS_CODES else "unset"


def _count(value: Any) -> int:
    return max(0, integer_or_none(value) or 0)


def _cut(text: str, most_bytes: int) -> str:
    """Returns as much of a text as `most_bytes` of UTF-8 hold."""
    if len(text) * 4 <= most_bytes:
        return text
    return text.encode()[:most_bytes].decode(errors="ignore")


def _without_query(url: str) -> str:
    return url.split("#", 1)[0].split("?", 1)[0]


def _object(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _list(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    return found if isinstance(found, list) else []


def _texts(value: Any) -> list[str]:
    return [text for item in (value if isinstance(value, list) else ()) if (text := strict.text_or_none(item))]
