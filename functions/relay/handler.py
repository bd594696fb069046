"""The Lambda entry of the relay: which verbs an event asks for, and which metrics each writes.

Stream: entries of followed logs, and creates. Their followers are visited for a second at most; the rest is left to
messages. The batch fails only if these can't be sent: a follower that fails has a message of its own.

Queue: `visit` visits followers of a log, `created` tells of a new log. Schedule: `sweep` asks for visits whose messages
were lost, `audit` for a visit of all followers, in case an event of the stream was lost. The frame is
`functions/worker.py`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from aws_lambda_powertools import Logger

from functions.metrics import RelayMetric
from functions.queue import Message
from functions.relay import kinds
from functions.relay.context import Context, open_context
from functions.relay.followers import Follower, Hint
from functions.relay.visits import LOST_MS, Limits, Task, Visits, waits
from functions.wiring import make_logger
from functions.worker import Audited, Json, Worker, audit, is_its_day
from headrace.clock import Threads
from headrace.tables.catalog import Row
from headrace.tables.follows import Follow
from headrace.wal.state import offset_of_slot

STREAM = Limits(run_ms=1_000, visit_ms=5_000)
QUEUE = Limits(run_ms=10_000, visit_ms=30_000)  # a webhook takes up to 20 s; both end within the function's minute
PAGE = 250  # followers that are read at once
SWEPT = 10_000  # visits that one sweep asks for
RETRY_MS = 1_000
RELAYED = "relay"  # the attribute that an entry has if its log has followers
_LOGS = Threads(10, "log")  # logs of a batch, messages of an invocation
_ROWS = Threads(16, "row")


class News(NamedTuple):
    """What a stream batch says about a log.

    Attributes:
        hint: what its followers are told.
        is_new: whether it was created.
        is_followed: whether it has followers.
    """

    hint: Hint
    is_new: bool
    is_followed: bool


class Plan(NamedTuple):
    """The visits that a message asks for; and the message for the next page of followers, if there may be more."""

    tasks: list[Task]
    more: list[Message]


class Relay(Worker[Context]):
    """The worker that runs the verbs of the relay."""

    scheduled = Message("sweep")
    failed = RelayMetric.VerbFailures
    poisoned = RelayMetric.PoisonedLogs

    def __init__(
        self,
        context: Context,
        logger: Logger,
        followers: Mapping[str, Follower],
        created: Sequence[Callable[[Context, Message], None]] = (),
    ) -> None:
        super().__init__(context, logger)
        self._visits = Visits(context, followers, self._note_visit)
        self._created = created

    def on_stream(self, records: Sequence[Json]) -> None:
        """Tells of new logs, then visits the followers of the logs that have new entries. Raises an error if the batch must
        be repeated, because the messages for what remains could not be sent.
        """
        meter, news = self.context.meter, news_by_log(records)
        meter.add(RelayMetric.StreamEvents, len(records))
        again = self.run_each([Message("created", log_id) for log_id, one in news.items() if one.is_new])

        def plan(log_id: str) -> Plan | None:
            try:
                return self._plan(Message("visit", log_id), news[log_id].hint)
            except Exception:  # noqa: BLE001 - one poisoned log must not delay the others
                self.note_failure("visit", log_id)
                return None

        followed = [log_id for log_id, one in news.items() if one.is_followed]
        plans = dict(zip(followed, _LOGS.map(plan, followed), strict=True))
        again += [Message("visit", log_id) for log_id, found in plans.items() if found is None]
        found = [plan for plan in plans.values() if plan is not None]
        rest = self._visits.run([task for plan in found for task in plan.tasks], STREAM)
        now_ms = self.context.now_ms()
        later = [msgspec.structs.replace(message, not_before_ms=now_ms + RETRY_MS) for message in again]
        self._send([*later, *rest, *(message for plan in found for message in plan.more)])
        times_ms = [int(image["committed"]["N"]) for image in images(records)]
        if times_ms:
            meter.add(RelayMetric.RelayLagMs, max(0, self.context.now_ms() - min(times_ms)))

    def run_each(self, messages: Iterable[Message]) -> list[Message]:
        """Runs the messages, several at a time, and returns those that failed, as every worker does: a slow follower does
        not delay those of other messages.
        """
        failed = _LOGS.map(lambda message: super(Relay, self).run_each([message]), list(messages))
        return [message for some in failed for message in some]

    def run(self, message: Message) -> None:
        """Runs the verb of a message and adds its metrics. Raises the verb's errors, and ValueError for an unknown
        verb.
        """
        match message.verb:
            case "visit":
                plan = self._plan(message, Hint())
                self._send([*plan.more, *self._visits.run(plan.tasks, QUEUE)])
            case "created":
                for tell in self._created:
                    tell(self.context, message)
            case "sweep":
                self._sweep()
            case "audit":
                audited = audit(self.context, message, lambda row: self._is_followed(message, row), _visits_of_all)
                for log_id, exc in audited.failed:
                    self.context.meter.add(RelayMetric.VerbFailures)
                    self.count_poisoned(exc)
                    self.logger.error("log could not be audited", log_id=log_id, exc_info=exc)
            case _:
                raise ValueError(f"the relay has no such verb: verb={message.verb}")

    def _plan(self, message: Message, hint: Hint) -> Plan:
        """Reads the followers that a message asks for, and leaves out those that wait for a visit by another message."""
        follows, now_ms, more = self.context.stores.follows, self.context.now_ms(), []
        if message.followers:
            keys = [key.partition("#") for key in message.followers]
            found = _ROWS.map(lambda key: follows.get(message.log_id, key[0], key[2]), keys)
            rows = [row for row in found if row is not None]
        else:
            rows = follows.of(message.log_id, after=message.after, limit=PAGE)
            if len(rows) == PAGE:
                more.append(msgspec.structs.replace(message, after=rows[-1].key, not_before_ms=0))

        def is_wanted(row: Follow) -> bool:
            if message.due_ms:
                return row.due_ms in (0, message.due_ms)
            return message.force or not waits(row, now_ms)

        return Plan([Task(row, hint, message.turn, message.force) for row in rows if is_wanted(row)], more)

    def _sweep(self) -> None:
        """Asks for the visits whose messages seem to be lost."""
        self.context.meter.add(RelayMetric.Sweeps)  # also of one that fails: the function lives
        due = islice(self.context.stores.follows.due(self.context.now_ms() - LOST_MS), SWEPT)
        missed = [Message("visit", row.log_id, followers=(row.key,), due_ms=row.due_ms) for row in due]
        self._send(missed)
        self.context.meter.add(RelayMetric.VisitsMissed, len(missed))

    def _is_followed(self, message: Message, row: Row) -> str:
        """Returns the id of a log that has followers, if it is its day for an audit; else an empty text."""
        newest, now_ms = self.context.stores.wal.newest(row.log_id), self.context.now_ms()
        if newest is None or not is_its_day(message, row.log_id, now_ms - newest.committed_ms, now_ms):
            return ""
        return row.log_id if newest.state.is_followed(now_ms) else ""

    def _send(self, messages: Sequence[Message]) -> None:
        if messages:
            self.context.queue.send(messages, self.context.now_ms())

    def _note_visit(self, follow: Follow) -> None:
        """Logs and counts the error of a visit that is being handled."""
        self.logger.exception("visit failed", log_id=follow.log_id, follower=follow.key)
        self.context.meter.add(RelayMetric.VisitFailures)
        self.count_poisoned(sys.exc_info()[1])


def _visits_of_all(audited: Audited[str]) -> list[Message]:
    return [Message("visit", log_id) for log_id in audited.found if log_id]


def images(records: Sequence[Json]) -> list[Json]:
    """Returns the new entries in the records of a stream batch, as items. Records of removals have none."""
    return [record["dynamodb"]["NewImage"] for record in records if "NewImage" in record["dynamodb"]]


def news_by_log(records: Sequence[Json]) -> dict[str, News]:
    """Returns what the records of a stream batch say, by log id."""
    by_log: dict[str, list[Json]] = {}
    for image in images(records):
        by_log.setdefault(image["log_id"]["S"], []).append(image)
    news = {}
    for log_id, some in by_log.items():
        kinds_, ends = [image["kind"]["S"] for image in some], [_end(image) for image in some]
        hint = Hint(kinds_[-1], max(ends))
        news[log_id] = News(hint, "create" in kinds_, any(RELAYED in image for image in some))
    return news


def _end(image: Json) -> int:
    return offset_of_slot(int(image["slot"]["N"])) + int(image["count"]["N"])


@functools.cache
def worker() -> Relay:
    """Returns the relay of this process; creates it at the first call."""
    context = open_context()
    followers = {kind: create(context) for kind, create in kinds.FOLLOWERS.items()}
    return Relay(context, make_logger("relay"), followers, kinds.CREATED)


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Handles a Lambda event by running the verbs that it asks for. Returns the answer that Lambda expects for the
    event's source; raises an error if Lambda must repeat the event.
    """
    return worker().handle(event, context)
