"""What was read about a stream at one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

from headrace.definition import Definition
from headrace.index.descriptors import Run
from headrace.index.manifest import IndexManifest, gaps
from headrace.manifest.manifest import Manifest, ManifestPage
from headrace.manifest.store import ManifestStore
from headrace.segment.descriptor import Segment
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


class Block(NamedTuple):
    """Neighbouring segments with records `[first, end)`; `size` of them, `segments` reads them."""

    first: int
    end: int
    size: int
    segments: Callable[[], Sequence[Segment]]


def of_segment(segment: Segment) -> Block:
    """Returns one segment."""
    return Block(segment.first_offset, segment.end_offset, 1, lambda: (segment,))


def of_page(page: ManifestPage, store: ManifestStore, manifest: Manifest) -> Block:
    """Returns the segments of a sealed page of a manifest."""

    def segments() -> Sequence[Segment]:
        found = store.segments_from(manifest, page.first_offset)
        return tuple(takewhile(lambda segment: segment.first_offset < page.end_offset, found))

    return Block(page.first_offset, page.end_offset, page.count, segments)


def nothing(published: Published) -> Coverage:
    """Returns the figures without a run."""
    return Coverage(missing_ms=published.oldest_ms)


def coverage(blocks: Iterable[Block], runs: Sequence[Run]) -> Coverage:
    """Returns how many segments lie wholly in the union of these runs.

    Args:
        blocks: all that is published, ascending. One that runs cover in part, or the first that they leave out, is read.

    Raises:
        Damaged: a sealed page is missing or altered.
    """
    found = Coverage()
    for block in blocks:
        missing = gaps(runs, block.first, block.end)
        if not missing:
            found = _with(found, block.size)
        elif missing == [(block.first, block.end)] and found.missing_ms is not None:
            continue
        else:
            for segment in block.segments():
                if gaps(runs, segment.first_offset, segment.end_offset):
                    found = found._replace(missing_ms=_first(found.missing_ms, segment.min_time_ms))
                else:
                    found = _with(found, 1)
    return found


def _with(found: Coverage, count: int) -> Coverage:
    contiguous = found.contiguous + (count if found.missing_ms is None else 0)
    return found._replace(segments=found.segments + count, contiguous=contiguous)


def _first(known: int | None, found: int) -> int:
    return found if known is None else known
