"""Jobs that move to a dead-letter topic or wait for it: what readers learn of them, and what tries in vain cost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.queues import dead_letter
from headrace.queues.values import SettleRequest
from headrace.topics.errors import TopicNotFound
from headrace.topics.values import DiffRequest, Gap, TopicConfig
from tests.support.clocks import ManualClock
from tests.unit.queues.world import Process, World, seqs

CONFIG: dict[str, Any] = {"max_deliveries": 1, "dead_letter": "dead", "lease_ms": 1_000}


def expire_one() -> tuple[Process, Process]:
    """Returns a process that has passed over a dead job because its TTL was over, and another one whose clock is late."""
    world = World()
    process, late = world.process(ManualClock()), world.process(ManualClock())
    process.create(jobs=1, ttl_ms=60_000, **CONFIG)
    process.claim()
    process.clock.advance(61)
    assert (process.claim().jobs, process.counts()) == ([], (0, 0, 0, 0))
    return process, late


def test_a_reader_with_a_late_clock_learns_of_dead_jobs_that_have_expired() -> None:
    process, late = expire_one()
    assert process.leases()[0].lapsed == 1
    page = late.queues.diff("q", DiffRequest(0))
    assert (page.gap, page.records) == (Gap(1, 1, "ttl", 1), [])


def test_a_longer_ttl_does_not_hide_that_dead_jobs_have_expired() -> None:
    process, _ = expire_one()
    process.queues.put("q", TopicConfig(type="queue", ttl_ms=10**9, **CONFIG))
    page = process.queues.diff("q", DiffRequest(0))
    assert (page.gap, page.records) == (Gap(1, 1, "ttl", 1), [])


def test_jobs_without_room_hold_up_no_smaller_one_however_many_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter, "MOST", 2)
    process = World().process()
    process.create(**CONFIG)
    process.queues.put("dead", TopicConfig(cap_bytes=1_000, discard="reject"))
    process.produce(*[b'"%s"' % (b"x" * 2_000)] * 4, b"1", b'"%s"' % (b"y" * 2_000))
    process.claim(max=6)
    dead = []
    for _ in range(5):
        process.clock.advance(5)
        dead.append(process.claim().dead)
    assert dead == [0, 0, 1, 0, 0], "the fifth try begins at the first job again"
    process.queues.put("dead", TopicConfig())
    for _ in range(3):
        process.clock.advance(5)
        process.claim()
    assert process.counts() == (0, 0, 6, 0)


def test_claims_do_not_read_jobs_again_that_the_dead_letter_topic_does_not_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, clock = World(), ManualClock()
    process, cold = world.process(clock), world.process(clock)
    process.create(**CONFIG)
    process.queues.put("dead", TopicConfig(cap_records=1, discard="reject"))
    process.produce(b"1", name="dead")
    for _ in range(10):
        process.produce(*[b'"%s"' % (b"x" * 100_000)] * 10)
    assert len(process.claim(max=100, max_bytes=10**9).jobs) == 100
    clock.advance(2)
    reads = cold.queues._context.reads
    page, read = reads.page, 0

    def counted(*asked: Any) -> Any:
        nonlocal read
        records = page(*asked)
        read += sum(len(record.data) for record in records)
        return records

    monkeypatch.setattr(reads, "page", counted)
    cold.claim()
    first = read
    assert 0 < first < 5 * 2**20
    for _ in range(3):
        cold.claim()
    assert read == first, "not before the pause is over"
    clock.advance(5)
    cold.claim()
    assert first < read < 10 * 2**20


@pytest.mark.parametrize("most", [256, 1])
def test_a_job_beyond_the_limit_of_all_bytes_holds_up_no_smaller_one(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter, "MOST", most)
    process = World(max_total_bytes=150_000).process()
    process.create(**CONFIG)
    process.produce(b'"%s"' % (b"x" * 100_000), b'"small"')
    process.claim(max=2)
    moved = 0
    for _ in range(3):
        process.clock.advance(5)
        moved += process.claim().dead
    assert moved == 1
    assert [record.data for record in process.queues.diff("dead", DiffRequest(0)).records] == [b'"small"']


def test_after_a_burial_that_failed_claims_pause_too(monkeypatch: pytest.MonkeyPatch) -> None:
    world, clock = World(max_total_bytes=3_050_000), ManualClock()
    process, cold = world.process(clock), world.process(clock)
    process.create(**CONFIG)
    process.produce(*[b'"%s"' % (b"x" * 100_000)] * 30)
    assert len(process.claim(max=100, max_bytes=10**9).jobs) == 30
    clock.advance(2)
    tries = []
    monkeypatch.setattr(cold.queues, "control", lambda *asked: tries.append(asked) or process.queues.control(*asked))
    for _ in range(3):
        assert cold.claim().dead == 0
    assert len(tries) == 2, "of all, and of the smallest"
    clock.advance(5)
    assert cold.claim().dead == 0 and len(tries) == 4


def use_up(process: Process, deliveries: int, name: str = "q") -> None:
    for _ in range(deliveries):
        claimed = process.claim("a", 10, name)
        process.queues.nack(name, SettleRequest("a", tuple(seqs(claimed))))


def test_a_job_that_was_delivered_too_often_moves() -> None:
    process = World().process()
    process.create(max_deliveries=2, dead_letter="dead")
    process.produce(b'{"a": 1}', key="t", meta=b'{"k": 1.50}')
    use_up(process, 2)
    process.produce(b"2")
    claimed = process.claim("a", 1)
    assert seqs(claimed) == [2], "the claim goes on to the next job"
    assert (claimed.dead, claimed.ready) == (1, 0)
    assert process.counts() == (0, 1, 1, 1)
    (record,) = process.queues.diff("dead", DiffRequest(0)).records
    assert (record.key, record.data) == ("t", b'{"a": 1}')
    assert record.meta is not None and b'"k":1.50' in record.meta
    meta = msgspec.json.decode(record.meta)
    stamps = {"$dead_letter_from": "q", "$dead_letter_deliveries": "2", "$dead_letter_src_seq": "1"}
    assert meta == {"k": 1.5, **stamps}
    assert [one.offset for one in process.queues.diff("q", DiffRequest(0)).records] == [1]


def test_a_job_is_dead_once_whoever_looks() -> None:
    world, clock = World(), ManualClock()
    one, two = world.process(clock), world.process(clock)
    one.create(jobs=3, max_deliveries=1, dead_letter="dead")
    use_up(one, 1)
    two.claim("b", 1)
    one.claim("a", 1)
    two.claim("b", 1)
    assert len(one.queues.diff("dead", DiffRequest(0)).records) == 3
    assert two.counts() == (0, 0, 3, 0)


def test_dead_jobs_move_in_parts_that_fit_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    process = World().process()
    process.create(jobs=5, max_deliveries=1, dead_letter="dead")  # of 7 bytes each
    use_up(process, 1)
    monkeypatch.setattr(dead_letter, "MOST_BYTES", 14)
    assert [process.claim("a", 1).dead for _ in range(4)] == [2, 2, 1, 0]


def test_a_full_dead_letter_topic_loses_nothing() -> None:
    process = World().process()
    process.create(jobs=3, max_deliveries=1, dead_letter="dead")
    process.queues.put("dead", TopicConfig(cap_records=1, discard="reject"))
    use_up(process, 1)
    assert process.claim("a", 3).dead == 1, "as many as fit, one by one"
    assert process.claim("a", 3).dead == 0
    assert process.counts() == (2, 0, 1, 2)
    process.queues.put("dead", TopicConfig())
    process.clock.advance(5)
    assert process.claim("a", 3).dead == 2
    assert process.counts() == (0, 0, 3, 0)


def test_a_job_that_the_dead_letter_topic_has_no_room_for_holds_up_no_smaller_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dead_letter, "MOST_BYTES", 4_000)
    process = World().process()
    process.create(max_deliveries=1, dead_letter="dead")
    process.queues.put("dead", TopicConfig(cap_bytes=1_000, discard="reject"))
    process.produce(*[b'"%s"' % (b"x" * 2_000)] * 3, b'"small"', b'"%s"' % (b"y" * 500))
    use_up(process, 1)
    dead = []
    for _ in range(5):
        dead.append(process.claim("a", 5).dead)
        process.clock.advance(5)
    assert dead == [0, 0, 1, 1, 0], "a try looks at 4,000 bytes, and the next one goes on from there"
    letters = process.queues.diff("dead", DiffRequest(0)).records
    assert [len(record.data) for record in letters] == [7, 502]
    assert process.counts() == (3, 0, 2, 3)


def test_a_queue_that_creates_nothing_keeps_its_dead_jobs() -> None:
    process = World().process()
    process.create(jobs=1, max_deliveries=1, dead_letter="dead", auto_create=False)
    use_up(process, 1)
    claimed = process.claim("a", 3)
    assert (claimed.jobs, claimed.dead, claimed.ready) == ([], 0, 0)
    with pytest.raises(TopicNotFound):
        process.queues.view("dead")


def test_a_lost_answer_of_a_burial_moves_each_job_once() -> None:
    for after in (False, True):
        process = World().process()
        process.create(jobs=2, max_deliveries=1, dead_letter="dead")
        process.queues.put("dead", TopicConfig())
        use_up(process, 1)
        process.wal.fail("commit", after=after)
        assert process.claim("a", 1).dead == 2
        assert len(process.queues.diff("dead", DiffRequest(0)).records) == 2


def test_expired_jobs_do_not_keep_later_ones_from_the_dead_letter_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter, "MOST", 2)
    process = World().process()
    process.queues.put("dead", TopicConfig())
    process.create(jobs=2, ttl_ms=60_000, lease_ms=1_000, max_deliveries=1, dead_letter="dead")
    process.clock.advance(50)
    process.produce(b'"late"')
    process.claim(max=3)
    process.clock.advance(20)
    claimed = process.claim()
    assert (claimed.dead, claimed.jobs, claimed.ready) == (1, [], 0)
    assert [record.data for record in process.queues.diff("dead", DiffRequest(0)).records] == [b'"late"']
    reads = process.wal.calls["commit"]
    assert process.claim().dead == 0
    assert process.wal.calls["commit"] == reads, "nothing waits for the dead-letter topic any more"


def test_expired_jobs_that_wait_for_the_dead_letter_topic_are_gone() -> None:
    process = World().process()
    process.create(jobs=2, ttl_ms=60_000, lease_ms=1_000, max_deliveries=1, dead_letter="dead")
    process.claim(max=2)
    process.clock.advance(70)
    assert process.claim().dead == 0
    looks = process.wal.calls["newest"]
    process.claim()
    assert process.wal.calls["newest"] - looks <= 2, "no claim tries to move them again"
