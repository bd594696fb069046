"""The verbs of one surface as one object. Every method blocks; any thread may call any."""

from __future__ import annotations

from contextlib import ExitStack

from headrace.catalog import Row
from headrace.limits import PAGE_BYTES, PAGE_RECORDS
from headrace.log.append import Appender
from headrace.log.commit import Committer
from headrace.log.create import Creator
from headrace.log.delete import Deleter
from headrace.log.expire import Expirer
from headrace.log.picture import Pictures
from headrace.log.queue import Groups
from headrace.log.read import Reader
from headrace.log.requests import Appended, AppendRequest, At, Created, CreateRequest, Head, ReadPage
from headrace.log.stores import Stores
from headrace.log.wakeups import Wakeups
from headrace.names import STREAMS


class Logs:
    """Streams by name.

    Raises, from every method: what `headrace.errors` lists, and `StoreTimeout` or `StoreThrottled` when a read of the
    store failed; then nothing was written.
    """

    def __init__(self, stores: Stores, surface: str = STREAMS) -> None:
        self._stores = stores
        self._surface = surface
        self._pictures = Pictures(stores, surface)
        self._groups = Groups()
        self.wakeups = Wakeups()
        committer = Committer(stores, self._pictures)
        self.expirer = Expirer(stores, self._pictures, committer)
        self._reader = Reader(stores, surface, self._pictures, self.expirer, stores.manifests())
        self._appender = Appender(stores, self._pictures, committer, self.expirer, self._groups, self.wakeups)
        self._creator = Creator(stores, surface, self._pictures, committer, self.expirer, self._reader)
        self.deleter = Deleter(stores, self._pictures, committer, self.expirer)

    def create(self, name: str, request: CreateRequest) -> Created:
        """Creates a stream or a fork, or finds an equal one."""
        with ExitStack() as turns:
            if request.fork is not None:
                turns.enter_context(turns.enter_context(self._groups.of(request.fork.source)).control_turn())
            created = self._creator.create(name, request)
        self.wakeups.notify(name)
        return created

    def append(self, name: str, request: AppendRequest) -> Appended:
        """Appends, closes, or both."""
        return self._appender.append(name, request)

    def head(self, name: str) -> Head:
        """The stream now."""
        return self._reader.head(name)

    def read(
        self,
        name: str,
        at: At,
        *,
        touch: bool = True,
        max_records: int = PAGE_RECORDS,
        max_bytes: int = PAGE_BYTES,
    ) -> ReadPage:
        """One page of records."""
        return self._reader.read(name, at, touch=touch, max_records=max_records, max_bytes=max_bytes)

    def delete(self, name: str) -> bool:
        """Deletes a stream; False if it had been deleted before."""
        with self._groups.of(name) as group, group.control_turn():
            deleted = self.deleter.delete(name)
        self.wakeups.notify(name)
        return deleted

    def list(self, *, after: str = "", prefix: str = "", limit: int) -> list[Row]:
        """Rows of living streams in name order."""
        return self._stores.catalog.living(self._surface, after=after, prefix=prefix, limit=limit)

    def forget(self) -> None:
        """Drops everything that this process remembers."""
        self._pictures.forget()
