"""Makes moto trustworthy: atomic actions, honest transactions, ordered partitions, streams that forget.

Stock moto 5.2.5 has no lock, rolls a failed transaction back by restoring whole tables (erasing what others wrote
meanwhile), sorts a table for every query and keeps every object it ever made. `install()` replaces those parts, in
this process, for good. It is written against one version of moto and refuses any other.

Two features of moto are lost: table backups share their items with the live table, and the data page of moto's own
dashboard stays empty.
"""

from __future__ import annotations

import bisect
import copy
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import moto
from moto.core.common_models import BaseModel
from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.models.dynamo_type import DynamoType, Item
from moto.dynamodb.models.table import RESULT_SIZE_LIMIT, Table
from moto.dynamodb.responses import DynamoHandler
from moto.dynamodbstreams.responses import DynamoDBStreamsHandler
from moto.s3.responses import S3Response
from moto.secretsmanager.models import FakeSecret, SecretsManagerBackend
from moto.secretsmanager.responses import SecretsManagerResponse
from moto.sqs.models import DEDUPLICATION_TIME_IN_SECONDS
from moto.sqs.models import Queue as SqsQueue
from moto.sqs.responses import SQSResponse

from local import moto_speed, moto_streams

SUPPORTED_VERSION = "5.2.5"
# AWS remembers a client request token for ten minutes.
TOKEN_MEMORY_SECONDS = 600.0
LOCK = threading.RLock()

_installed = False


class UnsupportedMoto(RuntimeError):
    """The installed version of moto is not the one that the patches were written for."""


class IdempotentParameterMismatch(JsonRESTError):
    """The same client request token came with another transaction."""

    def __init__(self) -> None:
        super().__init__(
            "com.amazonaws.dynamodb.v20120810#IdempotentParameterMismatchException",
            "The request uses the same client token as a previous, but non-identical request",
        )


def install() -> None:
    """Patches the moto of this process. A second call does nothing.

    Raises UnsupportedMoto if another version of moto is installed.
    """
    global _installed
    if _installed:
        return
    require_supported_version(moto.__version__)
    _forget_instances()
    _serialize_actions()
    _undo_only_touched_items()
    _remember_request_tokens(time.monotonic)
    _remember_deduplication_ids(time.monotonic)
    _order_partitions()
    _follow_current_secrets()
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
    """Stops moto from keeping every model instance it ever created: a leak of one object per item, message and stream
    record.
    """

    def new(cls: type[Any], *_args: Any, **_kwargs: Any) -> Any:
        return object.__new__(cls)

    BaseModel.__new__ = new  # type: ignore[method-assign]


