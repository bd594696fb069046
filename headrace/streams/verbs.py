"""The verbs of streams as one object. Every method blocks; any thread may call any."""

from __future__ import annotations

from headrace.definition import Definition
from headrace.index.fetching import RunCache
from headrace.limits import PAGE_BYTES, PAGE_RECORDS
from headrace.log.control import Controls, Found
from headrace.log.definition import Change
from headrace.log.logs import Log
from headrace.log.requests import EVERYTHING, At, Head, ReadPage, Selection
from headrace.log.stores import Stores
from headrace.streams.decide import SURFACE, decide_create
from headrace.streams.values import Appended, AppendRequest, Created, CreateRequest
from headrace.tables.catalog import Row


class Streams:
    """Streams by name. Every method raises what those of `Log` do.

    Attributes:
        log: what searches and inspections look at.
    """

    def __init__(self, stores: Stores, run_cache: RunCache | None = None) -> None:
        """`run_cache`: one of its own in memory if None."""
        self.log = Log(stores, SURFACE, run_cache)
        self.wakeups = self.log.wakeups

    def create(self, name: str, request: CreateRequest) -> Created:
        """Creates a stream or a fork, or finds an equal one."""

        def find(controls: Controls) -> Found:
            found = controls.find_any(name)
            (picture,) = found.pictures
            if request.fork is None or (picture is not None and not picture.state.ended):
                return found
            source = controls.find(request.fork.source)
            return Found((picture, *source.pictures), source.read)

        others = (request.fork.source,) if request.fork is not None else ()
        created: Created = self.log.control(name, find, decide_create, (name, request), *others)
        return created

    def append(self, name: str, request: AppendRequest) -> Appended:
        """Appends, closes, or both."""
        ticket = self.log.append(name, request)
        appended: Appended = ticket.result()
        return appended._replace(tries=ticket.tries)

    def define(self, name: str, change: Change) -> Definition:
        """Changes the stream's definition (its schema registry and profile) to what `change` makes of it."""
        return self.log.define(name, change)

    def delete(self, name: str) -> bool:
        """Deletes a stream; False if it had been deleted before."""
        return self.log.delete(name)

    def definition(self, name: str) -> Definition:
        """Returns the stream's definition now."""
        return self.definition_of(self.head(name))

    def definition_of(self, head: Head) -> Definition:
        """Returns the definition in force at a moment."""
        return self.log.definition_of(head)

    def head(self, name: str) -> Head:
        """Returns the stream now."""
        return self.log.head(name)

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
        """Returns one page of records. `until` (monotonic seconds) bounds a scan: it returns how far it came."""
        return self.log.read(
            name, at, selection, touch=touch, max_records=max_records, max_bytes=max_bytes, until=until
        )

    def list(self, *, after: str = "", prefix: str = "", limit: int) -> list[Row]:
        """Returns rows of living streams in name order."""
        return self.log.list(after=after, prefix=prefix, limit=limit)

    def note(self, log_id: str) -> bytes | None:
        """Returns what is kept of a stream beside it."""
        return self.log.note(log_id)

    def set_note(self, log_id: str, data: bytes, replaces: bytes | None) -> bool:
        """Writes the note if `replaces` is what is stored."""
        return self.log.set_note(log_id, data, replaces)

    def forget(self) -> None:
        """Drops everything that this process remembers."""
        self.log.forget()
