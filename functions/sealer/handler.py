"""Lambda entry of the sealer: the WAL's stream, the delayed queue, and the schedule."""

from __future__ import annotations

from typing import Any

from functions.observability import Meter, make_logger
from functions.sealer.components import parts
from functions.sealer.dispatch import Dispatcher

logger = make_logger("sealer")
meter = Meter("sealer")


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:  # noqa: ARG001 - Lambda gives it
    """Runs the verbs that the event asks for."""
    try:
        return Dispatcher(parts(), logger, meter).dispatch(event)
    finally:
        meter.flush()
