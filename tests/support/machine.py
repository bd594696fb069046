"""Single machines for tests, with tables that are shaped as those of `tests.support.aws`."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local.machine import LocalMachine
from local.machine.shapes import Index, Shape
from local.machine.tables import declare_table
from tests.support.aws import JOBS, SHAPES

_numbers = itertools.count()


_MEMORY = Path("/dev/shm")  # where a sync costs nothing; of a kill, all that is written survives there, too


@contextmanager
def machine_folder() -> Iterator[Path]:
    """A folder for the data of a machine, in memory if there is such a place; removed afterwards."""
    place = _MEMORY if _MEMORY.is_dir() else None
    # A process that was killed with its server may still write for a moment.
    with tempfile.TemporaryDirectory(prefix="headrace-", dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def declare_tables(machine: LocalMachine) -> dict[str, str]:
    """Declares new tables; returns their names by what guards call them. The WAL has a stream."""
    number = next(_numbers)
    tables = {name: f"{name}-{number}" for name in (*SHAPES, "jobs")}
    for name, (keys, indexes) in {**SHAPES, "jobs": JOBS}.items():
        found = {index: Index(tuple(own), shown == "KEYS_ONLY") for index, (shown, *own) in indexes.items()}
        stream = "NEW_IMAGE" if name == "wal" else ""
        declare_table(machine.database, tables[name], Shape(keys, found, stream, "expires_at"))
    return tables
