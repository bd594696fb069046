"""What the verbs of one surface share in one process: its stores, its cache of logs, and what waits for a log: appends for
their commit, and readers for a change.

The cache is bounded. Dropping from it costs reads, but never correctness.

Appends to the same log wait in a group, which one of them leads (`headrace.log.commit`). A process that serves one
request at a time always leads a batch of one. A control verb (delete, fork, expire) takes its turn between two batches,
so that a stream of appends can't starve it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from msgspec.structs import replace

from headrace.batch import Record
from headrace.clock import Bounded, Moment, age_s, moment
from headrace.definition import Definition, Definitions
from headrace.errors import Damaged
from headrace.limits import GROUP_BYTES, GROUP_REQUESTS
from headrace.log.requests import Head
from headrace.log.seam import Look, NamedObject, Surface, Which, deadline_ms, split
from headrace.log.stores import Stores
from headrace.manifest.manifest import Manifest
from headrace.manifest.store import remembered
from headrace.objects import ObjectMissing
from headrace.tables.catalog import Row
from headrace.tables.producers import Key
from headrace.wal.state import Entry, LogState, Producer

_REMEMBERED = 4096  # logs of one process
_REMEMBERED_BYTES = 32 * 1024 * 1024  # of objects that states name, as decoded, if these tell their weight

T = TypeVar("T")


class Picture(NamedTuple):
    """The row of a name and the newest entry of its log (without payload), both as of the moment `read`."""

    row: Row
    newest: Entry
    read: Moment

    @property
    def state(self) -> LogState:
        """The log's state as of the newest entry."""
        return self.newest.state


class Pictures:
    """The cache of pictures by name and role; and by log, of manifests and of the times at which reads renewed a sliding
    TTL.
    """

    def __init__(self, stores: Stores, surface: Surface) -> None:
        self._stores = stores
        self._surface = surface
        self._pictures: Bounded[tuple[str, str], Picture] = Bounded(_REMEMBERED)
        self._manifests = remembered()
        self._touched: Bounded[str, int] = Bounded(_REMEMBERED)

    def read_time(self) -> Moment:
        """Returns the current moment, to be recorded as the time of a read."""
        return moment(self._stores.clock)

    def is_old(self, read: Moment) -> bool:
        """Returns whether more than the setting `state_age_ms` has passed since `read`, or the wall clock ran backwards."""
        return age_s(self._stores.clock, read) > self._stores.settings.state_age_ms / 1000

    def warm(self, which: Which) -> Picture | None:
        """Returns the cached picture if it is recent enough to decide on; else None."""
        picture = self._pictures.get(split(which))
        if picture is None or self.is_old(picture.read):
            return None
        return picture

    def look(self, which: Which) -> Picture:
        """Returns a fresh picture: one catalog read and one query.

        Raises:
            HeadraceError: the name does not exist, or has no log with this role.
        """
        read = self.read_time()
        return self.look_at(self.row(which), read)

    def look_at(self, row: Row, read: Moment) -> Picture:
        """Returns a picture of the log of a row; costs one query. The row must have been read at `read` or later. Raises
        Damaged if the log has no entry.
        """
        newest = self._stores.wal.newest(row.log_id)
        if newest is None:
            raise Damaged(f"log has no entry: log_id={row.log_id} name={row.name}")
        return self.remember(row, newest, read)

    def look_all(self, logs: Sequence[Which]) -> list[Picture]:
        """Returns fresh pictures of several logs: one catalog read for each name, and one query for each log. Raises as
        `look` does.
        """
        read = self.read_time()
        names = {split(which)[0] for which in logs}
        rows = {name: self._stores.catalog.get(self._surface.name, name) for name in names}
        return [self.look_at(self._log(rows[split(which)[0]], which), read) for which in logs]

    def row(self, which: Which) -> Row:
        """Returns the row of a name, or the row of its companion, which is derived from it; costs one catalog read.

        Raises:
            HeadraceError: the name does not exist, or has no log with this role.
        """
        return self._log(self._stores.catalog.get(self._surface.name, split(which)[0]), which)

    def _log(self, row: Row | None, which: Which) -> Row:
        name, role = split(which)
        log = row.log(role) if row is not None else None
        if log is None:
            raise self._surface.missing(name)
        return log

    def remember(self, row: Row, newest: Entry, read: Moment) -> Picture:
        """Caches a picture of these values, unless a newer one of the same log is cached. Returns it in both cases."""
        picture = Picture(row, replace(newest, payload=None), read)
        self._pictures.update((row.config.name, row.config.role), lambda kept: _newer_picture(kept, picture))
        return picture

    def manifest(self, log_id: str) -> Manifest | None:
        """Returns the newest manifest of a log that this process has seen; None if none."""
        return self._manifests.get(log_id)

    def remember_manifest(self, manifest: Manifest) -> None:
        """Caches a manifest, unless a newer one is cached."""
        self._manifests.update(
            manifest.log_id,
            lambda kept: kept if kept is not None and kept.generation >= manifest.generation else manifest,
        )

    def touched_ms(self, log_id: str) -> int:
        """Returns when a log's sliding TTL was last renewed, as far as this process knows; 0 if it knows of no renewal."""
        return self._touched.get(log_id) or 0

    def remember_touch(self, log_id: str, touched_ms: int) -> None:
        """Caches when a log's sliding TTL was last renewed, unless a later time is cached."""
        self._touched.update(log_id, lambda kept: max(touched_ms, kept or 0))

    def drop(self, row: Row) -> None:
        """Drops the cached picture of a row's log; its manifest and touch stay cached."""
        self._pictures.pop((row.name, row.config.role))

    def forget(self) -> None:
        """Drops all cached pictures, manifests and touches."""
        self._pictures.clear()
        self._manifests.clear()
        self._touched.clear()


