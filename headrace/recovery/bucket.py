"""Checks the objects of one log: generations, pages, segments, key pages, definitions, index runs. Damage is reported,
never raised.

Damage of index runs loses no record: `headrace index rebuild` builds them again from the segments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from headrace.definition import Document
from headrace.errors import Damaged
from headrace.index import descriptors
from headrace.index.descriptors import Run
from headrace.index.manifest import PUBLISH_MS, IndexManifest, IndexManifestStore
from headrace.manifest import invariants, merging
from headrace.manifest.manifest import Begin, Manifest, Parts, decode, decode_page
from headrace.manifest.store import KEPT_MS, ManifestStore
from headrace.objects import ObjectMissing, Objects, keys, packed
from headrace.objects.memory import MemoryObjects
from headrace.recovery.report import Notes
from headrace.segment import keypage, reader
from headrace.segment.descriptor import Segment
from headrace.wal.state import DefinitionRef, LogState


def check_generations(objects: Objects, notes: Notes, numbers: Sequence[int], now_ms: int) -> Manifest | None:
    """Checks that every generation that must exist does exist, decodes, and may follow the one before; adds what is wrong
    to `notes`.

    Args:
        numbers: the generations that exist.
        now_ms: the server's clock. All but the first may be gone if a newer one was created long enough before.

    Returns:
        The newest generation; None if it can't be trusted.
    """
    before: Manifest | None = None
    standing = set(numbers)
    missing: list[int] = []
    for number in range(1, max(numbers, default=0) + 1):
        if number not in standing:
            missing.append(number)
            before = None
            continue
        key = keys.manifest(notes.log_id, number)
        manifest = _generation(objects, notes, key, number)
        if manifest is not None and manifest.created_ms <= now_ms - KEPT_MS:
            missing = [one for one in missing if one == 1]  # they were replaced by then
        if manifest is not None and (before is not None or number == 1):
            try:
                invariants.check(before, manifest)
            except Damaged as exc:
                notes.error("manifest.rule", key, found=exc)
        before = manifest
        notes.counts["generations"] += 1
    for number in missing:
        notes.error("manifest.missing", keys.manifest(notes.log_id, number))
    return before


def _generation(objects: Objects, notes: Notes, key: str, number: int) -> Manifest | None:
    try:
        manifest = decode(objects.get(key), key)
        if (manifest.log_id, manifest.generation) != (notes.log_id, number):
            raise Damaged(
                f"manifest is in the wrong place: log_id={manifest.log_id} generation={manifest.generation}"
            )
        invariants.check_whole(manifest)
    except ObjectMissing:
        notes.error("manifest.missing", key)
        return None
    except Damaged as exc:
        notes.error("manifest.damaged", key, found=exc)
        return None
    return manifest


def segments_of(objects: Objects, notes: Notes, manifest: Manifest) -> tuple[list[Segment], set[str]]:
    """Returns the descriptors of all segments of a manifest that were not dropped, ascending, and the keys of its sealed
    pages; a page that can't be read is reported, and what is below it left out.
    """
    segments: list[Segment] = []
    pages: set[str] = set()

    def walk(parts: Parts) -> None:
        for part in parts:
            if isinstance(part, Segment):
                if part.first_offset >= manifest.begin_offset:
                    segments.append(part)
                continue
            pages.add(part.key)
            try:
                walk(decode_page(objects.get(part.key), part))
            except ObjectMissing:
                if part.end_offset > manifest.begin_offset:  # one of dropped segments alone may be gone
                    notes.error("page.missing", part.key)
            except Damaged as exc:
                notes.error("page.damaged", part.key, found=exc)

    walk(manifest.pages)
    walk(manifest.open_page)
    return segments, pages


def check_segments(
    objects: Objects,
    notes: Notes,
    segments: Iterable[Segment],
    progress: Callable[[int], None],
    is_named: Callable[[Segment], bool],
) -> None:
    """Adds a finding to `notes` for each segment or key page that is missing, is not the published object, or does not
    decode to what its descriptor says.

    Args:
        is_named: returns whether the newest generation names a segment; the object of one that was merged meanwhile may
            be gone.
    """
    for done, segment in enumerate(segments):
        progress(done)
        if _check_segment(objects, notes, segment, is_named):
            _check_key_page(objects, notes, segment, is_named)


def is_named_now(objects: Objects, manifest: Manifest, segment: Segment) -> bool:
    """Returns whether the generation that is newest now still names a segment of `manifest`."""
    store = ManifestStore(objects)
    newest = store.newest(manifest.log_id, None, 0)  # this walk may have begun a day ago
    assert newest is not None, "one is known"
    return any(one.key == segment.key for one in islice(store.segments_from(newest, segment.first_offset), 1))


def _check_segment(objects: Objects, notes: Notes, segment: Segment, is_named: Callable[[Segment], bool]) -> bool:
    """Checks the object of one segment, and adds findings to `notes`. Returns False only if it is gone because the segment
    was merged meanwhile.
    """
    try:
        data = objects.get(segment.key)
    except ObjectMissing:
        if is_named(segment):
            notes.error("segment.missing", segment.key)
            return True
        return False
    _check_data(notes, segment, data)
    return True


def _check_data(notes: Notes, segment: Segment, data: bytes) -> None:
    if len(data) != segment.size:
        notes.error("segment.damaged", segment.key, expected=f"{segment.size} bytes", found=f"{len(data)} bytes")
        return
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 != segment.sha256:
        notes.error("segment.damaged", segment.key, expected=f"sha256 {segment.sha256}", found=f"sha256 {sha256}")
        return
    held = MemoryObjects()
    held.put(segment.key, data)
    try:
        records = reader.read_data(held, segment, segment.first_offset, segment.count, segment.payload_bytes + 1)
    except (Damaged, ValueError) as exc:
        notes.error("segment.damaged", segment.key, found=exc)
        return
    published, found = (segment.count, segment.payload_bytes), (len(records), sum(map(len, records)))
    if found != published:
        notes.error("segment.damaged", segment.key, expected=f"records, bytes {published}", found=str(found))
    notes.counts["segments"] += 1
    notes.counts["records"] += len(records)
    notes.counts["bytes"] += len(data)


def _check_key_page(objects: Objects, notes: Notes, segment: Segment, is_named: Callable[[Segment], bool]) -> None:
    key = keys.segment_keys(segment.key)
    try:
        page = keypage.decode(objects.get(key), sha256=segment.keys_sha256, count=segment.count, source=key)
    except ObjectMissing:
        if is_named(segment):
            notes.error("keypage.missing", key)
        return
    except Damaged as exc:
        notes.error("keypage.damaged", key, found=exc)
        return
    meta_bytes = sum(segment.meta.payload) if segment.meta is not None else 0
    published = (segment.min_time_ms, segment.max_time_ms, segment.payload_bytes, meta_bytes)
    found = (page.times[0].time_ms, page.times[-1].time_ms, sum(page.sizes), sum(page.meta_sizes))
    if found != published:
        notes.error("keypage.damaged", key, expected=f"times, bytes {published}", found=str(found))


def check_definitions(objects: Objects, notes: Notes, named: Iterable[DefinitionRef]) -> None:
    """Adds a finding to `notes` for each definition that the log names and that is missing or damaged."""
    for ref in sorted(named, key=lambda one: one.number):
        key = keys.definition(notes.log_id, ref.number, ref.nonce)
        try:
            document = packed.decode(objects.get(key), Document, key)
        except ObjectMissing:
            notes.error("definition.missing", key)
            continue
        except Damaged as exc:
            notes.error("definition.damaged", key, found=exc)
            continue
        expected = (ref.schema_version, ref.label)
        found = (document.registry.current_version, document.own.get("kind"))
        if found != expected:
            notes.error("definition.damaged", key, expected=f"version, label {expected}", found=str(found))


def earlier_definitions(log_id: str, standing: Iterable[str], named: Iterable[DefinitionRef]) -> set[str]:
    """Returns the keys of existing definitions up to the newest that is named; they are kept as long as the log."""
    newest = max((ref.number for ref in named), default=0)
    prefix = keys.definitions(log_id)
    numbers = {key: key.removeprefix(prefix).partition("-")[0] for key in standing if key.startswith(prefix)}
    return {key for key, number in numbers.items() if number.isdigit() and int(number) <= newest}


def named_objects(manifest: Manifest | None, segments: Iterable[Segment], pages: set[str]) -> set[str]:
    """Returns every key of a segment, key page or manifest page that the published part names. The objects of replaced
    segments may be gone.
    """
    named = {segment.key for segment in segments}
    named |= {one.key for one in manifest.replaced} if manifest is not None else set()
    named |= {keys.segment_keys(key) for key in named}
    return named | pages


def dropped_objects(manifest: Manifest | None, standing: Iterable[str]) -> set[str]:
    """Returns the existing keys of dropped segments and their key pages, which are removed later."""
    if manifest is None or not isinstance(manifest.begin, Begin):
        return set()
    prefix, end = keys.segments(manifest.log_id), manifest.begin.sealed
    return {key for key in standing if key.startswith(prefix) and keys.sealed_number(key) < end}


def check_own_objects(
    objects: Objects, notes: Notes, standing: Iterable[str], newest: LogState, states: Iterable[LogState]
) -> set[str]:
    """Adds a finding to `notes` for each object of the surface's own that the newest state names and that is missing.

    Args:
        standing: the existing keys of the log.
        states: those of entries and of the published part.

    Returns:
        The keys that a state names, and existing ones up to the numbers of those: the sealer sweeps these.
    """
    own = newest.named_objects(notes.log_id)
    wanted = list(own)
    for key in wanted:
        try:
            data = objects.get(key)
            if key in own and newest.extension is not None:
                wanted += newest.extension.named_pages(key, data)
        except ObjectMissing:
            notes.error("object.missing", key)
        except Damaged as exc:
            notes.error("object.damaged", key, found=exc)
    named = {key for state in states for key in state.named_objects(notes.log_id)}
    for prefix, number in map(keys.numbered, own):
        named |= {key for key in standing if key.startswith(prefix) and keys.numbered(key)[1] <= number}
    return named


def coming_objects(standing: Iterable[str], now_ms: int) -> set[str]:
    """Returns the existing keys of merged segments and of index runs that were planned so recently that a job at work may
    still make them, and the sealer or the indexer still publish them.

    Args:
        now_ms: the server's clock.
    """

    def may_come(key: str) -> bool:
        match key.split("/")[2:]:
            case ["segments", *_]:
                return (keys.planned_ms(key) or 0) > now_ms - merging.PUBLISH_MS
            case ["index", "runs", run_id, *_]:
                return (keys.made_ms(run_id) or 0) > now_ms - PUBLISH_MS
        return False

    return {key for key in standing if may_come(key)}


def check_indexes(objects: Objects, notes: Notes, standing: Iterable[str], now_ms: int) -> set[str]:
    """Checks that every generation that must exist does exist and decodes, and that the runs named by the newest one are
    intact; adds what is wrong to `notes`.

    Args:
        standing: the existing keys of the log.
        now_ms: the server's clock. A generation may be gone if a newer one was created long enough before.

    Returns:
        The keys that are named, including those of retired runs.
    """
    log_id = notes.log_id
    keys_of_index = {key for key in standing if key.startswith(keys.index(log_id))}
    numbers = {number for key in keys_of_index if (number := keys.index_generation(key)) is not None}
    store = IndexManifestStore(objects)
    newest: IndexManifest | None = None
    named = set()
    missing: list[int] = []
    for number in range(1, max(numbers, default=0) + 1):
        key = keys.index_manifest(log_id, number)
        named.add(key)
        newest = None
        try:
            newest = store.load(log_id, number)
        except Damaged as exc:
            notes.error("index.damaged", key, found=exc)
            continue
        if newest is None:
            missing.append(number)
        elif newest.created_ms <= now_ms - KEPT_MS:
            missing = [one for one in missing if one == 1]  # they were replaced by then
    for number in missing:
        notes.error("index.missing", keys.index_manifest(log_id, number))
    if newest is None:
        # Without a manifest, every object of the index may be in use.
        return named if not numbers else named | keys_of_index
    for run in newest.runs:
        named |= _check_run(objects, notes, run)
    retired = tuple(keys.run(log_id, one.run.id) for one in newest.retired)
    return named | {key for key in keys_of_index if key.startswith(retired)}


def _check_run(objects: Objects, notes: Notes, run: Run) -> set[str]:
    named = {run.descriptor}
    data = _checked(objects, notes, run.descriptor, run.size, run.sha256)
    if data is None:
        return named
    try:
        descriptor = descriptors.decode(data, run.descriptor)
    except Damaged as exc:
        notes.error("index.damaged", run.descriptor, found=exc)
        return named
    for parts in descriptor.parts.values():
        for part in parts:
            named.add(part.key)
            _checked(objects, notes, part.key, part.size, part.sha256)
    return named


def _checked(objects: Objects, notes: Notes, key: str, size: int, sha256: str) -> bytes | None:
    """Returns an object if it has this size and hash; otherwise reports a finding and returns None."""
    try:
        data = objects.get(key)
    except ObjectMissing:
        notes.error("index.missing", key)
        return None
    if len(data) != size:
        notes.error("index.damaged", key, expected=f"{size} bytes", found=f"{len(data)} bytes")
        return None
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        notes.error("index.damaged", key, expected=f"sha256 {sha256}", found=f"sha256 {found}")
        return None
    return data
