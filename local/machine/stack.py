"""Creates what a template declares on a single machine: tables, queues, and what the bucket tells them."""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import msgspec

from headrace.settings import MAX_SPILL_BYTES
from local.access_calls import ACCOUNT, REGION
from local.machine import LocalMachine, environment_of
from local.machine.bell import VARIABLE as BELL
from local.machine.changes import stream_arn
from local.machine.files import forget_unnamed, make_folder
from local.machine.queues import Queue, declare_queue, queue_arn, queue_url
from local.machine.shapes import Index, Shape
from local.machine.tables import declare_table
from local.template import UnusableTemplate

Json = dict[str, Any]
BUCKET = "objects"
_HASH = re.compile(r"[0-9A-F]{8}$")  # CDK's, at the end of a logical id
_PSEUDO = {
    "AWS::Region": REGION,
    "AWS::AccountId": ACCOUNT,
    "AWS::Partition": "aws",
    "AWS::URLSuffix": "amazonaws.com",
}


class MachineCloud:
    """The port `local.template.Cloud` on a single machine. What exists already is kept."""

    def __init__(self, machine: LocalMachine) -> None:
        self._machine = machine
        self._database = machine.database
        self._queues: dict[str, Queue] = {}

    def create_stack(self, template: Json) -> dict[str, str]:
        """Creates the tables and queues of a template, and returns the values of its outputs. Raises UnusableTemplate for
        an intrinsic function that is not known here, or a table whose keys have changed.
        """
        resources = template["Resources"]
        for logical_id, part in resources.items():
            name, properties = _name(logical_id), part["Properties"]
            if part["Type"] == "AWS::DynamoDB::Table":
                try:
                    declare_table(self._database, name, _shape(properties))
                except ValueError as exc:
                    raise UnusableTemplate(str(exc)) from exc
            elif part["Type"] == "AWS::SQS::Queue":
                self._queues[name] = _queue(properties, resources)
        for name, queue in self._queues.items():
            declare_queue(self._database, name, queue)
        return {name: _value(output["Value"], resources) for name, output in template["Outputs"].items()}

    def create_secret(self, name: str) -> None:
        """Creates a secret with a generated value, if there is none."""
        self._machine.secrets.create(name)

    def notify(self, bucket: str, queues: Sequence[Json]) -> None:  # noqa: ARG002 - there is only one
        """Has the bucket tell queues of new objects. `queues` has the form of S3's API."""
        for told in queues:
            name = told["QueueArn"].rpartition(":")[2]
            rules = {rule["Name"].lower(): rule["Value"] for rule in told["Filter"]["Key"]["FilterRules"]}
            queue = self._queues[name]
            notices = (*queue.notices, (rules.get("prefix", ""), rules.get("suffix", "")))
            self._queues[name] = msgspec.structs.replace(queue, notices=notices)
            declare_queue(self._database, name, self._queues[name])


def _name(logical_id: str) -> str:
    return _HASH.sub("", logical_id)


def _shape(properties: Json) -> Shape:
    kinds = {one["AttributeName"]: one["AttributeType"] for one in properties["AttributeDefinitions"]}

    def keys(part: Json) -> tuple[tuple[str, str], ...]:
        return tuple((one["AttributeName"], kinds[one["AttributeName"]]) for one in part["KeySchema"])

    indexes = {
        index["IndexName"]: Index(keys(index), keys_only=index["Projection"]["ProjectionType"] == "KEYS_ONLY")
        for index in properties.get("GlobalSecondaryIndexes", ())
    }
    stream = properties.get("StreamSpecification", {}).get("StreamViewType", "")
    return Shape(
        keys(properties), indexes, stream, properties.get("TimeToLiveSpecification", {}).get("AttributeName", "")
    )


def _queue(properties: Json, resources: Json) -> Queue:
    redrive = properties.get("RedrivePolicy", {})
    dead = _value(redrive["deadLetterTargetArn"], resources).rpartition(":")[2] if redrive else ""
    return Queue(
        visibility_s=int(properties.get("VisibilityTimeout", 30)),
        delay_s=int(properties.get("DelaySeconds", 0)),
        is_fifo=bool(properties.get("FifoQueue", False)),
        dead=dead,
        receives=int(redrive.get("maxReceiveCount", 0)),
    )


def _value(value: Any, resources: Json) -> str:
    """Returns the text that an intrinsic function stands for."""
    match value:
        case str():
            return value
        case {"Ref": str(name)} if name in _PSEUDO:
            return _PSEUDO[name]
        case {"Ref": str(name)}:
            own = _name(name)
            return {"AWS::SQS::Queue": queue_url(own), "AWS::S3::Bucket": BUCKET}.get(resources[name]["Type"], own)
        case {"Fn::Sub": str(text)}:
            return re.sub(r"\$\{([^!}]+)\}", lambda found: _value({"Ref": found[1]}, resources), text)
        case {"Fn::GetAtt": [str(name), str(attribute)]}:
            return _attribute(_name(name), resources[name]["Type"], attribute)
        case {"Fn::Join": [str(between), list(parts)]}:
            return between.join(_value(part, resources) for part in parts)
    raise UnusableTemplate(f"not supported on a single machine: {value}")


def _attribute(name: str, kind: str, attribute: str) -> str:
    match kind, attribute:
        case "AWS::DynamoDB::Table", "StreamArn":
            return stream_arn(name)
        case "AWS::DynamoDB::Table", "Arn":
            return stream_arn(name).partition("/stream/")[0]
        case "AWS::SQS::Queue", "Arn":
            return queue_arn(name)
        case "AWS::SQS::Queue", "QueueName":
            return name
        case "AWS::S3::Bucket", "Arn":
            return f"arn:aws:s3:::{BUCKET}"
    raise UnusableTemplate(f"not supported on a single machine: {attribute} of {name}")


class FolderUnusable(Exception):
    """The folder can't be created, written or understood."""


class FolderInUse(FolderUnusable):
    """Another server runs on the folder."""


class MachineDeployment:
    """The folder of a single machine, as the server has it that runs on it: no other server may. As a context manager, it
    is released at the end, and by any death of the process.

    Args:
        folder: is created if it does not exist.

    Raises:
        FolderInUse: another server runs on it.
        FolderUnusable: it can't be created or written, or is damaged.
        NewerDatabase: a newer release wrote it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with ExitStack() as exits:
            try:
                make_folder(folder, 0o700)
                lock = os.open(folder / "server.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                exits.callback(os.close, lock)
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._machine = LocalMachine(folder)
                forget_unnamed(folder)
            except BlockingIOError:
                raise FolderInUse(f"another server runs on {folder}") from None
            except (OSError, sqlite3.Error) as exc:
                raise FolderUnusable(f"{folder} can't be used: {exc}") from exc
            self._exits = exits.pop_all()
        self.cloud = MachineCloud(self._machine)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    @property
    def defaults(self) -> dict[str, str]:
        """Settings that suit this machine better than the template's."""
        # A payload in an entry is one sync of the disk; one in an object three more.
        return {"HEADRACE_SPILL_BYTES": str(MAX_SPILL_BYTES)}

    def environment(self, bell: Path) -> dict[str, str]:
        """Returns the variables that make a process use this machine. `bell` is the path of its dispatcher's bell."""
        return {**environment_of(self._folder), BELL: str(bell)}
