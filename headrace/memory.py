"""The stores of a process in memory, for tests and benchmarks, joined as `headrace.aws` joins those on AWS."""

from __future__ import annotations

from typing import Any

from headrace.clock import Clock
from headrace.log.context import Stores
from headrace.objects import Objects
from headrace.objects.memory import MemoryObjects
from headrace.settings import Settings
from headrace.streams.values import STREAMS
from headrace.wal.memory import MemoryWal


def memory_stores(
    settings: Settings | None = None,
    clock: Clock | None = None,
    *,
    wal: MemoryWal | None = None,
    objects: Objects | None = None,
    surfaces: tuple[str, ...] = (STREAMS,),
    **ids: Any,
) -> Stores:
    """Returns stores that share nothing with others, but for the tables and objects that are given.

    Args:
        settings: the defaults if there are none.
        clock: the system's if there is none.
        wal: all tables; the four of the log, empty, if there are none.
        objects: an empty bucket if there are none.
        surfaces: those that have names.
        ids: `log_ids` and `request_ids` of `Stores`.
    """
    tables = wal if wal is not None else MemoryWal()
    if clock is not None:
        ids["clock"] = clock
    return Stores(
        wal=tables,
        catalog=tables.catalog,
        watermarks=tables.watermarks,
        producers=tables.producers,
        objects=objects if objects is not None else MemoryObjects(),
        settings=settings or Settings(),
        surfaces=surfaces,
        tables=tables.more,
        **ids,
    )
