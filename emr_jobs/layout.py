"""How partial rows are laid out: which go together, where, and in what order.

A *bucket* holds the rows of one family of one run, of a family that is to be split a range of its terms. It is the unit
that a worker writes. Small buckets share a partition, large ones have their own.

    bucket   int     whose row this is
    term     binary  sort key: a term of `kw` and `fts`, a key of `lex`, the order of a row of `agg` or `mblk`, else empty
    first    long    offset of the first record that it is about
    docs, positions  binary: postings (`emr_jobs.postings`), else null
    body     binary  what a row says that is no posting, else null
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Literal

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from emr_jobs.postings import Postings
from headrace.index.descriptors import Family

SCHEMA = StructType(
    [
        StructField("bucket", IntegerType(), False),
        StructField("term", BinaryType(), False),
        StructField("first", LongType(), False),
        StructField("docs", BinaryType()),
        StructField("positions", BinaryType()),
        StructField("body", BinaryType()),
    ]
)
ARROW = pa.schema(
    [
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("term", pa.binary(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),
        pa.field("docs", pa.binary()),
        pa.field("positions", pa.binary()),
        pa.field("body", pa.binary()),
    ]
)

_BATCH_ROWS = 32_768
_SHARE_BYTES = 4 * 1024 * 1024  # buckets of less than this share a partition
_SEED = 42  # of the hash by which Spark distributes rows
_MASK = 0xFFFFFFFF

Place = Family | Literal["notes"]


class Bucket(msgspec.Struct, frozen=True):
    """Rows that one worker writes, in order.

    Attributes:
        id: what the rows carry. Within a partition, buckets are in the order of their ids.
        task: number of the task, in the job's input.
        family: that the rows are of; `notes`: what extraction says beside rows.
        number: of the range of terms, ascending; 0 of a family in one piece.
        low: least term of the range, empty of the first one.
    """

    id: int
    task: int
    family: Place
    number: int
    low: bytes


class Wanted(msgspec.Struct, frozen=True):
    """A bucket before it has a place; `weight` is about how many bytes it takes."""

    task: int
    family: Place
    number: int
    low: bytes
    weight: int


class Layout(msgspec.Struct, frozen=True):
    """All buckets of a job, and how many partitions they take."""

    partitions: int
    buckets: tuple[Bucket, ...]


def plan(wanted: Sequence[Wanted]) -> Layout:
    """Gives each bucket its place: the heaviest first, so that none is begun last."""
    partitions: list[list[Wanted]] = []
    room = 0
    for one in sorted(wanted, key=lambda one: -one.weight):
        if not partitions or one.weight > room:
            partitions.append([])
            room = max(_SHARE_BYTES, one.weight)
        partitions[-1].append(one)
        room -= one.weight
    buckets = []
    for number, members in enumerate(partitions):
        ids = _ids(number, len(partitions))
        buckets += [Bucket(next(ids), one.task, one.family, one.number, one.low) for one in members]
    return Layout(max(len(partitions), 1), tuple(buckets))


def arrange(rows: DataFrame, layout: Layout) -> DataFrame:
    """Returns partial rows, each bucket whole in one partition and in order."""
    return rows.repartition(layout.partitions, "bucket").sortWithinPartitions("bucket", "term", "first")


def _ids(partition: int, partitions: int) -> Iterator[int]:
    """Returns the numbers that `repartition(partitions, …)` sends to this partition, ascending."""
    return (number for number in count() if partition_of(number, partitions) == partition)


def partition_of(number: int, partitions: int) -> int:
    """Returns where Spark sends a row with this int32: its Murmur3 hash (x86, 32 bits) modulo the partitions."""
    mixed = _rotated((number & _MASK) * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    hashed = (_rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64) & _MASK
    hashed ^= 4  # bytes that went in
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _MASK
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _MASK
    hashed ^= hashed >> 16
    return (hashed - (1 << 32) if hashed >> 31 else hashed) % partitions


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK


def postings_rows(bucket: Bucket, rows: Postings) -> Iterator[pa.RecordBatch]:
    """Returns partial rows of postings."""
    count = len(rows.terms)
    bodies = pa.nulls(count, pa.binary())
    ids = pa.repeat(pa.scalar(bucket.id, pa.int32()), count)
    columns = [ids, rows.terms, rows.firsts, rows.docs, rows.positions, bodies]
    yield from pa.Table.from_arrays(columns, schema=ARROW).to_batches(_BATCH_ROWS)


def body_rows(bucket: Bucket, rows: Sequence[tuple[bytes, int, bytes]]) -> Iterator[pa.RecordBatch]:
    """Returns partial rows of what is no posting: term, first offset and body of each."""
    for start in range(0, len(rows), _BATCH_ROWS):
        terms, firsts, bodies = zip(*rows[start : start + _BATCH_ROWS], strict=True)
        none = pa.nulls(len(terms), pa.binary())
        ids = pa.repeat(pa.scalar(bucket.id, pa.int32()), len(terms))
        columns = [ids, pa.array(terms, pa.binary()), pa.array(firsts), none, none, pa.array(bodies, pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, schema=ARROW)
