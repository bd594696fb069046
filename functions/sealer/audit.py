"""The scheduled verbs audit and sweep.

The audit goes through the catalog once a day, sends messages for work that every event and message missed, and corrects
rows. It costs two reads per log, three if something is published. One run takes one page of names, and sends itself a
message for the next.

The sweep ends logs whose deadline has passed, and updates deadlines that were renewed.
"""

from __future__ import annotations

from typing import NamedTuple

from functions.queue import Message
from functions.sealer import policy
from functions.sealer.context import Context
from headrace.tables.catalog import Row

MAX_ROWS = 200
_DAY_MS = 24 * 3600 * 1000
_ACTIVE_MS = 2 * _DAY_MS  # twice the schedule: logs written to since can have new orphans
_WEEK_DAYS = 7  # others can have segments that were merged


def audit(parts: Context, surface: str = "", after: str = "") -> int:
    """Looks at the logs of one page of names, of one surface or of each, and sends messages for work that was missed
    (seal, trim, purge), for a sweep of orphans, and to continue. Returns the number of messages for missed work.
    """
    now_ms = parts.now_ms()
    missed = 0
    for one in (surface,) if surface else parts.stores.surfaces:
        rows = parts.stores.catalog.living(one, after=after, limit=MAX_ROWS)
        wanted = [message for row in rows for log in row.logs for message in _missed(parts, log, now_ms)]
        missed += sum(message.verb != "orphans" for message in wanted)
        if len(rows) == MAX_ROWS:
            wanted.append(Message("audit", surface=one, after=rows[-1].name))
        parts.queue.send(wanted, now_ms)
    return missed


def _missed(parts: Context, row: Row, now_ms: int) -> list[Message]:
    wal, limits = parts.stores.wal, parts.limits
    newest = wal.newest(row.log_id)
    if newest is None:
        return []
    wanted: list[Message] = []
    if newest.state.ended:
        wanted += [] if row.config.role else [Message("purge", row.log_id)]  # the row should say that it has ended
        if not newest.state.forks:
            return wanted
    elif row.label != newest.state.label and not row.config.role:
        parts.stores.catalog.set_hints(row, label=newest.state.label)  # a change came hours late, and set it back
    end_slot = parts.stores.watermarks.get(row.log_id).end_slot
    idle_ms = now_ms - newest.committed_ms
    if policy.may_seal(newest.state) and newest.slot >= end_slot and idle_ms >= 2 * limits.age_ms:
        wanted.append(Message("seal", row.log_id, force=True))
    if end_slot and newest.prev_slot >= 0:
        oldest = wal.read(row.log_id, limit=1).entries[0]
        is_trimmable = oldest.slot < min(end_slot, newest.slot)
        if is_trimmable and now_ms - oldest.committed_ms >= 2 * limits.trim_age_ms:
            wanted.append(Message("trim", row.log_id))
    if idle_ms < _ACTIVE_MS or _is_its_day(row.log_id, now_ms):
        wanted.append(Message("orphans", row.log_id))
    return wanted


def _is_its_day(log_id: str, now_ms: int) -> bool:
    """Returns whether an idle log is looked at today: once a week, on a day that depends on its id."""
    return now_ms // _DAY_MS % _WEEK_DAYS == int(log_id[:8], 16) % _WEEK_DAYS


class Swept(NamedTuple):
    """The result of a sweep: the numbers of due rows whose logs it ended, and whose deadline it moved because it had
    been renewed; and the ids of logs for which that failed, with the error.
    """

    ended: int
    moved: int
    failed: list[tuple[str, Exception]]


def sweep(parts: Context) -> Swept:
    """Ends the logs whose deadline has passed, up to 200, and updates rows whose deadline was renewed; sends itself a
    message if there may be more.

    A log that ends here is purged by the message that its last entry causes. A log that fails stays due, so the next
    sweep tries again.
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
