"""The verb seal: writes unsealed entries as a segment, publishes it with a manifest generation, and raises the
watermark.

There is one generation for each segment: memory holds one segment at a time however long the backlog is, each
generation has the state of its last entry, and after a crash at most one segment's work is repeated. The steps, and
what a crash after each leaves:

    log.json (before generation 1)    an object that is correct anyway
    segment, its key page             orphans, swept later
    sealed manifest page              an orphan
    removal of replaced segments      a manifest that still names them as replaced, which no reader uses
    message to trim                   a trim that finds nothing to do
    manifest generation               a published segment; the watermark is behind, the next seal raises it
    watermark                         nothing

Segments below the floor are dropped at the end (`functions.sealer.drop`); by the orphan sweep, if the sealer dies before.

A sealer that loses the race for a generation deletes nothing, loads what was published, and continues after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from functions.queue import Message
from functions.sealer import policy
from functions.sealer.context import Context
from functions.sealer.drop import drop
from functions.sealer.policy import SealLimits
from headrace.batch import Batch, concat
from headrace.errors import Damaged, StoreError
from headrace.log import join
from headrace.log.join import NotJoined, PayloadTrimmed, read_payload
from headrace.log.stores import Stores
from headrace.manifest import manifest as manifests
from headrace.manifest import merging
from headrace.manifest.manifest import Description, Manifest, ManifestPage
from headrace.manifest.store import NewestLook
from headrace.objects import keys
from headrace.segment import writer
from headrace.segment.descriptor import Segment
from headrace.wal.state import Entry, LogConfig

MAX_ROUNDS = 16  # segments in one run, about ten seconds of work: then other logs have their turn


class Sealed(NamedTuple):
    """What a call of `seal` published. `races_lost` counts generations that another sealer published first;
    `unsealed_age_ms` is the age of the oldest unsealed entry at the start. `is_done` is false if it stopped at the limit
    of one run.
    """

    generations: int = 0
    segments: int = 0
    records: int = 0
    payload_bytes: int = 0
    races_lost: int = 0
    unsealed_age_ms: int = 0
    is_done: bool = True

    def __add__(self, other: Sealed) -> Sealed:  # type: ignore[override]
        """Returns the sum of both results, with the greater age."""
        return Sealed(
            generations=self.generations + other.generations,
            segments=self.segments + other.segments,
            records=self.records + other.records,
            payload_bytes=self.payload_bytes + other.payload_bytes,
            races_lost=self.races_lost + other.races_lost,
            unsealed_age_ms=max(self.unsealed_age_ms, other.unsealed_age_ms),
            is_done=self.is_done and other.is_done,
        )


class SourceUnsealed(StoreError):
    """A fork's source is not sealed through the fork point yet; repeat later."""


def seal(parts: Context, log_id: str, *, force: bool = False) -> Sealed:
    """Writes unsealed entries as segments and publishes them: all that are there now with `force` or if the oldest is
    old enough, else as many as are too large to wait. Publishes nothing if nothing is due or the log is unknown or
    over.

    Safe to run twice at once, and again after a crash at any point.

    Raises:
        Damaged: entries or objects contradict themselves; nothing more was published.
        SourceUnsealed, StoreTimeout, StoreThrottled: repeat later.
    """
    stores, limits = parts.stores, parts.limits
    newest = stores.wal.newest(log_id)
    if newest is None or not policy.may_seal(newest.state):
        return Sealed()
    look = parts.look()
    watermark = stores.watermarks.get(log_id)
    if newest.slot < watermark.end_slot:
        return Sealed()
    now_ms = parts.now_ms()
    oldest_ms = _oldest_unsealed_ms(parts, newest, watermark.end_slot)
    due = policy.due(
        newest.state.total_bytes - watermark.sealed_bytes,
        newest.state.next_offset - watermark.end_offset,
        oldest_ms,
        now_ms,
        limits,
    )
    if not (force or due):
        return Sealed()
    everything = force or policy.due_by_age(oldest_ms, now_ms, limits)
    sealed = _Run(parts, newest, everything, look).seal(watermark.generation)
    return sealed._replace(unsealed_age_ms=max(sealed.unsealed_age_ms, now_ms - oldest_ms))


def _oldest_unsealed_ms(parts: Context, newest: Entry, end_slot: int) -> int:
    if newest.prev_slot < end_slot:
        return newest.committed_ms
    entries = parts.stores.wal.read(newest.log_id, start=end_slot, limit=1).entries
    return entries[0].committed_ms if entries else newest.committed_ms


