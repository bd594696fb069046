"""The sealer's policy: when a log is due, what fits into one segment, and which delayed messages an entry needs. Does
no I/O.

Age: time is divided into buckets of `age_ms`. The first entry of a log in each bucket causes one message, delivered
when the entry is `age_ms` old, which seals everything then present. By then the bucket is over, so the message covers
every entry of the bucket that is there. One of which an event tells after the bucket's end may have come too late for it,
and causes a message of its own: each entry is sealed at most about `age_ms` after its commit, without a scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from functions.queue import Message
from headrace.wal.state import LogState

_LOOKS = 4  # at a log, while it collects data for one segment
_SLACK_MS = 1000  # servers' clocks differ: a late one may still commit into a bucket that seems to be over
# unfork: perhaps the last fork of a log that has ended; recover: perhaps of one whose purge was lost
_MAY_END_LOG = frozenset({"delete", "expire", "unfork", "recover"})


class SealLimits(NamedTuple):
    """The limits that decide when a log is due, how large a segment gets, and when entries are trimmed."""

    payload_bytes: int
    records: int
    age_ms: int
    trim_age_ms: int


class Hint(NamedTuple):
    """What a stream event says about one entry. `prev_slot` is -1 for the first entry of a log. `records` and `total_bytes`
    are ranges: how many the log had before the entry, and has after it.
    """

    kind: str
    committed_ms: int
    prev_slot: int
    prev_committed_ms: int
    records: tuple[int, int] = (0, 0)
    total_bytes: tuple[int, int] = (0, 0)


def due_by_size(unsealed_bytes: int, unsealed_records: int, limits: SealLimits) -> bool:
    """Returns whether there is enough unsealed data for a full segment."""
    return unsealed_bytes >= limits.payload_bytes or unsealed_records >= limits.records


def due_by_age(oldest_unsealed_committed_ms: int, now_ms: int, limits: SealLimits) -> bool:
    """Returns whether the oldest unsealed entry was committed at least `limits.age_ms` ago."""
    return now_ms - oldest_unsealed_committed_ms >= limits.age_ms


def due(
    unsealed_bytes: int,
    unsealed_records: int,
    oldest_unsealed_committed_ms: int,
    now_ms: int,
    limits: SealLimits,
) -> bool:
    """Returns whether the unsealed bytes, records or age have reached their limit."""
    return due_by_size(unsealed_bytes, unsealed_records, limits) or due_by_age(
        oldest_unsealed_committed_ms, now_ms, limits
    )


def may_seal(state: LogState) -> bool:
    """Returns whether the log may be sealed. After it has ended, only if it has forks, which are published after it."""
    return not state.ended or state.forks > 0


def fits(segment_bytes: int, segment_records: int, more_bytes: int, more_records: int, limits: SealLimits) -> bool:
    """Returns whether another entry fits into a segment. Entries are never split, and the first one always fits."""
    if segment_records == 0:
        return True
    return segment_bytes + more_bytes <= limits.payload_bytes and segment_records + more_records <= limits.records


def opens_bucket(hint: Hint, age_ms: int) -> bool:
    """Returns whether the entry is the log's first in its interval, when time is divided into intervals of `age_ms`."""
    is_first = hint.prev_slot < 0
    return is_first or hint.committed_ms // age_ms != hint.prev_committed_ms // age_ms


def may_be_due(hints: Sequence[Hint], now_ms: int, limits: SealLimits) -> bool:
    """Returns whether a log may be due, as new entries of it say: an entry passes a multiple of a quarter of the limit of
    bytes or records, or is as old as the limit already. Between multiples the log is not looked at, so it is found to be
    due at most a quarter of a limit late.
    """
    return any(
        _passes(*hint.total_bytes, limits.payload_bytes)
        or _passes(*hint.records, limits.records)
        or due_by_age(hint.committed_ms, now_ms, limits)
        for hint in hints
    )


def _passes(before: int, after: int, limit: int) -> bool:
    step = max(1, limit // _LOOKS)
    return before // step != after // step


def messages(log_id: str, hints: Sequence[Hint], now_ms: int, limits: SealLimits) -> list[Message]:
    """Returns the delayed messages that new entries of one log need, each at most once: to seal it when they are old
    enough, and to purge it if an entry may have ended it.

    A message to seal whose time has passed already is left out, because the log is looked at right afterwards
    (`may_be_due`).
    """
    age_ms = limits.age_ms
    alarms = {hint.committed_ms + age_ms for hint in hints if opens_bucket(hint, age_ms)}
    late = [hint.committed_ms for hint in hints if now_ms >= (hint.committed_ms // age_ms + 1) * age_ms]
    if late:
        alarms.add(max(late) + age_ms)
    slack_ms = min(_SLACK_MS, age_ms // 10)
    wanted = [
        Message("seal", log_id, not_before_ms=alarm_ms + slack_ms, force=True)
        for alarm_ms in sorted(alarms)
        if alarm_ms + slack_ms > now_ms
    ]
    ends = [hint.committed_ms for hint in hints if hint.kind in _MAY_END_LOG]
    if ends:
        wanted.append(Message("purge", log_id, not_before_ms=max(ends) + limits.trim_age_ms))
    return wanted
