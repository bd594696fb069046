"""What a worker decides about a job: when its lease is renewed, whether it is acked, how long it rests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.errors import CliError
from cli.jobs import LONGEST_DELAY_MS, Backoff, Lease, judge, parse_job


def backoffs() -> st.SearchStrategy[Backoff]:
    return st.builds(Backoff, st.integers(0, 10**6), st.integers(0, 10**10))


@given(st.integers(100, LONGEST_DELAY_MS), st.floats(0, 1e9))
def test_a_lease_is_renewed_with_time_for_several_tries(lease_ms: int, asked_s: float) -> None:
    lease = Lease(lease_ms / 1000, asked_s)
    assert asked_s < lease.renew_s < lease.ends_s
    assert lease.renew_s + 2 * lease.timeout_s <= lease.ends_s or lease_ms < 300


@given(backoffs(), st.integers(-1, 10**9), st.floats(0, 1, exclude_max=True))
def test_a_rest_grows_and_is_bounded(backoff: Backoff, deliveries: int, chance: float) -> None:
    delay_ms = backoff.delay_ms(deliveries, lambda: chance)
    longest = min(backoff.limit_ms, LONGEST_DELAY_MS)
    assert 0 <= delay_ms <= longest
    assert delay_ms <= backoff.delay_ms(deliveries + 1, lambda: chance)
    assert delay_ms <= 2 * backoff.delay_ms(deliveries, lambda: 0.0) + 1


@given(st.one_of(st.none(), st.integers(-64, 255)), st.integers(1, 99), backoffs())
def test_only_success_acks(code: int | None, deliveries: int, backoff: Backoff) -> None:
    verdict = judge(code, deliveries, backoff, lambda: 0.5)
    assert (verdict.delay_ms is None) == (code == 0)
    assert verdict.name == {0: "done", 75: "deferred"}.get(-1 if code is None else code, "failed")


@pytest.mark.parametrize(
    "text", ["1", "{}", '{"$seq":"x","lease_id":"a","data":1,"deliveries":1}', '{"$seq":1,"lease_id":', "\x00"]
)
def test_a_job_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(CliError):
        parse_job(text)
