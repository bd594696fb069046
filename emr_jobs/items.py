"""What a job run reads, piece by piece: whole segments to build from, whole parts of runs to compact.

Items are packed: a pack is what one worker reads in one go, one item at a time, and a row of the frame that Spark starts
from is the number of a pack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession

from emr_jobs import build, compact, layout, reports
from emr_jobs.arrow import map_in_arrow
from emr_jobs.layout import Bucket, Place
from emr_jobs.stores import Door
from headrace.index.descriptors import Family, Part
from headrace.index.job import Task
from headrace.segment.descriptor import PageIndex, Segment

_NO_PAGES = PageIndex(0, (), (), ())
_PACK_BYTES = 16 * 1024 * 1024


class Item(NamedTuple):
    """A segment, or a part of an input run, and what it is for.

    Attributes:
        task: number of the task.
        order: of this item among those of the task.
        weight: how many bytes it is about, decoded.
        segment: to build from; if there is none, `part`, which is of `family`.
    """

    task: int
    order: int
    weight: int
    segment: Segment | None = None
    family: Family = "kw"
    part: Part | None = None

    def slim(self) -> Item:
        """The item without what only readers of ranges need: it is sent along with every piece of work."""
        segment = None if self.segment is None else replace(self.segment, pages=_NO_PAGES)
        part = None if self.part is None else replace(self.part, footer=b"", first=())
        return self._replace(segment=segment, part=part)


def packs(items: Iterable[Item]) -> list[tuple[Item, ...]]:
    """Neighbours together, up to the size of a segment."""
    found: list[list[Item]] = []
    room = 0
    for item in items:
        if not found or item.weight > room:
            found.append([])
            room = max(_PACK_BYTES, item.weight)
        found[-1].append(item)
        room -= item.weight
    return [tuple(pack) for pack in found]


@dataclass(frozen=True)
class Reader:
    """Reads packs, in a worker."""

    door: Door
    tasks: Sequence[Task]
    buckets: Sequence[Bucket]
    packs: Sequence[tuple[Item, ...]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of the items in the packs with these numbers."""
        places: dict[int, dict[Place, list[Bucket]]] = {}
        for bucket in sorted(self.buckets, key=lambda bucket: bucket.number):
            places.setdefault(bucket.task, {}).setdefault(bucket.family, []).append(bucket)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for item in self.packs[number]:
                    yield from self._read(item, places[item.task])

    def _read(self, item: Item, places: dict[Place, list[Bucket]]) -> Iterator[pa.RecordBatch]:
        task = self.tasks[item.task]
        try:
            if item.part is None:
                assert item.segment is not None, "it is one of the two"
                yield from build.rows(self.door, task, item.segment, places)
            else:
                yield from compact.rows(self.door, task, item.family, item.part, item.order, places[item.family])
        except Exception as exc:  # noqa: BLE001 a task that fails, for whatever reason, fails no other
            report = reports.encode(reports.failed(item.task, exc))
            yield from layout.body_rows(places["notes"][0], [(b"", item.order, report)])


def partial_rows(spark: SparkSession, reader: Reader) -> DataFrame:
    """What the packs say, as rows of `layout.SCHEMA`; those of a bucket sorted within each item."""
    count = len(reader.packs)
    return map_in_arrow(spark.range(0, count, 1, max(count, 1)), reader, layout.SCHEMA)
