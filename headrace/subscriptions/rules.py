"""The state machine of a subscription, as pure functions: each returns the subscription after one transition. The row is
then written by compare-and-set, so that of two transitions from one state only one happens.

    idle --pending--> due --call--> sending --2xx, done--> idle          (webhook)
                       ^               |----2xx-----------> accepted --callback done--> idle
                       |               |                       `--lease ends--> idle
                       `---time--- failed <--no or other answer
    idle --pending--> announced --claim--> leased --done, release, lease ends--> idle     (pull-wake)

After a transition to idle, its caller looks at the streams and opens the next wake if one is pending: an append that came
earlier saw an open wake and did nothing.
"""

from __future__ import annotations

import enum
import hmac
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from headrace.errors import InvalidRequest
from headrace.subscriptions.delivery import ATTEMPT_MS, Delivered
from headrace.subscriptions.errors import AlreadyClaimed, Fenced, InvalidOffset, TokenInvalid
from headrace.subscriptions.values import (
    MAX_LINKS,
    MAX_TOKENS,
    WEBHOOK,
    Seen,
    Subscription,
    Token,
    Wake,
    acked_position,
    digest,
)
from headrace.wal.state import decode_cursor

_CALL_SPARE_MS = 5_000  # the rest of what an attempt does
_MAX_RETRY_MS = 60_000
_JITTER = 0.2
REPEAT_MS = 30_000  # an unclaimed wake is announced again after this, then after twice as long, ...
_MAX_REPEAT_MS = 600_000
SNAPSHOT_BYTES = 200 * 1024  # of what a wake says of streams: it must fit one item


class Outcome(enum.Enum):
    """What the answer to a webhook call means."""

    DONE = enum.auto()
    ACCEPTED = enum.auto()
    FAILED = enum.auto()


def outcome_of(delivered: Delivered) -> Outcome:
    """Returns what an answer means: any 2xx accepts the wake. Everything else is a failure, also no answer."""
    if not delivered.is_accepted:
        return Outcome.FAILED
    return Outcome.DONE if delivered.done else Outcome.ACCEPTED


def retry_ms(failures: int, jitter: float) -> int:
    """Returns the pause after a number of failures (1 or more): 1 s, doubled with each, at most a minute; shortened or
    prolonged by up to a fifth, as `jitter` (0 to 1) says.
    """
    base = min(1000 << min(failures - 1, 16), _MAX_RETRY_MS)
    return round(base * (1 - _JITTER + 2 * _JITTER * jitter))


def open_wake(sub: Subscription, wake_id: str, trigger: str, now_ms: int) -> Subscription:
    """Opens the next wake of an idle subscription: due to be sent at once, or announced."""
    assert sub.wake is None, "at most one wake is open"
    if sub.config.type == WEBHOOK:
        wake = Wake(wake_id, trigger, "due", now_ms, opened_ms=now_ms)
    else:
        wake = Wake(wake_id, trigger, "announced", now_ms + REPEAT_MS, attempts=1, opened_ms=now_ms)
    return replace(sub, generation=sub.generation + 1, wake=wake)


def end_wake(sub: Subscription) -> Subscription:
    """Ends the wake, for good. Its tokens stay known, so that late calls are told that they are fenced."""
    return replace(sub, wake=None)


def pass_time(sub: Subscription, now_ms: int, jitter: float) -> Subscription:
    """Returns the subscription after the time until `now_ms` has passed: a lease that ended fences its holder, and a call
    without a known outcome has failed. Calls and announcements that are due are left to the caller.
    """
    wake = sub.wake
    if wake is None or wake.until_ms > now_ms:
        return sub
    if wake.stage in ("leased", "accepted"):
        return end_wake(sub)
    return _failed(sub, wake, now_ms, jitter) if wake.stage == "sending" else sub


def _failed(sub: Subscription, wake: Wake, now_ms: int, jitter: float) -> Subscription:
    failures = wake.failures + 1
    until_ms = now_ms + retry_ms(failures, jitter)
    return replace(sub, wake=replace(wake, stage="failed", failures=failures, until_ms=until_ms))


def announce_again(sub: Subscription, now_ms: int) -> Subscription:
    """Returns the subscription after its unclaimed wake was announced once more."""
    wake = sub.wake
    assert wake is not None and wake.stage == "announced", "only an unclaimed wake is repeated"
    pause_ms = min(REPEAT_MS << min(wake.attempts, 16), _MAX_REPEAT_MS)
    return replace(sub, wake=replace(wake, attempts=wake.attempts + 1, until_ms=now_ms + pause_ms, refused=None))


# Keys.


def refuse(sub: Subscription, refused: tuple[str, str], now_ms: int, jitter: float) -> Subscription:
    """Returns the subscription after its wake was not announced, or its webhook not called, because of its key. The call
    is due again as after a failure.
    """
    assert sub.wake is not None, "a wake is open"
    noted = replace(sub.wake, refused=refused)
    return _failed(sub, noted, now_ms, jitter) if sub.config.type == WEBHOOK else replace(sub, wake=noted)


def adopt(sub: Subscription, key_id: str, now_ms: int) -> Subscription:
    """Returns the subscription with another key. What was refused is due at once."""
    wake = sub.wake
    if wake is not None and wake.refused:
        wake = replace(wake, until_ms=now_ms, refused=None)
    return replace(sub, key_id=key_id, wake=wake)


# Webhooks.


