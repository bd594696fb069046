"""What a single machine says when it is asked as AWS is: its secrets, and what `headrace doctor` looks at."""

from __future__ import annotations

import fcntl
import hashlib
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.decoding import from_json
from local.machine import files
from local.machine.database import Database
from local.machine.shapes import Shape

Json = dict[str, Any]
_CURRENT = "AWSCURRENT"


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
        text = self._path(SecretId).read_text()
        return {"SecretString": text, "VersionId": _version(text)}

    def put_secret_value(
        self,
        *,
        SecretId: str,
        SecretString: str,
        VersionStages: Sequence[str] = (_CURRENT,),
    ) -> Json:
        """Replaces a secret or, with other stages, keeps a version that can become the current one."""
        version = _version(SecretString)
        self._write(
            self._path(SecretId) if _CURRENT in VersionStages else self._path(SecretId, version), SecretString
        )
        return {"VersionId": version}

    def update_secret_version_stage(
        self,
        *,
        SecretId: str,
        VersionStage: str,  # noqa: ARG002 - only the current one moves
        RemoveFromVersionId: str,
        MoveToVersionId: str,
    ) -> None:
        """Makes a version the current one. Raises ClientError if another one than was expected is current."""
        with (self._folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.get_secret_value(SecretId=SecretId)["VersionId"] != RemoveFromVersionId:
                from botocore.exceptions import ClientError

                self._path(SecretId, MoveToVersionId).unlink(missing_ok=True)
                said = {"Code": "InvalidParameterException", "Message": "another version is current"}
                raise ClientError({"Error": said}, "UpdateSecretVersionStage")
            self._path(SecretId, MoveToVersionId).replace(self._path(SecretId))
            files.sync(self._folder)

    def _write(self, path: Path, text: str) -> None:
        files.make_folder(self._folder, 0o700)
        files.make_unnamed(self._folder.parent)
        with files.unnamed(self._folder.parent, text.encode(), 0o600) as unnamed:
            unnamed.replace(path)
            files.sync(self._folder)

    def close(self) -> None:
        """Does nothing: there is no connection."""

    def _path(self, name: str, version: str = "") -> Path:
        """Returns the file of a secret, or of a version that is not the current one."""
        return self._folder / (name.rpartition(":")[2] + (f".{version}" if version else ""))


def _version(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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
