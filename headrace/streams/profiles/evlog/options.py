"""Parses the options of an evlog profile document: `redactKeys`, `correlation`, `observability`."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.errors import InvalidRequest
from headrace.streams.profiles import strict

_MOST_NAMES = 64  # maximum names in each list, as in the Prisma Streams server


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
        correlation = _given(
            requestIdFields=self.request_id_fields,
            traceContextFields=self.trace_context_fields,
            parseTraceparent=self.parse_traceparent,
        )
        observability = None if self.traces_stream is None else {"request": {"tracesStream": self.traces_stream}}
        return _given(redactKeys=self.redact_keys, correlation=correlation or None, observability=observability)


def parse_options(document: dict[str, Any]) -> Options:
    """Parses the document of an evlog profile.

    Raises:
        InvalidRequest: there is an unknown key, or a value of the wrong form; the message says where.
    """
    strict.only(document, ("kind", "redactKeys", "correlation", "observability"), "profile")
    place = "profile.correlation"
    correlation = _section(document, "correlation", place)
    strict.only(correlation, ("requestIdFields", "traceContextFields", "parseTraceparent"), place)
    traceparent = correlation.get("parseTraceparent")
    if "parseTraceparent" in correlation and not isinstance(traceparent, bool):
        raise InvalidRequest(f"{place}.parseTraceparent must be boolean")
    return Options(
        redact_keys=_redact_keys(document),
        request_id_fields=_names(correlation, "requestIdFields", place),
        trace_context_fields=_names(correlation, "traceContextFields", place),
        parse_traceparent=traceparent,
        traces_stream=_traces_stream(_section(document, "observability", "profile.observability")),
    )


def _redact_keys(document: dict[str, Any]) -> tuple[str, ...] | None:
    names = _names(document, "redactKeys", "profile")
    return None if names is None else tuple(dict.fromkeys(name.lower() for name in names))


def _traces_stream(observability: dict[str, Any]) -> str | None:
    place = "profile.observability"
    strict.only(observability, ("request",), place)
    request = _section(observability, "request", f"{place}.request")
    strict.only(request, ("tracesStream",), f"{place}.request")
    if "tracesStream" not in request:
        return None
    return strict.required_text(request["tracesStream"], f"{place}.request.tracesStream").strip()


def _section(document: dict[str, Any], key: str, place: str) -> dict[str, Any]:
    return strict.as_object(document[key], place) if key in document else {}


def _names(document: dict[str, Any], key: str, place: str) -> tuple[str, ...] | None:
    return strict.distinct_texts(document[key], f"{place}.{key}", _MOST_NAMES) if key in document else None


def _given(**options: Any) -> dict[str, Any]:
    """Returns the options that are not None, with tuples as JSON arrays."""
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in options.items() if value is not None
    }
