"""DynamoDB Streams for moto that drop consumed records, with iterators that hold their own state.

A stream has up to two readers, as many as AWS advises: the event source mappings of sealer and relay. A record is kept
until both have read it. An iterator tells its reader, so that a reader that was started again is a new one, and the one
that has been silent longest is forgotten.
"""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict, deque
from collections.abc import Callable
from contextvars import ContextVar
from itertools import islice
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.core.utils import utcnow
from moto.dynamodb.models import table as table_module
from moto.dynamodb.models.dynamo_type import Item
from moto.dynamodb.models.table import StreamShard, Table
from moto.dynamodbstreams.models import DynamoDBStreamsBackend
from moto.moto_api._internal import mock_random

from local.stream_pump import KEPT_BYTES, KEPT_RECORDS, PATIENTLY

unserved_wait: ContextVar[tuple[float, Callable[[], bool]] | None] = ContextVar("unserved_wait", default=None)
"""Set by an action that found nothing and was asked to wait: for how many seconds at most, and what tells that there may be
something now. `MotoApp` waits, and then repeats the action."""

# A GetRecords page, as AWS has it.
PAGE_RECORDS = 1_000
PAGE_BYTES = 1_000_000
READERS = 2
# Of records that a reader has not read: one that stands still for long loses them, as on AWS after a day.
UNREAD_BYTES = 256_000_000


class TrimmedDataAccess(JsonRESTError):
    """The requested records were consumed already, and are gone."""

    def __init__(self, sequence: int, oldest: int) -> None:
        super().__init__(
            "com.amazonaws.dynamodb.v20120810#TrimmedDataAccessException",
            f"sequence number is older than the oldest record: asked={sequence} oldest={oldest}",
        )


class StreamRecord:
    """One change of an item. `record` has the form of the GetRecords answer."""

    __slots__ = ("record", "size_bytes")

    def __init__(self, table: Table, sequence: int, old: Item | None, new: Item | None) -> None:
        specification: Any = table.stream_specification
        view = specification["StreamViewType"]
        present: Any = old if new is None else new
        keys = {table.hash_key_attr: present.hash_key.to_json()}
        if table.range_key_attr is not None:
            keys[table.range_key_attr] = present.range_key.to_json()
        self.size_bytes = present.size()
        change: dict[str, Any] = {
            "StreamViewType": view,
            "ApproximateCreationDateTime": utcnow(),
            "SequenceNumber": str(sequence),
            "SizeBytes": self.size_bytes,
            "Keys": keys,
        }
        if new is not None and view in ("NEW_IMAGE", "NEW_AND_OLD_IMAGES"):
            change["NewImage"] = new.to_json()["Attributes"]
        if old is not None and view in ("OLD_IMAGE", "NEW_AND_OLD_IMAGES"):
            change["OldImage"] = old.to_json()["Attributes"]
        self.record = {
            "eventID": mock_random.uuid4().hex,
            "eventName": "INSERT" if old is None else "REMOVE" if new is None else "MODIFY",
            "eventSource": "aws:dynamodb",
            "eventVersion": "1.1",
            "awsRegion": table.region_name,
            "dynamodb": change,
        }


