"""The ports of one process, what it remembers of logs and how old that is, and the context that verbs share.

What is remembered is bounded. To forget it costs reads, never correctness.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from headrace.clock import Bounded, Clock, Moment, SystemClock, age_s, moment
from headrace.definition import EMPTY, Definition, decode
from headrace.errors import Damaged
from headrace.log.seam import Look, NamedObject, Surface, Which, deadline_ms, split
from headrace.manifest.manifest import Manifest
from headrace.manifest.store import ManifestStore
from headrace.objects import ObjectMissing, Objects, keys
from headrace.settings import Settings
from headrace.tables.catalog import Catalog, Row
from headrace.tables.producers import Producers
from headrace.tables.watermarks import Watermarks
from headrace.wal import Wal
from headrace.wal.state import Entry, LogState, Producer

_REMEMBERED = 4096  # logs of one process
_DEFINITIONS = 256  # definitions of one process; a compiled schema takes some 10 KB


def random_id() -> str:
    """128 random bits from the operating system, hex. Nothing is kept between calls, so a snapshot can be cloned."""
    return os.urandom(16).hex()


def request_id() -> str:
    """72 random bits from the operating system, 12 characters."""
    return base64.urlsafe_b64encode(os.urandom(9)).decode()


class SurfaceTable(Protocol):
    """A table of a surface's own. Its rows belong to logs."""

    def purge(self, log_id: str) -> None:
        """Drops every row of a log."""


@dataclass(frozen=True, slots=True)
class Stores:
    """Everything that the verbs act on.

    Attributes:
        surfaces: the surfaces that have names in the catalog.
        tables: those that only some surfaces have, by the names that guards use.
    """

    wal: Wal
    catalog: Catalog
    watermarks: Watermarks
    producers: Producers
    objects: Objects
    settings: Settings
    clock: Clock = field(default_factory=SystemClock)
    log_ids: Callable[[], str] = random_id
    request_ids: Callable[[], str] = request_id
    surfaces: tuple[str, ...] = ()
    tables: Mapping[str, SurfaceTable] = field(default_factory=dict)

    def manifests(self) -> ManifestStore:
        """Returns a fresh view of the manifests."""
        return ManifestStore(self.objects)


class Picture(NamedTuple):
    """A name's row and its log's newest entry (payload dropped), as of `read`."""

    row: Row
    newest: Entry
    read: Moment

    @property
    def state(self) -> LogState:
        """State of the log as of the newest entry."""
        return self.newest.state


class Pictures:
    """Pictures by name and role, manifests and touches by log."""

    def __init__(self, stores: Stores, surface: Surface) -> None:
        self._stores = stores
        self._surface = surface
        self._pictures: Bounded[tuple[str, str], Picture] = Bounded(_REMEMBERED)
        self._manifests: Bounded[str, Manifest] = Bounded(_REMEMBERED)
        self._touched: Bounded[str, int] = Bounded(_REMEMBERED)

    def read_time(self) -> Moment:
        """Now."""
        return moment(self._stores.clock)

    def is_old(self, read: Moment) -> bool:
        """More than the cached-state age has passed since `read`, or the wall clock ran backwards."""
        return age_s(self._stores.clock, read) > self._stores.settings.state_age_ms / 1000

    def warm(self, which: Which) -> Picture | None:
        """Returns the remembered picture, if it is young enough to decide on."""
        picture = self._pictures.get(split(which))
        if picture is None or self.is_old(picture.read):
            return None
        return picture

    def look(self, which: Which) -> Picture:
        """Returns a fresh picture: one catalog read and one query.

        Raises:
            HeadraceError: the name stands for nothing, or has no log of this role.
        """
        read = self.read_time()
        return self.look_at(self.row(which), read)

    def look_at(self, row: Row, read: Moment) -> Picture:
        """Returns a picture of the log of a row that was read at `read` or later: one query."""
        newest = self._stores.wal.newest(row.log_id)
        if newest is None:
            raise Damaged(f"log has no entry: log_id={row.log_id} name={row.name}")
        return self.remember(row, newest, read)

    def row(self, which: Which) -> Row:
        """Returns the row of a name, or what follows from it for a companion: one catalog read.

        Raises:
            HeadraceError: the name stands for nothing, or has no log of this role.
        """
        name, role = split(which)
        row = self._stores.catalog.get(self._surface.name, name)
        log = row.log(role) if row is not None else None
        if log is None:
            raise self._surface.missing(name)
        return log

    def remember(self, row: Row, newest: Entry, read: Moment) -> Picture:
        """Keeps a picture, unless a newer one of the same log is kept already; returns the one given."""
        picture = Picture(row, replace(newest, payload=None), read)
        self._pictures.update((row.config.name, row.config.role), lambda kept: _newer_picture(kept, picture))
        return picture

    def manifest(self, log_id: str) -> Manifest | None:
        """Returns the newest manifest that this process has seen."""
        return self._manifests.get(log_id)

    def remember_manifest(self, manifest: Manifest) -> None:
        """Keeps a manifest, if it is newer."""
        self._manifests.update(
            manifest.log_id,
            lambda kept: kept if kept is not None and kept.generation >= manifest.generation else manifest,
        )

    def touched_ms(self, log_id: str) -> int:
        """Returns the last touch that this process has seen; 0 if none."""
        return self._touched.get(log_id) or 0

    def remember_touch(self, log_id: str, touched_ms: int) -> None:
        """Keeps a touch."""
        self._touched.update(log_id, lambda kept: max(touched_ms, kept or 0))

    def drop(self, row: Row) -> None:
        """Forgets the log of a row."""
        self._pictures.pop((row.name, row.config.role))

    def forget(self) -> None:
        """Forgets everything."""
        self._pictures.clear()
        self._manifests.clear()
        self._touched.clear()


