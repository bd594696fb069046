"""Laws of the scheduled verbs: what is due ends, what was missed is found, what is named stays."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from functions.queue import Message
from functions.sealer import audit as schedule
from functions.sealer.audit import audit, sweep
from functions.sealer.trim import sweep_orphans
from headrace.definition import Definition
from headrace.objects import keys
from headrace.streams import profiles
from headrace.streams.values import STREAMS
from headrace.tables.catalog import Row
from tests.unit.sealer.world import SETTINGS, World

TTL_MS = 60_000
DAY_S = 24 * 3600


def test_what_is_due_ends_and_what_was_renewed_moves() -> None:
    world = World()
    idle = world.create("idle", ttl_ms=TTL_MS)
    busy = world.create("busy", ttl_ms=TTL_MS)
    world.wait(40)
    world.append("busy", b"x")
    world.wait(40)
    assert sweep(world.parts)[:2] == (1, 1)
    assert world.wal.newest(idle).state.ended == "expired"  # type: ignore[union-attr]
    assert world.wal.newest(busy).state.ended == ""  # type: ignore[union-attr]
    assert sweep(world.parts)[:2] == (0, 0)
    world.wait(30)
    assert sweep(world.parts)[:2] == (1, 0)


def test_a_full_sweep_goes_on_and_a_poisoned_row_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "MAX_ROWS", 3)
    world = World()
    names = [f"n{number}" for number in range(7)]
    for name in names:
        world.create(name, ttl_ms=TTL_MS)
    world.wait(TTL_MS / 1000)
    healthy = world.parts.expire_if_due

    def expire(row: Row) -> int | None:
        if row.name == "n0":
            raise RuntimeError("poisoned")
        return healthy(row)

    parts = dataclasses.replace(world.parts, expire_if_due=expire)
    failed = 0
    for _ in range(5):
        swept = sweep(parts)
        failed += len(swept.failed)
    assert failed == 5
    assert world.queue.receive(world.clock.now_ms())[0] == Message("sweep")
    assert [row.name for row in world.stores.catalog.living(STREAMS, limit=9)] == ["n0"]


def test_an_audit_finds_what_was_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "MAX_ROWS", 2)
    world = World()
    unsealed = world.create("a")
    world.fill("a", 2)
    untrimmed = world.create("b")
    world.fill("b", 9)
    world.seal(untrimmed)
    world.create("c")
    ended = world.create("d")
    world.logs.delete("d")
    config = world.entries(ended)[0].config
    assert config is not None
    world.wal.catalog.rows[STREAMS, "d"] = Row(ended, config)  # a crash before the row said so
    world.queue.receive(2**60)
    world.wait(2 * SETTINGS.trim_age_ms / 1000)
    found = set()
    messages = [Message("audit")]
    while messages:
        for message in messages:
            audit(world.parts, message.surface, message.after)
        received = world.queue.receive(world.clock.now_ms())
        messages = [message for message in received if message.verb == "audit"]
        found |= {(m.verb, m.log_id) for m in received if m.verb not in ("audit", "orphans")}
    assert found >= {("seal", unsealed), ("trim", untrimmed), ("purge", ended)}
    assert ("seal", untrimmed) not in found


def test_an_idle_log_is_swept_once_a_week() -> None:
    world = World()
    log_id = world.create("a")
    world.fill("a", 1)
    world.seal(log_id)

    def is_swept() -> bool:
        audit(world.parts)
        return Message("orphans", log_id) in world.queue.receive(2**60)

    assert is_swept()
    world.wait(1.5 * DAY_S)
    assert is_swept()
    for _ in range(3):
        week = []
        for _ in range(7):
            world.wait(DAY_S)
            week.append(is_swept())
        assert sum(week) in (1, 2)
    assert sum(week) == 1


def test_orphans_go_and_what_is_named_stays() -> None:
    world = World(replace(SETTINGS, seal_records=3))
    log_id = world.create("a")
    world.objects.put(keys.payload(log_id, 5, "early"), b"orphan")
    written = world.fill("a", 9)
    world.objects.put(keys.segment(log_id, 1, "lost"), b"orphan")
    world.objects.put(keys.segment_keys(keys.segment(log_id, 1, "lost")), b"orphan")
    world.seal(log_id)
    racing = keys.segment(log_id, 9, "racing")
    pending = keys.payload(log_id, 10**15, "pending")
    world.objects.put(racing, b"in flight")
    world.objects.put(pending, b"in flight")
    named = {key for key in world.keys(log_id) if "orphan" not in key}
    assert sweep_orphans(world.parts, log_id) == 2  # payloads wait a day
    world.wait(DAY_S)
    assert sweep_orphans(world.parts, log_id) == 1
    left = set(world.keys(log_id))
    assert {racing, pending} <= left and len(named - left) == 3
    assert world.published(log_id) == written
    world.fill("a", 1)
    world.seal(log_id)
    assert sweep_orphans(world.parts, log_id) == 1
    assert racing not in world.keys(log_id)


def test_orphaned_manifest_pages_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.manifest.manifest.PAGE_SEGMENTS", 3)
    world = World(replace(SETTINGS, seal_records=3))
    log_id = world.create("a")
    written = world.fill("a", 9)
    world.objects.put(keys.manifest_page(log_id, 3, "lost"), b"orphan")
    world.seal(log_id)
    assert sweep_orphans(world.parts, log_id) == 1
    assert world.published(log_id) == written


def test_an_audit_puts_rows_right_that_a_late_write_set_back() -> None:
    world = World()
    log_id, source = world.create("a", content_type="application/json"), world.create("s")
    before, living = (world.stores.catalog.get(STREAMS, name) for name in "as")
    assert before is not None and living is not None
    world.logs.define("a", lambda now, *_: Definition(now.registry, profiles.parse({"kind": "state-protocol"})))
    world.fork("f", "s")
    world.logs.delete("s")
    world.wal.catalog.rows |= {(STREAMS, "a"): before, (STREAMS, "s"): living}
    audit(world.parts)
    after = world.stores.catalog.get(STREAMS, "a")
    assert after == replace(before, label="state-protocol")
    wanted = world.queue.receive(world.clock.now_ms())
    assert Message("purge", source) in wanted and Message("purge", log_id) not in wanted
