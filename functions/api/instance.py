"""One Lambda instance of the api: its logger, its context, its application. Made by the import, whichever door calls."""

from __future__ import annotations

from functions.api.app import create_app
from functions.api.context import open_context
from functions.api.door.requests import TruePath
from functions.wiring import make_logger

logger = make_logger("api")
_context = open_context()
app = TruePath(create_app(_context))


def begin(request_id: str | None) -> None:
    """Ties what is logged from now on to this request."""
    logger.append_keys(request_id=request_id)


def end() -> None:
    """Writes what was counted since the last answer: of a request that came to none."""
    _context.meter.flush()
