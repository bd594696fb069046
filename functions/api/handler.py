"""The Lambda door: an event of an HTTP API or a Function URL to the application and back."""

from __future__ import annotations

from typing import Any

from mangum import Mangum

from functions.api import components
from functions.api.app import create_app
from functions.api.buffered import TEXT_TYPES
from functions.api.true_path import TruePath
from functions.observability import make_logger

logger = make_logger("api")
_mangum = Mangum(TruePath(create_app(components.build())), lifespan="off", text_mime_types=list(TEXT_TYPES))


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answers one request. Its metrics are written when its answer is."""
    logger.append_keys(request_id=getattr(context, "aws_request_id", None))
    return _mangum(event, context)
