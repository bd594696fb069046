"""Laws of the scheduled verbs: what is due ends, what was missed is found, what is named stays."""

from __future__ import annotations

import dataclasses
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from functions import worker
from functions.queue import Message
from functions.sealer import seal as sealing
from functions.sealer import trim as trimming
from functions.sealer.audit import SWEEP_S, audit, sweep
from functions.sealer.context import assemble
from functions.sealer.seal import Sealed, seal
from functions.sealer.trim import sweep_orphans, trim
from functions.worker import Audited
from headrace.definition import Definition
from headrace.errors import Damaged, StoreThrottled
from headrace.manifest.store import NewestLook
from headrace.objects import keys
from headrace.recovery.verify import verify
from headrace.streams import profiles
from headrace.streams.values import STREAMS
from headrace.tables.catalog import BUCKETS, PutRow, Row
from tests.support.builders import config, first_entry
from tests.support.faults import Faulty, LaggingIndex
from tests.unit.indexer.world import each_call
from tests.unit.sealer.world import SETTINGS, World, dispatcher

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


def test_one_sweep_ends_all_that_is_due_and_no_message_asks_for_another() -> None:
    """A full page sent a message to go on, each minute another one, and each repeat of one, too: chains of sweeps."""
    world = World()
    names = [f"n{number}" for number in range(250)]
    for name in names:
        world.create(name, ttl_ms=TTL_MS)
    world.wait(TTL_MS / 1000)
    healthy = world.parts.expire_if_due

    def expire(row: Row) -> int | None:
        if row.name == "n0":
            raise RuntimeError("poisoned")
        return healthy(row)

    swept = sweep(dataclasses.replace(world.parts, expire_if_due=expire))
    assert (swept.ended, len(swept.failed)) == (249, 1)
    assert [row.name for row in world.stores.catalog.living(STREAMS, limit=9)] == ["n0"]
    assert world.queue.waiting == []


def test_a_sweep_ends_in_time_and_the_next_goes_on() -> None:
    world = World()
    for number in range(10):
        world.create(f"n{number}", ttl_ms=TTL_MS)
    world.wait(TTL_MS / 1000)
    slow = world.watched(lambda name, after: world.wait(SWEEP_S / 4) if name == "mark_ended" and after else None)
    assert [sweep(slow).ended for _ in range(4)] == [4, 4, 2, 0]


def test_an_audit_finds_what_was_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "AUDIT_ROWS", 1)
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
    missed, sent = world.audit(audit, world.parts)
    found = {(one.verb, one.log_id) for one in sent if one.verb != "orphans"}
    assert found >= {("seal", unsealed), ("trim", untrimmed), ("purge", ended)}
    assert ("seal", untrimmed) not in found
    assert sum(missed) == len(found)


def test_an_audit_goes_on_past_a_log_that_can_not_be_read() -> None:
    world = World()
    wal = Faulty(world.wal)
    parts = assemble(dataclasses.replace(world.stores, wal=wal), world.queue)
    logs = {world.create("a"), world.create("b")}
    for name in "ab":
        world.fill(name, 1)
    world.wait(2 * SETTINGS.seal_age_ms / 1000)
    wal.fail("read", Damaged)
    dispatch, told = dispatcher(parts)
    dispatch.run(Message("audit"))
    waiting = world.queue.receive(2**60)
    assert dispatch.run_each(waiting) == []
    (unsealed,) = (one.log_id for one in world.queue.receive(2**60) if one.verb == "seal")
    assert unsealed in logs
    assert told.counts["VerbFailures"] == told.counts["PoisonedLogs"] == told.counts["WorkMissed"] == 1


@pytest.mark.parametrize("has_ended", [False, True])
def test_an_audit_reports_a_log_without_entries_if_it_has_its_name_still(has_ended: bool) -> None:
    world = World()
    lost = world.create("a")
    world.create("b")
    parts = assemble(dataclasses.replace(world.stores, catalog=LaggingIndex(world.stores.catalog)), world.queue)
    if has_ended:
        world.logs.delete("a")
    world.wal.remove(lost, [entry.slot for entry in world.entries(lost)])
    dispatch, told = dispatcher(parts)
    dispatch.run(Message("audit"))
    assert dispatch.run_each(world.queue.receive(2**60)) == []
    reported = {"VerbFailures": 1, "PoisonedLogs": 1}
    assert {name: count for name, count in told.counts.items() if name in reported} == ({} if has_ended else reported)


