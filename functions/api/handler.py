"""The Lambda door: an event of an HTTP API or a Function URL to the application and back."""

from __future__ import annotations

import logging
from typing import Any

from aws_lambda_powertools.logging.utils import copy_config_to_registered_loggers
from mangum import Mangum

from functions.api import components
from functions.api.app import create_app
from functions.api.buffered import TEXT_TYPES
from functions.api.true_path import TruePath
from functions.observability import Meter, make_logger

SERVICE = "api"
PACKAGES = {"functions", "headrace"}  # they log with the standard library; here that becomes structured

logger = make_logger(SERVICE)
for package in PACKAGES:
    logging.getLogger(package)
copy_config_to_registered_loggers(logger, include=PACKAGES)
meter = Meter(SERVICE)
_mangum = Mangum(TruePath(create_app(components.build(meter))), lifespan="off", text_mime_types=list(TEXT_TYPES))


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answers one request."""
    logger.append_keys(request_id=getattr(context, "aws_request_id", None))
    try:
        return _mangum(event, context)
    finally:
        meter.flush()
