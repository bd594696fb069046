"""Lambda entry of the indexer: created manifests, job-state events, and the schedule."""

from __future__ import annotations

from typing import Any

from functions.indexer.components import meter, parts
from functions.indexer.dispatch import Dispatcher
from functions.observability import make_logger
from headrace.objects import counting

logger = make_logger("indexer")


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Runs the verbs that the event asks for."""
    logger.append_keys(request_id=getattr(context, "aws_request_id", None))
    try:
        return Dispatcher(parts(), logger, meter()).dispatch(event)
    finally:
        _keep_counts()
        meter().flush()


def _keep_counts() -> None:
    """Adds what was asked of the object store to the streams' counters. Nothing fails because of a counter."""
    try:
        counting.flush(parts().counts, parts().stores.watermarks)
    except Exception:
        logger.exception("request counts were not added")