def _newer_picture(kept: Picture | None, picture: Picture) -> Picture:
    """Returns the picture to keep: the new one, unless the cached one is of the same log and newer."""
    if kept is None or kept.row.log_id != picture.row.log_id or kept.newest.slot <= picture.newest.slot:
        return picture
    return kept


class RecordReads(Protocol):
    """The reads of records that decisions may ask for, as in `Rows`."""

    def read_one(self, row: Row, position: int) -> bytes:
        """Returns the data of one record."""

    def page(self, row: Row, position: int, max_records: int, max_bytes: int) -> list[Record]:
        """Returns consecutive records."""


class _Decoded(NamedTuple):
    """A decoded object, and its `weight` if it has one, else the bytes that it has in the bucket."""

    value: Any
    size: int


class Sized(Protocol):
    """A request whose size is known."""

    @property
    def size(self) -> int:
        """The bytes that the request adds to a batch."""


class Ticket:
    """A waiting request and its answer.

    Attributes:
        queued: when it began to wait, in monotonic seconds.
        memo: what the surface keeps about it from one decision to the next.
        tries: number of commits that it took.
    """

    def __init__(self, request: Sized, request_id: str, queued: float) -> None:
        self.request = request
        self.request_id = request_id
        self.queued = queued
        self.memo: Any = None
        self.tries = 0
        self.answer: Any = None
        self.error: BaseException | None = None
        self._woken = threading.Event()

    def settle(self, answer: Any = None, error: BaseException | None = None) -> None:
        """Answers the request with a result or an error; only the first answer counts."""
        if not self.settled:
            self.answer, self.error = answer, error
        self._woken.set()

    @property
    def settled(self) -> bool:
        """Whether the request has its answer."""
        return self.answer is not None or self.error is not None

    def wake(self) -> None:
        """Wakes the thread of the request, which waits for its answer or for its turn to lead."""
        self._woken.set()

    def wait(self) -> None:
        """Waits until the request is answered, or its thread must lead."""
        self._woken.wait()

    def result(self) -> Any:
        """Returns the request's answer (None if it is not settled), or raises its error. An error is raised once: its
        traceback holds this ticket, so a ticket that kept it would wait, with its request, for the garbage collector.
        """
        error, self.error = self.error, None
        if error is None:
            return self.answer
        try:
            raise error
        finally:
            del error


