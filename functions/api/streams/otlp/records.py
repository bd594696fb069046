"""Spans and logs of an export request as the records that the profiles `otel-traces` and `evlog` take. Everything here is
pure; the profiles normalise what comes of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headrace.errors import InvalidRequest
from headrace.instants import render
from headrace.streams.profiles import cleaning
from headrace.streams.profiles.cleaning import Cleaner, Limits, Policy
from headrace.streams.profiles.spans import nanos_of

_INTEGER = re.compile(r"-?\d{1,19}", re.ASCII)
_VALUES = ("stringValue", "boolValue", "intValue", "doubleValue", "bytesValue", "arrayValue", "kvlistValue")
# Of logs: their profile has no limits, and knows keys of secrets only as they are.
_POLICY = Policy(cleaning.secrets(), limits=Limits(max_attribute_value_bytes=64 * 1024, max_attributes_per_span=1024))
_LEVELS = ((17, "error"), (13, "warn"), (9, "info"), (1, "debug"))  # the least severity number of each

Document = Mapping[str, Any]


def spans_of(request: Document) -> Iterator[dict[str, Any]]:
    """Yields the spans of a request, in the form that the profile `otel-traces` takes.

    Raises:
        InvalidRequest: the request is malformed.
    """
    for resource, scope, span in _items(request, "resourceSpans", "scopeSpans", "spans"):
        status = _object(span, "status")
        yield {
            "traceId": span.get("traceId"),
            "spanId": span.get("spanId"),
            "parentSpanId": span.get("parentSpanId"),
            "traceState": span.get("traceState"),
            "traceFlags": {"raw": span.get("flags")},
            "name": span.get("name"),
            "kind": span.get("kind"),
            "startUnixNano": span.get("startTimeUnixNano"),
            "endUnixNano": span.get("endTimeUnixNano"),
            "status": {"code": status.get("code"), "message": status.get("message")},
            "resource": resource,
            "instrumentationScope": scope,
            "attributes": _attributes(span),
            "events": [
                {
                    "timeUnixNano": event.get("timeUnixNano"),
                    "name": event.get("name"),
                    "attributes": _attributes(event),
                    "droppedAttributesCount": event.get("droppedAttributesCount"),
                }
                for event in _list(span, "events")
            ],
            "links": [
                {
                    "traceId": link.get("traceId"),
                    "spanId": link.get("spanId"),
                    "traceState": link.get("traceState"),
                    "attributes": _attributes(link),
                    "droppedAttributesCount": link.get("droppedAttributesCount"),
                }
                for link in _list(span, "links")
            ],
            "dropped": {
                what: span.get(f"dropped{what.capitalize()}Count") for what in ("attributes", "events", "links")
            },
        }


def events_of(request: Document) -> Iterator[dict[str, Any]]:
    """Yields the logs of a request as events of the profile `evlog`.

    Secrets among attributes, also those that are only the end of a key, statements, and queries of URLs are removed as the
    profile `otel-traces` does.

    Raises:
        InvalidRequest: the request is malformed.
    """
    last, of_resource = None, dict[str, Any]()
    for resource, scope, log in _items(request, "resourceLogs", "scopeLogs", "logRecords"):
        cleaner = Cleaner(_POLICY)
        attributes, _ = cleaner.attributes(_attributes(log), "attributes")
        if resource is not last:
            last, (of_resource, _) = resource, cleaner.attributes(resource["attributes"], "resource")
        body = _any_value(log.get("body"))
        if isinstance(body, (dict, list)):
            body = cleaner.attributes({"body": body}, "")[0]["body"]
        number = log.get("severityNumber")
        event: dict[str, Any] = {
            "timestamp": _time(log.get("timeUnixNano")) or _time(log.get("observedTimeUnixNano")),
            "level": _level(number, log.get("severityText")),
            "service": of_resource.get("service.name"),
            "environment": _first(of_resource, "deployment.environment.name", "deployment.environment"),
            "version": of_resource.get("service.version"),
            "region": of_resource.get("cloud.region"),
            "requestId": _first(attributes, *cleaning.REQUEST_ID_ATTRIBUTES),
            "traceId": _id(log.get("traceId")),
            "spanId": _id(log.get("spanId")),
            "method": _first(attributes, "http.request.method", "http.method"),
            "path": _first(attributes, "url.path", "http.target"),
            "status": _first(attributes, "http.response.status_code", "http.status_code"),
            "message": body if isinstance(body, str) else _first(attributes, "exception.message"),
        }
        error = {key: attributes[f"exception.{key}"] for key in _EXCEPTION if f"exception.{key}" in attributes}
        context = {
            "body": None if isinstance(body, str) else body,
            "eventName": log.get("eventName"),
            "severity": {"number": number, "text": log.get("severityText")},
            "attributes": attributes,
            "resource": of_resource,
            "scope": scope,
            "error": error,
        }
        event["context"] = {key: value for key, value in context.items() if value}
        yield {key: value for key, value in event.items() if value is not None}


_EXCEPTION = ("type", "message", "stacktrace")
Reader = Callable[[Document], Iterator[dict[str, Any]]]


def _items(request: Document, *members: str) -> Iterator[tuple[dict[str, Any], dict[str, Any], Document]]:
    """Yields each span or log with its resource and its scope; `members` are the names of the three levels."""
    of_resources, of_scopes, items = members
    for of_resource in _list(request, of_resources):
        resource = {
            "schemaUrl": of_resource.get("schemaUrl"),
            "attributes": _attributes(_object(of_resource, "resource")),
        }
        for of_scope in _list(of_resource, of_scopes):
            given = _object(of_scope, "scope")
            scope = {
                "name": given.get("name"),
                "version": given.get("version"),
                "schemaUrl": of_scope.get("schemaUrl"),
                "attributes": _attributes(given),
            }
            for item in _list(of_scope, items):
                yield resource, scope, item


def _attributes(document: Document) -> dict[str, Any]:
    return _pairs(_list(document, "attributes"))


def _pairs(given: list[Document]) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for pair in given:
        key = pair.get("key", "")
        if not isinstance(key, str):
            raise InvalidRequest("the key of an OTLP attribute must be a string")
        pairs[key] = _any_value(pair.get("value"))
    return pairs


def _any_value(given: Any) -> Any:
    """Returns an AnyValue as plain JSON: an integer stays exact, a number that is not finite and a value of a kind that is
    not known become null.
    """
    if given is None:
        return None
    if not isinstance(given, dict):
        raise InvalidRequest("the value of an OTLP attribute must be an object")
    for kind in _VALUES:
        value = given.get(kind)
        if value is None:
            continue
        if kind == "arrayValue":
            return [_any_value(item) for item in _list(_checked(value), "values")]
        if kind == "kvlistValue":
            return _pairs(_list(_checked(value), "values"))
        if kind == "intValue" and isinstance(value, str):
            if not _INTEGER.fullmatch(value):
                raise InvalidRequest("intValue of an OTLP attribute is not an integer")
            return int(value)
        if kind == "doubleValue":
            return value if isinstance(value, (int, float)) and math.isfinite(value) else None
        return value
    return None


def _list(document: Document, key: str) -> list[Document]:
    """Returns a list of objects; an empty one if it is missing.

    Raises:
        InvalidRequest: the value is another one.
    """
    found = document.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise InvalidRequest(f"{key} of an OTLP request must be an array of objects")
    return found


def _object(document: Document, key: str) -> Document:
    found = document.get(key)
    return {} if found is None else _checked(found)


def _checked(value: Any) -> Document:
    if not isinstance(value, dict):
        raise InvalidRequest("a message of an OTLP request must be an object")
    return value


def _first(attributes: Document, *keys: str) -> Any:
    return next((attributes[key] for key in keys if attributes.get(key) is not None), None)


def _time(value: Any) -> str | None:
    nanos = nanos_of(value)
    return render(nanos // 1_000_000) if nanos else None


def _id(value: Any) -> str | None:
    return value.lower() if isinstance(value, str) and value.strip("0") else None


def _level(number: Any, text: Any) -> str | None:
    """Returns the level of a severity; of one without a number, its text, which counts if it is a level."""
    if isinstance(number, str):  # the name of the enum's value, which some send
        text, number = number.removeprefix("SEVERITY_NUMBER_").rstrip("234"), None
    if isinstance(number, int) and number > 0:
        return next(level for least, level in _LEVELS if number >= least)
    name = text.lower() if isinstance(text, str) else None
    return {"trace": "debug", "fatal": "error", "warning": "warn"}.get(name, name) if name else None
