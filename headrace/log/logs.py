"""The logs of one surface as an object with the verbs append, control, read and list. Every method blocks, and may be
called by any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any, TypeVar, Unpack

from msgspec.structs import replace

from headrace.clock import within_deadline
from headrace.definition import Definition
from headrace.errors import Damaged, Gone, InvalidRequest, NotFound
from headrace.index.fetching import RunCache
from headrace.index.manifest import IndexManifests
from headrace.limits import MAX_NOTE_BYTES, PAGE_BYTES, PAGE_RECORDS
from headrace.log import tags
from headrace.log.commit import Appender, Found
from headrace.log.context import Context, Picture
from headrace.log.control import Controls
from headrace.log.following import check_log, check_same, following, unfollowing
from headrace.log.prune import Pruner
from headrace.log.read import Reader
from headrace.log.requests import EVERYTHING, At, Bounds, Head, ReadPage, RecordsPage, Selection
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
from headrace.log.stores import Stores
from headrace.tables.catalog import PutRow, Row
from headrace.tables.follows import Follow
from headrace.wal.state import LogConfig, LogState

_log = logging.getLogger(__name__)

T = TypeVar("T")
Change = Callable[[Definition, LogConfig, LogState], Definition]
"""A function that computes the new definition from the current one, the log's configuration and its state."""