class Group:
    """The waiting requests of one process for one log."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._waiting: deque[Ticket] = deque()
        self._led = False
        self._control = 0
        self._turn = threading.Lock()
        self.users = 0

    def enter(self, ticket: Ticket) -> bool:
        """Queues a ticket. Returns True if its thread must lead now; otherwise waits until it is answered or must
        lead.
        """
        with self._lock:
            self._waiting.append(ticket)
            if not self._led:
                self._led = True
                return True
        ticket.wait()
        return not ticket.settled

    def batch(self) -> list[Ticket]:
        """Removes and returns the tickets that the leader commits next, in order of arrival, up to the bounds of a group;
        at least one if any waits.
        """
        with self._lock:
            taken: list[Ticket] = []
            size = 0
            while self._waiting and len(taken) < GROUP_REQUESTS:
                size += self._waiting[0].request.size
                if taken and size > GROUP_BYTES:
                    break
                taken.append(self._waiting.popleft())
            return taken

    def hand_over(self) -> None:
        """Ends a lead: the first waiting thread leads next, if there is one."""
        with self._lock:
            if self._waiting:
                self._waiting[0].wake()
            else:
                self._led = False

    @contextmanager
    def data_turn(self) -> Iterator[None]:
        """Holds the log for one batch while the block runs; first waits until no control verb waits or runs."""
        with self._lock:
            self._lock.wait_for(lambda: not self._control)
        with self._turn:
            yield

    @contextmanager
    def control_turn(self) -> Iterator[None]:
        """Waits for the batch that is being committed, and holds the log for a control verb while the block runs, so that
        no batch is committed meanwhile.
        """
        with self._lock:
            self._control += 1
        try:
            with self._turn:
                yield
        finally:
            with self._lock:
                self._control -= 1
                self._lock.notify_all()


class Groups:
    """The groups of all logs; each exists while it is in use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[tuple[str, str], Group] = {}

    @contextmanager
    def of(self, which: Which) -> Iterator[Group]:
        """Yields the group of a log, and creates it if no other request of the log is in progress."""
        key = split(which)
        with self._lock:
            group = self._groups.setdefault(key, Group())
            group.users += 1
        try:
            yield group
        finally:
            with self._lock:
                group.users -= 1
                if not group.users:
                    del self._groups[key]

    def in_use(self, name: str) -> list[Which]:
        """Returns the main log of a name, and those of its companions for which requests are waiting."""
        with self._lock:
            return [(name, ""), *(key for key in self._groups if key[0] == name and key[1])]


class Wakeups:
    """Callbacks by log, which wake waiting readers of this process. They are only a hint: readers also poll, to see
    other processes' writes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[tuple[str, str], list[Callable[[], None]]] = {}

    @contextmanager
    def listen(self, which: Which, callback: Callable[[], None]) -> Iterator[None]:
        """Calls `callback`, from any thread, after each change of a log by this process, while the block runs."""
        key = split(which)
        with self._lock:
            self._listeners.setdefault(key, []).append(callback)
        try:
            yield
        finally:
            with self._lock:
                listeners = self._listeners[key]
                listeners.remove(callback)
                if not listeners:
                    del self._listeners[key]

    def notify(self, which: Which) -> None:
        """Calls the callbacks of a log, in the caller's thread."""
        with self._lock:
            listeners = list(self._listeners.get(split(which), ()))
        for callback in listeners:
            callback()