def _newer_picture(kept: Picture | None, picture: Picture) -> Picture:
    """Returns the picture to keep: the new one, unless the kept one is of the same log and newer."""
    if kept is None or kept.row.log_id != picture.row.log_id or kept.newest.slot <= picture.newest.slot:
        return picture
    return kept


class Definitions:
    """The definitions of logs, each in force since a control entry named it.

    A definition is an immutable object, written before the entry that names it. So an append under a definition costs no
    read once this process has seen it, and no append slips between a change and its acknowledgement: the change took a
    slot. Definitions are kept by object: they never change.
    """

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._kept: Bounded[str, Definition] = Bounded(_DEFINITIONS)

    def of(self, log_id: str, state: LogState) -> Definition:
        """Returns the definition that a state names. One GET, the first time.

        Raises:
            Damaged: its object is missing, or is not a definition.
        """
        ref = state.definition
        if ref is None:
            return EMPTY
        key = keys.definition(log_id, ref.number, ref.nonce)
        return self._kept.load(key, lambda: self._fetch(key))

    def remember(self, key: str, definition: Definition) -> None:
        """Keeps a definition that is, or is about to be, at a key."""
        self._kept.put(key, definition)

    def _fetch(self, key: str) -> Definition:
        try:
            data = self._stores.objects.get(key)
        except ObjectMissing as exc:
            raise Damaged(f"definition is missing: object={key}") from exc
        return decode(data, key)


class Context:
    """What the verbs of one surface share in one process: ports, memory, and what decisions read (`Rows`).

    Attributes:
        stores: the ports.
        surface: the surface.
        pictures: what is remembered of logs.
        manifests: what is published of them.
        record: returns the record at a position that exists, of the log of a row.
    """

    def __init__(self, stores: Stores, surface: Surface) -> None:
        self.stores = stores
        self.surface = surface
        self.pictures = Pictures(stores, surface)
        self.manifests = stores.manifests()
        self.record: Callable[[Row, int], bytes] = _no_record
        self._definitions = Definitions(stores)

    def look_at(self, picture: Picture) -> Look:
        """Returns a picture as decisions see it."""
        return Look(picture.row, picture.state, self.pictures.touched_ms(picture.row.log_id))

    def deadline_ms(self, picture: Picture) -> int | None:
        """Returns when the log expires, by the touches known here; None if never."""
        row = picture.row
        return deadline_ms(row.config, picture.state, self.pictures.touched_ms(row.log_id))

    def is_due(self, picture: Picture) -> bool:
        """Returns whether a log that lives in the picture must end, unless others have touched it."""
        if picture.state.ended:
            return False
        ends_ms = self.deadline_ms(picture)
        return ends_ms is not None and self.stores.clock.now_ms() >= ends_ms

    def producer(self, log_id: str, producer_id: str) -> Producer | None:
        """Returns the row of a producer: one read."""
        return self.stores.producers.get(log_id, producer_id)

    def definition(self, log_id: str, state: LogState) -> Definition:
        """Returns the definition that a state names: one GET, the first time."""
        return self._definitions.of(log_id, state)

    def remember(self, objects: Sequence[NamedObject]) -> None:
        """Remembers the definitions among objects."""
        for one in objects:
            if one.definition is not None:
                self._definitions.remember(one.key, one.definition)

    def table(self, name: str) -> Any:
        """Returns the adapter of a surface's own table."""
        return self.stores.tables[name]


def _no_record(row: Row, position: int) -> bytes:
    raise NotImplementedError(f"a worker reads no records: log_id={row.log_id} position={position}")
