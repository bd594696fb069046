"""What a single machine says when it is asked as AWS is: its secrets, and what `headrace doctor` looks at."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any
from uuid import uuid4

from headrace.decoding import from_json
from local.machine.database import Database
from local.machine.tables import Shape

Json = dict[str, Any]


class Secrets:
    """The calls of Secrets Manager, on files that only their owner may read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "secrets"

    def create(self, name: str) -> None:
        """Creates a secret with a generated value, if there is none."""
        if not self._path(name).exists():
            self.put_secret_value(SecretId=name, SecretString=secrets.token_hex())

    def get_secret_value(self, *, SecretId: str) -> Json:
        """Returns a secret."""
        return {"SecretString": self._path(SecretId).read_text()}

    def put_secret_value(self, *, SecretId: str, SecretString: str) -> None:
        """Replaces a secret."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        scratch = self._folder / f".{uuid4().hex}"
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(SecretString)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(self._path(SecretId))

    def close(self) -> None:
        """Does nothing: there is no connection."""

    def _path(self, name: str) -> Path:
        return self._folder / name.rpartition(":")[2]


class Described:
    """The calls of DynamoDB, S3 and CloudWatch with which a doctor looks at a deployment."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def describe_table(self, *, TableName: str) -> Json:
        """Describes a table. It is protected as well as its folder is, and costs nothing."""
        ((shape,),) = self._database.read("SELECT shape FROM tables WHERE name = ?", (TableName,))
        view = from_json(shape, Shape).stream
        return {
            "Table": {
                "TableStatus": "ACTIVE",
                "DeletionProtectionEnabled": True,
                "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"},
                "StreamSpecification": {"StreamEnabled": bool(view), "StreamViewType": view},
            }
        }

    def describe_continuous_backups(self, **_: Any) -> Json:
        """Says that there are no backups."""
        return {"ContinuousBackupsDescription": {}}

    def head_bucket(self, *, Bucket: str) -> None:
        """Says that the bucket is there."""

    def get_paginator(self, _name: str) -> Described:
        """Returns itself, for alarms."""
        return self

    def paginate(self, **_: Any) -> list[Json]:
        """Says that there are no alarms."""
        return []

    def get_metric_statistics(self, **_: Any) -> Json:
        """Says that nobody has measured anything."""
        return {"Datapoints": []}