class Context:
    """What the operations on the logs of one surface share in one process: stores, caches, and what decisions read.
    Implements `Rows`.

    Attributes:
        stores: the stores.
        surface: the surface.
        pictures: the cache of logs.
        manifests: the cache of their manifests.
        groups: the appends that wait, by log; control verbs take turns with them.
        reads: the reads that decisions may ask for; None in a worker, which only ends and repairs logs: those decisions
            depend on no record.
    """

    def __init__(self, stores: Stores, surface: Surface) -> None:
        self.stores = stores
        self.surface = surface
        self.pictures = Pictures(stores, surface)
        self.manifests = stores.manifests()
        self.groups = Groups()
        self.reads: RecordReads | None = None
        self._definitions = Definitions(stores.objects)
        self._objects: Bounded[str, _Decoded] = Bounded(_REMEMBERED_BYTES, weigh=lambda kept: kept.size)

    def look_at(self, picture: Picture) -> Look:
        """Converts a picture to a `Look`, the form that decisions use."""
        row = picture.row
        touched_ms = self.pictures.touched_ms(row.log_id) if row.config.ttl_ms is not None else 0
        return Look(row, picture.newest.state, touched_ms)

    def head(self, picture: Picture) -> Head:
        """Converts a picture of a living log to a `Head`, the form that callers get, without what is kept no longer."""
        row = picture.row
        state = picture.state.retained(self.stores.clock.now_ms())
        return Head(row.log_id, row.config, state, self.deadline_ms(picture))

    def deadline_ms(self, picture: Picture) -> int | None:
        """Returns when a log expires (epoch ms), by the renewals of its TTL that this process knows; None if never."""
        row = picture.row
        return deadline_ms(row.config, picture.state, self.pictures.touched_ms(row.log_id))

    def is_due(self, picture: Picture) -> bool:
        """Returns whether a log has reached its deadline, as far as this process knows; False if it has ended already."""
        config = picture.row.config
        if (config.ttl_ms is None and config.expires_at_ms is None) or picture.state.ended:
            return False
        ends_ms = self.deadline_ms(picture)
        return ends_ms is not None and self.stores.clock.now_ms() >= ends_ms

    def producer(self, log_id: str, producer_id: str) -> Producer | None:
        """Returns the row of a producer, None if there is none; costs one read."""
        return self.stores.producers.get(log_id, producer_id)

    def key(self, log_id: str, digest: str) -> Key | None:
        """Returns the row of an idempotency key, None if there is none; costs one read."""
        return self.stores.producers.key(log_id, digest)

    def definition(self, log_id: str, state: LogState) -> Definition:
        """Returns the definition that a state names, the empty one if it names none; costs one GET the first time."""
        return self._definitions.of(log_id, state)

    def record(self, row: Row, position: int) -> bytes:
        """Returns the data of the record at a position, which must exist."""
        return self._reads().read_one(row, position)

    def page(self, row: Row, position: int, max_records: int, max_bytes: int) -> list[Record]:
        """Returns consecutive records from a position on, with all their columns; `max_records` of them must exist."""
        return self._reads().page(row, position, max_records, max_bytes)

    def remember(self, objects: Sequence[NamedObject]) -> None:
        """Caches the definitions that are among these objects."""
        for one in objects:
            if one.definition is not None:
                self._definitions.remember(one.key, one.definition)

    def object(self, key: str, decode: Callable[[bytes, str], T]) -> T:
        """Returns the decoded object with this key; costs one GET the first time. Raises Damaged if it is missing."""
        return cast(T, self._objects.load(key, lambda: self._fetch(key, decode)).value)

    def _fetch(self, key: str, decode: Callable[[bytes, str], T]) -> _Decoded:
        try:
            data = self.stores.objects.get(key)
        except ObjectMissing as exc:
            raise Damaged(f"an object that a state names is missing: object={key}") from exc
        value = decode(data, key)
        return _Decoded(value, getattr(value, "weight", len(data)))

    def counts(self, what: str) -> Sequence[int]:
        """Returns what each shard of a counter holds; costs one query."""
        return self.stores.sessions.counts(what)

    def table(self, name: str) -> Any:
        """Returns the adapter of a surface's own table; a KeyError if there is no table of this name."""
        return self.stores.tables[name]

    def _reads(self) -> RecordReads:
        if self.reads is None:
            raise NotImplementedError("a worker reads no records")
        return self.reads
