"""Which metric counts an answer that is an error."""

from __future__ import annotations

from functions.metrics import ApiMetric

_ERRORS = {
    401: ApiMetric.Unauthorized,
    403: ApiMetric.Forbidden,
    408: ApiMetric.Timeouts,
    409: ApiMetric.Conflicts,
    429: ApiMetric.Overloads,
    500: ApiMetric.Failures,
    503: ApiMetric.StoreFailures,
}


def error_metric(status: int, *, may_have_written: bool) -> ApiMetric | None:
    """The metric of an answer; None for one that is no error."""
    if status < 400:
        return None
    if status == 408 and may_have_written:
        return ApiMetric.UnknownOutcomes
    return _ERRORS.get(status, ApiMetric.ClientErrors)