class _Run:
    """One sealing of one log, up to the entry that was newest when it began."""

    def __init__(self, parts: Context, newest: Entry, everything: bool, look: NewestLook) -> None:
        self._parts = parts
        self._stores = parts.stores
        self._log_id = newest.log_id
        self._newest = newest
        self._everything = everything
        self._look = look
        self._done = Sealed()

    def seal(self, known_generation: int) -> Sealed:
        manifest = self._parts.manifests.newest(self._log_id, None, known_generation)
        if manifest is not None and manifest.generation > known_generation:
            self._raise_watermark(manifest)  # a sealer died between manifest and watermark
        for _ in range(MAX_ROUNDS):
            if self._is_done(manifest):
                if manifest is not None:
                    drop(self._parts, manifest, self._look)
                return self._done
            manifest = self._next(manifest)
        return self._done._replace(is_done=self._done.is_done and self._is_done(manifest))

    def _is_done(self, manifest: Manifest | None) -> bool:
        if manifest is not None and self._newest.slot < manifest.end_slot:
            return True
        if self._everything:
            return False
        config = manifest.config if manifest else self._first_config()
        if config is None:
            return False
        state = self._newest.state
        unsealed_bytes = state.total_bytes - (manifest.sealed_bytes if manifest else 0)
        unsealed_records = state.next_offset - (manifest.end_offset if manifest else config.base_offset)
        return not policy.due_by_size(unsealed_bytes, unsealed_records, self._parts.limits)

    def _first_config(self) -> LogConfig | None:
        """Returns the configuration from the first entry; None if another sealer has published and trimmed that
        entry.
        """
        entries = self._stores.wal.read(self._log_id, limit=1).entries
        return entries[0].config if entries else None

    def _next(self, manifest: Manifest | None) -> Manifest:
        """Returns the next generation, published by this run or by another sealer that was faster."""
        try:
            published = self._publish_next(manifest)
            why = "generation is taken and can't be read"
        except NotJoined as exc:
            published, why = None, str(exc)
        if published is not None:
            return published
        self._done += Sealed(races_lost=1)
        watermark = self._stores.watermarks.get(
            self._log_id
        )  # if this took a day, generations after ours may be gone
        other = self._parts.manifests.newest(self._log_id, manifest, watermark.generation)
        if other is None or (manifest is not None and other.generation <= manifest.generation):
            self._look.check()
            raise Damaged(f"log does not continue its manifest: log_id={self._log_id}: {why}")
        return other

    def _publish_next(self, manifest: Manifest | None) -> Manifest | None:
        """Builds and publishes one generation. Returns None if another sealer took its number."""
        config = manifest.config if manifest else self._first_config()
        if config is None:
            raise NotJoined("the first entry is gone")
        if manifest is None:
            self._seal_sources(config)
            self._describe(config)
        span = read_span(self._stores, config, manifest, self._newest.slot, self._parts.limits, self._log_id)
        segments = self._put_segment(manifest, config, span)
        successor = manifests.successor(
            manifest,
            log_id=self._log_id,
            config=config,
            segments=segments,
            last_entry=span.last,
            sealed_page=self._put_full_page(manifest),
            now_ms=self._parts.now_ms(),
            forgotten=self._remove_replaced(manifest),
        )
        self._ask_to_trim(span)
        if not self._parts.manifests.publish(successor, self._look):
            return None
        self._raise_watermark(successor)
        self._done += Sealed(
            generations=1,
            segments=len(segments),
            records=len(span.records),
            payload_bytes=sum(segment.payload_bytes for segment in segments),
        )
        return successor

    def _seal_sources(self, config: LogConfig) -> None:
        """Seals the sources of a fork, since a fork is published only after what it inherits.

        Oldest first, so that a source that is a fork itself finds its own sources sealed.
        """
        for ancestor in config.lineage:
            for attempt in range(2):
                if self._stores.watermarks.get(ancestor.log_id).end_offset >= ancestor.through:
                    break
                if attempt:
                    raise SourceUnsealed(f"fork={self._log_id} source={ancestor.log_id}")
                self._done += seal(self._parts, ancestor.log_id, force=True)

    def _describe(self, config: LogConfig) -> None:
        """Writes `log.json`, which recovery needs; for a companion, before it that of its main log, which has the name's
        row. The other way round, what a death leaves between them would be refused by every recovery from the bucket.
        """
        found = []
        if config.main:
            first = self._stores.wal.read(config.main, limit=1).entries  # trimmed only if it is described already
            found += [Description(config.main, entry.config) for entry in first if entry.config is not None]
        for one in [*found, Description(self._log_id, config)]:
            self._stores.objects.create(keys.description(one.log_id), msgspec.json.encode(one))

    def _put_segment(self, manifest: Manifest | None, config: LogConfig, span: Span) -> list[Segment]:
        if not span.records:
            return []
        built = writer.build(
            span.first_offset, span.records, text=writer.is_text(config.content_type), log_id=self._log_id
        )
        number = manifest.segment_count if manifest else 0
        sealed = manifest.sealed_count if manifest else 0
        key = keys.segment(self._log_id, sealed, self._stores.request_ids())
        self._stores.objects.put(key, built.data)
        self._stores.objects.put(keys.segment_keys(key), built.key_page)
        return [built.describe(number, key)]

    def _put_full_page(self, manifest: Manifest | None) -> ManifestPage | None:
        full = manifests.full_page(manifest) if manifest else None
        if manifest is None or full is None:
            return None
        data = manifests.encode_page(full)
        key = keys.manifest_page(self._log_id, manifest.generation + 1, self._stores.request_ids())
        self._stores.objects.put(key, data)
        return manifests.describe_page(key, data, full)

    def _remove_replaced(self, manifest: Manifest | None) -> list[str]:
        """Removes the objects of replaced segments that no reader can need any more. Returns their keys."""
        if manifest is None:
            return []
        gone = merging.forgettable(manifest, self._parts.now_ms(), self._stores.settings.merge_retire_ms)
        if gone:
            self._stores.objects.delete(name for key in gone for name in (key, keys.segment_keys(key)))
        return gone

    def _ask_to_trim(self, span: Span) -> None:
        """Sends the message to trim. It is sent before the publication, so that a crash afterwards can't leave
        published entries untrimmed.
        """
        if span.last.prev_slot < 0:
            return  # the only entry is the newest, which stays
        now_ms = self._parts.now_ms()
        ripe_ms = max(now_ms, span.last.committed_ms) + self._parts.limits.trim_age_ms
        self._parts.queue.send([Message("trim", self._log_id, not_before_ms=ripe_ms)], now_ms)

    def _raise_watermark(self, manifest: Manifest) -> None:
        self._stores.watermarks.publish(
            self._log_id,
            manifest.generation,
            manifest.end_slot,
            manifest.end_offset,
            manifest.sealed_bytes,
        )


