"""One Lambda instance of the api: its logger, context and application, created when this module is imported by either
door.
"""

from __future__ import annotations

from functions.api.app import create_app
from functions.api.context import open_context
from functions.api.door.routes import TruePath
from functions.wiring import make_logger, spare_start_up

logger = make_logger("api")
_context = open_context()
app = TruePath(create_app(_context))
spare_start_up()


def begin(request_id: str | None) -> None:
    """Adds this request's id to everything that is logged from now on, in place of the previous one's fields."""
    logger.append_keys(request_id=request_id)
    _context.meter.fields = {"request_id": request_id} if request_id else {}


def end(left_ms: float) -> None:
    """Ends an invocation that Lambda would end in `left_ms`: writes the metrics that were counted since the last answer, in
    case the request got no answer, and does background work that is due.
    """
    _context.invocation_ended(left_ms)
    _context.meter.flush()
