"""The frame of a worker function (sealer or indexer): which events run which verbs, and who repeats what failed; and the
walk through all names that their audits share.

queue      each message is one verb, or several; equal ones run once. SQS repeats those that fail.
stream     hints that name logs, if the worker listens to a stream
schedule   the worker's `scheduled` verb, or the message in the rule's constant input (`{"verb": "audit"}`).
           A failure fails the invocation; Lambda repeats it, and the next schedule runs the verb anyway.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec
from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from functions.metrics import Meter, Metric
from functions.queue import Message, Queue, parse
from headrace import decoding
from headrace.clock import Threads
from headrace.errors import HeadraceError, StoreError
from headrace.log.stores import Stores
from headrace.manifest.store import ManifestStore, NewestLook
from headrace.objects.observed import ObservedObjects, RequestCounts
from headrace.tables.catalog import BUCKETS, Row

Json = Mapping[str, Any]
SCHEDULED = "Scheduled Event"


M = TypeVar("M", bound=Metric)


@dataclass(frozen=True, slots=True)
class Context(Generic[M]):
    """What the verbs of every worker need; created once for each process.

    Attributes:
        counts: requests to the object store that are not in the durable counters yet.
    """

    stores: Stores
    manifests: ManifestStore
    queue: Queue
    counts: RequestCounts
    meter: Meter[M]

    def now_ms(self) -> int:
        """Returns the server's clock in epoch milliseconds."""
        return self.stores.clock.now_ms()

    def look(self) -> NewestLook:
        """Returns a look for the newest generation of a manifest or an index manifest that begins now."""
        return NewestLook.begin(self.stores.clock)


def count_requests(stores: Stores, meter: Meter[Any]) -> tuple[Stores, RequestCounts]:
    """Returns the stores with an object store whose requests are counted, in `meter` and in the returned counts by
    stream.
    """
    counts = RequestCounts()
    objects = ObservedObjects(stores.objects, stores.clock, counts.observe, meter.observe)
    return replace(stores, objects=objects), counts


AUDIT_ROWS = 500  # names in one run of an audit: seconds, then other messages have their turn
AUDITORS = Threads(16, "audit")
_APART_MS = 1000  # messages that come one by one are received one by one, and so run at the same time
_DAY_MS = 24 * 3600 * 1000
_ACTIVE_MS = 2 * _DAY_MS  # twice the schedule
_WEEK_DAYS = 7
A = TypeVar("A")


class Audited(NamedTuple, Generic[A]):
    """The result of one run of an audit: what was found out about each log, and the ids of those that could not be looked
    at, with the error.
    """

    found: list[A]
    failed: list[tuple[str, Exception]]


def audit(
    context: Context[Any],
    message: Message,
    look: Callable[[Row], A],
    wanted: Callable[[Audited[A]], Sequence[Message]],
) -> Audited[A]:
    """Runs one message of an audit: calls `look` for each log of one page of names, several at a time, sends the messages
    that are `wanted` for what it found, and last the message for the next page: what fails before is tried again, and
    must not begin the rest of the names twice. The message of the schedule, which names no part of the names, is replaced
    by one for each part: they run at the same time, as far as the function may.
    """
    queue, now_ms = context.queue, context.now_ms()
    if not message.surface:
        parts = [(surface, part) for surface in context.stores.surfaces for part in BUCKETS]
        queue.send(
            [
                msgspec.structs.replace(
                    message, surface=surface, part=part, not_before_ms=now_ms + number * _APART_MS
                )
                for number, (surface, part) in enumerate(parts)
            ],
            now_ms,
        )
        return Audited([], [])

    def tried(row: Row) -> A | Exception:
        try:
            return look(row)
        except Exception as exc:  # noqa: BLE001 - one poisoned log must not hide the others
            return exc

    rows = context.stores.catalog.part(message.surface, message.part, after=message.after, limit=AUDIT_ROWS)
    logs = [log for row in rows for log in row.logs]
    found: Audited[A] = Audited([], [])
    for log, result in zip(logs, AUDITORS.map(tried, logs), strict=True):
        if isinstance(result, Exception):
            found.failed.append((log.log_id, result))
        else:
            found.found.append(result)
    queue.send(wanted(found), now_ms)
    if len(rows) == AUDIT_ROWS:
        queue.send([msgspec.structs.replace(message, after=rows[-1].name, not_before_ms=0)], now_ms)
    return found


def is_its_day(message: Message, log_id: str, idle_ms: int, now_ms: int) -> bool:
    """Returns whether an audit looks closely at a log today: every day if something was written to it in the last two, or
    if the message says so; else once a week, on a day that depends on its id, for what only time or an operator changes.
    """
    if message.force:
        return True
    return idle_ms < _ACTIVE_MS or now_ms // _DAY_MS % _WEEK_DAYS == int(log_id[:8], 16) % _WEEK_DAYS


C = TypeVar("C", bound=Context[Any])


