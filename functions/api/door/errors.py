"""Converts every error to a response and to a metric. Bodies are `{"error":{"code","message"}}`, with `detail` if the
error has one for the client; all else is only logged.

One table has the errors that all surfaces share; a surface adds rows for its own errors, may call the shared codes
otherwise, and may shape the bodies otherwise.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response

from functions.api.door.answers import AnswerTooLarge
from functions.api.door.requests import BodyTimeout
from functions.metrics import ApiMetric
from functions.refusals import Forbidden, Unauthorized
from headrace.errors import (
    Conflict,
    DeadlineExceeded,
    Gone,
    HeadraceError,
    InvalidRequest,
    NewerFormat,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    PayloadTooLarge,
    RequestTimeout,
    StoreError,
    StoreThrottled,
    StoreTimeout,
)

_log = logging.getLogger(__name__)

CONTENT_TYPE = "application/json; charset=utf-8"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_RETRY_AFTER_S = 1
_RESTART_S = 5


class Row(NamedTuple):
    """The response to errors of one class.

    Attributes:
        headers: returns the headers that a client needs to continue.
        bare: whether the response has no body, where bodies have the usual form.
        message: replaces the error's own message, unless it is empty.
        code: replaces the error's own code, unless it is empty.
        detail: returns what a program may need to know of the error; None if there is nothing.
    """

    kind: type[HeadraceError]
    status: int
    headers: Callable[[Any], dict[str, str]] = lambda _: {}
    bare: bool = False
    message: str = ""
    code: str = ""
    detail: Callable[[Any], Mapping[str, object] | None] = lambda error: getattr(error, "detail", None)


# The first row whose class fits.
_ROWS = (
    Row(PayloadTooLarge, 413),
    Row(InvalidRequest, 400),
    Row(NotFound, 404),
    Row(Gone, 410),
    Row(Conflict, 409),
    Row(Overloaded, 429, lambda error: {"Retry-After": str(error.retry_after_s)}),
    Row(OutcomeUnknown, 408),
    Row(BodyTimeout, 408, lambda _: {"Connection": "close"}),
    Row(RequestTimeout, 408),
    Row(NewerFormat, 503, lambda _: {"Retry-After": str(_RESTART_S)}),
)
_HTTP_CODES = {
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    413: "payload_too_large",
    415: "unsupported_media_type",
    426: "upgrade_required",
}
Codes = Mapping[str, str]
SAME: Codes = MappingProxyType({})


class Failure(NamedTuple):
    """What an error response tells.

    Attributes:
        detail: what a program may need to know of the error; None if there is nothing.
    """

    status: int
    code: str
    message: str
    headers: Mapping[str, str] = MappingProxyType({})
    detail: Mapping[str, object] | None = None

    @property
    def error(self) -> dict[str, object]:
        """The member `error` of a body."""
        told: dict[str, object] = {"code": self.code, "message": self.message}
        return told if self.detail is None else {**told, "detail": self.detail}


Envelope = Callable[[Failure], Response]
"""A function that builds an error response."""


def envelope(failure: Failure) -> Response:
    """Returns an error response with the body `{"error":{"code","message"}}` that no cache may store. A detail is added to
    the body.
    """
    return refusal(failure.status, {"error": failure.error}, failure.headers)


def refusal(
    status: int, document: Mapping[str, object], headers: Mapping[str, str] = MappingProxyType({})
) -> Response:
    """Returns an error response with a JSON document that no cache may store. Lone surrogates become `?`."""
    try:
        body = orjson.dumps(document)
    except TypeError:  # text of the client that UTF-8 can't hold
        body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
    return Response(body, status, {"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store", **headers})


def response_to(
    error: Exception, method: str, rows: Sequence[Row] = (), codes: Codes = SAME, shape: Envelope = envelope
) -> Response:
    """Returns the response to a request with `method` that ended with `error`. An error that no rule covers is logged and
    gives a 500.

    Args:
        rows: the surface's own rules, which are tried first.
        codes: what the surface calls the shared codes, where it differs.
        shape: builds the response.
    """
    if isinstance(error, StoreError):
        return _store_failed(error, method, rows, codes, shape)
    if isinstance(error, HeadraceError):
        for row in (*rows, *_ROWS):
            if isinstance(error, row.kind):
                headers = row.headers(error)
                if row.bare and shape is envelope:
                    return Response(None, row.status, {"Cache-Control": "no-store", **headers})
                code = row.code or codes.get(error.code, error.code)
                return shape(Failure(row.status, code, row.message or str(error), headers, row.detail(error)))
    if isinstance(error, Unauthorized):
        return shape(Failure(401, "unauthorized", "unauthorized", {"WWW-Authenticate": "Bearer"}))
    if isinstance(error, Forbidden):
        return shape(Failure(403, "forbidden", str(error)))
    if isinstance(error, AnswerTooLarge):
        return shape(Failure(413, "payload_too_large", str(error), error.headers))
    if isinstance(error, HTTPException):
        code = _HTTP_CODES.get(error.status_code, codes.get("bad_request", "bad_request"))
        return shape(Failure(error.status_code, code, str(error.detail).lower(), error.headers or {}))
    _log.error("request failed: method=%s error=%s", method, type(error).__name__, exc_info=error)
    return shape(Failure(500, codes.get("internal", "internal"), "internal error"))


def may_have_written(error: Exception, method: str) -> bool:
    """Returns whether a request with `method` that ended with `error` may have taken effect although it failed: for
    OutcomeUnknown, and for StoreTimeout unless the method only reads; False for all other errors.
    """
    if isinstance(error, StoreTimeout):
        return method not in SAFE_METHODS
    return isinstance(error, OutcomeUnknown)


def at_shutdown(method: str, rows: Sequence[Row] = (), codes: Codes = SAME, shape: Envelope = envelope) -> Response:
    """Returns the response to a request that is broken off because the server stops: 503 with Retry-After or, if the
    method may write, the one for an unknown outcome (408).
    """
    if method not in SAFE_METHODS:
        return response_to(OutcomeUnknown(), method, rows, codes, shape)
    code = codes.get("stopping", "unavailable")
    return shape(Failure(503, code, "the server is shutting down", {"Retry-After": str(_RESTART_S)}))


def _store_failed(error: StoreError, method: str, rows: Sequence[Row], codes: Codes, shape: Envelope) -> Response:
    _log.warning("store failed: method=%s error=%s detail=%s", method, type(error).__name__, error)
    late: HeadraceError | None = None
    if may_have_written(error, method):
        late = OutcomeUnknown()
    elif isinstance(error, DeadlineExceeded):
        late = RequestTimeout()
    if late is None and isinstance(error, StoreThrottled):
        late = Overloaded("the store is throttling", _RETRY_AFTER_S)
    if late is not None:
        return response_to(late, method, rows, codes, shape)
    code = codes.get("unavailable", "unavailable")
    return shape(Failure(503, code, "a store is not available", {"Retry-After": str(_RETRY_AFTER_S)}))


_METRICS = {
    401: ApiMetric.Unauthorized,
    403: ApiMetric.Forbidden,
    408: ApiMetric.Timeouts,
    409: ApiMetric.Conflicts,
    429: ApiMetric.Overloads,
    500: ApiMetric.Failures,
    503: ApiMetric.StoreFailures,
}


def error_metric(status: int, *, may_have_written: bool) -> ApiMetric:
    """Returns the metric that counts an error response: by its status, with 408 counted apart if the request may have
    written; `ClientErrors` for a status without a metric of its own.
    """
    if status == 408 and may_have_written:
        return ApiMetric.UnknownOutcomes
    return _METRICS.get(status, ApiMetric.ClientErrors)
