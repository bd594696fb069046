"""The layout of partial rows: which rows go together in a bucket, in which partition, and in what order.

A *bucket* holds the rows of one family of one run; large families are split into several buckets by ranges of terms.
One worker writes one bucket at a time. Small buckets share a Spark partition, large ones have their own.

    bucket   int     id of the bucket that the row belongs to
    term     binary  sort key: a term of `kw` and `fts`, a key of `lex`, the order of a row of `agg` or `mblk`, else
        empty
    first    long    first offset that the row is about
    docs, positions  binary: postings (`emr_jobs.postings`), else null
    body     binary  the content of a row that is no posting, else null
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
_SEED = 42  # seed of the hash by which Spark distributes rows
_MASK = 0xFFFFFFFF

Place = Family | Literal["notes"]


class Bucket(msgspec.Struct, frozen=True):
    """The rows that one worker writes, in order.

    Attributes:
        id: the number in column `bucket` of its rows. Within a partition, buckets are in the order of their ids.
        task: number of the task, in the job's input.
        family: the family of the rows; `notes` holds reports (counts) instead of rows.
        number: position of its range of terms, ascending; 0 if the family is not split.
        low: lowest term of the range; empty for the first range.
    """

    id: int
    task: int
    family: Place
    number: int
    low: bytes


class Wanted(msgspec.Struct, frozen=True):
    """A bucket before it is assigned to a partition; `weight` is its estimated size in bytes."""

    task: int
    family: Place
    number: int
    low: bytes
    weight: int


class Layout(msgspec.Struct, frozen=True):
    """All buckets of a job, and the number of partitions that they take."""

    partitions: int
    buckets: tuple[Bucket, ...]


def plan(wanted: Sequence[Wanted]) -> Layout:
    """Assigns each bucket to a partition, the heaviest first, so that no worker starts a heavy bucket last."""
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
    """Repartitions and sorts partial rows so that each bucket is whole, in order, in one partition."""
    return rows.repartition(layout.partitions, "bucket").sortWithinPartitions("bucket", "term", "first")


def _ids(partition: int, partitions: int) -> Iterator[int]:
    """Yields, ascending, the numbers that Spark's `repartition(partitions, …)` sends to this partition."""
    return (number for number in count() if partition_of(number, partitions) == partition)


def partition_of(number: int, partitions: int) -> int:
    """Returns the partition to which Spark sends a row with this int32: its Murmur3 hash (x86, 32 bits) modulo
    `partitions`.
    """
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
    """Encodes postings as partial rows of a bucket."""
    count = len(rows.terms)
    bodies = pa.nulls(count, pa.binary())
    ids = pa.repeat(pa.scalar(bucket.id, pa.int32()), count)
    columns = [ids, rows.terms, rows.firsts, rows.docs, rows.positions, bodies]
    yield from pa.Table.from_arrays(columns, schema=ARROW).to_batches(_BATCH_ROWS)


def body_rows(bucket: Bucket, rows: Sequence[tuple[bytes, int, bytes]]) -> Iterator[pa.RecordBatch]:
    """Encodes rows other than postings as partial rows of a bucket; each row is its term, first offset and body."""
    for start in range(0, len(rows), _BATCH_ROWS):
        terms, firsts, bodies = zip(*rows[start : start + _BATCH_ROWS], strict=True)
        none = pa.nulls(len(terms), pa.binary())
        ids = pa.repeat(pa.scalar(bucket.id, pa.int32()), len(terms))
        columns = [ids, pa.array(terms, pa.binary()), pa.array(firsts), none, none, pa.array(bodies, pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, schema=ARROW)