class Worker(ABC, Generic[C]):
    """The frame of one worker function; a subclass adds the verbs.

    Attributes:
        scheduled: the message that an event of one of the kinds `scheduled_by` stands for.
        failed: the metric that counts failed verbs; `failed_verbs` names other metrics for some verbs.
        poisoned: the metric that counts failures for which a repeat would fail again.
    """

    scheduled: ClassVar[Message]
    scheduled_by: ClassVar[frozenset[str]] = frozenset({SCHEDULED})
    failed: ClassVar[Metric]
    failed_verbs: ClassVar[Mapping[str, Metric]] = {}
    poisoned: ClassVar[Metric]

    def __init__(self, context: C, logger: Logger) -> None:
        self.context = context
        self.logger = logger

    @abstractmethod
    def run(self, message: Message) -> None:
        """Runs the verb of a message and adds its metrics. Raises the verb's errors."""

    def handle(self, event: dict[str, Any], lambda_context: object) -> dict[str, Any]:
        """Handles one invocation: returns or raises what `dispatch` does, after writing the metrics and request counts."""
        self.logger.append_keys(request_id=getattr(lambda_context, "aws_request_id", None))
        try:
            return self.dispatch(event)
        finally:
            self._finish()

    def on_stream(self, records: Sequence[Json]) -> None:
        """Handles the records of a DynamoDB stream batch. Raises an error if the batch must be repeated; this method
        always raises ValueError, a worker that listens to a stream overrides it.
        """
        raise ValueError(f"this function listens to no stream: records={len(records)}")

    def parse(self, body: str) -> Iterable[Message]:
        """Returns the messages in the body of a queue message.

        Raises:
            ValueError, HeadraceError: the body is malformed, or of a newer release.
        """
        return (parse(body),)

    def run_each(self, messages: Iterable[Message]) -> list[Message]:
        """Runs the messages and returns those that failed; their errors are logged and counted, so that one poisoned
        log does not make others repeat.
        """
        failed = []
        for message in messages:
            try:
                self.run(message)
            except Exception:  # noqa: BLE001 - as said
                self.note_failure(message.verb, message.log_id)
                failed.append(message)
        return failed

    def dispatch(self, event: Json) -> dict[str, Any]:
        """Runs the verbs that an event asks for, and returns the answer that Lambda expects for the event's source; for
        a queue, it names the messages to repeat.

        Raises:
            ValueError: the event is of no known kind.
            Exception: a stream batch must be repeated, or a scheduled verb failed.
        """
        records: Sequence[Json] = event.get("Records", ())
        source = records[0].get("eventSource") if records else None
        if source == "aws:dynamodb":
            self.on_stream(records)
            return {"batchItemFailures": []}
        if source == "aws:sqs":
            return {"batchItemFailures": [{"itemIdentifier": failed} for failed in self._run_batch(records)]}
        if "verb" in event:
            self.run(decoding.from_builtins(dict(event), Message))
            return {}
        if event.get("detail-type") in self.scheduled_by:
            self.run(self.scheduled)
            return {}
        raise ValueError(f"event is of no known kind: keys={sorted(event)} source={source}")

    def note_failure(self, verb: str, log_id: str = "") -> None:
        """Logs and counts the error that is being handled, for one verb and log."""
        self.logger.exception("verb failed", verb=verb, log_id=log_id)
        self.context.meter.add(self.failed_verbs.get(verb, self.failed))
        self.count_poisoned(sys.exc_info()[1])

    def count_poisoned(self, error: BaseException | None) -> None:
        """Counts the error in the metric of poisoned messages if trying again would fail again."""
        self.context.meter.add(self.poisoned, int(is_poison(error)))

    def _finish(self) -> None:
        """Writes metrics and request counts. Ignores errors, because no verb may fail because of a counter."""
        try:
            self.context.counts.flush(self.context.stores.watermarks)
        except Exception:
            self.logger.exception("request counts were not added")
        self.context.meter.flush()

    def _run_batch(self, records: Sequence[Json]) -> list[str]:
        """Runs the messages in SQS records; equal ones only once, since a busy log has many trims waiting. A message
        that is too early is sent again instead. Returns the ids of the records to repeat.
        """
        wanted: dict[Message, list[str]] = {}
        failed: list[str] = []
        for record in records:
            try:
                for message in self.parse(record["body"]):
                    now_ms = self.context.now_ms()
                    if message.not_before_ms > now_ms:
                        self.context.queue.send([message], now_ms)
                        continue
                    same = msgspec.structs.replace(message, not_before_ms=0)
                    wanted.setdefault(same, []).append(record["messageId"])
            except Exception:  # noqa: BLE001 - one unreadable message must not repeat the others
                self.note_failure("unreadable")
                failed.append(record["messageId"])
        for message in self.run_each(wanted):
            failed += wanted[message]
        return sorted(set(failed))


def is_poison(error: BaseException | None) -> bool:
    """Returns whether a repeat would fail again, because of damaged data or a bug. False for errors of a store, a queue
    or AWS, which may go away; True for all errors that are not known.
    """
    if isinstance(error, HeadraceError):
        return not (error.retryable or error.may_have_written)
    return not isinstance(error, StoreError | BotoCoreError | ClientError)
