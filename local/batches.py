"""Lambda's rules for a batch: what order it has, and what happens to it after a failure. Pure.

Within a key the order of writing always holds. Across keys AWS promises nothing, since keys live in different shards;
here the order is shuffled on purpose, so that code which relies on luck fails on a laptop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from local.deployment import StreamTrigger

Json = dict[str, Any]
# Lambda's limit for the event of one invocation.
BATCH_BYTES = 6_000_000


@dataclass(frozen=True)
class Batch:
    """Records that are handed over together, and how many times that was tried."""

    records: tuple[Json, ...]
    attempts: int = 0


@dataclass(frozen=True)
class Verdict:
    """What to do after a failure: `again` in this order, before anything newer; `dead` goes to the destination."""

    again: tuple[Batch, ...] = ()
    dead: Batch | None = None
    condition: str = ""


def shuffled_across_keys(records: Sequence[Json], key_of: Callable[[Json], str], random: Random) -> list[Json]:
    """The same records in a random order in which those of one key keep theirs."""
    waiting: dict[str, deque[Json]] = {}
    for record in records:
        waiting.setdefault(key_of(record), deque()).append(record)
    # One ticket for each record, so that every merge of the keys is equally likely.
    tickets = [key for key, of_key in waiting.items() for _ in of_key]
    random.shuffle(tickets)
    return [waiting[key].popleft() for key in tickets]


def after_failure(batch: Batch, rule: StreamTrigger, *, failed_at: int = 0, oldest_age_seconds: float = 0) -> Verdict:
    """Decides about a batch whose invocation failed, from record number `failed_at` on.

    What precedes `failed_at` has succeeded. With bisect a batch of several records is split, at the failed record
    where the function named one and else in the middle; a split costs no attempt. Otherwise the rest is tried again
    until its attempts or the age of its records are used up.
    """
    rest = Batch(batch.records[failed_at:], batch.attempts + 1)
    too_old = 0 <= rule.maximum_age_seconds < oldest_age_seconds
    if too_old:
        return Verdict(dead=rest, condition="RecordAgeExceeded")
    if failed_at > 0:
        return Verdict(again=(replace(rest, attempts=0),))
    if rule.bisect and len(rest.records) > 1:
        middle = len(rest.records) // 2
        return Verdict(again=(Batch(rest.records[:middle]), Batch(rest.records[middle:])))
    attempts_left = rule.maximum_retries < 0 or rest.attempts <= rule.maximum_retries
    if attempts_left:
        return Verdict(again=(rest,))
    return Verdict(dead=rest, condition="RetryAttemptsExhausted")


def first_failed(answer: Any, identifiers: Sequence[str]) -> int | None:
    """The position of the first record that the function's answer reports as failed; None when all succeeded.

    An answer that names an unknown record, or is malformed, fails the whole batch, as on AWS.
    """
    failed = failed_identifiers(answer, identifiers)
    if failed is None:
        return 0
    return min((identifiers.index(identifier) for identifier in failed), default=None)


def failed_identifiers(answer: Any, identifiers: Sequence[str]) -> set[str] | None:
    """The identifiers reported as failed; None when the answer is malformed and everything counts as failed."""
    if answer is None:
        return set()
    if not isinstance(answer, dict):
        return None
    failures = answer.get("batchItemFailures")
    if failures is None:
        return set()
    try:
        failed = {failure["itemIdentifier"] for failure in failures}
    except (TypeError, KeyError):
        return None
    return failed if failed <= set(identifiers) else None
