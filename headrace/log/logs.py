"""The verbs of one surface as one object. Every method blocks; any thread may call any."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack

from headrace import deadline
from headrace.definition import Definition
from headrace.errors import InvalidRequest
from headrace.index.fetching import RunCache
from headrace.limits import MAX_NOTE_BYTES, PAGE_BYTES, PAGE_RECORDS
from headrace.log.append import Appender
from headrace.log.commit import Committer
from headrace.log.create import Creator
from headrace.log.define import Definer
from headrace.log.definition import Change, Definitions
from headrace.log.delete import Deleter
from headrace.log.expire import Expirer
from headrace.log.picture import Pictures
from headrace.log.prune import Pruner
from headrace.log.queue import Groups
from headrace.log.read import Reader
from headrace.log.requests import (
    EVERYTHING,
    Appended,
    AppendRequest,
    At,
    Created,
    CreateRequest,
    Head,
    ReadPage,
    Selection,
)
from headrace.log.stores import Stores
from headrace.log.wakeups import Wakeups
from headrace.names import STREAMS
from headrace.tables.catalog import Row


class Logs:
    """Streams by name.

    Raises, from every method: what `headrace.errors` lists, and `StoreTimeout` or `StoreThrottled` when a read of the
    store failed; then nothing was written.

    Attributes:
        run_cache: what is kept of index runs.
    """

    def __init__(self, stores: Stores, surface: str = STREAMS, run_cache: RunCache | None = None) -> None:
        """`run_cache`: one of its own in memory if None."""
        self._stores = stores
        self._surface = surface
        self._pictures = Pictures(stores, surface)
        self._groups = Groups()
        self.wakeups = Wakeups()
        committer = Committer(stores, self._pictures)
        self.expirer = Expirer(stores, self._pictures, committer)
        definitions = Definitions(stores)
        self.run_cache = run_cache or RunCache(stores.objects, stores.clock.monotonic)
        self._pruner = Pruner(stores.objects, stores.clock, self.run_cache)
        self._reader = Reader(
            stores, surface, self._pictures, self.expirer, stores.manifests(), definitions, self._pruner
        )
        self._appender = Appender(
            stores, self._pictures, committer, self.expirer, self._groups, self.wakeups, definitions
        )
        self._creator = Creator(stores, surface, self._pictures, committer, self.expirer, self._reader, definitions)
        self._definer = Definer(stores, self._pictures, committer, self.expirer, definitions)
        self._definitions = definitions
        self.deleter = Deleter(stores, self._pictures, committer, self.expirer)

    def create(self, name: str, request: CreateRequest) -> Created:
        """Creates a stream or a fork, or finds an equal one."""
        with self._in_time(), ExitStack() as turns:
            if request.fork is not None:
                turns.enter_context(turns.enter_context(self._groups.of(request.fork.source)).control_turn())
            created = self._creator.create(name, request)
        self.wakeups.notify(name)
        return created

    def append(self, name: str, request: AppendRequest) -> Appended:
        """Appends, closes, or both."""
        return self._appender.append(name, request)

    def define(self, name: str, change: Change) -> Definition:
        """Changes the stream's definition (its schema registry and profile) to what `change` makes of it."""
        with self._in_time(), self._groups.of(name) as group, group.control_turn():
            definition = self._definer.define(name, change)
        self.wakeups.notify(name)
        return definition

    def definition(self, name: str) -> Definition:
        """The stream's definition now."""
        with self._in_time():
            return self.definition_of(self._reader.head(name))

    def definition_of(self, head: Head) -> Definition:
        """The definition in force at a moment."""
        return self._definitions.of(head.log_id, head.state)

    def note(self, log_id: str) -> bytes | None:
        """What the surface keeps of a log beside it."""
        return self._stores.watermarks.note(log_id)

    def set_note(self, log_id: str, data: bytes, replaces: bytes | None) -> bool:
        """Writes the note if `replaces` stands there.

        Raises:
            InvalidRequest: it is too large.
        """
        if len(data) > MAX_NOTE_BYTES:
            raise InvalidRequest(f"too much is to be kept of this stream: limit={MAX_NOTE_BYTES} bytes={len(data)}")
        return self._stores.watermarks.set_note(log_id, data, replaces)

    def head(self, name: str) -> Head:
        """The stream now."""
        with self._in_time():
            return self._reader.head(name)

    def read(
        self,
        name: str,
        at: At,
        selection: Selection = EVERYTHING,
        *,
        touch: bool = True,
        max_records: int = PAGE_RECORDS,
        max_bytes: int = PAGE_BYTES,
        until: float | None = None,
    ) -> ReadPage:
        """One page of records. `until` (monotonic seconds) bounds a scan: it returns how far it came."""
        with self._in_time():
            return self._reader.read(
                name, at, selection, touch=touch, max_records=max_records, max_bytes=max_bytes, until=until
            )

    def delete(self, name: str) -> bool:
        """Deletes a stream; False if it had been deleted before."""
        with self._in_time(), self._groups.of(name) as group, group.control_turn():
            deleted = self.deleter.delete(name)
        self.wakeups.notify(name)
        return deleted

    def list(self, *, after: str = "", prefix: str = "", limit: int) -> list[Row]:
        """Rows of living streams in name order."""
        with self._in_time():
            return self._stores.catalog.living(self._surface, after=after, prefix=prefix, limit=limit)

    def _in_time(self) -> AbstractContextManager[None]:
        """Store calls of one verb begin within a request's time. (An append has its own, shorter budget.)"""
        return deadline.within(self._stores.settings.request_timeout_ms)

    def forget(self) -> None:
        """Drops everything that this process remembers."""
        self._pictures.forget()
        self._pruner.forget()
