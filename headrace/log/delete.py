"""Deleting a log, and giving back what a fork holds of its source.

Delete is one control entry: final the moment it answers. A log that forks read from stays readable for them, and answers
410 to everybody else, until its last fork goes; that cascades up a chain of forks. A crash between the steps leaves work
for the sweep: every step looks before it acts.
"""

from __future__ import annotations

from contextlib import suppress

from msgspec.structs import replace

from headrace.errors import Damaged, NotFound, OutcomeUnknown, Overloaded, StoreError
from headrace.log import decide
from headrace.log.commit import Budget, Committer
from headrace.log.expire import Expirer, control_entry
from headrace.log.picture import Pictures
from headrace.log.stores import Stores
from headrace.tables.catalog import Row
from headrace.wal import Committed
from headrace.wal.entry import PutEntry
from headrace.wal.state import LogConfig


class Deleter:
    """Ends logs by hand."""

    def __init__(self, stores: Stores, pictures: Pictures, committer: Committer, expirer: Expirer) -> None:
        self._stores = stores
        self._pictures = pictures
        self._committer = committer
        self._expirer = expirer

    def delete(self, name: str) -> bool:
        """Deletes the stream: True. False if it had been deleted before.

        Raises:
            NotFound: it never existed, or it has expired.
            Gone: it was deleted and forks still need it.
        """
        budget = Budget(self._stores.clock, self._stores.settings.append_timeout_ms)
        while True:
            picture = self._expirer.ensure_alive(name, self._pictures.look(name))
            row, state = picture.row, picture.state
            if state.ended:
                if state.ended == "deleted" and not state.forks:
                    return False
                raise decide.ended(row.config, state) or NotFound(name)
            now_ms = self._stores.clock.now_ms()
            ids = self._stores.request_ids
            entry = control_entry(picture.newest, "delete", replace(state, ended="deleted"), ids(), now_ms)
            outcome = self._committer.put(entry, [], picture.read, budget)
            if isinstance(outcome, Committed):
                self._pictures.drop(name)
                # It is deleted now, and that is the answer, whatever becomes of the rest: the purge does it again.
                with suppress(StoreError, Overloaded, OutcomeUnknown):
                    self._stores.catalog.mark_ended(row)
                    self.release_source(row.log_id, row.config)
                return True
            budget.again("others keep appending to this stream")

    def release_source(self, log_id: str, config: LogConfig) -> None:
        """Gives back the hold on a fork's source, if the fork has ended and has no forks of its own; then upwards."""
        while config.source is not None:
            budget = Budget(self._stores.clock, self._stores.settings.append_timeout_ms)
            while True:
                read = self._pictures.read_time()
                fork = self._stores.wal.newest(log_id)
                if fork is None or not fork.state.ended or fork.state.forks or not fork.state.holds_source:
                    return
                source = self._stores.wal.newest(config.source.log_id)
                if source is None:
                    raise Damaged(f"a fork's source is gone: fork={log_id} source={config.source.log_id}")
                now_ms = self._stores.clock.now_ms()
                ids = self._stores.request_ids
                released = control_entry(fork, "release", replace(fork.state, holds_source=False), ids(), now_ms)
                uncounted = replace(source.state, forks=max(0, source.state.forks - 1))
                guard = PutEntry(control_entry(source, "unfork", uncounted, ids(), now_ms))
                if isinstance(self._committer.put(released, [guard], read, budget), Committed):
                    break
                budget.again("others keep changing this stream's source")
            if not uncounted.ended:
                return
            upper = self._config(config.source.log_id, config.source.name, config)
            if upper is None:
                return
            log_id, config = config.source.log_id, upper

    def _config(self, log_id: str, name: str, fork: LogConfig) -> LogConfig | None:
        """The configuration of a source: its row stands until a name is created again, which its forks prevent."""
        row: Row | None = self._stores.catalog.get(fork.surface, name)
        return row.config if row is not None and row.log_id == log_id else None