class Log:
    """The logs of one surface, by name.

    Every method may raise the errors of `headrace.errors`, and `StoreTimeout` or `StoreThrottled` if a read of a store
    failed; then nothing was written.

    Attributes:
        appender: commits appends.
        run_cache: the cache of index runs.
        manifests, indexes: the caches of manifests and of index manifests.
        controls: the control verbs, for callers that have set the request's deadline already.
        wakeups: the callbacks that are called after each change by this process.
    """

    def __init__(self, stores: Stores, surface: Surface, run_cache: RunCache | None = None) -> None:
        """Creates the logs of a surface. If `run_cache` is None, a cache in memory is created."""
        self._stores = stores
        self._surface = surface
        self._context = context = Context(stores, surface)
        self.run_cache = run_cache or RunCache(stores.objects, stores.clock.monotonic)
        self.manifests, self.indexes = context.manifests, IndexManifests(stores.objects, stores.clock)
        self._pruner = Pruner(self.indexes, self.run_cache)
        self.controls = Controls(context)
        self._reader = Reader(context, self.controls, self._pruner)
        context.reads = self._reader
        self.appender = Appender(context, self.controls)
        self.wakeups = self.appender.wakeups

    def control(
        self, which: Which, find: Callable[[Controls], Found], decide: Decide, request: Any = None, *others: Which
    ) -> Any:
        """Runs a control verb: finds logs, decides, commits the decision, and returns the answer.

        Args:
            which, others: the logs; appends to them wait meanwhile, and their readers are woken afterwards.
        """
        with self._turns((which, *others)):
            return self.controls.run(lambda: find(self.controls), decide, request)

    def define(self, name: str, change: Change) -> Definition:
        """Replaces the definition of a log by the result of `change`, and returns it. Raises NotFound or Gone if no living
        log has this name.
        """
        definition: Definition = self.control(name, lambda controls: controls.find_living(name), deciding(change))
        return definition

    def follow(self, which: Which, follow: Follow, *, replaces: Follow | None = None) -> Head:
        """Lets a follower hear of what is appended to a log from now on, or renews it in place of `replaces`. Returns the
        log's state where that begins: what is appended after it is heard. One that lasts for a while must be renewed
        before its time is over. Repeating it does nothing more.

        Costs a transaction for one that stays, else in most cases one put; and a query. If this process has not used the
        log just now, a catalog read and another query come before.

        Raises:
            NotFound, Gone: the log has ended.
            Conflict: another row is there than `replaces`; nothing was written.
            OutcomeUnknown, StoreTimeout: it may hear.
        """
        warm = [self._context.pictures.warm(which)]  # for the first try

        def find(controls: Controls) -> Found:
            picture = controls.living((warm.pop() if warm else None) or self._context.pictures.look(which))
            return Found((picture,), picture.read)

        row = self.control(which, find, following(follow, replaces))
        with self.in_time():
            if row is not None and not self._stores.follows.put(row, replaces):
                check_same(follow, self._stores.follows.get(row.log_id, row.kind, row.id))
        head = self.head(which)
        check_log(follow, head.log_id)  # else the name has another log since
        return head

    def unfollow(self, which: Which, follow: Follow) -> bool:
        """Removes a follower of a log, in whatever version its row is. Returns False if there was none, or if the log has
        ended.

        Raises:
            NotFound: the name does not exist.
        """
        if follow.stays:
            return bool(self.control(which, lambda controls: controls.find(which), unfollowing(follow)))
        follows, row = self._stores.follows, follow
        with self.in_time():
            while not follows.remove(row):
                found = follows.get(row.log_id, row.kind, row.id)
                if found is None:
                    return False
                row = found
        return True

    def delete(self, name: str, check: Callable[[Sequence[Look | None]], None] = lambda _: None) -> bool:
        """Deletes a name with all its logs. Returns False if it was deleted before. Raises NotFound if it never existed or
        has expired, Gone if it has ended and forks still need its data; and what `check` raises, as in `Controls.delete`.
        """
        with self._turns(self._context.groups.in_use(name)):
            return self.controls.delete(name, check)

    def definition_of(self, head: Head) -> Definition:
        """Returns the definition of a log at the moment that `head` describes."""
        return self._context.definition(head.log_id, head.state)

    def head(self, which: Which) -> Head:
        """Returns the current state of a log.

        Raises:
            NotFound: there is no such name, or it was deleted or has expired.
            Gone: it was deleted or has expired, but forks still need it.
        """
        context, pictures = self._context, self._context.pictures
        with self.in_time():
            picture = pictures.warm(which)
            if picture is not None:
                read = pictures.read_time()
                newest = self._stores.wal.newest(picture.row.log_id)
                has_ended = newest is None or newest.state.ended  # perhaps the name has another log by now
                picture = pictures.remember(picture.row, newest, read) if newest and not has_ended else None
            return context.head(self.controls.living(picture or pictures.look(which)))

    def read(self, which: Which, at: At, selection: Selection = EVERYTHING, **bounds: Unpack[Bounds]) -> ReadPage:
        """Returns one page of records. A read with a filter ends at `until` (monotonic seconds) and returns how far it
        came.
        """
        with self.in_time():
            return self._reader.read(which, at, selection, **bounds)

    def records(
        self, which: Which, position: int, *, max_records: int = PAGE_RECORDS, max_bytes: int = PAGE_BYTES
    ) -> RecordsPage:
        """Returns consecutive records with all their columns, from a position on, or from the log's floor if that is
        higher. `max_bytes` bounds data and meta; the last record may go over it. Renews no sliding TTL.
        """
        with self.in_time():
            return self._reader.records(which, position, max_records, max_bytes)

    def tagged(
        self,
        head: Head,
        text: str | None,
        is_prefix: bool,
        first: int,
        end: int,
        among: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, int]]:
        """Yields the offset of each record of `[first, end)` whose key is `text` (None: any, or none) or, with `is_prefix`,
        begins with it; and the bytes of its data and meta. Leaves out what is below the floor or not before the end that
        `head` states; with `among`, all but these ascending offsets. The caller sets the deadline.
        """
        tag = None if text is None else tags.Tag(text, is_prefix)
        return tags.find(self._reader, self._pruner, head, first, end, tag, among)

    def sizes(self, head: Head, first: int, end: int) -> list[int]:
        """Returns the bytes of data and meta of each record of `[first, end)`, which must exist. Costs a key page for each
        segment that holds some, or the payloads of the tail.
        """
        with self.in_time():
            return [size for _, size in tags.find(self._reader, self._pruner, head, first, end)]

    def list(self, *, after: str = "", prefix: str = "", limit: int) -> list[Row]:
        """Returns the catalog rows of at most `limit` living logs whose names start with `prefix` and come after `after`,
        in the order of their names.
        """
        with self.in_time():
            return self._stores.catalog.living(self._surface.name, after=after, prefix=prefix, limit=limit)

    def listed(self, row: Row, show: Callable[[Head], T]) -> T | None:
        """Returns what `show` makes of the log of a row that `list` returned; None if no living log has its name, or if it
        is damaged, which is reported: it hides no other name. Costs one query, if the row is not out of date.

        The index of living names lags: the row may be of a log that has ended, or of one that a disaster left without its
        name, its entries or its objects. So what fails is tried once more on the log that has the name. The row's log is
        not cached: appends would follow it.
        """
        context, read = self._context, self._context.pictures.read_time()
        with self.in_time(), suppress(NotFound, Gone):
            with suppress(Damaged, NotFound):
                newest = self._stores.wal.newest(row.log_id)
                if newest is not None and not newest.state.ended:
                    return show(context.head(Picture(row, newest, read)))
            try:
                row = context.pictures.row(row.name)
                if not row.ended:
                    return show(context.head(self.controls.living(context.pictures.look_at(row, read))))
            except Damaged as exc:
                _log.error("log could not be listed: name=%s reason=%s", row.name, exc)
        return None

    def note(self, log_id: str) -> bytes | None:
        """Returns the note of a log, which the surface stores beside it; None if there is none."""
        return self._stores.watermarks.note(log_id)

    def set_note(self, log_id: str, data: bytes, replaces: bytes | None) -> bool:
        """Writes the note of a log if the stored one equals `replaces`. Returns whether it did.

        Raises:
            InvalidRequest: the note is too large.
        """
        if len(data) > MAX_NOTE_BYTES:
            noun = self._surface.noun
            raise InvalidRequest(f"too much is to be kept of this {noun}: limit={MAX_NOTE_BYTES} bytes={len(data)}")
        return self._stores.watermarks.set_note(log_id, data, replaces)

    def forget(self) -> None:
        """Clears what is cached of the current state of logs; caches of immutable objects stay."""
        self._context.pictures.forget()
        self.indexes.forget()

    @contextmanager
    def _turns(self, logs: Sequence[Which]) -> Iterator[None]:
        """Makes the appends of this process to some logs wait while the block runs, and wakes the logs' readers
        afterwards.
        """
        with self.in_time(), ExitStack() as turns:
            for one in sorted(set(map(split, logs))):  # in one order, so that no two wait for each other
                turns.enter_context(turns.enter_context(self._context.groups.of(one)).control_turn())
            yield
        for log in logs:
            self.wakeups.notify(log)

    def in_time(self) -> AbstractContextManager[None]:
        """Returns a context in which the store calls of one request have its deadline, as those of each verb here have
        it. (An append has its own, shorter budget.)
        """
        return within_deadline(self._stores.settings.request_timeout_ms)


def deciding(change: Change) -> Decide:
    """Returns a decision function that replaces the definition by the result of `change`; its answer is the new
    definition.

    If the definition does not change, nothing is written. If its label changes, the row of the name is written with the
    entry.
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
