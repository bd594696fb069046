"""Verb: audit. Once a day: walks the catalog and looks at each log, for what every event and message missed.

A run looks at one page of names and sends itself on.
"""

from __future__ import annotations

from typing import NamedTuple

from functions.indexer.context import Context
from functions.indexer.look import look
from functions.queue import Message

MAX_ROWS = 100


class Audited(NamedTuple):
    """What a run found. `failed`: logs that could not be looked at, with the reason."""

    waiting: int
    failed: tuple[tuple[str, Exception], ...]


def audit(context: Context, surface: str = "", after: str = "") -> Audited:
    """Looks at one page of names of a surface, or of each, and asks for a sweep of their orphans."""
    waiting = 0
    failed: list[tuple[str, Exception]] = []
    for one in (surface,) if surface else context.stores.surfaces:
        rows = context.stores.catalog.living(one, after=after, limit=MAX_ROWS)
        for row in rows:
            try:
                waiting += look(context, row.log_id)
            except Exception as exc:  # noqa: BLE001 - one poisoned log must not hide the others
                failed.append((row.log_id, exc))
        wanted = [Message("orphans", row.log_id) for row in rows]
        if len(rows) == MAX_ROWS:
            wanted.append(Message("audit", surface=one, after=rows[-1].name))
        context.queue.send(wanted, context.now_ms())
    return Audited(waiting, tuple(failed))
