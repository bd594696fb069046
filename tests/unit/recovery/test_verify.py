"""Laws of verification: what is whole is clean, each damage is found and named, and nothing is raised."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from functions.sealer.purge import purge
from functions.sealer.trim import trim
from headrace.clock import Threads
from headrace.errors import StoreTimeout
from headrace.index import descriptors
from headrace.index.descriptors import Descriptor, Part
from headrace.index.manifest import PUBLISH_MS, IndexManifestStore, empty, with_runs
from headrace.manifest import manifest as manifests
from headrace.manifest import merging
from headrace.manifest.manifest import encode
from headrace.objects import keys
from headrace.objects.memory import MemoryObjects
from headrace.recovery.verify import verify, verify_all
from headrace.tables.watermarks import Watermark
from tests.support.faults import Faulty
from tests.unit.recovery.world import AGE_S, Ruins


def built() -> tuple[Ruins, str]:
    """Returns a log with two generations, three segments and a tail, its oldest entries trimmed."""
    world = Ruins()
    log_id = world.create("a")
    world.fill("a", 4)
    world.seal(log_id)
    world.wait(AGE_S)
    trim(world.parts, log_id)
    world.fill("a", 4)
    world.seal(log_id)
    world.fill("a", 5)
    index_all(world, log_id)
    return world, log_id


def index_all(world: Ruins, log_id: str) -> None:
    """One run over everything published, as a job makes it; a retired one before it."""
    manifest = world.manifest(log_id)
    assert manifest is not None
    store, index = IndexManifestStore(world.objects), empty(log_id)
    for number, end_offset in enumerate((1, manifest.end_offset)):
        key = keys.run_part(log_id, f"r{number}", "lex", 0, "n")
        rows = b"rows of a part"
        part = Part(key, len(rows), hashlib.sha256(rows).hexdigest(), 1, rows[-8:], (b"k",), (0,), ())
        world.objects.put(key, rows)
        descriptor = Descriptor(
            *(1, log_id, f"r{number}", number, "p", 0, end_offset, 0, 0, None, None, 0, ()),
            parts={"lex": (part,)},
            fields={},
            rollups=(),
            created_ms=0,
        )
        data, at = descriptors.encode(descriptor), keys.run_descriptor(log_id, f"r{number}")
        world.objects.put(at, data)
        run = descriptors.describe(descriptor, at, data)
        index = with_runs(index, [run], 0, plan="p")
        assert store.publish(index)
        world.stores.watermarks.publish_index(log_id, index.generation)
    world.objects.delete([keys.run_part(log_id, "r0", "lex", 0, "n"), keys.run_descriptor(log_id, "r0")])


def test_what_is_whole_is_clean_at_every_age() -> None:
    world = Ruins()
    log_id = world.create("a")
    assert not world.verify().findings
    world.fill("a", 4)
    assert not world.verify().findings
    world.seal(log_id)
    assert not world.verify().findings
    world.wait(AGE_S)
    trim(world.parts, log_id)
    assert not world.verify().findings
    fork = world.fork("f", "a")
    world.fill("f", 4)
    world.close("f")
    assert not world.verify().findings
    world.seal(fork)
    assert not world.verify().findings
    world.logs.delete("a")
    assert not world.verify().findings
    world.logs.delete("f")
    world.wait(AGE_S)
    assert purge(world.parts, fork)
    assert purge(world.parts, log_id)
    assert not world.verify().findings


def test_it_counts_what_it_looked_at() -> None:
    world, log_id = built()
    (checked,) = verify(world.stores, log_id).logs
    segments = world.segment_keys(log_id)
    assert (checked.name, checked.segments, checked.records, checked.end_offset) == ("a", len(segments), 24, 39)
    assert checked.bytes == sum(len(world.objects.get(key)) for key in segments)
    assert checked.generations == len(world.keys(log_id, "manifests/"))
    assert checked.entries == len(world.entries(log_id))


def missing_segment(world: Ruins, log_id: str) -> str:
    key = world.segment_keys(log_id)[1]
    world.objects.delete([key])
    return key


def flipped_byte(world: Ruins, log_id: str) -> str:
    key = world.segment_keys(log_id)[0]
    data = bytearray(world.objects.get(key))
    data[len(data) // 2] ^= 1
    world.objects.put(key, bytes(data))
    return key


def shorter_segment(world: Ruins, log_id: str) -> str:
    key = world.segment_keys(log_id)[0]
    world.objects.put(key, world.objects.get(key)[:-1])
    return key


def missing_key_page(world: Ruins, log_id: str) -> str:
    key = keys.segment_keys(world.segment_keys(log_id)[0])
    world.objects.delete([key])
    return key


def flipped_key_page(world: Ruins, log_id: str) -> str:
    key = keys.segment_keys(world.segment_keys(log_id)[0])
    data = bytearray(world.objects.get(key))
    data[-1] ^= 1
    world.objects.put(key, bytes(data))
    return key


def truncated_manifest(world: Ruins, log_id: str) -> str:
    key = world.newest_manifest_key(log_id)
    world.objects.put(key, world.objects.get(key)[:-9])
    return key


def missing_old_generation(world: Ruins, log_id: str) -> str:
    world.objects.delete([keys.manifest(log_id, 1)])
    return keys.manifest(log_id, 1)


def generation_in_the_wrong_place(world: Ruins, log_id: str) -> str:
    world.objects.put(keys.manifest(log_id, 2), world.objects.get(keys.manifest(log_id, 1)))
    return keys.manifest(log_id, 2)


def missing_entry(world: Ruins, log_id: str) -> str:
    slot = world.entries(log_id)[-2].slot
    world.wal.remove(log_id, [slot])
    return f"slot {slot}"


def missing_first_entry_of_the_tail(world: Ruins, log_id: str) -> str:
    manifest = world.manifest(log_id)
    assert manifest is not None
    world.wal.remove(log_id, [manifest.end_slot])
    return f"slot {manifest.end_slot}"


def every_entry_gone(world: Ruins, log_id: str) -> str:
    world.wal.remove(log_id, [entry.slot for entry in world.entries(log_id)])
    return log_id


def flipped_payload(world: Ruins, log_id: str) -> str:
    entry = next(entry for entry in world.entries(log_id)[::-1] if entry.payload is not None)
    assert entry.payload is not None
    changed = entry.payload[:-1] + bytes([entry.payload[-1] ^ 1])
    world.wal._entries[log_id, entry.slot] = replace(entry, payload=changed)
    return f"slot {entry.slot}"


def missing_payload(world: Ruins, log_id: str) -> str:
    entry = next(entry for entry in world.entries(log_id)[::-1] if entry.payload_key is not None)
    assert entry.payload_key is not None
    world.objects.delete([entry.payload_key])
    return entry.payload_key


def wrong_watermark(world: Ruins, log_id: str) -> str:
    mark = world.wal.watermarks.rows[log_id]
    world.wal.watermarks.rows[log_id] = replace(mark, end_offset=mark.end_offset + 1)
    return log_id


def watermark_ahead(world: Ruins, log_id: str) -> str:
    mark = world.wal.watermarks.rows[log_id]
    world.wal.watermarks.rows[log_id] = replace(mark, generation=mark.generation + 1)
    return log_id


def watermark_behind(world: Ruins, log_id: str) -> str:
    world.wal.watermarks.rows[log_id] = Watermark()
    return log_id


def orphan(world: Ruins, log_id: str) -> str:
    key = keys.segment(log_id, 0, "nobody")
    world.objects.put(key, b"lost")
    return key


def run_part(world: Ruins, log_id: str) -> str:
    (key,) = [key for key in world.keys(log_id, "index/runs/") if key.endswith(".parquet")]
    return key


def missing_part(world: Ruins, log_id: str) -> str:
    key = run_part(world, log_id)
    world.objects.delete([key])
    return key


def flipped_part(world: Ruins, log_id: str) -> str:
    key = run_part(world, log_id)
    data = bytearray(world.objects.get(key))
    data[0] ^= 1
    world.objects.put(key, bytes(data))
    return key


def missing_descriptor(world: Ruins, log_id: str) -> str:
    (key,) = [key for key in world.keys(log_id, "index/runs/") if not key.endswith(".parquet")]
    world.objects.delete([key])
    return key


def damaged_index_manifest(world: Ruins, log_id: str) -> str:
    world.objects.put(keys.index_manifest(log_id, 1), b"?")
    return keys.index_manifest(log_id, 1)


def part_of_no_run(world: Ruins, log_id: str) -> str:
    key = keys.run_part(log_id, "nobody", "kw", 0, "n")
    world.objects.put(key, b"lost")
    return key


def missing_row(world: Ruins, log_id: str) -> str:
    world.wal.catalog.rows.clear()
    return "streams/a"


def other_configuration(world: Ruins, log_id: str) -> str:
    (key,) = world.wal.catalog.rows
    row = world.wal.catalog.rows[key]
    world.wal.catalog.rows[key] = replace(row, config=replace(row.config, content_type="text/plain"))
    return "streams/a"


def flipped_description(world: Ruins, log_id: str) -> str:
    world.objects.put(keys.description(log_id), b"{")
    return keys.description(log_id)


def dead_item(world: Ruins, log_id: str) -> str:
    entry = world.entries(log_id)[0]
    assert entry.prev_slot >= 0
    dead = replace(entry, slot=entry.slot - 10**9, request_ids=("late",), prev_slot=0, prev_id="gone")
    dead = replace(dead, state=replace(dead.state, next_offset=dead.next_offset))
    world.wal.commit(dead)
    return f"slot {dead.slot}"


DAMAGES: dict[str, Callable[[Ruins, str], str]] = {
    "segment.missing": missing_segment,
    "segment.damaged": flipped_byte,
    "segment.damaged 2": shorter_segment,
    "keypage.missing": missing_key_page,
    "keypage.damaged": flipped_key_page,
    "manifest.damaged": truncated_manifest,
    "manifest.damaged 2": generation_in_the_wrong_place,
    "manifest.missing": missing_old_generation,
    "wal.missing": missing_entry,
    "wal.missing 2": missing_first_entry_of_the_tail,
    "wal.empty": every_entry_gone,
    "payload.damaged": flipped_payload,
    "payload.missing": missing_payload,
    "watermark.differs": wrong_watermark,
    "watermark.differs 2": watermark_ahead,
    "watermark.behind": watermark_behind,
    "bucket.orphan": orphan,
    "bucket.orphan 2": part_of_no_run,
    "index.missing": missing_part,
    "index.missing 2": missing_descriptor,
    "index.damaged": flipped_part,
    "index.damaged 2": damaged_index_manifest,
    "catalog.missing": missing_row,
    "catalog.differs": other_configuration,
    "description.damaged": flipped_description,
}


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_found_and_named(name: str) -> None:
    world, log_id = built()
    assert not world.verify().findings
    where = DAMAGES[name](world, log_id)
    kind = name.partition(" ")[0]
    found = world.verify().findings
    assert [(one.where, one.log_id) for one in found if one.kind == kind] == [(where, log_id)], found


def test_what_a_job_at_work_has_made_is_no_orphan_until_it_can_not_be_published_any_more() -> None:
    world, log_id = built()
    now_ms = world.clock.now_ms()
    run = keys.run_part(log_id, f"{now_ms:013d}-aa", "kw", 0, "n")
    merged = keys.merged_segment(log_id, world.keys(log_id, "segments/")[0], now_ms, "n")
    for key in (run, merged):
        world.objects.put(key, b"unpublished")
    assert not world.verify().findings
    for key, publish_ms in ((run, PUBLISH_MS), (merged, merging.PUBLISH_MS)):
        world.wait((now_ms + publish_ms - world.clock.now_ms() - 1) / 1000)
        assert key not in {one.where for one in world.verify().findings}
        world.wait(0.001)
        assert key in {one.where for one in world.verify().findings if one.kind == "bucket.orphan"}


def test_a_dead_item_does_not_pass_for_an_entry() -> None:
    world, log_id = built()
    where = dead_item(world, log_id)
    found = world.verify().findings
    assert {one.severity for one in found} == {"warning"}
    assert where in {one.where for one in found} or "wal.missing" in {one.kind for one in found}


def test_a_rule_broken_between_generations_is_found() -> None:
    world, log_id = built()
    manifest = world.manifest(log_id)
    assert manifest is not None
    broken = replace(manifest, state=replace(manifest.state, total_bytes=0))
    world.objects.put(world.newest_manifest_key(log_id), encode(broken))
    assert "manifest.rule" in world.kinds()


def test_a_sealed_page_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "PAGE_SEGMENTS", 2)
    world = Ruins()
    log_id = world.create("a")
    for _ in range(5):
        world.fill("a", 1)
        world.seal(log_id)
    assert not world.verify().findings
    (page, *_) = world.keys(log_id, "manifests/pages/")
    data = world.objects.get(page)
    world.objects.put(page, data[:-3])
    assert "page.damaged" in world.kinds()
    world.objects.delete([page])
    assert "page.missing" in world.kinds()


def test_a_source_that_ends_before_the_fork_point_is_found() -> None:
    world = Ruins()
    source = world.create("s")
    world.fill("s", 4)
    fork = world.fork("f", "s")
    world.seal(fork)
    world.objects.delete(world.keys(source))
    world.wal.remove(source, [entry.slot for entry in world.entries(source)])
    assert "lineage.short" in world.kinds()


def test_a_store_that_does_not_answer_is_a_finding() -> None:
    world, log_id = built()
    objects = Faulty(world.objects)
    objects.fail("get", StoreTimeout, times=10**6)
    report = verify(dataclasses.replace(world.stores, objects=objects), log_id)  # type: ignore[arg-type]
    assert [one.kind for one in report.findings] == ["log.unreadable"]


def test_progress_is_told() -> None:
    world, log_id = built()
    told: list[tuple[str, int, int]] = []
    verify(world.stores, log_id, lambda *said: told.append(said))
    assert ("a", 0, len(world.segment_keys(log_id))) in told


def test_many_logs_are_checked_at_once_with_the_same_report() -> None:
    world, log_id = built()
    logs = [log_id, *(world.create(f"n{number}") for number in range(20))]
    world.objects.delete([world.keys(log_id, "segments/")[0]])
    world.stores.watermarks.publish(logs[7], 3, 5, 5, 5)
    met = threading.Barrier(4, timeout=30)  # no check ends before others have begun

    class Meeting(MemoryObjects):
        def list(self, prefix: str) -> Iterator[str]:
            if prefix in {keys.log_prefix(one) for one in logs[:4]}:
                met.wait()
            return super().list(prefix)

    meeting = Meeting()
    for key in world.objects.list(""):
        meeting.put(key, world.objects.get(key))
    alone = verify_all(world.stores)
    together = verify_all(dataclasses.replace(world.stores, objects=meeting), threads=Threads(4, "verify"))
    assert together == alone
    assert len(alone.logs) == len(logs) and {one.log_id for one in alone.findings} == {log_id, logs[7]}
