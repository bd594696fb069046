"""The pumps that call functions with queue messages, events and schedules. For streams see `local.stream_pump`."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any, Protocol
from urllib.request import urlopen
from uuid import uuid4

from local.access_calls import ACCOUNT, REGION
from local.deployment import EventTrigger, QueueTrigger, ScheduleTrigger, name_in_arn
from local.lambda_events import filterable_message, matches, matches_any, queue_record, scheduled_event
from local.lambda_runtime import FunctionFailed, Invoker
from local.stream_pump import POLL_SECONDS, failed_identifiers

log = logging.getLogger("headrace.dispatcher")
# ReceiveMessage's own limit.
RECEIVED_AT_ONCE = 10


class QueuePump:
    """The event source mapping of one queue. A message that fails reappears after the queue's visibility timeout; the
    queue itself moves it to its dead letters.
    """

    def __init__(self, trigger: QueueTrigger, runtime: Invoker, sqs: Any) -> None:
        self._trigger = trigger
        self._runtime = runtime
        self._sqs = sqs
        self._url = ""

    def prepare(self) -> None:
        """Looks up the queue's URL."""
        self._url = self._sqs.get_queue_url(QueueName=name_in_arn(self._trigger.queue_arn))["QueueUrl"]

    def run(self, stop: Event) -> None:
        """Receives messages and invokes the function, until `stop` is set."""
        while not stop.is_set():
            answer = self._sqs.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=min(self._trigger.batch_size, RECEIVED_AT_ONCE),
                WaitTimeSeconds=POLL_SECONDS,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
            records = [queue_record(message, self._trigger.queue_arn) for message in answer.get("Messages", [])]
            if records:
                self._delete(self._done(records))

    def _done(self, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Invokes the function with the records, and returns those to delete: the filter refused them, or they
        succeeded.
        """
        wanted = [r for r in records if matches_any(self._trigger.filters, filterable_message(r))]
        refused = [r for r in records if r not in wanted]
        if not wanted:
            return refused
        try:
            answer, _ = self._runtime.invoke({"Records": wanted})
        except FunctionFailed:
            return refused
        if not self._trigger.reports_item_failures:
            return records
        failed = failed_identifiers(answer, [record["messageId"] for record in wanted])
        if failed is None:
            log.error("%s reported failures that are not in the batch: all count as failed", self._trigger.function)
            return refused
        return refused + [record for record in wanted if record["messageId"] not in failed]

    def _delete(self, records: list[dict[str, Any]]) -> None:
        if records:
            entries = [{"Id": str(n), "ReceiptHandle": r["receiptHandle"]} for n, r in enumerate(records)]
            self._sqs.delete_message_batch(QueueUrl=self._url, Entries=entries)


# Lambda repeats a failed asynchronous invocation after a minute; here that would only cost time.
RETRY_SECONDS = 1.0

Events = Callable[[int | None], dict[str, Any]]


class EventPump:
    """All rules with an event pattern. As with EventBridge, an event may be lost, for example if it occurs between two
    polls.
    """

    def __init__(self, triggers: Sequence[EventTrigger], runtimes: dict[str, Invoker], events: Events) -> None:
        self._triggers = triggers
        self._runtimes = runtimes
        self._events = events
        self._after = 0

    def prepare(self) -> None:
        """Finds the newest event, after which polling starts."""
        self._after = self._events(None)["newest"]

    def run(self, stop: Event) -> None:
        """Polls events and invokes the functions of matching rules, until `stop` is set."""
        while not stop.is_set():
            answer = self._events(self._after)
            for event in answer["events"]:
                self._dispatch(event, stop)
            self._after = answer["newest"]

    def _dispatch(self, event: dict[str, Any], stop: Event) -> None:
        for trigger in self._triggers:
            if not matches(trigger.pattern, event):
                continue
            given = json.loads(trigger.input) if trigger.input is not None else event
            for attempt in range(1 + trigger.retries):
                if attempt and stop.wait(RETRY_SECONDS):
                    return
                with suppress(FunctionFailed):
                    self._runtimes[trigger.function].invoke(given)
                    break


def events_at(endpoint: str) -> Events:
    """Returns a function that polls events from the emulated EMR Serverless. While that process is being replaced it
    tries again for 5 seconds, then raises OSError.
    """

    def ask(after: int | None) -> dict[str, Any]:
        query = "" if after is None else f"?after={after}&wait={POLL_SECONDS}"
        for attempt in range(50):
            try:
                with urlopen(f"{endpoint}/_emulator/events{query}", timeout=30) as answer:
                    found: dict[str, Any] = json.load(answer)
                    return found
            except OSError:
                if attempt == 49:
                    raise
                time.sleep(0.1)
        raise AssertionError("the last try returns or raises")

    return ask


LONGEST_SLEEP_SECONDS = 60.0


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Runs(Protocol):
    """The port that remembers when each rule ran last."""

    def load(self, rule: str) -> datetime | None:
        """Returns when a rule ran last; None if it never did."""

    def save(self, rule: str, at: datetime) -> None:
        """Notes that a rule has run."""


class SchedulePump:
    """One scheduled rule and one function. A failed invocation is not repeated before the next time; `period_seconds`
    replaces the rule's period. With `runs` a rule goes on where it was when the machine was switched off: one that is
    overdue runs at once.
    """

    def __init__(
        self,
        trigger: ScheduleTrigger,
        runtime: Invoker,
        period_seconds: float | None = None,
        clock: Callable[[], datetime] = _utc_now,
        runs: Runs | None = None,
    ) -> None:
        self._trigger = trigger
        self._runtime = runtime
        self._runs = runs
        self._period_seconds = period_seconds
        self._clock = clock

    def prepare(self) -> None:
        """Checks the schedule now, so that an invalid one raises ValueError before its first run."""
        self._next(self._clock())

    def run(self, stop: Event) -> None:
        """Waits for each next time and invokes the function, until `stop` is set."""
        due = self._first()
        while not stop.is_set():
            left = (due - self._clock()).total_seconds()
            if left > 0:
                # In short sleeps, since a laptop's clock jumps when its lid opens.
                stop.wait(min(left, LONGEST_SLEEP_SECONDS))
                continue
            with suppress(FunctionFailed):
                self._runtime.invoke(
                    scheduled_event(self._trigger, at=due, event_id=str(uuid4()), account=ACCOUNT, region=REGION)
                )
            if self._runs is not None:
                self._runs.save(self._trigger.rule, self._clock())
            due = self._next(self._clock())

    def _first(self) -> datetime:
        """Returns when the rule is due at the start; with `runs`, at once if it has never run."""
        now = self._clock()
        if self._runs is None:
            return self._next(now)
        last = self._runs.load(self._trigger.rule)
        return now if last is None else self._next(min(last, now))  # the clock may have been ahead

    def _next(self, after: datetime) -> datetime:
        if self._period_seconds:
            return after + timedelta(seconds=self._period_seconds)
        return next_time(self._trigger.expression, after)


_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_CRON = re.compile(r"cron\((\S+) (\S+) (\S+) (\S+) (\S+) (\S+)\)")
_NAMES = {
    name: str(number)
    for names, first in (
        ("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC", 1),
        ("SUN MON TUE WED THU FRI SAT", 1),
    )
    for number, name in enumerate(names.split(), first)
}
_HORIZON = timedelta(days=366)


def next_time(expression: str, after: datetime) -> datetime:
    """Returns the first time later than `after` at which a schedule runs. Raises ValueError for a schedule that is
    invalid, or does not run within a year.
    """
    if rate := _RATE.fullmatch(expression):
        return after + int(rate[1]) * timedelta(**{f"{rate[2]}s": 1})
    cron = _CRON.fullmatch(expression)
    if cron is None:
        raise ValueError(f"not a schedule: {expression!r}")
    minute, hour, day, month, weekday, year = cron.groups()
    time = after.replace(second=0, microsecond=0) + timedelta(minutes=1)
    end = time + _HORIZON
    while time < end:
        day_matches = (
            _matches(day, time.day, 1)
            and _matches(month, time.month, 1)
            and _matches(weekday, time.isoweekday() % 7 + 1, 1)
            and _matches(year, time.year, 1970)
        )
        if not day_matches:
            time = time.replace(hour=0, minute=0) + timedelta(days=1)
        elif not _matches(hour, time.hour, 0):
            time = time.replace(minute=0) + timedelta(hours=1)
        elif not _matches(minute, time.minute, 0):
            time += timedelta(minutes=1)
        else:
            return time
    raise ValueError(f"a schedule that does not come within a year: {expression!r}")


def _matches(field: str, value: int, first: int) -> bool:
    """Returns whether a cron field (`*`, `?`, `a`, `a-b`, `a/step`, lists of these) contains a value."""
    return any(_part_matches(part, value, first) for part in field.upper().split(","))


def _part_matches(part: str, value: int, first: int) -> bool:
    if part in ("*", "?"):
        return True
    span, _, step = part.partition("/")
    low, _, high = span.partition("-")
    start = first if low == "*" else _number(low)
    if step:
        return value >= start and (value - start) % int(step) == 0 and (not high or value <= _number(high))
    return start <= value <= (_number(high) if high else start)


def _number(text: str) -> int:
    try:
        return int(_NAMES.get(text, text))
    except ValueError:
        raise ValueError(f"not supported in a cron field: {text!r}") from None
