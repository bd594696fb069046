"""The stores of a process in memory, for tests and benchmarks, connected as `headrace.aws` connects those on AWS."""

from __future__ import annotations

from typing import Any

from headrace.clock import Clock
from headrace.log.stores import Stores
from headrace.objects import Objects
from headrace.objects.memory import MemoryObjects
from headrace.settings import Settings
from headrace.surfaces import COUNTED, SURFACES, derived, find_dead
from headrace.tables.features import TABLE as FEATURE_ROWS
from headrace.tables.features import MemoryFeatures
from headrace.wal.memory import MemoryWal


def memory_stores(
    settings: Settings | None = None,
    clock: Clock | None = None,
    *,
    wal: MemoryWal | None = None,
    objects: Objects | None = None,
    surfaces: tuple[str, ...] = SURFACES,
    counted: frozenset[str] = COUNTED,
    **ids: Any,
) -> Stores:
    """Creates stores in memory. They share nothing with other stores, except the tables and objects that are given.

    Args:
        settings: by default the default settings.
        clock: by default the system clock.
        wal: the write-ahead log with all tables; by default empty ones.
        objects: the bucket; by default an empty one.
        surfaces: names of the surfaces in the catalog.
        counted: those whose names are counted.
        ids: `log_ids` and `request_ids` of `Stores`.
    """
    tables = wal if wal is not None else MemoryWal({FEATURE_ROWS: MemoryFeatures()})
    if clock is not None:
        ids["clock"] = clock
    return Stores(
        wal=tables,
        catalog=tables.catalog,
        watermarks=tables.watermarks,
        producers=tables.producers,
        follows=tables.follows,
        sessions=tables.sessions,
        objects=objects if objects is not None else MemoryObjects(),
        settings=settings or Settings(),
        surfaces=surfaces,
        counted=counted,
        tables=tables.more,
        derived=derived,
        find_dead=find_dead,
        **ids,
    )
