"""The scheduled verbs audit and sweep.

The audit goes through the names that live once a day, sends messages for work that every event and message missed, and
corrects rows. It costs two reads per log, one or two more if the log has several entries (`functions/worker.py: audit` is
the walk). If the newest entry of a log at rest has records that were removed, it writes another after it.

The sweep ends logs whose deadline has passed, and updates deadlines that were renewed. It also removes the objects of
creates that failed (`headrace.tables.unborn`), and frees the slots of processes that died (`headrace.tables.slots`).
"""

from __future__ import annotations

from itertools import islice, takewhile
from typing import NamedTuple

from functions import worker
from functions.queue import Message
from functions.sealer import policy
from functions.sealer.context import Context
from functions.sealer.purge import PAGE_OBJECTS
from functions.worker import Audited, is_its_day
from headrace.errors import Damaged
from headrace.log import join
from headrace.objects import keys
from headrace.tables.catalog import Row
from headrace.tables.slots import free_expired
from headrace.tables.unborn import UNBORN, buried
from headrace.wal.state import Entry

_RESTING_MS = 24 * 3600 * 1000  # since its last entry; any other log is likely to go on by itself
SWEEP_S = 45.0  # of one sweep; the next begins after a minute
SLOTS = 1_000  # that one sweep frees: a few seconds


def audit(parts: Context, message: Message) -> Audited[int]:
    """Looks at the logs of one page of names, and sends messages for work that was missed (seal, trim, purge), and for a
    sweep of orphans. The result has the number of messages for missed work for each log.
    """
    now_ms = parts.now_ms()
    audited = worker.audit(
        parts,
        message,
        lambda row: _missed(parts, message, row, now_ms),
        lambda audited: [one for missed in audited.found for one in missed],
    )
    return Audited([sum(one.verb != "orphans" for one in wanted) for wanted in audited.found], audited.failed)


def _missed(parts: Context, message: Message, row: Row, now_ms: int) -> list[Message]:
    wal, limits = parts.stores.wal, parts.limits
    page = wal.read(row.log_id, limit=2)  # of a log at rest only the newest entry is left
    oldest = page.entries[0] if page.entries else None
    newest = page.entries[-1] if page.complete and oldest else wal.newest(row.log_id)
    if newest is None or oldest is None:
        current = parts.stores.catalog.get(row.surface, row.name)  # perhaps the index lags
        own = current.log(row.config.role) if current is not None and not current.ended else None
        if own is not None and own.log_id == row.log_id:
            raise Damaged(f"log has no entry: log_id={row.log_id} name={row.name}")
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
    is_trimmable = oldest.slot < min(end_slot, newest.slot)
    if (
        is_trimmable and now_ms - page.entries[-1].committed_ms >= 2 * limits.trim_age_ms
    ):  # its successor, too, is old
        wanted.append(Message("trim", row.log_id))
    if newest.state.retained(now_ms).floor > newest.state.floor and idle_ms >= _RESTING_MS and not newest.state.ended:
        parts.rest(row, newest.slot)  # a log at rest lets go of what it does not keep any longer
    if is_its_day(message, row.log_id, idle_ms, now_ms):
        wanted.append(Message("orphans", row.log_id))
        if newest.slot < end_slot and idle_ms >= _RESTING_MS and _holds_dead(parts, newest):
            parts.rest(row, newest.slot)
    return wanted


def _holds_dead(parts: Context, newest: Entry) -> bool:
    """Returns whether the newest entry of a log has records that were removed. It is not trimmed until another follows."""
    extension = newest.state.extension
    if not newest.count or extension is None or not extension.removes_records:
        return False
    manifest = join.newest_manifest(parts.stores, parts.manifests, newest.log_id)
    if manifest is None:
        return False
    dead = parts.dead(manifest, parts.now_ms())
    has_expired = dead.expired_ms is not None and newest.state.append_time_ms < dead.expired_ms
    return has_expired or any(first < newest.next_offset and newest.offset < end for first, end in dead.runs)


class Swept(NamedTuple):
    """The result of a sweep: the numbers of due rows whose logs it ended, and whose deadline it moved because it had
    been renewed; the number of objects that it removed of logs that were never created; the number of slots that it
    freed; and the ids of logs for which something failed, with the error (of the slots without an id).
    """

    ended: int
    moved: int
    orphans: int
    slots: int
    failed: list[tuple[str, Exception]]


def sweep(parts: Context) -> Swept:
    """Frees slots whose deadline has passed. Ends the logs whose deadline has passed, updates rows whose deadline was
    renewed, and removes what is left of logs that were announced and not created, until its time is over. The next sweep,
    a minute later, does the rest: no message asks for it, so that there is one sweep at a time.

    A log that ends here is purged by the message that its last entry causes. A log that fails stays due, so the next
    sweep tries again.
    """
    catalog, clock = parts.stores.catalog, parts.stores.clock
    until = clock.monotonic() + SWEEP_S
    ended = moved = orphans = slots = 0
    failed: list[tuple[str, Exception]] = []
    try:
        slots = free_expired(parts.stores.sessions, parts.now_ms(), SLOTS)
    except Exception as exc:  # noqa: BLE001 - nor must they keep logs alive
        failed.append(("", exc))
    rows = takewhile(lambda _: clock.monotonic() < until, catalog.due(parts.now_ms()))
    for row in rows:
        try:
            if row.surface == UNBORN:
                orphans += _sweep_unborn(parts, row.log_id)
                continue
            deadline_ms = parts.expire_if_due(row)
            if deadline_ms is None:
                ended += 1
            else:
                catalog.set_hints(row, deadline_ms=deadline_ms)
                moved += 1
        except Exception as exc:  # noqa: BLE001 - one log must not keep others alive
            failed.append((row.log_id, exc))
    return Swept(ended, moved, orphans, slots, failed)


def _sweep_unborn(parts: Context, log_id: str) -> int:
    """Removes the announcement of a log, and before it, if the log was not created, its objects: returns their number. Of
    very many objects some are left, with the row, for the next sweep.

    A log with entries was created, whatever the row says. So was one of which more than a create writes is in the bucket,
    if the tables were restored and its entries are lost; a recovery will bring it back.
    """
    stores, row = parts.stores, buried(log_id, parts.now_ms())
    stores.catalog.put(row)  # from now on, no commit can create the log
    found: list[str] = []
    if stores.wal.newest(log_id) is None:
        found = list(islice(stores.objects.list(keys.log_prefix(log_id)), PAGE_OBJECTS))
        by_create = (keys.payloads(log_id), keys.definitions(log_id))
        if not all(key.startswith(by_create) for key in found):
            found = []
    if found:
        stores.objects.delete(found)
    if len(found) < PAGE_OBJECTS:
        stores.catalog.remove(row)
    return len(found)