def begin_call(sub: Subscription, token: str, now_ms: int) -> Subscription:
    """Returns the subscription while its webhook is being called, with one more token."""
    wake = sub.wake
    assert wake is not None and wake.stage in ("due", "failed"), "a call is due"
    sending = replace(
        wake,
        stage="sending",
        attempts=wake.attempts + 1,
        began_ms=now_ms,
        until_ms=now_ms + ATTEMPT_MS + _CALL_SPARE_MS,
        refused=None,
    )
    return _with_token(replace(sub, wake=sending), token)


def finish_call(
    sub: Subscription, wake_id: str, attempt: int, outcome: Outcome, now_ms: int, jitter: float
) -> Subscription:
    """Returns the subscription after a call of its webhook, the `attempt`-th of this wake, had an outcome. Nothing changes
    if that wake has ended. A callback that came first decides; only `done` still ends the wake then.
    """
    wake = sub.wake
    if wake is None or wake.id != wake_id:
        return sub
    if outcome is Outcome.DONE:
        return end_wake(sub)
    if wake.attempts != attempt or wake.stage != "sending":
        return sub
    if outcome is Outcome.FAILED:
        return _failed(sub, wake, now_ms, jitter)
    until_ms = now_ms + sub.config.lease_ttl_ms
    return replace(sub, wake=replace(wake, stage="accepted", failures=0, until_ms=until_ms))


# Workers.


def claim(sub: Subscription, worker: str, token: str, now_ms: int) -> Subscription:
    """Returns the subscription after a worker claimed its announced wake.

    Raises:
        AlreadyClaimed: a worker holds it.
    """
    check_unclaimed(sub)
    assert sub.wake is not None, "a wake is open"
    until_ms = now_ms + sub.config.lease_ttl_ms
    leased = replace(sub.wake, stage="leased", holder=worker, until_ms=until_ms, refused=None)
    return _with_token(replace(sub, wake=leased), token)


def check_unclaimed(sub: Subscription) -> None:
    """Raises AlreadyClaimed if a worker holds the wake."""
    if sub.wake is not None and sub.wake.stage == "leased":
        raise AlreadyClaimed(sub.wake.holder, sub.generation)


def extend(sub: Subscription, now_ms: int) -> Subscription:
    """Returns the subscription after its worker or receiver showed that it is at work: the lease counts from now. That ends
    the retries of a webhook, too, whose answer must have been lost.
    """
    wake = sub.wake
    assert wake is not None, "a wake is open"
    stage: str = "leased" if wake.stage == "leased" else "accepted"
    until_ms = now_ms + sub.config.lease_ttl_ms
    return replace(sub, wake=replace(wake, stage=stage, failures=0, until_ms=until_ms, refused=None))


def _with_token(sub: Subscription, token: str) -> Subscription:
    assert sub.wake is not None, "a token is of a wake"
    own = Token(digest(token), sub.wake.id, sub.generation)
    return replace(sub, tokens=(*sub.tokens, own)[-MAX_TOKENS:])


def find_token(sub: Subscription, token: str) -> Token:
    """Returns what a token is bound to. All digests are compared, so that the time taken tells nothing.

    Raises:
        TokenInvalid: it is not one of the newest tokens of this subscription.
    """
    presented, found = digest(token), None
    for one in sub.tokens:
        if hmac.compare_digest(one.digest, presented):
            found = one
    if found is None:
        raise TokenInvalid
    return found


def check_fence(sub: Subscription, token: Token, wake_id: str, generation: int) -> None:
    """Raises Fenced unless the token, and the wake and generation in the body, are all of the wake that is open. A lease
    that is over fences nobody before its end is noted, by the relay or by another's claim: until then no other has the
    work.
    """
    wake = sub.wake
    current = wake is not None and (wake.id, sub.generation)
    if current != (token.wake_id, token.generation) or current != (wake_id, generation):
        raise Fenced


def cut(seen: Sequence[Seen]) -> list[Seen]:
    """Returns those of the links that one wake may carry: pending ones first, then by path; at most `MAX_LINKS` of them,
    and `SNAPSHOT_BYTES`.
    """
    kept: list[Seen] = []
    room = SNAPSHOT_BYTES
    for one in sorted(seen, key=lambda one: (not one.is_pending, one.link.path))[:MAX_LINKS]:
        room -= len(msgspec.json.encode(one.show())) + 1
        if room < 0:
            break
        kept.append(one)
    return kept


def ack_position(seen: Seen, offset: str) -> int:
    """Returns the position that an ack moves a link's cursor to.

    Raises:
        InvalidOffset: it is not one of the stream's, or before the cursor, or after the tail.
    """
    link, state = seen.link, seen.state
    if state is None:
        raise InvalidOffset(f"stream does not exist: stream={link.path}")
    try:
        cursor = decode_cursor(offset)
    except InvalidRequest as exc:
        raise InvalidOffset(f"offset is not one of the stream: stream={link.path}") from exc
    own = [link.incarnation, *(recovery.incarnation for recovery in state.recoveries)]
    if cursor.incarnation not in own:
        raise InvalidOffset(f"offset is not one of the stream: stream={link.path}")
    lost = [recovery.at for recovery in state.recoveries if recovery.incarnation > cursor.incarnation]
    low, high = acked_position(link, state), min([state.next_offset, *lost])
    if not low <= cursor.position <= high:
        where = "before the cursor" if cursor.position < low else "after the tail"
        raise InvalidOffset(f"offset is {where}: stream={link.path}")
    return cursor.position
