"""The profile `evlog`: one wide event per request, in a canonical envelope that is redacted before it is stored.

An evlog stream starts with version 1 of a schema that allows no other fields and requires each, and with its search
configuration. The names are those of the Prisma Streams server, so that its clients and screens find them.

An event of any shape becomes an envelope. Strings are trimmed, and empty ones become null. Everything that is not a
field of the envelope is moved to `context`, the only part that is redacted. Normalising twice changes nothing (unless
correlation paths name fields that have moved).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from headrace.errors import InvalidRequest
from headrace.instants import render
from headrace.json import jsontext
from headrace.streams.profiles import strict
from headrace.streams.profiles.cleaning import REDACTED, note_path, path_of
from headrace.streams.profiles.numbers import integer_or_none, number_or_none
from headrace.streams.profiles.profile import Profile, keyword, text, typed

FIELDS = (
    *("timestamp", "level", "service", "environment", "version", "region", "requestId", "traceId", "spanId"),
    *("method", "path", "status", "duration", "message", "why", "fix", "link", "sampling", "redaction", "context"),
)
LEVELS = ("debug", "info", "warn", "error")
REDACT_KEYS = frozenset({"password", "token", "secret", "authorization", "cookie", "apikey"})
# maximum depth of a context, which is two levels deep itself: stored records must be readable again
MAX_DEPTH = jsontext.MAX_DEPTH - 2

_FIELD_SET = frozenset(FIELDS)
_REQUEST_ID_PATHS = ("requestId", "context.requestId")
_TRACEPARENT_PATHS = ("traceparent", "traceContext.traceparent", "context.traceparent", "headers.traceparent")
# W3C Trace Context § 3.2: version, trace id, parent id, flags; later versions may append more.
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.+)?", re.ASCII | re.IGNORECASE)


class Options(msgspec.Struct, frozen=True):
    """The options of an evlog profile; None means that the option is not given, and its default applies.

    Attributes:
        redact_keys: keys to redact in addition to the built-in ones, in lower case.
        request_id_fields: dotted paths where the request id may be; the first that has one counts.
        trace_context_fields: the same for trace and span id; the end of a path says for which of the two.
        parse_traceparent: whether a W3C `traceparent` supplies ids that no field has.
        traces_stream: the stream of spans that belongs to this one.
    """

    redact_keys: tuple[str, ...] | None = None
    request_id_fields: tuple[str, ...] | None = None
    trace_context_fields: tuple[str, ...] | None = None
    parse_traceparent: bool | None = None
    traces_stream: str | None = None

    def document(self) -> dict[str, Any]:
        """Returns the given options in the form of the profile document."""
        correlation = strict.given(
            requestIdFields=self.request_id_fields,
            traceContextFields=self.trace_context_fields,
            parseTraceparent=self.parse_traceparent,
        )
        observability = None if self.traces_stream is None else {"request": {"tracesStream": self.traces_stream}}
        return strict.given(redactKeys=self.redact_keys, correlation=correlation or None, observability=observability)


class Evlog(Profile, frozen=True):
    """The profile of events of requests. The routing key is the request id, or else the trace id."""

    kind: ClassVar[str] = "evlog"
    reads_records: ClassVar[bool] = True
    needs_json: ClassVar[bool] = True
    needs_empty: ClassVar[bool] = True

    options: Options = Options()

    @staticmethod
    def parse(document: dict[str, Any]) -> Evlog:
        """Parses the profile document.

        Raises:
            InvalidRequest: there is an unknown option, or one of the wrong form.
        """
        return Evlog(parse_options(document))

    def document(self) -> dict[str, Any]:
        """Returns the profile document: the kind and the options that were given, with `redactKeys` in lower case."""
        return {"kind": self.kind, **self.options.document()}

    def registry(self) -> dict[str, Any]:
        """Returns the schema update of an evlog stream: the canonical schema and the search fields, without a routing
        key.
        """
        return registry()

    def normalize(self, document: Any, now_ms: int) -> tuple[dict[str, Any], str | None]:
        """Converts an event to the canonical envelope. The routing key is the request id, or else the trace id.

        Raises:
            InvalidRequest: the record is not an object, or is nested too deeply.
        """
        event = normalize(document, self.options, now_ms)
        return event, event["requestId"] or event["traceId"]

    def observability(self, stream: str) -> dict[str, Any] | None:
        """Returns the names of this stream and of the trace stream that the options declare; None if they declare
        none.
        """
        traces = self.options.traces_stream
        return {"request": {"events_stream": stream, "traces_stream": traces}} if traces is not None else None


_OPEN_OBJECT = {"type": "object", "additionalProperties": True}
_TYPES: dict[str, dict[str, Any]] = {
    "timestamp": {"type": "string"},
    "level": {"type": "string", "enum": list(LEVELS)},
    "status": {"type": ["integer", "null"]},
    "duration": {"type": ["number", "null"]},
    "sampling": {**_OPEN_OBJECT, "type": ["object", "null"]},
    "redaction": {
        "type": "object",
        "additionalProperties": False,
        "properties": {"keys": {"type": "array", "items": {"type": "string"}}},
        "required": ["keys"],
    },
    "context": _OPEN_OBJECT,
}
_NAMES = ("prefix", "sortable", "aggregatable")


def registry() -> dict[str, Any]:
    """Returns the schema update of an evlog stream: schema and search configuration. The caller must not change it."""
    return {"schema": _schema(), "search": _search()}


def _schema() -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {field: dict(_TYPES.get(field, {"type": ["string", "null"]})) for field in FIELDS},
        "required": list(FIELDS),
    }


def _search() -> dict[str, Any]:
    return {
        "profile": "evlog",
        "primaryTimestampField": "timestamp",
        "aliases": {
            "env": "environment",
            "msg": "message",
            "req": "requestId",
            "span": "spanId",
            "time": "timestamp",
            "trace": "traceId",
            "ts": "timestamp",
        },
        "defaultFields": [
            {"field": "message", "boost": 2},
            {"field": "why", "boost": 1.5},
            {"field": "fix", "boost": 1.25},
            {"field": "error.message", "boost": 2},
        ],
        "fields": {
            "timestamp": typed("date", "/timestamp", "aggregatable"),
            "level": keyword("/level", *_NAMES, lowercase=True),
            "service": keyword("/service", *_NAMES, lowercase=True),
            "environment": keyword("/environment", *_NAMES, lowercase=True),
            "requestId": keyword("/requestId", "prefix", "sortable"),
            "traceId": keyword("/traceId", "prefix", "sortable"),
            "spanId": keyword("/spanId", "prefix", "sortable"),
            "path": keyword("/path", *_NAMES),
            "method": keyword("/method", *_NAMES, lowercase=True),
            "status": typed("integer", "/status", "aggregatable"),
            "duration": typed("float", "/duration", "aggregatable"),
            "message": text("/message"),
            "why": text("/why"),
            "fix": text("/fix"),
            "error.message": text("/context/error/message"),
        },
    }


# Options.


def parse_options(document: dict[str, Any]) -> Options:
    """Parses the document of an evlog profile.

    Raises:
        InvalidRequest: there is an unknown key, or a value of the wrong form; the message says where.
    """
    strict.only(document, ("kind", "redactKeys", "correlation", "observability"), "profile")
    place = "profile.correlation"
    correlation = strict.section(document, "correlation", place)
    strict.only(correlation, ("requestIdFields", "traceContextFields", "parseTraceparent"), place)
    traceparent = correlation.get("parseTraceparent")
    if "parseTraceparent" in correlation and not isinstance(traceparent, bool):
        raise InvalidRequest(f"{place}.parseTraceparent must be boolean")
    return Options(
        redact_keys=strict.redact_keys(document),
        request_id_fields=strict.names(correlation, "requestIdFields", place),
        trace_context_fields=strict.names(correlation, "traceContextFields", place),
        parse_traceparent=traceparent,
        traces_stream=strict.counterpart(document, "tracesStream"),
    )


# Events.


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
    """Returns a copy of `value` with `[REDACTED]` in place of the values under `keys`; adds the first paths of those, such
    as `nested.0.token`, to `redacted`. Raises InvalidRequest if it is nested deeper than `MAX_DEPTH`.
    """
    if not isinstance(value, (dict, list)):
        return value
    if depth > MAX_DEPTH:
        raise InvalidRequest(f"evlog record is nested too deeply: limit={MAX_DEPTH}")
    if isinstance(value, list):
        return [_redact(item, keys, path_of(path, index), redacted, depth + 1) for index, item in enumerate(value)]
    clean: dict[str, Any] = {}
    for key, item in value.items():
        if key.lower() in keys:
            clean[key] = REDACTED
            note_path(redacted, path_of(path, key))
        else:
            clean[key] = _redact(item, keys, path_of(path, key), redacted, depth + 1)
    return clean
