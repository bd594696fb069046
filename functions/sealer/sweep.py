"""Verb: sweep. On a schedule: logs whose deadline has passed end, and deadlines that were renewed move."""

from __future__ import annotations

from typing import NamedTuple

from functions.queue import Message
from functions.sealer.context import Context

MAX_ROWS = 200


class Swept(NamedTuple):
    """What became of the rows that were due. `failed`: the log and the reason, where that is unknown."""

    ended: int
    moved: int
    failed: list[tuple[str, Exception]]


def sweep(parts: Context) -> Swept:
    """Looks at the rows that are due, a bounded number of them; sends itself a message if there may be more.

    A log that ends here is purged by the message that its last entry sends. One that fails is met again by
    the next sweep, as it stays due.
    """
    catalog = parts.stores.catalog
    rows = catalog.due(parts.now_ms(), limit=MAX_ROWS)
    ended = moved = 0
    failed: list[tuple[str, Exception]] = []
    for row in rows:
        try:
            deadline_ms = parts.expire_if_due(row)
            if deadline_ms is None:
                ended += 1
            else:
                catalog.set_hints(row, deadline_ms=deadline_ms)
                moved += 1
        except Exception as exc:  # noqa: BLE001 - one log must not keep others alive
            failed.append((row.log_id, exc))
    if len(rows) == MAX_ROWS and len(failed) < MAX_ROWS:
        parts.queue.send([Message("sweep")], parts.now_ms())
    return Swept(ended, moved, failed)
