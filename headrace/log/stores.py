"""The stores that operations on logs use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headrace.clock import Clock, SystemClock
from headrace.manifest.store import ManifestStore
from headrace.objects import Objects
from headrace.settings import Settings
from headrace.tables.catalog import Catalog
from headrace.tables.producers import Producers
from headrace.tables.watermarks import Watermarks
from headrace.wal import Wal
from headrace.wal.state import random_id, request_id


class SurfaceTable(Protocol):
    """A table that belongs to a surface. Its rows belong to logs."""

    def purge(self, log_id: str) -> bool:
        """Removes rows of a log, as many as one run may. Returns whether none are left."""


@dataclass(frozen=True, slots=True)
class Stores:
    """All stores that operations on logs use, with clock, settings and id sources.

    Attributes:
        surfaces: names of the surfaces in the catalog.
        tables: tables that only some surfaces have, by the names that guards use.
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
        """Creates a manifest store with an empty cache."""
        return ManifestStore(self.objects)
