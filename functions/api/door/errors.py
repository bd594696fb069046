"""Every error as a response: one table. Bodies are `{"error":{"code","message"}}`; details go to the log only."""

from __future__ import annotations

import logging

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response

from functions.api.door.access import Forbidden, Unauthorized
from functions.api.door.bodies import AnswerTooLarge
from headrace.errors import (
    Conflict,
    DeadlineExceeded,
    Gone,
    HeadraceError,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    PayloadTooLarge,
    RequestTimeout,
    StoreError,
    StoreThrottled,
    StoreTimeout,
)
from headrace.streams.errors import ProducerGap, SequenceConflict, StaleProducer, StreamClosed

_log = logging.getLogger(__name__)

CONTENT_TYPE = "application/json; charset=utf-8"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_RETRY_AFTER_S = 1
_RESTART_S = 5

# The first row whose class fits.
_STATUS: tuple[tuple[type[HeadraceError], int], ...] = (
    (PayloadTooLarge, 413),
    (InvalidRequest, 400),
    (NotFound, 404),
    (Gone, 410),
    (Conflict, 409),
    (StaleProducer, 403),
    (Overloaded, 429),
    (OutcomeUnknown, 408),
    (RequestTimeout, 408),
)
_HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}


def response_to(error: Exception, method: str) -> Response:
    """Returns the answer to a request of `method` that ended with `error`."""
    if isinstance(error, StoreError):
        return _store_failed(error, method)
    if isinstance(error, StreamClosed):
        return _bare(409, {"Stream-Closed": "true", "Stream-Next-Offset": error.next_offset})
    if isinstance(error, HeadraceError):
        status = next((status for kind, status in _STATUS if isinstance(error, kind)), None)
        if status is not None:
            return envelope(status, error.code, str(error), _details(error))
    if isinstance(error, Unauthorized):
        return envelope(401, "unauthorized", "unauthorized", {"WWW-Authenticate": "Bearer"})
    if isinstance(error, Forbidden):
        return envelope(403, "forbidden", str(error))
    if isinstance(error, AnswerTooLarge):
        skip = {} if error.next_offset is None else {"Stream-Next-Offset": error.next_offset}
        return envelope(413, "payload_too_large", str(error), skip)
    if isinstance(error, HTTPException):
        code = _HTTP_CODES.get(error.status_code, "bad_request")
        return envelope(error.status_code, code, str(error.detail).lower(), dict(error.headers or {}))
    _log.error("request failed: method=%s error=%s", method, type(error).__name__, exc_info=error)
    return envelope(500, "internal", "internal error")


def may_have_written(error: Exception, method: str) -> bool:
    """Returns whether a request of `method` that ended with `error` can have had its effect."""
    if isinstance(error, StoreTimeout):
        return method not in SAFE_METHODS
    return isinstance(error, OutcomeUnknown)


def at_shutdown(method: str) -> Response:
    """Returns the answer to a request that is broken off because the server ends. A write may have happened."""
    if method not in SAFE_METHODS:
        return response_to(OutcomeUnknown(), method)
    return envelope(503, "unavailable", "the server is shutting down", {"Retry-After": str(_RESTART_S)})


def envelope(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    """Returns an error response."""
    body = orjson.dumps({"error": {"code": code, "message": message.encode(errors="replace").decode()}})
    return Response(body, status, {"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store", **(headers or {})})


def _bare(status: int, headers: dict[str, str]) -> Response:
    return Response(None, status, {"Cache-Control": "no-store", **headers})


def _details(error: HeadraceError) -> dict[str, str]:
    """Returns what a client needs to go on, as headers."""
    if isinstance(error, SequenceConflict):
        return {
            "Stream-Expected-Seq": _printable(error.expected),
            "Stream-Received-Seq": _printable(error.received),
        }
    if isinstance(error, ProducerGap):
        return {"Producer-Expected-Seq": str(error.expected), "Producer-Received-Seq": str(error.received)}
    if isinstance(error, StaleProducer):
        return {"Producer-Epoch": str(error.epoch)}
    if isinstance(error, Overloaded):
        return {"Retry-After": str(error.retry_after_s)}
    return {}


def _printable(value: str) -> str:
    """Returns a client's text as a header value: as it came if that is printable ASCII, else with escapes."""
    if value.isascii() and value.isprintable():
        return value
    return value.encode("unicode_escape").decode("ascii")


def _store_failed(error: StoreError, method: str) -> Response:
    _log.warning("store failed: method=%s error=%s detail=%s", method, type(error).__name__, error)
    late: HeadraceError | None = None
    if may_have_written(error, method):
        late = OutcomeUnknown()
    elif isinstance(error, DeadlineExceeded):
        late = RequestTimeout()
    if late is not None:
        return envelope(408, late.code, str(late))
    if isinstance(error, StoreThrottled):
        return envelope(429, "overloaded", "the store is throttling", {"Retry-After": str(_RETRY_AFTER_S)})
    return envelope(503, "unavailable", "a store is not available", {"Retry-After": str(_RETRY_AFTER_S)})
