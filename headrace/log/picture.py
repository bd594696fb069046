"""What this process knows of a log, and how old that is. Bounded; forgetting it costs reads, never correctness."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from headrace.bounded import Bounded
from headrace.clock import Moment, age_s, moment
from headrace.errors import Damaged
from headrace.log.seam import Surface, Which, split
from headrace.log.stores import Stores
from headrace.manifest.manifest import Manifest
from headrace.tables.catalog import Row
from headrace.wal.state import Entry, LogState

_REMEMBERED = 4096


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
        self._pictures.update((row.name, row.config.role), lambda kept: _newer_picture(kept, picture))
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
