"""Turns facts into checks with a level and advice. Does no I/O.

The limits are those of a healthy deployment: an entry is sealed about the seal age after its commit, plus the stream's
batching window and the queue's delay; a segment is indexed after the index age plus the time of a job run.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from cli.tables import age, counted
from operators.doctor import feature_rules, following_rules
from operators.doctor.facts import (
    Check,
    CloudFacts,
    Level,
    LogFacts,
    QueueFacts,
    ServerFacts,
    TableFacts,
)

SLOW_MS = 1000.0
SEAL_SLACK_MS = 60_000
INDEX_SLACK_MS = 15 * 60_000
JOB_LIMIT_MS = 75 * 60_000  # EMR Serverless ends a run after an hour
OLD_MESSAGE_S = 20 * 60.0  # a message is delayed by at most 15 minutes
MANY_MESSAGES = 10_000
_OVER = ("SUCCESS", "FAILED", "CANCELLED")

_OPERATIONS = "docs/operations.md"
_UPDATE = "docs/deploy.md#update"


def server(facts: ServerFacts, url: str, own_version: str) -> Iterator[Check]:
    """Yields the checks of a server, from facts gathered over HTTP: whether and how fast it answers, its release, and
    its keys; only the first if it does not answer.
    """
    if facts.error:
        advice = (
            "check that the server is running, the address and the network; `headrace dev` runs one on this machine"
        )
        yield Check(
            "server", "fail", f"no answer from {url}: {facts.error}", advice, f"{_OPERATIONS}#on-this-machine"
        )
        return
    middle = statistics.median(facts.latencies_ms)
    slow: Level = "warn" if middle > SLOW_MS else "ok"
    found = f"{url} answers; median of {len(facts.latencies_ms)}: {middle:,.0f} ms"
    yield Check("server", slow, found, "look at the function's duration and at cold starts" if slow == "warn" else "")
    yield _version(facts.version, own_version)
    yield from _keys(facts)


def _version(version: str, own_version: str) -> Check:
    if not version:
        return Check(
            "version",
            "warn",
            "the server does not say which release it is",
            "is it Headrace?",
        )
    if version != own_version:
        found = f"server {version}, command line {own_version}"
        return Check("version", "warn", found, "install the release of the server, or deploy this one", _UPDATE)
    return Check("version", "ok", f"server and command line {version}")


def _keys(facts: ServerFacts) -> Iterator[Check]:
    docs = f"{_OPERATIONS}#access-keys"
    if facts.status_without_key == 401:
        yield Check("lock", "ok", "requests without a key are refused")
    elif facts.status_without_key >= 500:
        yield Check(
            "lock", "fail", f"a listing fails: status {facts.status_without_key}", "look at the api's log", docs
        )
    elif facts.is_local:
        yield Check("lock", "ok", "open to everybody on this machine")
    else:
        yield Check("lock", "fail", "open to everybody who finds it", "set HEADRACE_API_KEYS or its secret", docs)
    match facts.status_with_key:
        case None if facts.status_without_key == 401:
            yield Check("key", "warn", "no key to try", "pass --key, or set HEADRACE_API_KEY", docs)
        case None:
            yield Check("key", "skipped", "no key given, none needed")
        case 401:
            advice = "is it the deployment's, and was the api published since it was added?"
            yield Check("key", "fail", "the key is not one of the server's", advice, docs)
        case 403:
            yield Check("key", "warn", "the key may not list streams: no scope `read`", "fine for a writer", docs)
        case status if status >= 400:
            yield Check(
                "key", "fail", f"a listing with the key fails: status {status}", "look at the api's log", docs
            )
        case _ if facts.status_as_admin == 200:
            yield Check("key", "ok", "accepted, with the scope `admin` for every name")
        case _:
            yield Check("key", "ok", "accepted; it has a limited scope")


def cloud(facts: CloudFacts) -> Iterator[Check]:
    """Yields the checks of the resources in AWS: each table and queue, the bucket, sealing, indexing, job runs and
    alarms.
    """
    for table in facts.tables:
        yield _table(table, facts)
    if facts.bucket is not None:
        yield _bucket(facts)
    for queue in facts.queues:
        yield _queue(queue)
    yield _sealing(facts)
    yield from following_rules.following(facts.following)
    yield from feature_rules.features(facts.features)
    yield _indexing(facts)
    yield _jobs(facts)
    yield _alarms(facts)


def _needs_customer_key(facts: CloudFacts) -> bool:
    """Returns whether it is a fault that data are encrypted with a key of AWS instead of one of the account."""
    return facts.needs_customer_key is True and not facts.is_emulated


def _table(table: TableFacts, facts: CloudFacts) -> Check:
    is_emulated = facts.is_emulated
    name, docs = f"table {table.name}", _UPDATE
    if table.error:
        advice = "deploy again, restore it from its backup, or `headrace recover` what the bucket has"
        return Check(name, "fail", table.error, advice, f"{_OPERATIONS}#checking-and-recovering")
    if table.status != "ACTIVE":
        return Check(name, "warn", f"is {table.status}", "wait until it is ACTIVE", docs)
    if table.has_stream is False:
        return Check(name, "fail", "has no stream of new images: nothing wakes the sealer", "deploy again", docs)
    kept = {
        "deletion protection": table.is_protected,
        "on demand": table.is_on_demand,
        "customer key": table.has_customer_key or not _needs_customer_key(facts),
        "point-in-time recovery": table.is_recoverable is not False or is_emulated,
    }
    lacking = [what for what, is_there in kept.items() if not is_there]
    if lacking:
        return Check(name, "warn", f"lacks: {', '.join(lacking)}", "deploy again: it was changed by hand", docs)
    return Check(name, "ok", "active, protected" + (" as far as the emulator goes" if is_emulated else ""))


def _bucket(facts: CloudFacts) -> Check:
    bucket, docs = facts.bucket, _UPDATE
    assert bucket is not None
    if bucket.error:
        advice = "nothing can be read from segments: check its name and your permissions"
        return Check("bucket", "fail", bucket.error, advice, f"{_OPERATIONS}#when-data-is-damaged")
    if facts.is_emulated:
        return Check("bucket", "ok", "there; the emulator keeps no versions")
    kept = {
        "versions": bucket.is_versioned,
        "encryption": bucket.is_encrypted,
        "customer key": bucket.has_customer_key or not _needs_customer_key(facts),
        "block of public access": bucket.is_private,
    }
    lacking = [what for what, is_there in kept.items() if not is_there]
    if lacking:
        return Check("bucket", "fail", f"lacks: {', '.join(lacking)}", "deploy again: it was changed by hand", docs)
    return Check("bucket", "ok", "there, versioned, encrypted, private")


def _queue(queue: QueueFacts) -> Check:
    name, docs = f"queue {queue.name}", f"{_OPERATIONS}#delayed-queue-and-dead-letters"
    if queue.error:
        return Check(name, "fail", queue.error, "deploy again", docs)
    held = f"{queue.waiting:,} waiting, {queue.delayed:,} delayed, {queue.in_flight:,} in hand"
    if queue.is_dead_letters:
        dead = queue.waiting + queue.in_flight
        if dead:
            advice = "read why in the function's log; once the cause is gone, redrive them, or run the audit"
            return Check(name, "fail", f"holds {counted(dead, 'message')} that could not be processed", advice, docs)
        return Check(name, "ok", "empty")
    if queue.oldest_s is not None and queue.oldest_s > OLD_MESSAGE_S:
        advice = "does the function that reads it run, fail, or lack concurrency?"
        return Check(name, "warn", f"{held}; the oldest since {age(round(queue.oldest_s * 1000))}", advice, docs)
    if queue.waiting > MANY_MESSAGES:
        return Check(name, "warn", held, "is the function that reads it throttled?", docs)
    return Check(name, "ok", held)


def _sealing(facts: CloudFacts) -> Check:
    docs = f"{_OPERATIONS}#the-sealers-work-and-its-ages"
    if facts.logs_error:
        return Check("sealing", "fail", facts.logs_error, "see the tables above", docs)
    limit_ms = 2 * facts.seal_age_ms + SEAL_SLACK_MS
    broken = [log for log in facts.logs if log.error]
    if broken:
        found = f"can't read {counted(len(broken), 'log')}: {broken[0].name}: {broken[0].error}"
        return Check(
            "sealing", "fail", found, "`headrace verify` says what is damaged", f"{_OPERATIONS}#when-data-is-damaged"
        )
    unsealed = [(log.oldest_ms, log) for log in facts.logs if log.oldest_ms is not None]
    looked = f"{counted(len(facts.logs), 'log')} looked at{', not all' if facts.more_logs else ''}"
    late = sorted(((waited, log) for waited, log in unsealed if waited > limit_ms), key=lambda found: -found[0])
    if late:
        advice = "does the sealer run? look at its log, its dead letters, and the stream's iterator age"
        return Check("sealing", "fail", _late(late, limit_ms), advice, docs)
    oldest = max((waited for waited, _ in unsealed), default=None)
    return Check("sealing", "ok", f"{looked}, oldest unsealed entry {age(oldest)}")


def _late(late: list[tuple[int, LogFacts]], limit_ms: int) -> str:
    waited, log = late[0]
    others = f" and {counted(len(late) - 1, 'other')}" if len(late) > 1 else ""
    return f"unsealed for {age(waited)}, more than {age(limit_ms)}: {log.name}{others}"


def _indexing(facts: CloudFacts) -> Check:
    docs = f"{_OPERATIONS}#indexing"
    if facts.waiting_error:
        return Check("indexing", "fail", facts.waiting_error, "see the tables above", docs)
    failed = [row for row in facts.waiting if row.failures]
    if failed:
        found = f"can't index {counted(len(failed), 'log')}, the last: {failed[0].log_id}: {failed[0].reason}"
        advice = "they are tried again, at growing intervals; `headrace index rebuild NAME` once the cause is gone"
        return Check("indexing", "warn", found, advice, docs)
    waits = [row.waited_ms for row in facts.waiting if row.waited_ms is not None]
    longest = max(waits, default=0)
    if longest > facts.index_age_ms + INDEX_SLACK_MS:
        found = f"logs that wait for a job run: {len(waits)}, the longest for {age(longest)}"
        return Check("indexing", "warn", found, "does the indexer run, and do its job runs succeed?", docs)
    return Check("indexing", "ok", f"waiting logs: {len(waits)}, the longest for {age(longest) if waits else '-'}")


def _jobs(facts: CloudFacts) -> Check:
    docs = f"{_OPERATIONS}#indexing"
    if facts.job_in_hand_ms is not None and facts.job_in_hand_ms > JOB_LIMIT_MS:
        found = f"a job holds its place for {age(facts.job_in_hand_ms)}"
        return Check("job runs", "warn", found, "the next tick of the indexer frees it: does it run?", docs)
    if facts.jobs is None:
        level: Level = "warn" if facts.jobs_error else "skipped"
        return Check(
            "job runs",
            level,
            facts.jobs_error or "no Spark application is named",
            docs=docs if facts.jobs_error else "",
        )
    over = [job for job in sorted(facts.jobs, key=lambda job: job.age_ms) if job.state in _OVER]
    if not over:
        return Check("job runs", "ok", f"none is over yet, {len(facts.jobs)} under way")
    last = over[0]
    seen = ", ".join(f"{sum(job.state == state for job in over)} {state}" for state in _OVER)
    found = f"the last {len(over)}: {seen}; the last one {last.state}, {age(last.age_ms)} ago"
    if last.state == "FAILED":
        advice = "read its driver's log: does it find its code, its input, its permissions?"
        return Check("job runs", "fail", found, advice, docs)
    return Check("job runs", "warn" if any(job.state == "FAILED" for job in over) else "ok", found, docs=docs)


def _alarms(facts: CloudFacts) -> Check:
    docs = f"{_OPERATIONS}#metrics"
    if facts.alarms_error:
        return Check("alarms", "warn", facts.alarms_error, "check your permissions for CloudWatch", docs)
    ringing = [alarm for alarm in facts.alarms if alarm.state == "ALARM"]
    if ringing:
        found = "; ".join(f"{alarm.name}: {alarm.reason}" for alarm in ringing)
        return Check("alarms", "fail", found, "each alarm's description says what to do", docs)
    if not facts.alarms and facts.has_alarms:
        return Check("alarms", "warn", "there are none", "failures notify no one: deploy again", docs)
    if not facts.alarms:
        return Check("alarms", "skipped", "there are none", "", docs)
    silent = sum(alarm.state == "INSUFFICIENT_DATA" for alarm in facts.alarms)
    return Check("alarms", "ok", f"{len(facts.alarms)}, none rings" + (f", {silent} without data" if silent else ""))
