"""Each law of queues fails on what breaks it, and none on what does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.job_laws import DYING, LAWS, MAX_DELIVERIES, PLAIN, Delivery, Jobs, Push, Settlement, judge

LEASE_MS = 1000


def deliver(queue: str, seq: int, number: int, at: float, *, extended: float = 0.0) -> Delivery:
    """Returns the delivery that was claimed at `at` seconds, under a lease that is named after its number."""
    claimed = int(at * 1000)
    deadline = claimed + LEASE_MS + int(extended * 1000)
    return Delivery(queue, seq, f"{queue}-{seq}", f"lease-{number}", number, claimed, deadline, at - 0.1, at + 0.1)


def settle(verb: str, queue: str, seq: int, number: int, at: float, outcome: str = "done") -> Settlement:
    return Settlement(verb, queue, seq, f"lease-{number}", outcome, at - 0.1, at + 0.1)


def good() -> Jobs:
    """Returns jobs that keep all laws: acked at once; after a nack; after a lease that ended, was extended, and whose
    claim's answer was lost; by a try whose answer was lost; and one that died.
    """
    jobs = Jobs(
        pushes=[
            Push(PLAIN, tuple(f"{PLAIN}-{seq}" for seq in (5, 6, 7, 8)), 5),
            Push(DYING, (f"{DYING}-1",), 1),
        ],
        deliveries=[
            deliver(PLAIN, 5, 1, 1.0),
            deliver(PLAIN, 6, 1, 1.0),
            deliver(PLAIN, 6, 2, 1.5),
            deliver(PLAIN, 7, 1, 1.0),
            deliver(PLAIN, 7, 1, 1.0, extended=0.5),
            deliver(PLAIN, 7, 3, 4.0),
            deliver(PLAIN, 8, 1, 1.0),
            *(deliver(DYING, 1, number, 2.0 * number) for number in range(1, MAX_DELIVERIES + 1)),
        ],
        settlements=[
            settle("ack", PLAIN, 5, 1, 1.3),
            settle("nack", PLAIN, 6, 1, 1.3),
            settle("ack", PLAIN, 6, 2, 1.8),
            settle("ack", PLAIN, 7, 1, 4.5, "skipped"),
            settle("ack", PLAIN, 7, 3, 4.5),
            settle("ack", PLAIN, 8, 1, 1.3, "unknown"),
        ],
        buried=[f"{DYING}-1"],
        left={PLAIN: 0, DYING: 0},
    )
    jobs.lost_claims[PLAIN] = 1
    return jobs


def change(jobs: Jobs, seq: int, nth: int, **changes: object) -> None:
    """Changes the deliveries of a plain job that have this number."""
    jobs.deliveries[:] = [
        one._replace(**changes) if (one.queue, one.seq, one.number) == (PLAIN, seq, nth) else one
        for one in jobs.deliveries
    ]


def a_lost_ack(jobs: Jobs) -> None:
    jobs.settlements.remove(settle("ack", PLAIN, 5, 1, 1.3))


def a_refused_ack(jobs: Jobs) -> None:
    jobs.settlements[0] = settle("ack", PLAIN, 5, 1, 1.3, "skipped")


def a_lost_dead_letter(jobs: Jobs) -> None:
    jobs.buried.clear()


def a_job_that_is_left(jobs: Jobs) -> None:
    jobs.left[PLAIN] = 1


def a_job_of_two_seqs(jobs: Jobs) -> None:
    jobs.deliveries.append(deliver(PLAIN, 9, 1, 2.0)._replace(id=f"{PLAIN}-5"))


def a_job_that_nobody_pushed(jobs: Jobs) -> None:
    jobs.deliveries.append(deliver(PLAIN, 9, 1, 2.0))


def a_delivery_after_the_ack(jobs: Jobs) -> None:
    jobs.deliveries.append(deliver(PLAIN, 5, 2, 3.0))


def an_ack_of_a_lease_that_ended(jobs: Jobs) -> None:
    jobs.settlements.append(settle("ack", PLAIN, 7, 1, 4.5))


def a_lease_that_was_given_twice(jobs: Jobs) -> None:
    jobs.settlements = [one for one in jobs.settlements if one.verb != "nack"]


def a_nack_that_came_later(jobs: Jobs) -> None:
    jobs.settlements[1] = settle("nack", PLAIN, 6, 1, 1.9)


def a_lease_that_ended_before_its_extension_did(jobs: Jobs) -> None:
    change(jobs, 7, 3, claimed_ms=2_200)


def a_delivery_that_counts_as_the_one_before(jobs: Jobs) -> None:
    change(jobs, 7, 3, number=1)


def a_delivery_that_was_counted_twice(jobs: Jobs) -> None:
    jobs.lost_claims.clear()


def a_job_that_was_buried_twice(jobs: Jobs) -> None:
    jobs.buried *= 2


def an_acked_job_that_was_buried(jobs: Jobs) -> None:
    jobs.buried.append(f"{PLAIN}-5")


def a_job_that_was_delivered_too_often(jobs: Jobs) -> None:
    jobs.deliveries.append(deliver(DYING, 1, MAX_DELIVERIES + 1, 20.0))


BROKEN: list[tuple[str, Callable[[Jobs], None]]] = [
    ("every_job_is_done_or_buried", a_lost_ack),
    ("every_job_is_done_or_buried", a_refused_ack),
    ("every_job_is_done_or_buried", a_lost_dead_letter),
    ("every_job_is_done_or_buried", a_job_that_is_left),
    ("a_job_is_pushed_once", a_job_of_two_seqs),
    ("a_job_is_pushed_once", a_job_that_nobody_pushed),
    ("an_acked_job_is_never_delivered_again", a_delivery_after_the_ack),
    ("a_job_is_acked_once", an_ack_of_a_lease_that_ended),
    ("a_redelivery_follows_a_lease_that_ended", a_lease_that_was_given_twice),
    ("a_redelivery_follows_a_lease_that_ended", a_nack_that_came_later),
    ("a_redelivery_follows_a_lease_that_ended", a_lease_that_ended_before_its_extension_did),
    ("a_redelivery_follows_a_lease_that_ended", a_delivery_that_counts_as_the_one_before),
    ("a_redelivery_follows_a_lease_that_ended", a_delivery_that_was_counted_twice),
    ("a_job_is_buried_once_and_only_if_it_may", a_job_that_was_buried_twice),
    ("a_job_is_buried_once_and_only_if_it_may", an_acked_job_that_was_buried),
    ("a_job_is_buried_once_and_only_if_it_may", a_job_that_was_delivered_too_often),
]


def test_good_jobs_keep_every_law_and_each_law_looks_at_them() -> None:
    verdicts = judge(good())
    assert {name: verdict.broken for name, verdict in verdicts.items() if verdict.count} == {}
    assert all(verdict.checked for verdict in verdicts.values())


@pytest.mark.parametrize(("law", "breaks"), BROKEN, ids=lambda given: getattr(given, "__name__", given))
def test_broken_jobs_break_their_law(law: str, breaks: Callable[[Jobs], None]) -> None:
    jobs = good()
    breaks(jobs)
    verdict = judge(jobs)[law]
    assert verdict.count > 0
    assert verdict.broken


def test_every_law_can_fail() -> None:
    assert {law for law, _ in BROKEN} == {law.__name__ for law in LAWS}
