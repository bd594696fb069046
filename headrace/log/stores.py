"""The ports of one process, with its clock, settings and source of ids."""

from __future__ import annotations

import base64
import os
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
