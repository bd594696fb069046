"""Expiry: a log whose deadline has passed ends by a control entry, conditional on an unchanged last touch.

Reads and appends renew a sliding deadline: appends by the commit time of their own entry, reads by a counted write on
the touch row, at most one per tenth of the TTL. Before anything answers "expired", that row is read consistently and the
entry is committed, so that the answer is final on every process.
"""

from __future__ import annotations

from msgspec.structs import replace

from headrace.log import decide
from headrace.log.commit import Budget, Committer
from headrace.log.picture import Picture, Pictures
from headrace.log.stores import Stores
from headrace.tables.catalog import Row
from headrace.tables.watermarks import TouchUnchanged
from headrace.wal import Committed
from headrace.wal.state import Entry, Kind, LogState

_TOUCH_FRACTION = 10


class Expirer:
    """Decides whether logs have expired, and renews them."""

    def __init__(self, stores: Stores, pictures: Pictures, committer: Committer) -> None:
        self._stores = stores
        self._pictures = pictures
        self._committer = committer

    def ensure_alive(self, name: str, picture: Picture) -> Picture:
        """The picture, or a fresh one that says that the log has ended (it may just have been ended here)."""
        config, state = picture.row.config, picture.state
        if state.ended:
            return picture
        touched_ms = self._pictures.touched_ms(picture.row.log_id)
        deadline_ms = decide.deadline_ms(config, state, touched_ms)
        if deadline_ms is None or self._stores.clock.now_ms() < deadline_ms:
            return picture
        self.expire_if_due(picture.row)
        return self._pictures.look(name)

    def expire_if_due(self, row: Row) -> int | None:
        """Ends the log if nothing renewed it until its deadline.

        Returns:
            The deadline (ms) if it still lies ahead; None if the log has ended, or never expires.
        """
        budget = Budget(self._stores.clock, self._stores.settings.append_timeout_ms)
        while True:
            read = self._pictures.read_time()
            touched_ms = self._stores.watermarks.get(row.log_id).touched_ms
            self._pictures.remember_touch(row.log_id, touched_ms)
            newest = self._stores.wal.newest(row.log_id)
            if newest is None or newest.state.ended:
                self._stores.catalog.mark_ended(row)
                return None
            now_ms = self._stores.clock.now_ms()
            deadline_ms = decide.deadline_ms(row.config, newest.state, touched_ms)
            if deadline_ms is None or now_ms < deadline_ms:
                return deadline_ms
            entry = control_entry(
                newest, "expire", replace(newest.state, ended="expired"), self._stores.request_ids(), now_ms
            )
            outcome = self._committer.put(entry, [TouchUnchanged(row.log_id, touched_ms)], read, budget)
            if isinstance(outcome, Committed):
                self._stores.catalog.mark_ended(row)
                return None
            budget.again("others keep changing this stream")

    def touch(self, picture: Picture) -> None:
        """Renews a sliding deadline, if a tenth of the TTL has passed since the last renewal known here."""
        ttl_ms = picture.row.config.ttl_ms
        if ttl_ms is None:
            return
        log_id = picture.row.log_id
        now_ms = self._stores.clock.now_ms()
        known_ms = max(picture.state.touched_ms, self._pictures.touched_ms(log_id))
        if now_ms - known_ms >= ttl_ms // _TOUCH_FRACTION:
            self._stores.watermarks.touch(log_id, now_ms)
            self._pictures.remember_touch(log_id, now_ms)


def control_entry(newest: Entry, kind: Kind, state: LogState, request_id: str, now_ms: int) -> Entry:
    """The control entry after `newest` that leaves the log in `state`. Delete and what follows use reserved slots."""
    return Entry(
        log_id=newest.log_id,
        slot=newest.next_slot(deleting=bool(state.ended)),
        kind=kind,
        state=state,
        request_ids=(request_id,),
        committed_ms=now_ms,
        prev_slot=newest.slot,
        prev_id=newest.id,
        prev_committed_ms=newest.committed_ms,
    )
