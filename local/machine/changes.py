"""The streams of a single machine: changes of tables, as DynamoDB Streams tells them, with the position of each reader.

A change is removed when every reader has noted that it is done with it, so that no kill or restart loses one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from local.access_calls import REGION, arn
from local.machine.bell import Bell
from local.machine.database import Database
from local.stream_pump import OLDEST, PATIENTLY, Checkpoint, Position

_PAGE_BYTES = 1_000_000
_decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode


def stream_arn(table: str) -> str:
    """Returns the ARN of a table's stream."""
    return arn("dynamodb", f"table/{table}/stream/0")


class Streams:
    """The client of DynamoDB Streams that `local.stream_pump` uses, on SQLite."""

    def __init__(self, database: Database, bell: Bell) -> None:
        self._database = database
        self._bell = bell

    def describe_stream(self, **_: Any) -> dict[str, Any]:
        """Returns the only shard of a stream."""
        return {"StreamDescription": {"Shards": [{"ShardId": "only"}]}}

    def get_shard_iterator(
        self, *, StreamArn: str, ShardIteratorType: str, SequenceNumber: str = "0", **_: Any
    ) -> dict[str, str]:
        """Returns the iterator of a position: the first sequence number to read."""
        behind = ShardIteratorType == "AFTER_SEQUENCE_NUMBER"
        return {"ShardIterator": f"{StreamArn}|{int(SequenceNumber) + behind}"}

    def get_records(self, *, ShardIterator: str, Limit: int) -> dict[str, Any]:
        """Returns the changes from an iterator on, at most `Limit` and about a megabyte. If there are none, waits for one
        as long as the iterator says.
        """
        iterator, _, patience = ShardIterator.partition(PATIENTLY)
        stream, _, sequence = iterator.rpartition("|")
        rings = self._bell.rings
        found = self._read(stream, int(sequence), Limit)
        if not found and float(patience or 0) > 0:
            self._bell.wait(rings, float(patience))
            found = self._read(stream, int(sequence), Limit)
        following = found[-1][1] + 1 if found else sequence
        records = [_record(packed, number) for packed, number in found]
        return {"NextShardIterator": f"{stream}|{following}", "Records": records}

    def _read(self, stream: str, sequence: int, limit: int) -> list[tuple[bytes, int]]:
        return self._database.read_page(
            "SELECT change, sequence FROM changes JOIN tables ON number = tbl"
            " WHERE sequence >= ? AND name = ? ORDER BY sequence LIMIT ?",
            (sequence, stream.split("/")[1], limit),
            _PAGE_BYTES,
        )[0]


def _record(packed: bytes, sequence: int) -> dict[str, Any]:
    change = _decode(packed)
    told = {**change["dynamodb"], "SequenceNumber": str(sequence), "SizeBytes": len(packed)}
    return {"eventID": f"{sequence:032x}", "eventName": change["eventName"], "awsRegion": REGION, "dynamodb": told}


class TableCheckpoint(Checkpoint):
    """The position of one reader, in the database. To note it removes what no reader needs any more."""

    def __init__(self, database: Database, reader: str) -> None:
        super().__init__()
        self._database = database
        self._reader = reader

    def load(self) -> Position:
        """Returns the position that was saved last; the oldest position, from now on reserved, if none was."""
        found = self._database.read("SELECT position FROM readers WHERE name = ?", (self._reader,))
        if found:
            kind, _, sequence = found[0][0].partition(" ")
            self.position = Position(kind, sequence)
        else:
            self._note(OLDEST)
        return self.position

    def save(self, position: Position) -> None:
        """Saves the position."""
        if position != self.position:
            self.position = position
            self._note(position)

    def _note(self, position: Position) -> None:
        oldest = int(position.sequence or 0) + (position.kind == "AFTER_SEQUENCE_NUMBER")

        def work(connection: sqlite3.Connection) -> None:
            noted = self._reader, f"{position.kind} {position.sequence}", oldest
            connection.execute("REPLACE INTO readers VALUES (?, ?, ?)", noted)
            connection.execute("DELETE FROM changes WHERE sequence < (SELECT min(oldest) FROM readers)")

        self._database.write(work, waits=False)  # an older position only means that changes are told again


def forget_readers(database: Database, but: Sequence[str]) -> None:
    """Removes readers that a newer template has no more: they would keep every change."""

    def work(connection: sqlite3.Connection) -> None:
        known = {name for (name,) in connection.execute("SELECT name FROM readers").fetchall()}
        for name in known - set(but):
            connection.execute("DELETE FROM readers WHERE name = ?", (name,))

    database.write(work)
