"""A durable single machine in place of AWS: tables and queues in SQLite, objects in files. `open_machine` opens it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from headrace import machine
from local.machine.database import Database
from local.machine.objects import FileObjects
from local.machine.queues import Queues
from local.machine.services import Described, Secrets
from local.machine.tables import SqliteStore

FOLDER = "HEADRACE_DATA"  # the variable with the folder


class LocalMachine:
    """The port `headrace.machine.Machine` on a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.database = Database(folder)
        self._queues = Queues(self.database)
        self.secrets = Secrets(folder)
        self._store = SqliteStore(self.database)
        self._objects = FileObjects(folder, self._queues.note_object)

    def store(self) -> SqliteStore:
        """Returns the tables."""
        return self._store

    def objects(self) -> FileObjects:
        """Returns the bucket."""
        return self._objects

    def client(self, service: str) -> Any:
        """Returns the client of a service whose data the folder has, or says something about; None for any other."""
        match service:
            case "sqs":
                return self._queues
            case "secretsmanager":
                return self.secrets
            case "dynamodb" | "s3" | "cloudwatch":
                return Described(self.database)
        return None


def open_machine(environment: Mapping[str, str]) -> LocalMachine:
    """Returns the machine of the folder that an environment names: one for all callers of a process."""
    return _machine(environment[FOLDER])


@cache
def _machine(folder: str) -> LocalMachine:
    return LocalMachine(Path(folder))


def environment_of(folder: Path) -> dict[str, str]:
    """Returns the variables that make a process open this folder."""
    return {machine.VARIABLE: f"{__name__}:open_machine", FOLDER: str(folder)}
