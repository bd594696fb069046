"""Makes moto trustworthy: atomic actions, honest transactions, ordered partitions, streams that forget.

Stock moto 5.2.5 has no lock, rolls a failed transaction back by restoring whole tables (erasing what others wrote
meanwhile), sorts a table for every query and keeps every object it ever made. `install()` replaces those parts, in
this process, for good. It is written against one version of moto and refuses any other.

Two things that AWS has are lost: table backups share their items with the living table, and the data page of moto's
own dashboard stays empty.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import moto
from moto.core.common_models import BaseModel
from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.models.dynamo_type import DynamoType, Item
from moto.dynamodb.models.table import Table
from moto.dynamodb.responses import DynamoHandler
from moto.dynamodbstreams.responses import DynamoDBStreamsHandler
from moto.s3.responses import S3Response
from moto.sqs.responses import SQSResponse

from local import moto_partitions, moto_speed, moto_streams

SUPPORTED_VERSION = "5.2.5"
# AWS remembers a client request token for ten minutes.
TOKEN_MEMORY_SECONDS = 600.0
LOCK = threading.RLock()

_installed = False


class UnsupportedMoto(RuntimeError):
    """The installed moto is not the one that the patches were written for."""


class IdempotentParameterMismatch(JsonRESTError):
    """The same client request token came with another transaction."""

    def __init__(self) -> None:
        super().__init__(
            "com.amazonaws.dynamodb.v20120810#IdempotentParameterMismatchException",
            "The request uses the same client token as a previous, but non-identical request",
        )


def install() -> None:
    """Hardens the moto of this process. Calling it again does nothing.

    Raises UnsupportedMoto when another version of moto is installed.
    """
    global _installed
    if _installed:
        return
    require_supported_version(moto.__version__)
    _forget_instances()
    _serialize_actions()
    _undo_only_touched_items()
    _remember_request_tokens(time.monotonic)
    moto_partitions.install()
    moto_streams.install()
    moto_speed.install()
    _installed = True


def require_supported_version(version: str) -> None:
    """Raises UnsupportedMoto, with what to do, unless `version` is the one supported."""
    if version == SUPPORTED_VERSION:
        return
    raise UnsupportedMoto(
        f"moto {SUPPORTED_VERSION} is required, found {version}: the emulator replaces internals of that version. "
        f"Install moto=={SUPPORTED_VERSION}, or port local/moto_*.py and change SUPPORTED_VERSION."
    )


def _forget_instances() -> None:
    """moto lists every model instance it ever made: a leak of one object per item, message and stream record."""

    def new(cls: type[Any], *_args: Any, **_kwargs: Any) -> Any:
        return object.__new__(cls)

    BaseModel.__new__ = new  # type: ignore[method-assign]


def _serialize_actions() -> None:
    """One action at a time across DynamoDB, its streams, S3 and SQS, which makes every action atomic."""
    entry_points: list[tuple[Any, str]] = [
        (DynamoHandler, "call_action"),
        (DynamoDBStreamsHandler, "call_action"),
        (SQSResponse, "call_action"),
        (S3Response, "bucket_response"),
        (S3Response, "key_response"),
    ]
    for owner, name in entry_points:
        setattr(owner, name, _locked(getattr(owner, name)))


def _locked(action: Callable[..., Any]) -> Callable[..., Any]:
    def locked(*args: Any, **kwargs: Any) -> Any:
        with LOCK:
            return action(*args, **kwargs)

    return locked


def _undo_only_touched_items() -> None:
    """A failed transaction puts back the items it touched and takes back its stream records, nothing else."""
    transact = DynamoDBBackend.transact_write_items

    def transact_write_items(self: DynamoDBBackend, transact_items: list[dict[str, Any]]) -> None:
        undo = [action for item in transact_items if (action := _undo_of(self, item))]
        try:
            transact(self, transact_items)
        except Exception:
            for action in reversed(undo):
                action()
            raise

    # moto deep-copies each table before a transaction and puts the copy in its place after a failure. With a table
    # that copies to itself both steps are no-ops, and the undo above is the only one.
    Table.__deepcopy__ = lambda self, _memo: self  # type: ignore[attr-defined]
    DynamoDBBackend.transact_write_items = transact_write_items  # type: ignore[method-assign]


def _undo_of(backend: DynamoDBBackend, transact_item: dict[str, Any]) -> Callable[[], None] | None:
    """What restores the item that one part of a transaction names; None where moto will refuse that part."""
    operation = next(iter(transact_item.values()))
    key = operation.get("Key") or operation.get("Item") or {}
    try:
        table = backend.get_table(operation["TableName"])
        hash_key, range_key = backend.get_keys_value(table, key)
    except (KeyError, JsonRESTError):
        return None
    # An update changes the item in place, so keep a copy.
    before = copy.deepcopy(table.get_item(hash_key, range_key))
    shard = table.stream_shard
    sequence = shard.next_sequence() if isinstance(shard, moto_streams.TrimmingShard) else 0

    def undo() -> None:
        _restore(table, hash_key, range_key, before)
        if isinstance(shard, moto_streams.TrimmingShard):
            shard.take_back(sequence)

    return undo


def _restore(table: Table, hash_key: DynamoType, range_key: DynamoType | None, item: Item | None) -> None:
    items: Any = table.items
    if range_key is None:
        if item is None:
            items.pop(hash_key, None)
        else:
            items[hash_key] = item
    elif item is None:
        items[hash_key].pop(range_key, None)
    else:
        items[hash_key][range_key] = item


def _remember_request_tokens(clock: Callable[[], float]) -> None:
    """A transaction sent again with its ClientRequestToken succeeds without being applied again."""
    transact = DynamoHandler.transact_write_items
    succeeded: dict[tuple[str, str], tuple[float, str]] = {}

    def transact_write_items(self: Any) -> Any:
        token = self.body.get("ClientRequestToken")
        if not token:
            return transact(self)
        now = clock()
        while succeeded and next(iter(succeeded.values()))[0] < now - TOKEN_MEMORY_SECONDS:
            del succeeded[next(iter(succeeded))]
        request = json.dumps(self.body["TransactItems"], sort_keys=True, default=repr)
        owner = (f"{self.current_account}/{self.region}", token)
        if owner in succeeded:
            if succeeded[owner][1] != request:
                raise IdempotentParameterMismatch
            return ActionResult({})
        answer = transact(self)
        succeeded[owner] = (now, request)
        return answer

    DynamoHandler.transact_write_items = transact_write_items  # type: ignore[method-assign]
