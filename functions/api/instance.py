"""One Lambda instance of the api: its logger, its meter, its application. Made by the import, whichever door calls."""

from __future__ import annotations

import logging

from aws_lambda_powertools.logging.utils import copy_config_to_registered_loggers

from functions.api import components
from functions.api.app import create_app
from functions.api.true_path import TruePath
from functions.observability import Meter, make_logger

SERVICE = "api"
PACKAGES = {"functions", "headrace"}  # they log with the standard library; here that becomes structured

logger = make_logger(SERVICE)
for package in PACKAGES:
    logging.getLogger(package)
copy_config_to_registered_loggers(logger, include=PACKAGES)
meter = Meter(SERVICE)
app = TruePath(create_app(components.build(meter)))


def begin(request_id: str | None) -> None:
    """What is logged from now on belongs to this request."""
    logger.append_keys(request_id=request_id)


def end() -> None:
    """Writes what was counted since the last end."""
    meter.flush()
