"""Turns facts about what follows appends into checks. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cli.tables import age, counted
from operators.doctor.facts import Check, FollowingFacts

LATE_VISIT_MS = 3 * 60_000  # the sweep asks again half a minute after its time, and runs each minute
LATE_ROUTER_MS = 5 * 60_000  # a visit that fails is repeated each minute at least
BLOCKED_ROUTER_MS = 10 * 60_000
FAILING_WEBHOOK_MS = 5 * 60_000  # it was called some ten times
UNCLAIMED_MS = 60 * 60_000
JOB_WAIT_MS = 30 * 60_000  # as the alarm `jobs-wait`

_OPERATIONS = "docs/operations.md"


def following(facts: FollowingFacts) -> Iterator[Check]:
    """Yields the checks of the relay's visits, routers, subscriptions and queues of jobs."""
    yield _relay(facts)
    yield _routers(facts)
    yield _subscriptions(facts)
    yield _job_queues(facts)


def _relay(facts: FollowingFacts) -> Check:
    docs = f"{_OPERATIONS}#relay-lags"
    if facts.visits_error:
        return Check("relay", "fail", facts.visits_error, "see the tables above", docs)
    late = [visit for visit in facts.visits if visit.late_ms > LATE_VISIT_MS]
    if late:
        worst = max(late, key=lambda visit: visit.late_ms)
        found = f"{counted(len(late), 'visit')} overdue, that of {worst.kind} {worst.id} for {age(worst.late_ms)}"
        return Check(
            "relay", "fail", found, "does the relay run? look at its log, its queue and its dead letters", docs
        )
    return Check("relay", "ok", f"visits that are due: {len(facts.visits)}, none for long")


def _routers(facts: FollowingFacts) -> Check:
    docs = "docs/routers.md#how-far-it-is"
    broken = next((router for router in facts.routers if router.error), None)
    if facts.routers_error or broken is not None:
        found = f"can't read {broken.name}: {broken.error}" if broken is not None else facts.routers_error
        return Check("routers", "fail", found, "`headrace verify` says what is damaged", docs)
    late = [router for router in facts.routers if router.blocked_ms is None and router.waited_ms > LATE_ROUTER_MS]
    if late:
        worst = max(late, key=lambda router: router.waited_ms)
        records = counted(worst.lag, "record")
        found = f"{worst.name} is {records} behind {worst.source}, for {age(worst.waited_ms)}{others(late)}"
        return Check(
            "routers", "fail", found, "look at *Relay lags*, and for `visit failed` in the relay's log", docs
        )
    full = [router for router in facts.routers if (router.blocked_ms or 0) > BLOCKED_ROUTER_MS]
    if full:
        worst = max(full, key=lambda router: router.blocked_ms or 0)
        found = f"{worst.name} waits for room in {worst.dest} for {age(worst.blocked_ms)}{others(full)}"
        return Check("routers", "warn", found, "make room there: acks, deletes, or a higher cap", docs)
    return Check("routers", "ok", f"{counted(len(facts.routers), 'router')} looked at, none late or blocked")


def _subscriptions(facts: FollowingFacts) -> Check:
    docs = f"{_OPERATIONS}#webhooks-fail"
    if facts.visits_error:
        return Check("subscriptions", "fail", facts.visits_error, "see the tables above", docs)
    open_wakes = sorted(facts.subscriptions, key=lambda sub: -sub.waited_ms)
    broken = [sub for sub in open_wakes if sub.error]
    if broken:
        found = f"can't read {broken[0].id}: {broken[0].error}{others(broken)}"
        return Check("subscriptions", "fail", found, "its row is damaged: delete it, and create it again", docs)
    refused = [sub for sub in open_wakes if sub.refused]
    if refused:
        found = f"the key of {refused[0].id} does not allow its wake: {refused[0].refused}{others(refused)}"
        return Check("subscriptions", "warn", found, "PUT it again with a key that does, or delete it", docs)
    failing = [sub for sub in open_wakes if sub.failures and sub.waited_ms > FAILING_WEBHOOK_MS]
    if failing:
        calls = counted(failing[0].failures, "call")
        found = f"the webhook of {failing[0].id} fails: {calls} in {age(failing[0].waited_ms)}{others(failing)}"
        return Check("subscriptions", "warn", found, "tell the receiver's owner, or delete the subscription", docs)
    unclaimed = [sub for sub in open_wakes if sub.stage == "announced" and sub.waited_ms > UNCLAIMED_MS]
    if unclaimed:
        found = f"no worker claims the wake of {unclaimed[0].id} for {age(unclaimed[0].waited_ms)}{others(unclaimed)}"
        return Check("subscriptions", "warn", found, "do its workers run, and read its wake stream?", docs)
    return Check("subscriptions", "ok", f"open wakes: {len(open_wakes)}, none in trouble")


def _job_queues(facts: FollowingFacts) -> Check:
    docs = f"{_OPERATIONS}#queues-of-jobs"
    broken = next((queue for queue in facts.queues if queue.error), None)
    if facts.queues_error or broken is not None:
        found = f"can't read {broken.name}: {broken.error}" if broken is not None else facts.queues_error
        return Check("job queues", "fail", found, "`headrace verify` says what is damaged", docs)
    stuck = [queue for queue in facts.queues if (queue.oldest_ms or 0) > JOB_WAIT_MS]
    if stuck:
        worst = max(stuck, key=lambda queue: queue.oldest_ms or 0)
        found = f"a job of {worst.name} waits for {age(worst.oldest_ms)}, {worst.ready:,} ready{others(stuck)}"
        return Check("job queues", "warn", found, "do its workers run, and keep up?", docs)
    dead = [queue for queue in facts.queues if queue.dead_letters]
    if dead:
        worst = max(dead, key=lambda queue: queue.dead_letters)
        held = counted(worst.dead_letters, "job")
        found = f"{worst.dead_letter} holds {held} that {worst.name} gave up{others(dead)}"
        return Check("job queues", "warn", found, "see `headrace queue dead-letters list`, and `… retry`", docs)
    return Check("job queues", "ok", f"{counted(len(facts.queues), 'queue')} looked at, no job waits for long")


def others(found: Sequence[object]) -> str:
    """Returns how many there are beside the one that a message names, in words; empty if there is no other."""
    return f"; and {counted(len(found) - 1, 'other')}" if len(found) > 1 else ""
