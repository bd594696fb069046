"""Laws of sealing: what is published is what was acknowledged, in whole entries, once each, in order."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from functions.sealer.seal import MAX_ROUNDS, Sealed, SourceUnsealed, seal
from headrace.errors import Damaged
from headrace.objects import keys
from headrace.streams.values import AppendRequest
from headrace.tables.watermarks import Watermark
from tests.unit.sealer.world import SETTINGS, World, noise


def test_what_is_published_is_what_was_written() -> None:
    world = World()
    log_id = world.create("a")
    written = world.fill("a", 20)
    sealed = world.seal(log_id)
    assert world.published(log_id) == written
    assert (sealed.records, sealed.payload_bytes) == (60, sum(map(len, written)))
    assert sealed.segments == sealed.generations > 1


def test_a_segment_keeps_to_the_limits_and_entries_stay_whole() -> None:
    world = World()
    log_id = world.create("a")
    world.fill("a", 30)
    world.append("a", *[b"x"] * 25)  # more than one segment should hold, in one entry
    world.append("a", b"y" * 20_000)
    world.seal(log_id)
    manifest = world.manifest(log_id)
    assert manifest is not None
    ends = {entry.next_offset for entry in world.entries(log_id)}
    segments = manifest.open_page
    assert {segment.end_offset for segment in segments} <= ends
    assert [s.count for s in segments if s.count > 10] == [25]
    assert [s.payload_bytes for s in segments if s.payload_bytes > 10_000] == [20_000]
    assert min(s.count for s in segments[:-2]) >= 9  # and as many as fit


def test_a_segment_spans_pages_of_the_log() -> None:
    world = World(replace(SETTINGS, seal_bytes=10**8, spill_bytes=10**6))
    log_id = world.create("a")
    written = [noise(str(number), 400_000) for number in range(8)]
    for data in written:
        world.append("a", data)
    assert not world.wal.read(log_id).complete
    assert world.seal(log_id).segments == 1
    assert world.published(log_id) == written


def test_manifest_and_watermark_carry_the_state_of_the_last_entry() -> None:
    world = World()
    log_id = world.create("a")
    world.fill("a", 2)
    world.logs.append("a", AppendRequest(close=True))
    world.seal(log_id)
    newest, manifest = world.wal.newest(log_id), world.manifest(log_id)
    assert newest is not None and manifest is not None
    assert manifest.state == newest.state and manifest.state.is_final
    assert (manifest.last_slot, manifest.last_id) == (newest.slot, newest.id)
    watermark = world.stores.watermarks.get(log_id)
    total = newest.state.total_bytes
    assert watermark == Watermark(manifest.generation, manifest.end_slot, manifest.end_offset, total)


def test_control_entries_alone_make_a_generation_without_a_segment() -> None:
    world = World()
    log_id = world.create("a")
    assert world.seal(log_id)[:2] == (1, 0)
    world.fill("a", 1)
    world.seal(log_id)
    world.logs.append("a", AppendRequest(close=True))
    assert world.seal(log_id)[:2] == (1, 0)
    assert len(world.published(log_id)) == 3


def test_the_description_says_what_recovery_needs() -> None:
    world = World()
    log_id = world.create("ä/b c")
    world.seal(log_id)
    said = json.loads(world.objects.get(keys.description(log_id)))
    assert said["config"]["name"] == "ä/b c" and said["log_id"] == log_id


def test_nothing_is_sealed_before_it_is_due() -> None:
    world = World()
    log_id = world.create("a")
    world.fill("a", 3)
    assert seal(world.parts, log_id) == Sealed()
    assert world.keys(log_id, "manifests/") == []


def test_size_seals_full_segments_and_age_seals_everything() -> None:
    world = World()
    log_id = world.create("a")
    written = world.fill("a", 4)
    assert seal(world.parts, log_id).records == 9
    assert seal(world.parts, log_id) == Sealed()
    world.wait(SETTINGS.seal_age_ms / 1000)
    world.fill("a", 1)  # young, but present when the oldest is due
    sealed = seal(world.parts, log_id)
    assert sealed.records == 6 and sealed.unsealed_age_ms >= SETTINGS.seal_age_ms
    assert world.published(log_id)[:12] == written


def test_sealing_twice_changes_nothing() -> None:
    world = World()
    log_id = world.create("a")
    world.fill("a", 8)
    world.seal(log_id)
    before = world.keys(log_id)
    assert world.seal(log_id) == Sealed()
    assert world.keys(log_id) == before


def test_a_long_backlog_is_handed_over() -> None:
    world = World(replace(SETTINGS, seal_records=1))
    log_id = world.create("a")
    written = world.fill("a", MAX_ROUNDS + 5, records=1)
    sealed = world.seal(log_id)
    assert (sealed.generations, sealed.is_done) == (MAX_ROUNDS, False)
    assert world.seal(log_id).is_done
    assert world.published(log_id) == written


def test_a_watermark_behind_its_manifest_is_raised() -> None:
    world = World()
    log_id = world.create("a")
    world.fill("a", 4)
    world.seal(log_id)
    expected = world.stores.watermarks.get(log_id)
    world.wal.watermarks.delete(log_id)
    assert world.seal(log_id).generations == 0
    assert world.stores.watermarks.get(log_id) == expected


def test_a_fork_waits_for_its_source() -> None:
    world = World()
    a = world.create("a")
    inherited = world.fill("a", 5)
    b = world.fork("b", "a")
    world.fill("b", 5)
    c = world.fork("c", "b")
    own = world.fill("c", 2)
    world.fill("a", 1)
    world.seal(c)
    assert world.published(a)[:15] == inherited
    assert len(world.published(b)) == 15
    assert world.published(c) == own
    manifest = world.manifest(c)
    assert manifest is not None and manifest.open_page[0].first_offset == 30


def test_a_fork_is_not_published_while_its_source_fails() -> None:
    world = World(replace(SETTINGS, seal_records=1))
    world.create("a")
    world.fill("a", MAX_ROUNDS + 5, records=1)  # one run can't seal all of it
    b = world.fork("b", "a")
    with pytest.raises(SourceUnsealed):
        world.seal(b)
    assert world.manifest(b) is None
    world.seal(b)
    assert world.manifest(b) is not None


def test_an_ended_log_is_sealed_only_for_its_forks() -> None:
    world = World()
    a = world.create("a")
    world.fill("a", 2)
    world.logs.delete("a")
    assert world.seal(a) == Sealed()
    source = world.create("s")
    inherited = world.fill("s", 2)
    fork = world.fork("f", "s")
    world.logs.delete("s")
    world.seal(fork)
    assert world.published(source) == inherited


def test_a_gap_in_the_log_is_damage_and_publishes_nothing() -> None:
    world = World()
    log_id = world.create("a")
    world.fill("a", 3)
    world.wal.remove(log_id, [world.entries(log_id)[2].slot])
    with pytest.raises(Damaged, match="does not continue"):
        world.seal(log_id)
    assert world.manifest(log_id) is None


def test_a_lost_payload_is_damage_and_publishes_nothing_after_it() -> None:
    world = World()
    log_id = world.create("a")
    written = world.fill("a", 6)
    world.objects.delete(world.keys(log_id, "wal/"))
    with pytest.raises(Damaged, match="payload is gone"):
        world.seal(log_id)
    assert world.published(log_id) == written[:9]


def test_full_pages_leave_the_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.manifest.manifest.PAGE_SEGMENTS", 3)
    world = World(replace(SETTINGS, seal_records=3))
    log_id = world.create("a")
    written = world.fill("a", 11)
    world.seal(log_id)
    manifest = world.manifest(log_id)
    assert manifest is not None and len(manifest.pages) == 3
    assert world.published(log_id) == written
