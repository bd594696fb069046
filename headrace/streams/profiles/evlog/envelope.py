"""Converts an event of any shape to the canonical envelope. Secrets are redacted before the event is stored.

Strings are trimmed, and empty ones become null. Everything that is not a field of the envelope is moved to `context`,
the only part that is redacted. Normalising twice changes nothing (unless correlation paths name fields that have
moved).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from headrace.errors import InvalidRequest
from headrace.instants import render
from headrace.json import jsontext
from headrace.streams.profiles import strict
from headrace.streams.profiles.evlog.options import Options
from headrace.streams.profiles.numbers import integer_or_none, number_or_none

FIELDS = (
    *("timestamp", "level", "service", "environment", "version", "region", "requestId", "traceId", "spanId"),
    *("method", "path", "status", "duration", "message", "why", "fix", "link", "sampling", "redaction", "context"),
)
LEVELS = ("debug", "info", "warn", "error")
REDACTED = "[REDACTED]"
REDACT_KEYS = frozenset({"password", "token", "secret", "authorization", "cookie", "apikey"})
# maximum depth of a context, which is two levels deep itself: stored records must be readable again
MAX_DEPTH = jsontext.MAX_DEPTH - 2

_FIELD_SET = frozenset(FIELDS)
_REQUEST_ID_PATHS = ("requestId", "context.requestId")
_TRACEPARENT_PATHS = ("traceparent", "traceContext.traceparent", "context.traceparent", "headers.traceparent")
# W3C Trace Context § 3.2: version, trace id, parent id, flags; later versions may append more.
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.+)?", re.ASCII | re.IGNORECASE)


def normalize(record: Any, options: Options, now_ms: int) -> dict[str, Any]:
    """Converts a record to the canonical envelope, which may share parts with the record.

    Args:
        now_ms: the timestamp for an event that has none.

    Raises:
        InvalidRequest: the record is not an object, or is nested deeper than `MAX_DEPTH`.
    """
    event = strict.as_object(record, "evlog record")
    texts = {field: strict.text_or_none(event.get(field)) for field in FIELDS}
    status = integer_or_none(event.get("status"))
    trace_id, span_id = _trace_ids(event, options)
    redacted: list[str] = []
    context = _redact(_context(event), REDACT_KEYS.union(options.redact_keys or ()), "", redacted, 0)
    return {
        "timestamp": texts["timestamp"] or render(now_ms),
        "level": _level(texts, status),
        "service": texts["service"],
        "environment": texts["environment"],
        "version": texts["version"],
        "region": texts["region"],
        "requestId": _first(event, _request_id_paths(options)),
        "traceId": trace_id,
        "spanId": span_id,
        "method": texts["method"],
        "path": texts["path"],
        "status": status,
        "duration": number_or_none(event.get("duration")),
        "message": texts["message"],
        "why": texts["why"],
        "fix": texts["fix"],
        "link": texts["link"],
        "sampling": event.get("sampling"),
        "redaction": {"keys": redacted},
        "context": context,
    }


def _request_id_paths(options: Options) -> tuple[str, ...]:
    return _REQUEST_ID_PATHS if options.request_id_fields is None else options.request_id_fields


def _level(texts: dict[str, str | None], status: int | None) -> str:
    given = (texts["level"] or "").lower()
    if given in LEVELS:
        return given
    if texts["why"] or texts["fix"] or texts["link"] or (status is not None and status >= 500):
        return "error"
    return "warn" if status is not None and status >= 400 else "info"


def _trace_ids(event: dict[str, Any], options: Options) -> tuple[str | None, str | None]:
    trace_id, span_id = _trace_field(event, "traceId", options), _trace_field(event, "spanId", options)
    if (trace_id is None or span_id is None) and options.parse_traceparent is not False:
        parent = _traceparent(event)
        if parent is not None:
            return trace_id or parent[0], span_id or parent[1]
    return trace_id, span_id


def _trace_field(event: dict[str, Any], field: str, options: Options) -> str | None:
    named = [path for path in options.trace_context_fields or () if path == field or path.endswith(f".{field}")]
    return _first(event, (*named, field, f"traceContext.{field}"))


def _traceparent(event: dict[str, Any]) -> tuple[str, str] | None:
    """Returns trace and span id of the first valid `traceparent`, in lower case; None if there is none. All zeros are
    not valid.
    """
    for path in _TRACEPARENT_PATHS:
        match = _TRACEPARENT.fullmatch(_dotted(event, path) or "")
        if match and match[1].strip("0") and match[2].strip("0"):
            return match[1].lower(), match[2].lower()
    return None


def _first(event: dict[str, Any], paths: Iterable[str]) -> str | None:
    return next((text for path in paths if (text := _dotted(event, path))), None)


def _dotted(event: dict[str, Any], path: str) -> str | None:
    value: Any = event
    for part in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return strict.text_or_none(value)


def _context(event: dict[str, Any]) -> dict[str, Any]:
    """Returns the event's own context, merged with every field that the envelope has no place for; the latter win."""
    given = event.get("context")
    context = dict(given) if isinstance(given, dict) else {}
    context.update((key, value) for key, value in event.items() if key not in _FIELD_SET)
    if "context" in event and not isinstance(given, dict):
        context["context"] = given
    return context


def _redact(value: Any, keys: frozenset[str], path: str, redacted: list[str], depth: int) -> Any:
    """Returns a copy of `value` without the values under `keys`; adds their paths, such as `nested.0.token`, to
    `redacted`.
    """
    if not isinstance(value, (dict, list)):
        return value
    if depth > MAX_DEPTH:
        raise InvalidRequest(f"evlog record is nested too deeply: limit={MAX_DEPTH}")
    prefix = f"{path}." if path else ""
    if isinstance(value, list):
        items = []
        for index, item in enumerate(value):
            items.append(_redact(item, keys, f"{prefix}{index}", redacted, depth + 1))
        return items
    clean: dict[str, Any] = {}
    for key, item in value.items():
        if key.lower() in keys:
            clean[key] = REDACTED
            redacted.append(prefix + key)
        else:
            clean[key] = _redact(item, keys, prefix + key, redacted, depth + 1)
    return clean
