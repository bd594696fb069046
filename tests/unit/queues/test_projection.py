"""The fold of lease events, against a dict of jobs."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import Damaged
from headrace.queues import events
from headrace.queues.projection import Projection, advance, apply, before, fold
from headrace.topics.runs import Runs
from tests.unit.queues.histories import NODES, History
from tests.unit.queues.model import Model, flat, offsets


def check(projection: Projection, model: Model) -> None:
    """Checks that both say the same about each job, and that the counters are what the jobs say."""
    now = advance(projection, model.now_ms)
    leased = {
        at: (grant.id, grant.node, grant.connection, grant.until_ms, grant.deliveries)
        for grant in now.grants
        for first, end in grant.jobs
        for at in range(first, end)
    }
    assert sum(grant.jobs.count_all for grant in now.grants) == len(leased), "a job has two leases"
    back = {
        at: (one.ready_ms, one.deliveries) for one in now.back for first, end in one.jobs for at in range(first, end)
    }
    for at, job in model.jobs.items():
        if job.state == "done":
            assert now.is_done(at), at
        elif job.state == "leased":
            assert leased[at] == (job.claim, job.node, job.connection, job.until_ms, job.deliveries)
        elif job.state == "back":
            assert back[at] == (job.ready_ms if job.ready_ms > model.now_ms else 0, job.deliveries)
        else:
            assert at >= now.cursor, at
        assert (job.state == "done") == now.is_done(at)
        assert (job.state == "leased") == (at in leased)
        assert (job.state == "back") == (at in back)
    counts = now.counts(model.end)
    assert counts == (model.count("ready"), model.count("leased"), model.count("delayed"))
    assert sum(counts) == now.live(model.end) == model.count("live")
    assert (now.acked, now.dead) == (model.acked, model.dead)
    assert list(now.joins) == model.joins


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_the_fold_says_of_each_job_what_happened_to_it(seed: int, steps: int) -> None:
    history, projection = History(seed), Projection()
    for _ in range(steps):
        event = history.step()
        if event is not None:
            projection = apply(projection, event)
        check(projection, history.model)


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_events_keep_their_meaning_as_records(seed: int) -> None:
    history = History(seed)
    for _ in range(40):
        history.step()
    records = [events.encode(event) for event in history.events]
    read = [events.decode(data, "lease log") for data in records]
    assert read == history.events
    assert fold(Projection(), read) == fold(Projection(), history.events)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(0, 1000))
def test_looking_at_a_projection_later_changes_nothing_that_follows(seed: int, later_ms: int) -> None:
    history, plain, watched = History(seed), Projection(), Projection()
    for _ in range(40):
        event = history.step()
        if event is not None:
            plain, watched = apply(plain, event), apply(advance(watched, event.at), event)
        assert advance(advance(plain, history.model.now_ms), history.model.now_ms + later_ms) == advance(
            plain, history.model.now_ms + later_ms
        )
    assert plain == watched


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_a_done_job_stays_done_and_a_delivery_is_counted_once(seed: int) -> None:
    history, projection = History(seed), Projection()
    done: set[int] = set()
    deliveries: dict[int, int] = {}
    for _ in range(60):
        event = history.step()
        if event is None:
            continue
        if event.lost is not None:
            done = {at for at in done if at < event.lost.end}
            deliveries = {at: count for at, count in deliveries.items() if at < event.lost.end}
        projection = apply(projection, event)
        hands = [event] if isinstance(event, events.Claim) else getattr(event, "hands", ())
        for hand in hands:
            for at in offsets(hand.jobs):
                assert at not in done, "an acked job was delivered again"
                deliveries[at] = deliveries.get(at, 0) + 1
        done |= {at for at in history.model.jobs if projection.is_done(at)}
        assert all(projection.is_done(at) for at in done)
        for grant in projection.grants:
            assert all(deliveries[at] == grant.deliveries for at in offsets(grant.jobs.flat()))


def test_the_digest_names_one_history() -> None:
    records = [b"1", b"2", b"3"]
    whole = events.chain("", records)
    assert events.chain(events.chain("", records[:1]), records[1:]) == whole
    assert len({whole, events.chain("", records[::-1]), events.chain("", [b"12", b"3"]), events.chain("", [])}) == 4


def test_a_record_that_is_no_event_is_damage() -> None:
    for data in (b"", b"{}", b'{"event":"other","at":1}', b'{"event":"ack","at":1}', b"[1]", b'{"event":"\xed"}'):
        with pytest.raises(Damaged, match="lease log of q"):
            events.decode(data, "lease log of q")


@pytest.mark.parametrize("jobs", ["[1]", "[2,1]", "[1,1]", "[1,2,2,3]", "[-1,2]", "[0,9223372036854775808]"])
def test_jobs_that_are_no_ascending_runs_are_damage(jobs: str) -> None:
    hand = f'{{"id":"c","node":"w","until":1,"jobs":{jobs}}}'
    for text in (
        f'{{"event":"remove","at":1,"jobs":{jobs}}}',
        f'{{"event":"claim","at":1,"id":"c","node":"w","until":1,"jobs":[],"gone":{jobs}}}',
        f'{{"event":"deal","at":1,"closes":1,"hands":[{hand}]}}',
    ):
        events.decode(text.replace(jobs, "[0,2,3,4]").encode(), "lease log of q")
        with pytest.raises(Damaged, match="lease log of q"):
            events.decode(text.encode(), "lease log of q")


def test_a_lease_id_is_of_one_claim_and_one_job() -> None:
    ids = {events.lease_id(claim, at) for claim in ("x", "y") for at in range(100)}
    assert len(ids) == 200
    assert all(one.startswith("lease_") and int(one[6:], 16) >= 0 for one in ids)


def test_a_lease_ends_after_its_deadline_and_a_delay_at_its_time() -> None:
    claim = events.Claim(at=100, id="c", node="a", until=200, jobs=(0, 2))
    leased = apply(Projection(), claim)
    assert advance(leased, 200).counts(2) == (0, 2, 0)
    assert advance(leased, 201).counts(2) == (2, 0, 0)
    delayed = apply(leased, events.Nack(at=150, node="a", jobs=(0, 1), ready_at=180))
    assert advance(delayed, 179).counts(2) == (0, 1, 1)
    assert advance(delayed, 180).counts(2) == (1, 1, 0)


def test_leases_that_were_read_after_the_jobs_log_are_seen_as_of_then() -> None:
    leased = apply(Projection(), events.Claim(at=100, id="c", node="a", until=200, jobs=(0, 4)))
    later = apply(leased, events.Remove(at=100, jobs=(1, 2, 5, 6)))
    seen = before(later, 3)
    assert (seen.counts(3), seen.live(3)) == ((0, 2, 0), 2)
    assert before(later, 6) == later


def test_a_long_queue_under_a_thousand_claims_is_quick_and_small() -> None:
    projection, claims, jobs = Projection(), 1_000, 100
    for number in range(claims):
        first = number * jobs
        claim = events.Claim(at=number, id=f"c{number}", node=NODES[0], until=10**6, jobs=(first, first + jobs))
        projection = apply(projection, claim)
    assert projection.counts(claims * jobs) == (0, claims * jobs, 0)
    began = time.process_time()
    for number in range(100):  # every second job of a claim somewhere, so that runs break
        first = (number * 37 % claims) * jobs
        taken = flat(list(range(first, first + jobs, 2)))
        projection = apply(projection, events.Ack(at=5_000 + number, node=NODES[0], jobs=taken))
    assert time.process_time() - began < 2.0, "an ack takes time by the whole queue"
    assert projection.acked == 5_000
    everything = Runs.of([(0, claims * jobs)]).minus(projection.done)
    projection = apply(projection, events.Ack(at=9_000, node=NODES[0], jobs=everything.flat()))
    assert (projection.front, projection.done.flat(), projection.grants) == (claims * jobs, (), ())
