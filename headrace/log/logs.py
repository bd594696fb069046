"""The log as a surface sees it: append, control, read and list. Every method blocks; any thread may call any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Unpack

from msgspec.structs import replace

from headrace.clock import within_deadline
from headrace.definition import Definition
from headrace.errors import InvalidRequest
from headrace.index.fetching import RunCache
from headrace.index.manifest import IndexManifests
from headrace.limits import MAX_NOTE_BYTES
from headrace.log.append import Appender
from headrace.log.commit import Found
from headrace.log.context import Context, Stores
from headrace.log.control import Controls
from headrace.log.prune import Pruner
from headrace.log.read import Reader
from headrace.log.requests import EVERYTHING, At, Bounds, Head, ReadPage, Selection
from headrace.log.seam import (
    Decide,
    Decision,
    Draft,
    Ids,
    Look,
    Request,
    Rows,
    Surface,
    Which,
    name_definition,
    split,
)
from headrace.tables.catalog import PutRow, Row
from headrace.wal.state import LogConfig, LogState

Change = Callable[[Definition, LogConfig, LogState], Definition]
"""Makes a definition of the one in force, given the log's configuration and the state that it will follow."""


class Log:
    """Logs of one surface by name.

    Raises, from every method: what `headrace.errors` lists, and `StoreTimeout` or `StoreThrottled` when a read of the
    store failed; then nothing was written.

    Attributes:
        appender: appends.
        run_cache: what is kept of index runs.
        manifests, indexes: the generations that this process has met.
        controls: the control verbs, for those that already are within a request's time.
        wakeups: called after each change by this process.
    """

    def __init__(self, stores: Stores, surface: Surface, run_cache: RunCache | None = None) -> None:
        """`run_cache`: one of its own in memory if None."""
        self._stores = stores
        self._surface = surface
        self._context = context = Context(stores, surface)
        self.run_cache = run_cache or RunCache(stores.objects, stores.clock.monotonic)
        self.manifests, self.indexes = context.manifests, IndexManifests(stores.objects, stores.clock)
        self._pruner = Pruner(self.indexes, self.run_cache)
        self.controls = Controls(context)
        self._reader = Reader(context, self.controls, self._pruner)
        context.record = self._reader.read_one
        self.appender = Appender(context, self.controls)
        self.wakeups = self.appender.wakeups

    def control(
        self, which: Which, find: Callable[[Controls], Found], decide: Decide, request: Any = None, *others: Which
    ) -> Any:
        """Commits what `decide` makes of the logs that `find` finds, and returns the answer.

        Args:
            which, others: appends to these logs wait meanwhile, and readers of them are woken afterwards.
        """
        with self._turns((which, *others)):
            return self.controls.run(lambda: find(self.controls), decide, request)

    def define(self, name: str, change: Change) -> Definition:
        """Changes the definition of a log to what `change` makes of it."""
        definition: Definition = self.control(name, lambda controls: controls.find_living(name), deciding(change))
        return definition

    def delete(self, name: str) -> bool:
        """Deletes a name with all its logs; False if it had been deleted before."""
        with self._turns(self.appender.groups.in_use(name)):
            return self.controls.delete(name)

    def definition_of(self, head: Head) -> Definition:
        """Returns the definition in force at a moment."""
        return self._context.definition(head.log_id, head.state)

    def head(self, which: Which) -> Head:
        """Returns the log now."""
        with self._in_time():
            return self._reader.head(which)

    def read(self, which: Which, at: At, selection: Selection = EVERYTHING, **bounds: Unpack[Bounds]) -> ReadPage:
        """Returns one page of records."""
        with self._in_time():
            return self._reader.read(which, at, selection, **bounds)

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
        self._context.pictures.forget()
        self.indexes.forget()

    @contextmanager
    def _turns(self, logs: Sequence[Which]) -> Iterator[None]:
        """Keeps the appends of this process to some logs waiting meanwhile, and wakes readers of them afterwards."""
        with self._in_time(), ExitStack() as turns:
            for one in sorted(set(map(split, logs))):  # in one order, so that no two wait for each other
                turns.enter_context(turns.enter_context(self.appender.groups.of(one)).control_turn())
            yield
        for log in logs:
            self.wakeups.notify(log)

    def _in_time(self) -> AbstractContextManager[None]:
        """Store calls of one verb begin within a request's time. (An append has its own, shorter budget.)"""
        return within_deadline(self._stores.settings.request_timeout_ms)


def deciding(change: Change) -> Decide:
    """Returns the decision that puts in force what `change` makes; the answer is the definition after it.

    A change that changes nothing writes nothing. The row of the name is put with the entry when its label changes.
    """

    def decide(looks: Sequence[Look | None], _: Sequence[Request], rows: Rows, __: int, ids: Ids) -> Decision:
        (look,) = looks
        assert look is not None, "it was found"
        row, state = look.row, look.state
        before = rows.definition(row.log_id, state)
        after = change(before, row.config, state)
        if after == before:
            return Decision((before,))
        number = state.definition.number + 1 if state.definition is not None else 1
        ref, named = name_definition(row.log_id, number, after, ids)
        entry = Draft(row.log_id, "define", replace(state, definition=ref))
        # The row in hand may be older than the state: only when both agree does it need no change.
        is_listed = row.label == state.label == ref.label or bool(row.config.role)  # listings show main logs
        guards = () if is_listed else (PutRow(replace(row, label=ref.label), row.log_id),)
        return Decision((after,), (entry,), guards, (named,))

    return decide
