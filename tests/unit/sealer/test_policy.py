"""Laws of the policy: every entry is sealed soon enough by the messages alone; limits mean what they say."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from functions.queue import Message
from functions.sealer import policy
from functions.sealer.policy import Hint, SealLimits

LIMITS = SealLimits(payload_bytes=100, records=10, age_ms=60_000, trim_age_ms=900_000)
T = 1_700_000_000_000


def test_each_limit_alone_makes_a_log_due() -> None:
    assert not policy.due(99, 9, T, T + 59_999, LIMITS)
    assert policy.due(100, 9, T, T, LIMITS)
    assert policy.due(99, 10, T, T, LIMITS)
    assert policy.due(0, 0, T, T + 60_000, LIMITS)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 400_000), st.integers(0, 20_000), st.sampled_from([0, 0, 0, 500, 90_000])),
        min_size=1,
        max_size=30,
    )
)
@example([(40_000, 0, 0), (99_900, 2_500, 0)])  # stored when the message of its bucket had come
def test_every_entry_is_sealed_within_its_age_by_messages_alone(entries: list[tuple[int, int, int]]) -> None:
    """A message seals what is there when it comes. Entries come one by one, each in its own stream batch: when they were
    decided, how much later they are stored, and how much later their event comes.
    """
    stored_ms, told_ms, previous, fires, expected = T, T, 0, list[int](), list[tuple[int, int]]()
    for slot, (offset, way, lag) in enumerate(sorted(entries)):
        committed = T + offset
        stored_ms = max(stored_ms, committed + way)
        told_ms = max(told_ms, stored_ms + lag)
        hint = Hint("data", committed, slot - 1, previous)
        wanted = [message.not_before_ms for message in policy.messages("a", [hint], told_ms, LIMITS)]
        assert len(wanted) <= 2
        fires += [*wanted, told_ms] if policy.may_be_due([hint], told_ms, LIMITS) else wanted
        expected.append((stored_ms, max(committed + LIMITS.age_ms + 1000, told_ms)))
        previous = committed
    for stored_ms, latest_ms in expected:
        assert min(fire for fire in fires if fire >= stored_ms) <= latest_ms


def test_entries_that_are_stored_at_once_cost_one_message_for_each_age() -> None:
    hints = [Hint("data", T + second * 1000, second - 1, T + (second - 1) * 1000) for second in range(600)]
    fires = [message for hint in hints for message in policy.messages("a", [hint], hint.committed_ms, LIMITS)]
    assert len(fires) <= 2 + 600_000 // LIMITS.age_ms


def test_one_batch_asks_once_for_each_bucket_and_not_for_the_past() -> None:
    hints = [Hint("create", T, -1, 0), Hint("data", T + 1, 0, T), Hint("data", T + 70_000, 1, T + 1)]
    wanted = policy.messages("a", hints, T + 70_000, LIMITS)
    assert wanted == [Message("seal", "a", not_before_ms=T + 131_000, force=True)]


def test_what_may_end_a_log_asks_for_one_purge() -> None:
    for kind in ("delete", "expire", "unfork"):
        hints = [Hint(kind, T, 5, T), Hint(kind, T + 1, 6, T)]
        assert policy.messages("a", hints, T, LIMITS) == [Message("purge", "a", not_before_ms=T + 900_001)]
    assert policy.messages("a", [Hint("release", T, 5, T)], T, LIMITS) == []


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 9)), min_size=1, max_size=60))
def test_a_log_is_looked_at_before_it_has_a_quarter_more_than_a_segment(sizes: list[tuple[int, int]]) -> None:
    """Entries come one by one, and a look seals everything if there is enough for a segment."""
    total = sealed = (0, 0)
    looks = 0
    for number, size in enumerate(sizes):
        before, total = total, (total[0] + size[0], total[1] + size[1])
        hint = Hint("data", T, number, T, (before[1], total[1]), (before[0], total[0]))
        if policy.may_be_due([hint], T, LIMITS):
            looks += 1
            if policy.due_by_size(total[0] - sealed[0], total[1] - sealed[1], LIMITS):
                sealed = total
        assert total[0] - sealed[0] < LIMITS.payload_bytes + LIMITS.payload_bytes // 4
        assert total[1] - sealed[1] < LIMITS.records + max(1, LIMITS.records // 4) + 1
    assert looks <= total[0] // 25 + total[1] // 2


def test_what_is_late_is_looked_at_whatever_its_size() -> None:
    hint = Hint("data", T, 0, T)
    assert not policy.may_be_due([hint], T + LIMITS.age_ms - 1, LIMITS)
    assert policy.may_be_due([hint], T + LIMITS.age_ms, LIMITS)
