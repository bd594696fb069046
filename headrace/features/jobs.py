"""What the jobs of feature tables are told and what they answer (`headrace.jobs`). Pure values: the jobs import them.

fold       computes all rows of tables from a lane's events; the folder installs them
snapshot   the same, but writes the features' values, for analysts
asof       computes the features of a list of labels, each as of its own time: a training set
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from headrace import decoding
from headrace.errors import Damaged, InvalidRequest
from headrace.features.errors import FeatureNotFound
from headrace.features.pipeline.compiled import PipelineDocument, Table
from headrace.objects import Objects
from headrace.segment.descriptor import Segment

FOLD, SNAPSHOT, ASOF = "fold", "snapshot", "asof"  # kinds of jobs
PART_ROWS = 4_096  # of a part that is installed: some seconds of a folder's time
PART_BYTES = 8 * 1024 * 1024
TIMESTAMP, CREATED, AS_OF = "event_timestamp", "created", "as_of"  # columns of exports and labels
LABELS = "labels/"  # of the bucket: where labels are, each namespace's below its name


class Applied(msgspec.Struct, frozen=True, array_like=True):
    """A pipeline, and the offset of the first event that it applies to."""

    since: int
    document: PipelineDocument


class Source(msgspec.Struct, frozen=True):
    """The events of one lane that a job reads: `[first_offset, end_offset)`, all of them in the segments.

    Attributes:
        number: the number of the lane.
        segments: with the events; none of an export, which finds them itself once all events are sealed.
        pipelines: what applies to the events, ascending. Events before the first one belong to no table.
        generation: one of the lane's manifest that exists, if there are no segments; 0 if none is known.
    """

    number: int
    log_id: str
    first_offset: int
    end_offset: int
    segments: tuple[Segment, ...]
    pipelines: tuple[Applied, ...]
    generation: int = 0


class FoldInput(msgspec.Struct, frozen=True):
    """Which tables to compute, in the generation that the last pipeline of each lane names, from one event's lanes.

    Attributes:
        namespace: that of the tables.
    """

    sources: tuple[Source, ...]
    tables: tuple[str, ...]
    namespace: str = ""


class Export(msgspec.Struct, frozen=True):
    """What the inputs of both exports have.

    Attributes:
        namespace, event, table: which table, and the event from which it comes.
        names: the features; empty for all.
    """

    sources: tuple[Source, ...]
    namespace: str
    event: str
    table: str
    names: tuple[str, ...]


class SnapshotInput(Export, frozen=True):
    """Which table to write out.

    Attributes:
        now_ms: the time for which features are read.
        created_ms: when it was asked for.
        bucket: name of the bucket, for people.
    """

    now_ms: int
    created_ms: int
    bucket: str


class AsOfInput(Export, frozen=True):
    """Which features to add to which labels.

    Attributes:
        labels: keys of Parquet objects. Their columns: those of the table's key, `event_timestamp` (a timestamp, or epoch
            ms), optionally `as_of` (the text of the header `Headrace-As-Of`; null where it is not known), and any others.
    """

    labels: tuple[str, ...]


def features_of(table: Table, names: Sequence[str]) -> dict[str, str]:
    """Returns the features of an export with their types: those with these names, or all.

    Raises:
        FeatureNotFound: the table has no such feature.
        InvalidRequest: a key or a feature has the name of another column of exports.
    """
    missing = [name for name in names if name not in table.types]
    if missing:
        raise FeatureNotFound(table.name, missing)
    found = {name: table.types[name] for name in names or table.types}
    for name in (*table.keys, *found):
        if name in (TIMESTAMP, CREATED, AS_OF):
            raise InvalidRequest(f"table '{table.name}' has a column '{name}', which exports use themselves")
    return found


class PartRow(NamedTuple):
    """A row of a part; `data` as `rows.encode_row` returns it."""

    entity: str
    as_of: int
    data: bytes
    expires_at: int


class Part(msgspec.Struct, frozen=True, array_like=True):
    """An object with rows of one table and lane: an array of `PartRow`, as MessagePack."""

    table: str
    lane: int
    key: str
    rows: int
    size: int
    sha256: str


def load_part(objects: Objects, part: Part) -> list[PartRow]:
    """Loads the rows of a part.

    Raises:
        Damaged: it is not what the job wrote.
        ObjectMissing: it is gone.
        StoreTimeout, StoreThrottled: repeat later.
    """
    data = objects.get(part.key)
    if len(data) != part.size or hashlib.sha256(data).hexdigest() != part.sha256:
        raise Damaged(f"part is not what the job wrote: object={part.key}")
    return decoding.from_msgpack(data, list[PartRow])


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
        unmatched: labels of a training set that ask for nothing that there is: their key is none of the table's, they have
            no time, or offsets that the lanes do not have. Their features are null.
        view: text of a Feast feature view that describes a snapshot.
    """

    version: int
    objects: tuple[str, ...]
    rows: int
    counted: dict[int, Counted]
    unmatched: int = 0
    view: str = ""


class Estimate(msgspec.Struct, frozen=True):
    """What an export reads, and about what it takes on EMR Serverless: one executor is counted, as long as it is enough.

    Attributes:
        usd: in us-east-1.
    """

    events: int
    bytes: int
    seconds: int
    usd: float


# Promised, not measured on EMR Serverless: 40 s of a core for a million events of ten features.
_START_S = 90.0  # until the first task runs
_EVENT_S = 20e-6  # of a core: to read, check and sort an event, and to fold it ...
_FEATURE_S = 2e-6  # ... for each feature
_CORES = 4  # of an executor
_USD_PER_S = (5 * 0.052624 + 16 * 0.0057785) / 3600  # a driver of 1 vCPU and 4 GB, an executor of 4 vCPUs and 12 GB


def estimate(events: int, size: int, features: int) -> Estimate:
    """Returns what an export of some features takes. `size` is in bytes of events' text."""
    seconds = _START_S + events * (_EVENT_S + features * _FEATURE_S) / _CORES
    return Estimate(events, size, round(seconds), round(seconds * _USD_PER_S, 4))


def weigh(sources: Sequence[Source]) -> int:
    """Returns the payload bytes that a job reads."""
    return sum(segment.payload_bytes for source in sources for segment in source.segments)
