"""The log as a surface sees it: append, control, read and list. Every method blocks; any thread may call any."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from headrace.clock import within_deadline
from headrace.definition import Definition
from headrace.errors import InvalidRequest
from headrace.index.fetching import RunCache
from headrace.limits import MAX_NOTE_BYTES, PAGE_BYTES, PAGE_RECORDS
from headrace.log.append import Appender
from headrace.log.commit import Committer
from headrace.log.control import Controls, Found, StoredRows
from headrace.log.definition import Change, Definitions, deciding
from headrace.log.picture import Pictures
from headrace.log.prune import Pruner
from headrace.log.queue import Groups, Ticket
from headrace.log.read import Reader
from headrace.log.requests import EVERYTHING, At, Head, ReadPage, Selection
from headrace.log.seam import Decide, Surface, Which, split
from headrace.log.stores import Stores
from headrace.log.wakeups import Wakeups
from headrace.tables.catalog import Row


class Log:
    """Logs of one surface by name.

    Raises, from every method: what `headrace.errors` lists, and `StoreTimeout` or `StoreThrottled` when a read of the
    store failed; then nothing was written.

    Attributes:
        run_cache: what is kept of index runs.
        controls: the control verbs, for those that already are within a request's time.
        wakeups: called after each change by this process.
    """

    def __init__(self, stores: Stores, surface: Surface, run_cache: RunCache | None = None) -> None:
        """`run_cache`: one of its own in memory if None."""
        self._stores = stores
        self._surface = surface
        self._pictures = Pictures(stores, surface)
        self._groups = Groups()
        self.wakeups = Wakeups()
        self._definitions = Definitions(stores)
        self.run_cache = run_cache or RunCache(stores.objects, stores.clock.monotonic)
        self._pruner = Pruner(stores.objects, stores.clock, self.run_cache)
        committer = Committer(stores, self._pictures)
        rows = StoredRows(stores, self._definitions, lambda row, position: self._reader.read_one(row, position))
        self.controls = Controls(stores, surface, self._pictures, committer, rows)
        self._reader = Reader(
            stores, self._pictures, self.controls, stores.manifests(), self._definitions, self._pruner
        )
        self._appender = Appender(
            stores, surface, self._pictures, committer, self.controls, rows, self._groups, self.wakeups
        )

    def append(self, which: Which, request: Any) -> Ticket:
        """Commits what the surface decides on one request, perhaps with others; returns it with its answer."""
        return self._appender.append(which, request)

    def control(
        self, which: Which, find: Callable[[Controls], Found], decide: Decide, request: Any = None, *others: Which
    ) -> Any:
        """Commits what `decide` makes of the logs that `find` finds, and returns the answer.

        Args:
            which: is woken afterwards; appends to it and to the logs in `others` wait meanwhile.
        """
        with self._in_time(), ExitStack() as turns:
            for one in sorted(set(map(split, (which, *others)))):  # in one order, so that no two wait for each other
                turns.enter_context(turns.enter_context(self._groups.of(one)).control_turn())
            answer = self.controls.run(lambda: find(self.controls), decide, request)
        self.wakeups.notify(which)
        return answer

    def define(self, name: str, change: Change) -> Definition:
        """Changes the definition of a log to what `change` makes of it."""
        definition: Definition = self.control(name, lambda controls: controls.find_living(name), deciding(change))
        return definition

    def delete(self, name: str) -> bool:
        """Deletes a name with all its logs; False if it had been deleted before."""
        with self._in_time(), self._groups.of(name) as group, group.control_turn():
            deleted = self.controls.delete(name)
        self.wakeups.notify(name)
        return deleted

    def definition_of(self, head: Head) -> Definition:
        """Returns the definition in force at a moment."""
        return self._definitions.of(head.log_id, head.state)

    def head(self, which: Which) -> Head:
        """Returns the log now."""
        with self._in_time():
            return self._reader.head(which)

    def read(
        self,
        which: Which,
        at: At,
        selection: Selection = EVERYTHING,
        *,
        touch: bool = True,
        max_records: int = PAGE_RECORDS,
        max_bytes: int = PAGE_BYTES,
        until: float | None = None,
    ) -> ReadPage:
        """Returns one page of records. `until` (monotonic seconds) bounds a scan: it returns how far it came."""
        with self._in_time():
            return self._reader.read(
                which, at, selection, touch=touch, max_records=max_records, max_bytes=max_bytes, until=until
            )

    def list(self, *, after: str = "", prefix: str = "", limit: int) -> list[Row]:
        """Returns rows of living logs in name order."""
        with self._in_time():
            return self._stores.catalog.living(self._surface.name, after=after, prefix=prefix, limit=limit)

    def note(self, log_id: str) -> bytes | None:
        """Returns what the surface keeps of a log beside it."""
        return self._stores.watermarks.note(log_id)

    def set_note(self, log_id: str, data: bytes, replaces: bytes | None) -> bool:
        """Writes the note if `replaces` is what is stored.

        Raises:
            InvalidRequest: it is too large.
        """
        if len(data) > MAX_NOTE_BYTES:
            noun = self._surface.noun
            raise InvalidRequest(f"too much is to be kept of this {noun}: limit={MAX_NOTE_BYTES} bytes={len(data)}")
        return self._stores.watermarks.set_note(log_id, data, replaces)

    def forget(self) -> None:
        """Drops everything that this process remembers."""
        self._pictures.forget()
        self._pruner.forget()

    def _in_time(self) -> AbstractContextManager[None]:
        """Store calls of one verb begin within a request's time. (An append has its own, shorter budget.)"""
        return within_deadline(self._stores.settings.request_timeout_ms)