def test_a_million_names_are_audited_in_minutes() -> None:
    """Counted at 10,000 names at rest, and extrapolated: a call of a worker's client takes 1.6 ms of CPU (decision 86), and
    the sealer of `prod` handles 20 messages at a time (`sealer_queue_concurrency`), more than there are parts.
    """
    world = World()
    wal, catalog, watermarks = Faulty(world.wal), Faulty(world.stores.catalog), Faulty(world.stores.watermarks)
    parts = assemble(dataclasses.replace(world.stores, wal=wal, catalog=catalog, watermarks=watermarks), world.queue)
    names = 10_000
    for number in range(names):
        log_id = f"{number:08x}{number:024x}"
        it = config(f"n{number:05d}")
        world.wal.commit(first_entry(log_id, config=it), [PutRow(Row(log_id, it), None)])
        world.stores.watermarks.publish(log_id, 1, 1, 0, 0)
    world.wait(3 * DAY_S)
    runs: Counter[str] = Counter()

    def counted(context: Any, message: Message) -> Audited[int]:
        runs[message.part] += 1
        return audit(context, message)

    missed, sent = world.audit(counted, parts)
    assert (sum(missed), {one.verb for one in sent}) == (0, {"orphans"})
    assert names / 8 < len(sent) < names / 6, "each idle log once a week"
    calls = wal.calls + catalog.calls + watermarks.calls
    assert calls == {"read": names, "get": names, "part": runs.total() - 1}
    assert set(runs) == {"", *BUCKETS} and max(runs.values()) <= names / 16 / worker.AUDIT_ROWS + 2
    minutes = 1_000_000 / names * calls.total() / len(BUCKETS) * 1.6 / 60_000
    assert minutes < 5


def test_an_idle_log_is_swept_once_a_week() -> None:
    world = World()
    log_id = world.create("a")
    world.fill("a", 1)
    world.seal(log_id)

    def is_swept() -> bool:
        return Message("orphans", log_id) in world.audit(audit, world.parts)[1]

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
    named = {key for key in world.keys(log_id) if "orphan" not in key and keys.generation(key) is None}
    assert sweep_orphans(world.parts, log_id) == 2  # payloads wait for two sweeps that are a day apart
    assert sweep_orphans(world.parts, log_id) == 0
    world.wait(DAY_S)
    assert sweep_orphans(world.parts, log_id) == 0
    world.wait(DAY_S)
    assert sweep_orphans(world.parts, log_id) == 1
    left = set(world.keys(log_id))
    assert {racing, pending} <= left and len(named - left) == 3
    assert world.published(log_id) == written
    world.fill("a", 1)
    world.seal(log_id)
    assert sweep_orphans(world.parts, log_id) == 1
    assert racing not in world.keys(log_id)


def test_a_sweep_of_orphans_does_not_read_a_busy_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.wal.memory._PAGE_BYTES", 1000)
    world = World()
    log_id = world.create("a")
    reads: Counter[str] = Counter()
    parts = world.watched(lambda name, after: reads.update([name]))
    for day in range(4):
        world.objects.put(keys.payload(log_id, day * 2 * 10**11, f"orphan-{day}"), b"")
        world.fill("a", 200, records=1, size=400)
        world.seal(log_id)
        trim(world.parts, log_id)
        reads.clear()
        assert sweep_orphans(parts, log_id) == (1 if day >= 2 else 0)
        assert reads["read"] <= 4, "of 60 pages"
        world.wait(DAY_S)
    assert [key[-1] for key in world.keys(log_id, "wal/") if "orphan" in key] == ["2", "3"]


