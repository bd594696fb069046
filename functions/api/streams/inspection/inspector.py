"""Reads the facts about a stream for its documents. Inspecting a stream does not renew its deadline."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from headrace.clock import Threads
from headrace.definition import Definition
from headrace.errors import Damaged
from headrace.index import descriptors
from headrace.index import manifest as index_manifests
from headrace.index.descriptors import Run
from headrace.index.manifest import IndexManifest, gaps
from headrace.log import seam
from headrace.log.requests import Head
from headrace.log.stores import Stores
from headrace.manifest import manifest as manifests
from headrace.manifest.manifest import Manifest, ManifestPage, Parts
from headrace.manifest.store import ManifestStore
from headrace.objects import ObjectMissing, keys
from headrace.streams.verbs import Streams
from headrace.tables.catalog import Row
from headrace.tables.watermarks import Watermark
from headrace.wal.state import LogConfig, LogState, incarnation_of


class Version(NamedTuple):
    """The version of the JSON documents that describe a stream (`_details`, `_index_status`): while it stays the same,
    so do they. It is cheap to read.

    `_details` also shows counters of requests. They are not part of the version, because reading a stream raises them:
    with them, no version would last.
    """

    log_id: str
    state: LogState
    watermark: Watermark
    deadline_ms: int | None
    index_generation: int = 0


class Published(NamedTuple):
    """How much of a stream is published, as of one generation of its manifest.

    Attributes:
        generation: its number; 0 when nothing is published.
        end_offset: the offset after the last published record.
        sealed_bytes: bytes of record data in the segments.
        segments, segment_bytes: number of segments, and the bytes of their objects.
        object_bytes, page_bytes: size of the generation's object, and of the pages that it names.
        digest: SHA-256 of the generation's object in hex; None if there is none.
        published_ms: when the generation was created; None if there is none.
        oldest_ms: append time of the first published record; None if there is none.
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
    """The number of published segments that index runs cover completely.

    Attributes:
        segments: number of covered segments.
        contiguous: number of covered segments before the first one that is not covered.
        missing_ms: append time of that segment's first record; None if all are covered.
    """

    segments: int = 0
    contiguous: int = 0
    missing_ms: int | None = None


class Indexed(NamedTuple):
    """The newest index manifest, and how much of the published part its runs cover.

    Attributes:
        manifest: the generation; number 0 when nothing was indexed.
        object_bytes: size of the index manifest's object.
        plan: hash of the current plan.
        by_plan: coverage by runs of that plan.
        by_any: coverage by runs of any plan.
        searched: coverage by runs of any plan that have search fields.
    """

    manifest: IndexManifest
    object_bytes: int
    plan: str
    by_plan: Coverage
    by_any: Coverage
    searched: Coverage


class Seen(NamedTuple):
    """The facts about a living stream at one moment.

    Attributes:
        committed_ms: when its newest entry was committed, by the server's clock.
        deadline_ms: when it expires, unless a read or write renews a sliding TTL before; None if never.
        definition_bytes: size of the definition's object; 0 if there is none.
        indexed: how far it is indexed.
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
        """The stream's name."""
        return self.config.name

    @property
    def incarnation(self) -> int:
        """The stream's current incarnation, a number that rises when its name is created again or recovered."""
        return incarnation_of(self.config, self.state)

    @property
    def last_append_ms(self) -> int:
        """The append time of the newest record; if there is none, the time of the creation."""
        return self.state.append_time_ms or self.config.created_ms


class Listed(NamedTuple):
    """A living stream in a listing. `sealed_through` is the offset of its last published record, -1 if there is none;
    `next_offset` is the offset that its next record gets; `deadline_ms` is None if it never expires.
    """

    config: LogConfig
    profile: str
    incarnation: int
    next_offset: int
    sealed_through: int
    deadline_ms: int | None


_TRIES = 3  # a stream can be deleted, and made again, between two of our reads
_REMEMBERED = 4096  # figures of generations and definitions: immutable, some 200 bytes each


