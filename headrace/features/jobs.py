"""What the jobs of feature tables are told and what they answer (`headrace.jobs`). Pure values: the jobs import them.

fold       computes all rows of tables from a lane's events; the folder installs them
snapshot   the same, but writes the features' values, for analysts
asof       computes the features of a list of labels, each as of its own time: a training set
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.features.pipeline.compiled import PipelineDocument
from headrace.segment.descriptor import Segment

FOLD, SNAPSHOT, ASOF = "fold", "snapshot", "asof"  # kinds of jobs
PART_ROWS = 4_096  # of a part that is installed: some seconds of a folder's time
PART_BYTES = 8 * 1024 * 1024


class Applied(msgspec.Struct, frozen=True, array_like=True):
    """A pipeline, and the offset of the first event that it applies to."""

    since: int
    document: PipelineDocument


class Source(msgspec.Struct, frozen=True):
    """The events of one lane that a job reads: `[first_offset, end_offset)`, all of them in the segments.

    Attributes:
        number: the number of the lane.
        pipelines: what applies to the events, ascending. Events before the first one belong to no table.
    """

    number: int
    log_id: str
    first_offset: int
    end_offset: int
    segments: tuple[Segment, ...]
    pipelines: tuple[Applied, ...]


class FoldInput(msgspec.Struct, frozen=True):
    """Which tables to compute, in the generation that the last pipeline of each lane names, from one event's lanes."""

    sources: tuple[Source, ...]
    tables: tuple[str, ...]


class SnapshotInput(msgspec.Struct, frozen=True):
    """Which table to write out, with the values of its features at `now_ms`."""

    sources: tuple[Source, ...]
    table: str
    now_ms: int
    created_ms: int


class AsOfInput(msgspec.Struct, frozen=True):
    """Which features to add to which labels.

    Attributes:
        labels: key of a Parquet object. Its columns: those of the table's key, `event_timestamp` (a timestamp or epoch ms),
            optionally `as_of` (the text of the header `Headrace-As-Of`, or an offset; null where it is not known), and any
            others.
        names: the features; empty for all.
    """

    sources: tuple[Source, ...]
    table: str
    labels: str
    names: tuple[str, ...] = ()


class Part(msgspec.Struct, frozen=True, array_like=True):
    """An object with rows of one table and lane: columns `entity`, `as_of`, `data` (`rows.encode_row`), `expires_at`."""

    table: str
    lane: int
    key: str
    rows: int
    size: int
    sha256: str


class Counted(msgspec.Struct, frozen=True):
    """What became of events or labels.

    Attributes:
        events: events that were read.
        skipped: those of them that do not fit the schema of the pipeline that applies to them.
        example: why the first one found does not fit.
    """

    events: int = 0
    skipped: int = 0
    example: str = ""

    def plus(self, other: Counted) -> Counted:
        """Returns the sum."""
        return Counted(
            self.events + other.events,
            self.skipped + other.skipped,
            min(filter(None, (self.example, other.example)), default=""),
        )


class FoldResult(msgspec.Struct, frozen=True):
    """What a fold made. It counts once this object exists; until then its parts are named by nothing.

    Attributes:
        generations: the generation of each table.
        ends: the end offset of each lane, by its number: the rows have every event before.
        counted: per lane.
    """

    version: int
    parts: tuple[Part, ...]
    generations: dict[str, str]
    ends: dict[int, int]
    counted: dict[int, Counted]

    def parts_of(self, lane: int) -> tuple[Part, ...]:
        """Returns the parts with rows of a lane, in the order in which they are installed."""
        return tuple(part for part in self.parts if part.lane == lane)


class ExportResult(msgspec.Struct, frozen=True):
    """What a snapshot or a training set is: Parquet objects, in order.

    Attributes:
        rows: of all objects.
        unmatched: labels of a training set whose key is not one of the table; their features are null.
        view: text of a Feast feature view that describes a snapshot.
    """

    version: int
    objects: tuple[str, ...]
    rows: int
    counted: dict[int, Counted]
    unmatched: int = 0
    view: str = ""


def weigh(sources: Sequence[Source]) -> int:
    """Returns the payload bytes that a job reads."""
    return sum(segment.payload_bytes for source in sources for segment in source.segments)