def _serialize_actions() -> None:
    """Runs one action at a time across DynamoDB, its streams, S3, SQS and Secrets Manager, so that each is atomic."""
    entry_points: list[tuple[Any, str]] = [
        (DynamoHandler, "call_action"),
        (DynamoDBStreamsHandler, "call_action"),
        (SQSResponse, "call_action"),
        (SecretsManagerResponse, "call_action"),
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
    """Makes a failed transaction restore only the items that it changed, and remove only their stream records."""
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
    """Returns a function that restores the item that one part of a transaction names; None if moto will refuse that
    part.
    """
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
    """Makes a transaction that is repeated with the same ClientRequestToken within ten minutes succeed without being
    applied again; another transaction with that token is refused.
    """
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


class Partition(dict[DynamoType, Item]):
    """The items of one partition key, by sort key, with a sorted list of the sort keys' values."""

    __slots__ = ("_key_of", "_values")

    def __init__(self) -> None:
        super().__init__()
        self._values: list[Any] = []
        self._key_of: dict[Any, DynamoType] = {}

    def __setitem__(self, key: DynamoType, item: Item) -> None:
        value = key.cast_value
        if value not in self._key_of:
            if not self._values or value > self._values[-1]:
                self._values.append(value)
            else:
                bisect.insort(self._values, value)
        self._key_of[value] = key
        super().__setitem__(key, item)

    def pop(self, key: DynamoType, *default: Any) -> Any:
        value = key.cast_value
        if self._key_of.pop(value, None) is not None:
            del self._values[bisect.bisect_left(self._values, value)]
        return super().pop(key, *default)

    def page(self, start: int, end: int, *, forward: bool, limit: int | None) -> list[Item]:
        """Returns items of the positions [start, end), in order: at most one more than `limit`, and about 2 MB, which
        is enough to fill a page.
        """
        positions = range(start, end) if forward else range(end - 1, start - 1, -1)
        items: list[Item] = []
        size = 0
        for position in positions:
            item = self[self._key_of[self._values[position]]]
            items.append(item)
            size += item.size()
            if (limit and len(items) > limit) or size > 2 * RESULT_SIZE_LIMIT:
                break
        return items

    def positions(self, comparison: str | None, operands: list[Any]) -> tuple[int, int]:
        """Returns the half-open range of positions that can satisfy a key condition (a superset for BEGINS_WITH)."""
        values = self._values
        low, high = 0, len(values)
        match (comparison or "").upper():
            case "EQ" | "=":
                low, high = bisect.bisect_left(values, operands[0]), bisect.bisect_right(values, operands[0])
            case "LT" | "<":
                high = bisect.bisect_left(values, operands[0])
            case "LE" | "<=":
                high = bisect.bisect_right(values, operands[0])
            case "GT" | ">":
                low = bisect.bisect_right(values, operands[0])
            case "GE" | ">=":
                low = bisect.bisect_left(values, operands[0])
            case "BETWEEN":
                low, high = bisect.bisect_left(values, operands[0]), bisect.bisect_right(values, operands[1])
            case "BEGINS_WITH":
                low, high = bisect.bisect_left(values, operands[0]), self._end_of_prefix(operands[0])
        return low, high

    def after(self, value: Any) -> int:
        """Returns the first position whose sort key is above `value`."""
        return bisect.bisect_right(self._values, value)

    def at(self, value: Any) -> int:
        """Returns the first position whose sort key is not below `value`."""
        return bisect.bisect_left(self._values, value)

    def _end_of_prefix(self, prefix: str) -> int:
        return bisect.bisect_left(self._values, True, key=lambda v: v > prefix and not v.startswith(prefix))


class _TableOf:
    """A stand-in for a table while moto answers a query: it has the same attributes, but only the items that can
    match.
    """

    def __init__(self, table: Table, items: list[Item]) -> None:
        self._table = table
        self._items = items

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def all_items(self) -> list[Item]:
        return self._items


def _remember_deduplication_ids(clock: Callable[[], float]) -> None:
    """Makes a FIFO queue swallow a message that repeats another one of the last five minutes, also if that one has been
    deleted: moto compares it with those that are there.
    """
    add = SqsQueue.add_message

    def add_message(self: Any, message: Any) -> None:
        if self.fifo_queue and message.deduplication_id:
            seen: dict[str, float] = self.__dict__.setdefault("seen_deduplication_ids", {})
            now = clock()
            while seen and next(iter(seen.values())) <= now - DEDUPLICATION_TIME_IN_SECONDS:
                del seen[next(iter(seen))]
            if message.deduplication_id in seen:
                return
            seen[message.deduplication_id] = now
        add(self, message)

    SqsQueue.add_message = add_message  # type: ignore[method-assign]


def _order_partitions() -> None:
    """Gives every table created from now on sorted partitions, and makes queries use them."""
    make_table, query = Table.__init__, Table.query

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make_table(self, *args, **kwargs)
        if self.range_key_attr:
            self.items = defaultdict(Partition)

    def ordered_query(
        self: Any,
        hash_key: DynamoType,
        range_comparison: str | None,
        range_objs: list[DynamoType],
        limit: int | None,
        exclusive_start_key: dict[str, Any] | None,
        scan_index_forward: bool | None,
        projection_expressions: Any,
        index_name: str | None = None,
        consistent_read: bool = False,
        filter_expression: Any = None,
        **conditions: Any,
    ) -> Any:
        by_index = bool(index_name)
        legacy_filter = set(conditions) - {"hash_key_conditions", "range_key_conditions"}
        table: Any = self
        if self.range_key_attr and not by_index and not legacy_filter:
            forward = scan_index_forward is not False
            operands = [operand.cast_value for operand in range_objs]
            partition = self.items.get(hash_key) or Partition()
            low, high = partition.positions(range_comparison, operands)
            if exclusive_start_key:
                last = DynamoType(exclusive_start_key[self.range_key_attr]).cast_value
                low, high = (
                    (max(low, partition.after(last)), high) if forward else (low, min(high, partition.at(last)))
                )
            table = _TableOf(self, partition.page(low, high, forward=forward, limit=limit))
        return query(
            table,
            hash_key,
            range_comparison,
            range_objs,
            limit,  # type: ignore[arg-type]
            exclusive_start_key,  # type: ignore[arg-type]
            scan_index_forward,  # type: ignore[arg-type]
            projection_expressions,
            index_name,
            consistent_read,
            filter_expression,
            **conditions,
        )

    Table.__init__ = init  # type: ignore[method-assign]
    Table.query = ordered_query  # type: ignore[method-assign,assignment]


def _follow_current_secrets() -> None:
    """Makes a read of a secret find the version with the label AWSCURRENT after that was moved, too: stock moto finds the
    version that was current before.
    """
    update = SecretsManagerBackend.update_secret_version_stage

    def update_secret_version_stage(
        self: SecretsManagerBackend,
        secret_id: str,
        version_stage: str,
        remove_from_version_id: str,
        move_to_version_id: str,
    ) -> tuple[str, str]:
        answer: tuple[str, str] = update(self, secret_id, version_stage, remove_from_version_id, move_to_version_id)
        secret = self.secrets[secret_id]
        if version_stage == "AWSCURRENT" and isinstance(secret, FakeSecret):
            secret.set_default_version_id(move_to_version_id)
        return answer

    SecretsManagerBackend.update_secret_version_stage = update_secret_version_stage  # type: ignore[method-assign]