def test_a_sweep_of_many_payloads_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimming, "_PAYLOADS", 4)
    world = World()
    log_id = world.create("a")
    world.fill("a", 3)
    for number in range(10):
        world.objects.put(keys.payload(log_id, number, "orphan"), b"")
    removed = []
    for day in range(6):
        world.wait(0 if 3 <= day < 5 else DAY_S)
        removed.append(sweep_orphans(world.parts, log_id))
    assert removed == [0, 0, 4, 4, 2, 0]
    assert world.keys(log_id, "wal/") == []


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
    _, wanted = world.audit(audit, world.parts)
    after = world.stores.catalog.get(STREAMS, "a")
    assert after == replace(before, label="state-protocol")
    assert Message("purge", source) in wanted and Message("purge", log_id) not in wanted


def test_generations_go_a_day_after_a_newer_one_that_the_watermark_names() -> None:
    world = World(replace(SETTINGS, seal_records=3))
    log_id = world.create("a")
    written = world.fill("a", 4)
    world.seal(log_id)
    world.wait(DAY_S / 2)
    written += world.fill("a", 2)
    world.seal(log_id)
    everything = list(world.stores.manifests().standing(log_id))
    assert len(everything) == 6
    sweep_orphans(world.parts, log_id)
    assert world.stores.manifests().standing(log_id) == everything
    world.wait(DAY_S / 2)
    sweep_orphans(world.parts, log_id)
    assert world.stores.manifests().standing(log_id) == [1, 4, 5, 6], "the fourth was replaced half a day ago"
    world.wait(DAY_S)
    sweep_orphans(world.parts, log_id)
    assert world.stores.manifests().standing(log_id) == [1, 6]
    assert world.published(log_id) == written
    assert not verify(world.stores, log_id).findings
    written += world.fill("a", 1)
    world.seal(log_id)
    assert world.published(log_id) == written


def test_a_sealer_whose_host_sleeps_for_days_publishes_no_generation_again_wherever_it_fell_asleep() -> None:
    """The number that it was about to take was taken, replaced and swept meanwhile, and so free again."""

    def run(at: int) -> bool:
        world = World(replace(SETTINGS, seal_records=3))
        log_id = world.create("a")
        written = world.fill("a", 1)
        world.seal(log_id)
        written += world.fill("a", 2)
        others: list[int] = []
        calls = 0

        def sleep(name: str, after: bool) -> None:
            nonlocal calls
            calls += not after
            if calls != at or after:
                return
            for _ in range(2):
                world.seal(log_id)
                written.extend(world.fill("a", 1))
                world.wait(2 * DAY_S)
            world.seal(log_id)
            trim(world.parts, log_id)
            sweep_orphans(world.parts, log_id)
            others.extend(world.stores.manifests().standing(log_id))
            if name == "create":
                raise StoreThrottled("signed days ago: AWS refuses it")

        published: Sealed | None = None
        with suppress(StoreThrottled):
            published = seal(world.watched(sleep), log_id, force=True)
        if others:
            assert others[1] > 3, "the next number is free"
            assert world.stores.manifests().standing(log_id) == others
        outcomes[published is not None] += 1
        world.seal(log_id)
        assert world.published(log_id) == written
        assert [one for one in verify(world.stores, log_id).findings if one.severity == "error"] == []
        return calls >= at

    outcomes: Counter[bool] = Counter()
    assert each_call(run) > 15
    assert outcomes[False] > 5 and outcomes[True] > 5


def test_a_sealer_that_slept_for_a_day_goes_on_behind_the_generations_that_went() -> None:
    world = World(replace(SETTINGS, seal_records=3))
    log_id = world.create("a")
    written = world.fill("a", 1)
    world.seal(log_id)
    old = world.manifest(log_id)
    for _ in range(3):
        written += world.fill("a", 1)
        world.seal(log_id)
    world.wait(2 * DAY_S)
    assert trim(world.parts, log_id).items
    sweep_orphans(world.parts, log_id)
    assert world.stores.manifests().standing(log_id) == [1, 4]
    written += world.fill("a", 1)
    newest = world.wal.newest(log_id)
    assert newest is not None and old is not None
    other = sealing._Run(world.parts, newest, True, NewestLook.begin(world.clock))._next(old)
    assert other.generation == 4
    world.seal(log_id)
    assert world.published(log_id) == written
