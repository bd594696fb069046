"""The profile `otel-traces`: one OpenTelemetry span per record, in the canonical form of `spans`.

A stream of spans starts with version 1 of a closed schema, with search fields and two rollups. Its options are those of
the Prisma Streams server, without `otlpLimits`: the limits of an append apply.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, Literal, TypeVar

import msgspec

from headrace.decoding import from_builtins
from headrace.errors import InvalidRequest
from headrace.limits import MAX_SAFE_INTEGER
from headrace.streams.profiles import cleaning, spans, strict
from headrace.streams.profiles.cleaning import Limits, Policy, Store
from headrace.streams.profiles.profile import Profile, keyword, text, typed
from headrace.streams.profiles.spans import KINDS, STATUS_CODES

_OPTIONS = (
    *("kind", "redactKeys", "requestIdAttributes", "attributeLimits", "store", "dbStatementMode", "urlMode"),
    "observability",
)
T = TypeVar("T", Limits, Store)


class OtelTraces(Profile, frozen=True):
    """The profile of spans. The routing key is the trace id. None means that an option is not given, and its default
    applies.

    Attributes:
        redact_keys: keys to redact in addition to the built-in ones, in lower case.
        request_id_attributes: attributes where the request id may be; the first that has one counts.
        db_statement_mode: whether statements of databases are stored.
        url_mode: whether URLs keep their query and fragment.
        events_stream: the stream of events of requests that belongs to this one.
    """

    kind: ClassVar[str] = "otel-traces"
    reads_records: ClassVar[bool] = True
    needs_json: ClassVar[bool] = True
    needs_empty: ClassVar[bool] = True

    redact_keys: tuple[str, ...] | None = None
    request_id_attributes: tuple[str, ...] | None = None
    limits: Limits | None = None
    store: Store | None = None
    db_statement_mode: Literal["drop", "raw"] | None = None
    url_mode: Literal["drop_query", "raw"] | None = None
    events_stream: str | None = None

    @staticmethod
    def parse(document: dict[str, Any]) -> OtelTraces:
        """Parses the profile document.

        Raises:
            InvalidRequest: there is an unknown option, or one of the wrong form.
        """
        strict.only(document, _OPTIONS, "profile")
        for key, choices in (("dbStatementMode", ("drop", "raw")), ("urlMode", ("drop_query", "raw"))):
            if key in document and document[key] not in choices:
                raise InvalidRequest(f"profile.{key} must be {' or '.join(choices)}")
        return OtelTraces(
            redact_keys=strict.redact_keys(document),
            request_id_attributes=strict.names(document, "requestIdAttributes", "profile"),
            limits=_parse_section(document, "attributeLimits", Limits),
            store=_parse_section(document, "store", Store),
            db_statement_mode=document.get("dbStatementMode"),
            url_mode=document.get("urlMode"),
            events_stream=strict.counterpart(document, "eventsStream"),
        )

    def document(self) -> dict[str, Any]:
        """Returns the profile document: the kind and the options that were given, `attributeLimits` and `store` with all
        their members.
        """
        events = self.events_stream
        return {
            "kind": self.kind,
            **strict.given(
                redactKeys=self.redact_keys,
                requestIdAttributes=self.request_id_attributes,
                attributeLimits=None if self.limits is None else msgspec.to_builtins(self.limits),
                store=None if self.store is None else msgspec.to_builtins(self.store),
                dbStatementMode=self.db_statement_mode,
                urlMode=self.url_mode,
                observability=None if events is None else {"request": {"eventsStream": events}},
            ),
        }

    def registry(self) -> dict[str, Any]:
        """Returns the schema update of a stream of spans: the canonical schema, the search fields and the rollups."""
        return {"schema": _schema(), "search": _search()}

    def normalize(self, document: Any, now_ms: int) -> tuple[dict[str, Any], str | None]:
        """Converts a span to the canonical form. The routing key is the trace id.

        Raises:
            InvalidRequest: the record is no span, or is nested too deeply.
        """
        span = spans.normalize(document, _policy(self), now_ms)
        return span, span["traceId"]

    def observability(self, stream: str) -> dict[str, Any] | None:
        """Returns the names of this stream and of the stream of events that the options declare; None if they declare
        none.
        """
        events = self.events_stream
        return {"request": {"events_stream": events, "traces_stream": stream}} if events is not None else None


@lru_cache(64)
def _policy(profile: OtelTraces) -> Policy:
    return Policy(
        secrets=cleaning.secrets(*(profile.redact_keys or ())),
        request_id_attributes=profile.request_id_attributes or cleaning.REQUEST_ID_ATTRIBUTES,
        limits=profile.limits or Limits(),
        store=profile.store or Store(),
        keeps_statements=profile.db_statement_mode == "raw",
        keeps_queries=profile.url_mode == "raw",
    )


def _parse_section(document: dict[str, Any], key: str, form: type[T]) -> T | None:
    """Returns an option that is an object of numbers above 0, or of booleans; None if it is not given."""
    if key not in document:
        return None
    place = f"profile.{key}"
    section = strict.as_object(document[key], place)
    wanted = type(next(iter(form.__struct_defaults__)))
    strict.only(section, form.__struct_encode_fields__, place)
    for name, value in section.items():
        if type(value) is not wanted or (wanted is int and not 0 < value <= MAX_SAFE_INTEGER):
            raise InvalidRequest(f"{place}.{name} must be {'a positive integer' if wanted is int else 'boolean'}")
    return from_builtins(section, form)


# The schema, and how spans are searched.

_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_WHOLE_OR_NULL = {"type": ["integer", "null"]}
_WHOLE = {"type": "integer"}
_FLAG = {"type": "boolean"}
_OPEN = {"type": "object", "additionalProperties": True}


def _closed(properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": [name for name in properties if name not in optional],
    }


def _texts(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, _TEXT_OR_NULL)


def _schema() -> dict[str, Any]:
    event = {**_texts("timestamp", "timeUnixNano"), "name": _TEXT, "attributes": _OPEN}
    link = {"traceId": _TEXT, "spanId": _TEXT, **_texts("traceState"), "attributes": _OPEN}
    counted = {"droppedAttributesCount": _WHOLE}
    return _closed(
        {
            "schemaVersion": {"type": "integer", "enum": [1]},
            "signal": {"type": "string", "enum": ["trace.span"]},
            "timestamp": _TEXT,
            **_texts("endTimestamp", "startUnixNano", "endUnixNano"),
            "duration": {"type": ["number", "null"]},
            "traceId": _TEXT,
            "spanId": _TEXT,
            **_texts("parentSpanId", "traceState"),
            "traceFlags": _closed({"sampled": _FLAG, "raw": _WHOLE_OR_NULL}),
            "name": _TEXT,
            "kind": {"type": "string", "enum": list(KINDS)},
            "status": _closed({"code": {"type": "string", "enum": list(STATUS_CODES)}, "message": _TEXT_OR_NULL}),
            **_texts(
                "service", "serviceNamespace", "serviceInstanceId", "environment", "version", "region", "requestId"
            ),
            "http": _closed(
                {
                    **_texts("method", "route", "path", "target", "url"),
                    "statusCode": _WHOLE_OR_NULL,
                    **_texts("userAgent"),
                }
            ),
            "db": _closed(_texts("system", "name", "operation", "statement")),
            "rpc": _closed(_texts("system", "service", "method")),
            "messaging": _closed(_texts("system", "destination", "operation")),
            "error": _closed({"isError": _FLAG, **_texts("type", "message", "stacktrace")}),
            "instrumentationScope": _closed({**_texts("name", "version", "schemaUrl"), "attributes": _OPEN}),
            "resource": _closed({**_texts("schemaUrl"), "attributes": _OPEN}),
            "attributes": _OPEN,
            "events": {"type": "array", "items": _closed({**event, **counted}, *counted)},
            "eventNames": {"type": "array", "items": _TEXT},
            "links": {"type": "array", "items": _closed({**link, **counted}, *counted)},
            "dropped": _closed({"attributes": _WHOLE, "events": _WHOLE, "links": _WHOLE}),
            "redaction": _closed({"keys": {"type": "array", "items": _TEXT}}),
            "identity": _closed({"spanKey": _TEXT, "dedupeKey": _TEXT}),
        }
    )


def _search() -> dict[str, Any]:
    names, groups = ("prefix", "sortable"), ("prefix", "sortable", "aggregatable")
    return {
        "profile": "otel-traces",
        "primaryTimestampField": "timestamp",
        "aliases": {
            "db": "db.system",
            "duration_ms": "duration",
            "error": "error.isError",
            "method": "http.method",
            "op": "name",
            "parent": "parentSpanId",
            "req": "requestId",
            "route": "http.route",
            "span": "spanId",
            "status": "http.statusCode",
            "svc": "service",
            "time": "timestamp",
            "trace": "traceId",
            "ts": "timestamp",
        },
        "defaultFields": [
            {"field": "name", "boost": 2},
            {"field": "error.message", "boost": 2},
            {"field": "status.message", "boost": 1.5},
            {"field": "events.name", "boost": 1.2},
            {"field": "db.statement", "boost": 0.5},
        ],
        "fields": {
            "timestamp": typed("date", "/timestamp", "aggregatable"),
            "endTimestamp": typed("date", "/endTimestamp", "aggregatable"),
            "duration": typed("float", "/duration", "aggregatable"),
            **{name: keyword(f"/{name}", *names) for name in ("traceId", "spanId", "parentSpanId", "requestId")},
            "service": keyword("/service", *groups, lowercase=True),
            "serviceNamespace": keyword("/serviceNamespace", *groups, lowercase=True),
            "serviceInstanceId": keyword("/serviceInstanceId", *names),
            "environment": keyword("/environment", *groups, lowercase=True),
            "version": keyword("/version", *names),
            "region": keyword("/region", *groups, lowercase=True),
            "name": keyword("/name", *groups),
            "kind": keyword("/kind", *groups, lowercase=True),
            "status.code": keyword("/status/code", *groups, lowercase=True),
            "status.message": text("/status/message"),
            "error.isError": typed("bool", "/error/isError", "aggregatable"),
            "error.type": keyword("/error/type", *groups),
            "error.message": text("/error/message"),
            "error.stacktrace": text("/error/stacktrace"),
            "http.method": keyword("/http/method", *groups, lowercase=True),
            "http.route": keyword("/http/route", *groups),
            "http.path": keyword("/http/path", *names),
            "http.statusCode": typed("integer", "/http/statusCode", "aggregatable"),
            "db.system": keyword("/db/system", *groups, lowercase=True),
            "db.operation": keyword("/db/operation", *groups, lowercase=True),
            "db.statement": text("/db/statement"),
            "rpc.system": keyword("/rpc/system", *groups, lowercase=True),
            "rpc.service": keyword("/rpc/service", *groups),
            "rpc.method": keyword("/rpc/method", *groups),
            "messaging.system": keyword("/messaging/system", *groups, lowercase=True),
            "messaging.destination": keyword("/messaging/destination", *groups),
            "messaging.operation": keyword("/messaging/operation", *groups, lowercase=True),
            "events.name": text("/eventNames"),
        },
        "rollups": {
            "spans": _rollup("spans", "service", "kind", "status.code"),
            "http_server": {
                "include": "kind:server",
                **_rollup("requests", "service", "http.method", "http.route", "http.statusCode"),
            },
        },
    }


def _rollup(counted: str, *dimensions: str) -> dict[str, Any]:
    return {
        "timestampField": "timestamp",
        "dimensions": list(dimensions),
        "intervals": ["1m", "5m", "1h"],
        "measures": {
            counted: {"kind": "count"},
            "errors": {"kind": "count", "include": "error:true"},
            "latency": {"kind": "summary", "field": "duration", "histogram": "log2_v1"},
        },
    }
