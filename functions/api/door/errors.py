"""Converts every error to a response and to a metric. Bodies are `{"error":{"code","message"}}`; details are only
logged.

One table has the errors that all surfaces share; a surface adds rows for its own errors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response

from functions.api.door.answers import AnswerTooLarge
from functions.api.door.requests import BodyTimeout
from functions.metrics import ApiMetric
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


class Unauthorized(Exception):
    """The request has no key, or an unknown one."""


class Forbidden(Exception):
    """The key lacks the scope, or does not allow this name."""


class Row(NamedTuple):
    """The response to errors of one class.

    Attributes:
        headers: returns the headers that a client needs to continue.
        bare: whether the response has no body.
        message: replaces the error's own message, unless it is empty.
    """

    kind: type[HeadraceError]
    status: int
    headers: Callable[[Any], dict[str, str]] = lambda _: {}
    bare: bool = False
    message: str = ""


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
_HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}


def response_to(error: Exception, method: str, rows: Sequence[Row] = ()) -> Response:
    """Returns the response to a request with `method` that ended with `error`; the surface's `rows` are tried first. An
    error that no rule covers is logged and gives a 500.
    """
    if isinstance(error, StoreError):
        return _store_failed(error, method, rows)
    if isinstance(error, HeadraceError):
        for row in (*rows, *_ROWS):
            if isinstance(error, row.kind):
                headers = row.headers(error)
                if row.bare:
                    return Response(None, row.status, {"Cache-Control": "no-store", **headers})
                return envelope(row.status, error.code, row.message or str(error), headers)
    if isinstance(error, Unauthorized):
        return envelope(401, "unauthorized", "unauthorized", {"WWW-Authenticate": "Bearer"})
    if isinstance(error, Forbidden):
        return envelope(403, "forbidden", str(error))
    if isinstance(error, AnswerTooLarge):
        return envelope(413, "payload_too_large", str(error), dict(error.headers))
    if isinstance(error, HTTPException):
        code = _HTTP_CODES.get(error.status_code, "bad_request")
        return envelope(error.status_code, code, str(error.detail).lower(), dict(error.headers or {}))
    _log.error("request failed: method=%s error=%s", method, type(error).__name__, exc_info=error)
    return envelope(500, "internal", "internal error")


def may_have_written(error: Exception, method: str) -> bool:
    """Returns whether a request with `method` that ended with `error` may have taken effect although it failed: for
    OutcomeUnknown, and for StoreTimeout unless the method only reads; False for all other errors.
    """
    if isinstance(error, StoreTimeout):
        return method not in SAFE_METHODS
    return isinstance(error, OutcomeUnknown)


def at_shutdown(method: str, rows: Sequence[Row] = ()) -> Response:
    """Returns the response to a request that is broken off because the server stops: 503 with Retry-After or, if the
    method may write, the one for an unknown outcome (408).
    """
    if method not in SAFE_METHODS:
        return response_to(OutcomeUnknown(), method, rows)
    return envelope(503, "unavailable", "the server is shutting down", {"Retry-After": str(_RESTART_S)})


def envelope(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    """Returns an error response with the body `{"error":{"code","message"}}` that no cache may store."""
    body = orjson.dumps({"error": {"code": code, "message": message.encode(errors="replace").decode()}})
    return Response(body, status, {"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store", **(headers or {})})


def _store_failed(error: StoreError, method: str, rows: Sequence[Row]) -> Response:
    _log.warning("store failed: method=%s error=%s detail=%s", method, type(error).__name__, error)
    late: HeadraceError | None = None
    if may_have_written(error, method):
        late = OutcomeUnknown()
    elif isinstance(error, DeadlineExceeded):
        late = RequestTimeout()
    if late is not None:
        return response_to(late, method, rows)
    if isinstance(error, StoreThrottled):
        return envelope(429, "overloaded", "the store is throttling", {"Retry-After": str(_RETRY_AFTER_S)})
    return envelope(503, "unavailable", "a store is not available", {"Retry-After": str(_RETRY_AFTER_S)})


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
