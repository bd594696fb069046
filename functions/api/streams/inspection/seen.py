"""What was read about a stream at one moment."""

from __future__ import annotations

from typing import NamedTuple

from headrace.definition import Definition
from headrace.index.manifest import IndexManifest
from headrace.tables.watermarks import Watermark
from headrace.wal.state import LogConfig, LogState, incarnation_of


class Version(NamedTuple):
    """What the documents depend on. Cheap to read: while it is the same one, so are the documents.

    Counters of requests are no part of it, although `_details` shows them: reading a stream would change it.
    """

    log_id: str
    state: LogState
    watermark: Watermark
    index_generation: int = 0


class Published(NamedTuple):
    """The newest manifest generation, in figures.

    Attributes:
        generation: its number; 0 when nothing is published.
        end_offset: after the last published record.
        sealed_bytes: of record data in the segments.
        segments, segment_bytes: how many there are, and the bytes of their objects.
        object_bytes, page_bytes: of the generation's object, and of the pages that it names.
        digest: SHA-256 of the generation's object, hex; None without one.
        published_ms: when the generation was made; None without one.
        oldest_ms: append time of the first published record; None without one.
    """

    generation: int
    end_offset: int
    sealed_bytes: int = 0
    segments: int = 0
    segment_bytes: int = 0
    object_bytes: int = 0
    page_bytes: int = 0
    digest: str | None = None
    published_ms: int | None = None
    oldest_ms: int | None = None


class Coverage(NamedTuple):
    """How many published segments lie wholly in index runs.

    Attributes:
        segments: those that do.
        contiguous: of them, those before the first one that does not.
        missing_ms: append time of the first record of that one; None if there is none.
    """

    segments: int = 0
    contiguous: int = 0
    missing_ms: int | None = None


class Indexed(NamedTuple):
    """The newest generation of the index manifest, against what is published and the plan in force.

    Attributes:
        manifest: the generation; number 0 when nothing was indexed.
        object_bytes: of its object.
        plan: hash of the plan in force.
        by_plan: coverage by runs of that plan.
        by_any: coverage by runs of whatever plan.
        searched: coverage by runs of whatever plan that hold search fields.
    """

    manifest: IndexManifest
    object_bytes: int
    plan: str
    by_plan: Coverage
    by_any: Coverage
    searched: Coverage


class Seen(NamedTuple):
    """A living stream.

    Attributes:
        committed_ms: when its newest entry was committed, by the server's clock.
        deadline_ms: when it expires unless it is touched; None if never.
        definition_bytes: of the object that holds schema registry and profile; 0 without one.
        indexed: how far its index runs are.
    """

    config: LogConfig
    state: LogState
    committed_ms: int
    deadline_ms: int | None
    published: Published
    definition: Definition
    definition_bytes: int
    indexed: Indexed

    @property
    def name(self) -> str:
        """The stream's."""
        return self.config.name

    @property
    def incarnation(self) -> int:
        """In force."""
        return incarnation_of(self.config, self.state)

    @property
    def last_append_ms(self) -> int:
        """Append time of the newest record; without one the time of the creation."""
        return self.state.append_time_ms or self.config.created_ms


class Listed(NamedTuple):
    """A living stream in a listing. Offsets are those of the last record, -1 without one."""

    config: LogConfig
    profile: str
    incarnation: int
    next_offset: int
    sealed_through: int
    deadline_ms: int | None
