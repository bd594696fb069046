"""The buffered door: passes events of an HTTP API (or of a Function URL without streaming) to the application, and
returns its answers.
"""

from __future__ import annotations

from typing import Any

from mangum import Mangum

from functions.api import instance
from functions.api.door.answers import TEXT_TYPES

_mangum = Mangum(instance.app, lifespan="off", text_mime_types=list(TEXT_TYPES))


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Handles one HTTP request, given as a Lambda event, and returns the response as the dict that Lambda expects."""
    instance.begin(getattr(context, "aws_request_id", None))
    try:
        return _mangum(event, context)
    finally:
        instance.end(context.get_remaining_time_in_millis())