class TrimmingShard(StreamShard):
    """The only shard of a table's stream. Sequence numbers rise by one; those of a failed transaction are used again."""

    def __init__(self, account_id: str, table: Table) -> None:
        super().__init__(account_id, table)
        self._first = self.starting_sequence_number
        self._records: deque[StreamRecord] = deque()
        self._bytes = 0
        self._consumed_through = self._first
        self._consumed_bytes = 0
        self._opened = 0
        # The position of each reader, the one that was silent longest first.
        self._readers: OrderedDict[int, int] = OrderedDict()

    def next_sequence(self) -> int:
        """Returns the sequence number that the next record will have."""
        return self._first + len(self._records)

    def oldest_sequence(self) -> int:
        """Returns the sequence number of the oldest record that can still be read; that of the next record if there is
        none.
        """
        return self._first

    def add(self, old: Item | None, new: Item | None) -> None:
        """Records a change of an item. A write that changes nothing adds no record, as on AWS."""
        unchanged = old is not None and new is not None and old is not new and old.attrs == new.attrs
        if not unchanged:
            self._records.append(StreamRecord(self.table, self.next_sequence(), old, new))
            self._bytes += self._records[-1].size_bytes
            self._drop_consumed()

    def take_back(self, sequence: int) -> None:
        """Removes the records from `sequence` on, because the transaction that wrote them failed."""
        while self._records and self.next_sequence() > sequence:
            self._bytes -= self._records.pop().size_bytes

    def open(self, sequence: int) -> int:
        """Adds a reader that is about to read from `sequence` on, and returns its number.

        Raises TrimmedDataAccess if `sequence` was dropped already.
        """
        if sequence < self._first:
            raise TrimmedDataAccess(sequence, self._first)
        self._opened += 1
        self._move(self._opened, sequence)
        return self._opened

    def has(self, sequence: int) -> bool:
        """Returns whether there is a record with this sequence number, or a later one."""
        return self.next_sequence() > sequence

    def read(self, reader: int, sequence: int, limit: int) -> list[dict[str, Any]]:
        """Returns up to `limit` records from `sequence` on, at most about 1 MB and at least one. Records before
        `sequence` count as consumed by this reader. Of those that all readers have consumed only the newest 1,000, or 16
        MB, are kept.

        Raises TrimmedDataAccess if `sequence` was dropped already.
        """
        if sequence < self._first:
            raise TrimmedDataAccess(sequence, self._first)
        self._move(reader, sequence)
        self._consume(min(self._readers.values()))
        page: list[dict[str, Any]] = []
        size = 0
        start = sequence - self._first
        for record in islice(self._records, start, start + min(limit, PAGE_RECORDS)):
            size += record.size_bytes
            if page and size > PAGE_BYTES:
                break
            page.append(record.record)
        return page

    def _move(self, reader: int, sequence: int) -> None:
        """Notes how far a reader has come; forgets the one that was silent longest if there are too many."""
        self._readers[reader] = sequence
        self._readers.move_to_end(reader)
        while len(self._readers) > READERS:
            self._readers.popitem(last=False)

    def _consume(self, sequence: int) -> None:
        """Notes that all records before `sequence` are consumed."""
        end = min(sequence, self.next_sequence())
        newly_consumed = islice(
            self._records, max(0, self._consumed_through - self._first), max(0, end - self._first)
        )
        self._consumed_bytes += sum(record.size_bytes for record in newly_consumed)
        self._consumed_through = max(self._consumed_through, end)
        self._drop_consumed()

    def _drop_consumed(self) -> None:
        """Drops consumed records, except the newest 1,000 of them, or 16 MB; and the oldest if there are too many."""
        while self._bytes > UNREAD_BYTES or (
            self._first < self._consumed_through
            and (self._consumed_through - self._first > KEPT_RECORDS or self._consumed_bytes > KEPT_BYTES)
        ):
            size = self._records.popleft().size_bytes
            self._bytes -= size
            self._consumed_bytes -= size if self._first < self._consumed_through else 0
            self._first += 1
            self._consumed_through = max(self._consumed_through, self._first)


class _Iterator:
    """A shard iterator in the form that moto's handler needs: an object with an `arn`."""

    def __init__(self, stream_arn: str, reader: int, sequence: int) -> None:
        self.arn = f"{stream_arn}|1|{base64.b64encode(f'{reader} {sequence}'.encode()).decode()}"


def parse_iterator(token: str) -> tuple[str, int, int]:
    """Returns the stream's ARN, the reader and the sequence number in an iterator token. Raises ValueError for any other
    text.
    """
    stream_arn, separator, position = token.rpartition("|1|")
    if not separator:
        raise ValueError(f"not a shard iterator: {token!r}")
    try:
        reader, sequence = base64.b64decode(position, validate=True).split()
        return stream_arn, int(reader), int(sequence)
    except binascii.Error as exc:
        raise ValueError(f"not a shard iterator: {token!r}") from exc


def install() -> None:
    """Gives every stream created from now on a shard that drops consumed records, and stateless iterators."""

    def get_shard_iterator(
        self: DynamoDBStreamsBackend,
        arn: str,
        shard_id: str,
        shard_iterator_type: str,
        sequence_number: int | None = None,
    ) -> _Iterator:
        shard = _shard(self, arn)
        if shard.id != shard_id:
            raise JsonRESTError("ResourceNotFoundException", f"no such shard: {shard_id}")
        match shard_iterator_type:
            case "TRIM_HORIZON":
                sequence = shard.oldest_sequence()
            case "LATEST":
                sequence = shard.next_sequence()
            case "AT_SEQUENCE_NUMBER":
                sequence = int(sequence_number or 0)
            case _:
                sequence = int(sequence_number or 0) + 1
        return _Iterator(arn, shard.open(sequence), sequence)

    def get_records(self: DynamoDBStreamsBackend, iterator_arn: str, limit: int) -> dict[str, Any]:
        token, _, patience = iterator_arn.partition(PATIENTLY)
        try:
            stream_arn, reader, sequence = parse_iterator(token)
            wait_seconds = float(patience or 0)
        except ValueError as exc:
            raise JsonRESTError("ValidationException", str(exc)) from exc
        shard = _shard(self, stream_arn)
        records = shard.read(reader, sequence, limit)
        if wait_seconds and not records:
            unserved_wait.set((wait_seconds, lambda: shard.has(sequence)))
        following = _Iterator(stream_arn, reader, sequence + len(records))
        return {"NextShardIterator": following.arn, "Records": records}

    def _shard(backend: DynamoDBStreamsBackend, stream_arn: str) -> TrimmingShard:
        shard = backend._get_table_from_arn(stream_arn).stream_shard
        if not isinstance(shard, TrimmingShard):
            raise JsonRESTError("ResourceNotFoundException", f"no such stream: {stream_arn}")
        return shard

    table_module.StreamShard = TrimmingShard  # type: ignore[misc]
    DynamoDBStreamsBackend.get_shard_iterator = get_shard_iterator  # type: ignore[method-assign,assignment]
    DynamoDBStreamsBackend.get_records = get_records  # type: ignore[method-assign]
