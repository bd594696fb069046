"""Verb: audit. Once a day: walks the catalog and looks at each log, for what every event and message missed.

A run looks at one page of names and sends itself on.
"""

from __future__ import annotations

from typing import NamedTuple

from functions.indexer.look import look
from functions.indexer.parts import Parts
from functions.indexer.queue import Message

MAX_ROWS = 100


class Audited(NamedTuple):
    """What a run found. `failed`: logs that could not be looked at, with the reason."""

    waiting: int
    failed: tuple[tuple[str, Exception], ...]


def audit(parts: Parts, surface: str = "", after: str = "") -> Audited:
    """Looks at one page of names of a surface, or of each, and asks for a sweep of their orphans."""
    waiting = 0
    failed: list[tuple[str, Exception]] = []
    for one in (surface,) if surface else parts.stores.surfaces:
        rows = parts.stores.catalog.living(one, after=after, limit=MAX_ROWS)
        for row in rows:
            try:
                waiting += look(parts, row.log_id)
            except Exception as exc:  # noqa: BLE001 - one poisoned log must not hide the others
                failed.append((row.log_id, exc))
        wanted = [Message("orphans", row.log_id) for row in rows]
        if len(rows) == MAX_ROWS:
            wanted.append(Message("audit", surface=one, after=rows[-1].name))
        parts.queue.send(wanted)
    return Audited(waiting, tuple(failed))