_FETCHERS = 8  # spilled payloads are at least 32 KB each: their latency, not their size, is what takes time


class Span(NamedTuple):
    """Consecutive entries to be sealed: the offset of the first record, their records, and the last entry."""

    first_offset: int
    records: Batch
    last: Entry


def read_span(
    stores: Stores,
    config: LogConfig,
    known: Manifest | None,
    through_slot: int,
    limits: SealLimits,
    log_id: str,
) -> Span:
    """Reads the entries after `known`, as many as fit into one segment, none above `through_slot`.

    It needs memory for the records of one segment (at most the limits, or one entry), and about a megabyte of entries.

    Raises:
        NotJoined: there are no entries after `known`, they do not continue it, or a payload is gone.
        Damaged: an entry contradicts itself.
    """
    batches: list[Batch] = []
    first_offset = expected = known.end_offset if known else config.base_offset
    last: Entry | None = None
    for taken in _read_batches(stores, known, through_slot, limits, log_id):
        last = taken[-1]
        for entry, payload in zip(taken, _read_payloads(stores, taken), strict=True):
            if entry.offset != expected:
                raise Damaged(f"entry is at another offset: log_id={log_id} slot={entry.slot} expected={expected}")
            batches.append(payload)
            expected += len(payload)
    if last is None:
        raise NotJoined(f"no entries after the manifest: log_id={log_id}")
    return Span(first_offset, concat(batches), last)


def _read_batches(
    stores: Stores, known: Manifest | None, through_slot: int, limits: SealLimits, log_id: str
) -> Iterator[list[Entry]]:
    """Yields, page by page, the entries after `known` that fit into one segment. Their sizes are known from their
    states before a payload is read.
    """
    total_bytes = known.state.total_bytes if known else 0
    segment_bytes = segment_records = 0
    for entries in join.forward(stores.wal, log_id, known, through_slot):
        taken: list[Entry] = []
        for entry in entries:
            more_bytes = entry.state.total_bytes - total_bytes
            if entry.count and not policy.fits(segment_bytes, segment_records, more_bytes, entry.count, limits):
                break
            taken.append(entry)
            total_bytes = entry.state.total_bytes
            segment_bytes += more_bytes
            segment_records += entry.count
        if taken:
            yield taken
        if len(taken) < len(entries):
            return


def _read_payloads(stores: Stores, entries: Sequence[Entry]) -> Iterator[Batch]:
    def fetch(entry: Entry) -> Batch:
        try:
            return read_payload(stores, entry)
        except PayloadTrimmed as exc:
            raise NotJoined(f"payload is gone: {exc}") from exc

    if sum(entry.payload_key is not None for entry in entries) < 2:
        yield from map(fetch, entries)
        return
    with ThreadPoolExecutor(_FETCHERS) as pool:
        yield from pool.map(fetch, entries)
