"""What this process knows of a log, and how old that is. Bounded; forgetting it costs reads, never correctness."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from msgspec.structs import replace

from headrace.errors import Damaged
from headrace.log.seam import Surface
from headrace.log.stores import Stores
from headrace.manifest.manifest import Manifest
from headrace.tables.catalog import Row
from headrace.wal.state import Entry, LogState

_REMEMBERED = 4096


class ReadTime(NamedTuple):
    """When something was read, on both clocks: a frozen process stops the monotonic one, a set clock moves the other."""

    monotonic: float
    wall_ms: int


class Picture(NamedTuple):
    """A name's row and its log's newest entry (payload dropped), as of `read`."""

    row: Row
    newest: Entry
    read: ReadTime

    @property
    def state(self) -> LogState:
        """State of the log as of the newest entry."""
        return self.newest.state


class Pictures:
    """Pictures by name, manifests and touches by log."""

    def __init__(self, stores: Stores, surface: Surface) -> None:
        self._stores = stores
        self._surface = surface
        self._lock = threading.Lock()
        self._pictures: OrderedDict[str, Picture] = OrderedDict()
        self._manifests: OrderedDict[str, Manifest] = OrderedDict()
        self._touched: OrderedDict[str, int] = OrderedDict()

    def read_time(self) -> ReadTime:
        """Now."""
        return ReadTime(self._stores.clock.monotonic(), self._stores.clock.now_ms())

    def is_old(self, read: ReadTime) -> bool:
        """More than the cached-state age has passed since `read`, or the wall clock ran backwards."""
        now = self.read_time()
        limit_ms = self._stores.settings.state_age_ms
        if now.wall_ms < read.wall_ms:
            return True
        return now.wall_ms - read.wall_ms > limit_ms or (now.monotonic - read.monotonic) * 1000 > limit_ms

    def warm(self, name: str) -> Picture | None:
        """The remembered picture, if it is young enough to decide on."""
        with self._lock:
            picture = self._pictures.get(name)
        if picture is None or self.is_old(picture.read):
            return None
        return picture

    def look(self, name: str) -> Picture:
        """A fresh picture: one catalog read and one query.

        Raises:
            HeadraceError: the name stands for nothing.
        """
        read = self.read_time()
        row = self.row(name)
        newest = self._stores.wal.newest(row.log_id)
        if newest is None:
            raise Damaged(f"log has no entry: log_id={row.log_id} name={name}")
        return self.remember(row, newest, read)

    def row(self, name: str) -> Row:
        """The row of a name: one catalog read.

        Raises:
            HeadraceError: the name stands for nothing.
        """
        row = self._stores.catalog.get(self._surface.name, name)
        if row is None:
            raise self._surface.missing(name)
        return row

    def remember(self, row: Row, newest: Entry, read: ReadTime) -> Picture:
        """Keeps a picture, unless a newer one of the same log is kept already; returns the one given."""
        name, picture = row.name, Picture(row, replace(newest, payload=None), read)
        with self._lock:
            kept = self._pictures.get(name)
            if kept is None or kept.row.log_id != row.log_id or kept.newest.slot <= newest.slot:
                self._pictures[name] = picture
                self._trim(self._pictures)
        return picture

    def manifest(self, log_id: str) -> Manifest | None:
        """The newest manifest that this process has seen."""
        with self._lock:
            return self._manifests.get(log_id)

    def remember_manifest(self, manifest: Manifest) -> None:
        """Keeps a manifest, if it is newer."""
        with self._lock:
            kept = self._manifests.get(manifest.log_id)
            if kept is None or kept.generation < manifest.generation:
                self._manifests[manifest.log_id] = manifest
                self._trim(self._manifests)

    def touched_ms(self, log_id: str) -> int:
        """The last touch that this process has seen; 0 if none."""
        with self._lock:
            return self._touched.get(log_id, 0)

    def remember_touch(self, log_id: str, touched_ms: int) -> None:
        """Keeps a touch."""
        with self._lock:
            self._touched[log_id] = max(touched_ms, self._touched.get(log_id, 0))
            self._trim(self._touched)

    def drop(self, name: str) -> None:
        """Forgets a name."""
        with self._lock:
            self._pictures.pop(name, None)

    def forget(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._pictures.clear()
            self._manifests.clear()
            self._touched.clear()

    @staticmethod
    def _trim(kept: OrderedDict[str, Picture] | OrderedDict[str, Manifest] | OrderedDict[str, int]) -> None:
        while len(kept) > _REMEMBERED:
            kept.popitem(last=False)
