"""The transitions of a subscription, one by one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headrace.subscriptions import rules
from headrace.subscriptions.delivery import ATTEMPT_MS, Delivered
from headrace.subscriptions.errors import AlreadyClaimed, Fenced, InvalidOffset, TokenInvalid
from headrace.subscriptions.rules import Outcome
from headrace.subscriptions.values import MAX_LINKS, MAX_TOKENS, Config, Link, Seen, Subscription, acked_position
from headrace.wal.state import LogState, Recovery, encode_cursor

NOW = 1_700_000_000_000
MIDDLE = 0.5
PULL = Subscription("s", Config("pull-wake", "a/*", wake_stream="w", lease_ttl_ms=5_000), NOW)
HOOK = Subscription("s", Config("webhook", "a/*", url="https://x", lease_ttl_ms=5_000), NOW)


def announced() -> Subscription:
    return rules.open_wake(PULL, "w1", "a/b", NOW)


def sending() -> Subscription:
    return rules.begin_call(rules.open_wake(HOOK, "w1", "a/b", NOW), "token", NOW)


def stage(sub: Subscription) -> str:
    return sub.wake.stage if sub.wake is not None else "idle"


def test_each_wake_has_the_next_generation() -> None:
    first = announced()
    second = rules.open_wake(rules.end_wake(first), "w2", "a/b", NOW)
    assert (first.generation, second.generation) == (1, 2)
    assert stage(first) == stage(second) == "announced"


def test_a_webhook_is_due_at_once_and_a_pull_wake_is_repeated_later() -> None:
    due, pull = rules.open_wake(HOOK, "w1", "a/b", NOW).wake, announced().wake
    assert due is not None and pull is not None
    assert (due.stage, due.until_ms) == ("due", NOW)
    assert pull.until_ms == NOW + rules.REPEAT_MS


def test_an_unclaimed_wake_is_repeated_ever_more_rarely_but_at_least_every_ten_minutes() -> None:
    sub, now_ms, pauses = announced(), NOW, []
    for _ in range(8):
        assert sub.wake is not None
        now_ms = sub.wake.until_ms
        sub = rules.announce_again(sub, now_ms)
        assert sub.wake is not None
        pauses.append(sub.wake.until_ms - now_ms)
    assert pauses[:4] == [60_000, 120_000, 240_000, 480_000]
    assert set(pauses[4:]) == {600_000}
    assert sub.generation == 1


def test_a_claim_leases_the_announced_wake() -> None:
    claimed = rules.claim(announced(), "worker-1", "token", NOW + 7)
    assert claimed.wake is not None and claimed.wake.id == "w1" and claimed.generation == 1
    assert claimed.wake.until_ms == NOW + 7 + 5_000
    assert rules.find_token(claimed, "token").wake_id == "w1"
    assert "token" not in str(claimed.tokens)


def test_a_claimed_wake_is_refused_to_everyone_its_holder_too() -> None:
    claimed = rules.claim(announced(), "worker-1", "token", NOW)
    with pytest.raises(AlreadyClaimed) as refused:
        rules.claim(claimed, "worker-1", "other", NOW)
    assert (refused.value.holder, refused.value.generation) == ("worker-1", 1)


def test_a_lease_ends_at_its_deadline_and_not_before() -> None:
    claimed = rules.claim(announced(), "worker-1", "token", NOW)
    assert rules.pass_time(claimed, NOW + 4_999, MIDDLE) == claimed
    ended = rules.pass_time(claimed, NOW + 5_000, MIDDLE)
    assert stage(ended) == "idle"
    with pytest.raises(Fenced):
        rules.check_fence(ended, rules.find_token(ended, "token"), "w1", 1)


def test_a_heartbeat_moves_the_deadline() -> None:
    claimed = rules.claim(announced(), "worker-1", "token", NOW)
    extended = rules.extend(claimed, NOW + 4_000)
    assert stage(rules.pass_time(extended, NOW + 8_999, MIDDLE)) == "leased"
    assert stage(rules.pass_time(extended, NOW + 9_000, MIDDLE)) == "idle"


def test_only_token_body_and_wake_together_pass_the_fence() -> None:
    claimed = rules.claim(announced(), "worker-1", "old", NOW)
    again = rules.claim(rules.open_wake(rules.end_wake(claimed), "w2", "a/b", NOW), "worker-2", "new", NOW)
    rules.check_fence(again, rules.find_token(again, "new"), "w2", 2)
    for token, wake_id, generation in [("old", "w1", 1), ("old", "w2", 2), ("new", "w1", 2), ("new", "w2", 1)]:
        with pytest.raises(Fenced):
            rules.check_fence(again, rules.find_token(again, token), wake_id, generation)


def test_an_unknown_token_and_a_very_old_one_are_invalid() -> None:
    sub = rules.claim(announced(), "worker", "t0", NOW)
    for number in range(1, MAX_TOKENS + 1):
        sub = rules.claim(rules.open_wake(rules.end_wake(sub), f"w{number}", "a/b", NOW), "worker", f"t{number}", NOW)
    assert rules.find_token(sub, "t1").generation == 2
    for token in ("t0", "", "unknown"):
        with pytest.raises(TokenInvalid):
            rules.find_token(sub, token)


@pytest.mark.parametrize(
    ("delivered", "expected"),
    [
        (Delivered(200, done=True), Outcome.DONE),
        (Delivered(202, done=True), Outcome.DONE),
        (Delivered(200), Outcome.ACCEPTED),
        (Delivered(299), Outcome.ACCEPTED),
        (Delivered(302, done=True), Outcome.FAILED),
        (Delivered(410), Outcome.FAILED),
        (Delivered(500, done=True), Outcome.FAILED),
        (Delivered(0, error="no answer: TimeoutError"), Outcome.FAILED),
    ],
)
def test_any_2xx_accepts_the_wake_and_nothing_else_does(delivered: Delivered, expected: Outcome) -> None:
    assert rules.outcome_of(delivered) is expected


def test_retries_wait_ever_longer_up_to_a_minute_within_a_fifth() -> None:
    assert [rules.retry_ms(n, MIDDLE) for n in (1, 2, 3, 6, 7, 8, 1_000)] == [
        1_000,
        2_000,
        4_000,
        32_000,
        60_000,
        60_000,
        60_000,
    ]
    assert (rules.retry_ms(1, 0.0), rules.retry_ms(1, 1.0)) == (800, 1_200)


def test_a_failed_call_is_repeated_with_the_same_wake_and_a_2xx_forgets_the_failures() -> None:
    failed = rules.finish_call(sending(), "w1", 1, Outcome.FAILED, NOW + 100, MIDDLE)
    assert failed.wake is not None and failed.status == "failed"
    assert (failed.wake.until_ms, failed.generation) == (NOW + 1_100, 1)
    assert rules.pass_time(failed, NOW + 999_999, MIDDLE) == failed, "only the retry time counts"
    again = rules.begin_call(failed, "token-2", NOW + 1_100)
    assert again.wake is not None and (again.wake.id, again.wake.attempts, again.status) == ("w1", 2, "active")
    accepted = rules.finish_call(again, "w1", 2, Outcome.ACCEPTED, NOW + 1_500, MIDDLE)
    assert accepted.wake is not None and accepted.wake.failures == 0
    assert accepted.wake.until_ms == NOW + 1_500 + 5_000


def test_a_call_whose_process_died_has_failed_after_its_time() -> None:
    lost = rules.pass_time(sending(), NOW + ATTEMPT_MS + 60_000, MIDDLE)
    assert lost.status == "failed"


def test_a_late_outcome_changes_no_other_wake_and_no_later_call() -> None:
    failed = rules.finish_call(sending(), "w1", 1, Outcome.FAILED, NOW, MIDDLE)
    again = rules.begin_call(failed, "t2", NOW + 1_000)
    assert rules.finish_call(again, "w1", 1, Outcome.FAILED, NOW, MIDDLE) == again
    assert rules.finish_call(again, "w1", 1, Outcome.ACCEPTED, NOW, MIDDLE) == again
    assert stage(rules.finish_call(again, "w1", 1, Outcome.DONE, NOW, MIDDLE)) == "idle"
    newer = rules.open_wake(rules.end_wake(again), "w2", "a/b", NOW)
    assert rules.finish_call(newer, "w1", 2, Outcome.DONE, NOW, MIDDLE) == newer


def test_a_callback_during_the_call_decides() -> None:
    called_back = rules.extend(sending(), NOW + 50)
    assert stage(called_back) == "accepted"
    assert rules.finish_call(called_back, "w1", 1, Outcome.FAILED, NOW + 100, MIDDLE) == called_back
    assert stage(rules.pass_time(called_back, NOW + 5_050, MIDDLE)) == "idle"


def seen(path: str, *, is_pending: bool = True) -> Seen:
    return Seen(Link(path, log_id="1"), LogState(next_offset=int(is_pending)))


def test_a_wake_carries_pending_streams_first_and_not_too_many() -> None:
    kept = rules.cut([seen(f"a/{n:04}", is_pending=n % 2 == 0) for n in range(3 * MAX_LINKS)])
    assert len(kept) == MAX_LINKS and all(one.is_pending for one in kept)
    few = rules.cut([seen("a/1", is_pending=False), seen("a/3"), seen("a/2")])
    assert [one.link.path for one in few] == ["a/2", "a/3", "a/1"]
    assert 100 < len(rules.cut([seen("x" * 1_000 + str(n)) for n in range(MAX_LINKS)])) < 250


@pytest.mark.parametrize(
    ("offset", "reason"),
    [
        (encode_cursor(3, 4), "before the cursor"),
        (encode_cursor(3, 11), "after the tail"),
        (encode_cursor(2, 7), "not one of the stream"),
        ("-1", "not one of the stream"),
        ("nonsense", "not one of the stream"),
    ],
)
def test_an_ack_names_a_position_between_cursor_and_tail(offset: str, reason: str) -> None:
    own = Seen(Link("a/b", log_id="1", incarnation=3, acked_offset=encode_cursor(3, 5)), LogState(next_offset=10))
    assert [rules.ack_position(own, encode_cursor(3, position)) for position in (5, 7, 10)] == [5, 7, 10]
    with pytest.raises(InvalidOffset, match=reason):
        rules.ack_position(own, offset)


def test_an_ack_from_before_a_recovery_reaches_only_what_was_kept() -> None:
    state = LogState(next_offset=10, recoveries=(Recovery(8, 4),))
    own = Seen(Link("a/b", log_id="1", incarnation=3), state)
    assert rules.ack_position(own, encode_cursor(3, 8)) == 8
    assert rules.ack_position(own, encode_cursor(4, 10)) == 10
    with pytest.raises(InvalidOffset, match="after the tail"):
        rules.ack_position(own, encode_cursor(3, 9))


def test_a_cursor_falls_back_to_where_a_recovery_began() -> None:
    link = Link("a/b", log_id="1", incarnation=3, acked_offset=encode_cursor(3, 100))
    assert acked_position(link, LogState(next_offset=100)) == 100
    recovered = LogState(next_offset=90, recoveries=(Recovery(80, 4),))
    assert acked_position(link, recovered) == 80
    assert acked_position(replace(link, acked_offset=encode_cursor(4, 85)), recovered) == 85
    assert acked_position(replace(link, acked_offset="-1"), recovered) == 0


def test_a_subscription_never_matches_its_own_wake_stream() -> None:
    config = Config("pull-wake", "**", wake_stream="pools/a")
    assert config.matches("pools/b") and not config.matches("pools/a")