class Inspector:
    """A reader of the facts about streams of one surface, by name. Every method blocks, and may be called by any
    thread.
    """

    def __init__(self, stores: Stores, logs: Streams) -> None:
        self._stores = stores
        self._logs = logs
        self._manifests, self._indexes = logs.manifests, logs.indexes
        self._published = lru_cache(_REMEMBERED)(self._read_published)
        self._size = lru_cache(_REMEMBERED)(self._read_size)

    def version(self, name: str) -> Version:
        """Reads the current version of the stream's documents. Costs one query and one item read; one more if it has a TTL.

        If something is published, it sometimes costs a GET that finds nothing, too; the newest runs may be seen about
        250 ms late.

        Raises:
            NotFound, Gone: there is no such stream.
        """
        head = self._logs.head(name)
        watermark = self._stores.watermarks.get(head.log_id)
        published, named = watermark.generation, watermark.index_generation
        index = None
        if published:
            index = self._indexes.recent(head.log_id, AGE_S, named) or self._indexes.look(head.log_id, named)
        deadline_ms = self._deadline_ms(head.log_id, head.config, head.state)
        return Version(head.log_id, head.state, watermark, deadline_ms, index.generation if index is not None else 0)

    def look(self, name: str) -> tuple[Version, Seen]:
        """Reads the facts about a stream at one moment. Costs one query more than `version`, one item read if it has a TTL,
        a GET that finds nothing if there are segments, and a GET for each object that is not cached.

        Raises:
            NotFound, Gone: there is no such stream.
            Damaged: an object that its state names is missing or altered.
            DeadlineExceeded: it takes longer than a request may.
        """
        with self._logs.in_time():
            return self._look(name)

    def _look(self, name: str) -> tuple[Version, Seen]:
        for _ in range(_TRIES):
            head = self._logs.head(name)
            # Before the newest entry, so that nothing is published that the entry does not know of.
            watermark = self._stores.watermarks.get(head.log_id)
            newest = self._stores.wal.newest(head.log_id)
            if newest is None or newest.state.ended:
                continue
            config, state = head.config, newest.state
            published = self._of_generation(head.log_id, config, watermark.generation)
            definition = self._logs.definition_of(head._replace(state=state))
            named = watermark.index_generation
            index = (
                self._indexes.look(head.log_id, named) if watermark.generation else index_manifests.empty(head.log_id)
            )
            seen = Seen(
                config=config,
                state=state,
                committed_ms=newest.committed_ms,
                deadline_ms=self._deadline_ms(head.log_id, config, state),
                published=published,
                definition=definition,
                definition_bytes=self._definition_bytes(head.log_id, state),
                indexed=self._indexed(head.log_id, published, definition, index),
            )
            return Version(head.log_id, state, watermark, seen.deadline_ms, index.generation), seen
        raise Damaged(f"stream can't be looked at: name={name}")

    def requests(self, log_id: str) -> dict[str, int]:
        """Returns the log's counters of requests to the object store, by `<kind>.<operation>`."""
        return self._stores.watermarks.usage(log_id).requests

    def listed(self, row: Row) -> Listed | None:
        """Returns what a listing shows of a catalog row; None if the stream has ended or expired, or is damaged. Costs one
        query, one item read if it has records, and one if it has a TTL.
        """
        return self._logs.listed(row, self._listed)

    def _listed(self, head: Head) -> Listed | None:
        config, state = head.config, head.state
        is_empty = state.next_offset == config.base_offset
        watermark = Watermark() if is_empty else self._stores.watermarks.get(head.log_id)
        deadline_ms = self._deadline_ms(head.log_id, config, state)
        if deadline_ms is not None and deadline_ms <= self._stores.clock.now_ms():
            return None
        # The watermark was read after the entry: it may know of records that the entry does not.
        sealed_end = min(max(watermark.end_offset, config.base_offset), state.next_offset)
        return Listed(config, state.label, head.incarnation, state.next_offset, sealed_end - 1, deadline_ms)

    def _deadline_ms(self, log_id: str, config: LogConfig, state: LogState) -> int | None:
        """Returns when a stream expires (epoch ms), None if never; costs one item read if it has a TTL."""
        touched_ms = self._stores.watermarks.usage(log_id).touched_ms if config.ttl_ms is not None else 0
        return seam.deadline_ms(config, state, touched_ms)

    def _indexed(self, log_id: str, published: Published, definition: Definition, index: IndexManifest) -> Indexed:
        """Computes how far the stream is indexed. Segments are counted by pages of the manifest; a page that runs cover
        only in part is read the first time.
        """
        plan = descriptors.hash_of(definition)
        if not index.generation:
            none = Coverage(missing_ms=published.oldest_ms)
            return Indexed(index, 0, plan, none, none, none)
        manifest = self._manifests.load(log_id, published.generation)
        if manifest is None:
            raise Damaged(f"manifest is missing: object={keys.manifest(log_id, published.generation)}")
        return Indexed(
            manifest=index,
            object_bytes=len(index_manifests.encode(index)),
            plan=plan,
            by_plan=_cover(self._manifests, manifest, index.of_plan(plan)),
            by_any=_cover(self._manifests, manifest, index.runs),
            searched=_cover(self._manifests, manifest, [run for run in index.runs if "kw" in run.sizes]),
        )

    def _of_generation(self, log_id: str, config: LogConfig, generation: int) -> Published:
        """Returns the figures of the manifest generation that the watermark names (there may be a newer one). For
        generation 0, before anything is published, only `end_offset` is set, to the log's first offset.
        """
        if generation == 0:
            return Published(0, config.base_offset)
        return self._published(log_id, generation)

    def _read_published(self, log_id: str, generation: int) -> Published:
        key = keys.manifest(log_id, generation)
        data = self._get(key)
        manifest = manifests.decode(data, key)
        parts: Parts = manifest.pages or manifest.open_page
        return Published(
            generation=generation,
            end_offset=manifest.end_offset,
            sealed_bytes=manifest.sealed_bytes,
            segments=manifest.segment_count,
            segment_bytes=sum(p.segment_bytes for p in manifest.pages) + sum(s.size for s in manifest.open_page),
            object_bytes=len(data),
            page_bytes=sum(page.page_bytes for page in manifest.pages),
            digest=hashlib.sha256(data).hexdigest(),
            published_ms=manifest.end_published_ms,
            oldest_ms=parts[0].min_time_ms if parts else None,
        )

    def _definition_bytes(self, log_id: str, state: LogState) -> int:
        ref = state.definition
        return 0 if ref is None else self._size(keys.definition(log_id, ref.number, ref.nonce))

    def _read_size(self, key: str) -> int:
        return len(self._get(key))

    def _get(self, key: str) -> bytes:
        try:
            return self._stores.objects.get(key)
        except ObjectMissing as exc:
            raise Damaged(f"object is missing: object={key}") from exc


AGE_S = 0.25  # requests that wait for a change look for a new index manifest this often at most

fan_out = Threads(16, "inspect").map


def _cover(store: ManifestStore, manifest: Manifest, runs: Sequence[Run]) -> Coverage:
    """Counts the segments that these runs together cover completely.

    A sealed page is only read if runs cover it in part.

    Raises:
        Damaged: a sealed page is missing or altered.
    """
    return _look_at(store, _look_at(store, Coverage(), manifest.pages, runs), manifest.open_page, runs)


def _look_at(store: ManifestStore, found: Coverage, parts: Parts, runs: Sequence[Run]) -> Coverage:
    for part in parts:
        missing = gaps(runs, part.first_offset, part.end_offset)
        if not missing:
            found = _add(found, part.count if isinstance(part, ManifestPage) else 1)
        elif isinstance(part, ManifestPage) and missing != [(part.first_offset, part.end_offset)]:
            found = _look_at(store, found, store.parts(part), runs)
        elif found.missing_ms is None:
            found = found._replace(missing_ms=part.min_time_ms)
    return found


def _add(found: Coverage, count: int) -> Coverage:
    contiguous = found.contiguous + (count if found.missing_ms is None else 0)
    return found._replace(segments=found.segments + count, contiguous=contiguous)
