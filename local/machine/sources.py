"""What the dispatcher of a single machine waits for: changes of tables, messages, and items whose time is over."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

from local.machine import open_machine
from local.machine.bell import VARIABLE, Bell
from local.machine.changes import Streams, TableCheckpoint, forget_readers
from local.machine.database import Database
from local.machine.queues import Queues
from local.machine.tables import SqliteStore

_EXPIRE_SECONDS = 3600.0


def of_machine(
    readers: Sequence[str],
) -> tuple[Queues, Streams, Callable[[int], TableCheckpoint], list[Any], TableRuns]:
    """Returns the fields of `local.dispatcher.Sources` for the machine that this process's environment names, which also
    names the bell.

    Args:
        readers: the name of the reader of each stream trigger.
    """
    machine, bell = open_machine(os.environ), Bell(Path(os.environ[VARIABLE]))
    machine.database.is_patient = True
    forget_readers(machine.database, readers)

    def checkpoint(number: int) -> TableCheckpoint:
        return TableCheckpoint(machine.database, readers[number])

    return (
        Queues(machine.database, bell),
        Streams(machine.database, bell),
        checkpoint,
        [ExpiryPump(machine.store())],
        TableRuns(machine.database),
    )


class TableRuns:
    """The port `local.pumps.Runs`, in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self, rule: str) -> datetime | None:
        """Returns when a rule ran last; None if it never did."""
        found = self._database.read("SELECT ran_ms FROM schedules WHERE rule = ?", (rule,))
        return datetime.fromtimestamp(found[0][0] / 1000, UTC) if found else None

    def save(self, rule: str, at: datetime) -> None:
        """Notes that a rule has run."""
        values = (rule, round(at.timestamp() * 1000))
        self._database.write(
            lambda connection: connection.execute("REPLACE INTO schedules VALUES (?, ?)", values), waits=False
        )


class ExpiryPump:
    """Removes items whose time is over, each hour. DynamoDB does so by itself."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def prepare(self) -> None:
        """Does nothing: there is no position to find."""

    def run(self, stop: Event) -> None:
        """Removes what is due, until `stop` is set."""
        while not stop.is_set():
            while not stop.is_set() and self._store.expire(int(time.time())):
                pass
            stop.wait(_EXPIRE_SECONDS)
