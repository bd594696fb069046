"""The event source mapping of a DynamoDB stream: polls, filters, batches, retries, bisects, and gives up as Lambda
does.

A checkpoint file stores how far it has come. A restarted dispatcher continues where its predecessor had finished.
Events that were delivered but not finished are delivered again, as on Lambda.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from threading import Event
from typing import Any, Literal, NamedTuple

from local.deployment import StreamTrigger, name_in_arn
from local.lambda_events import failed_batch, matches_any, partition_key, sequence_number, stream_record
from local.lambda_runtime import FunctionFailed, Invoker

# What the emulator's streams keep behind their readers, so that a checkpoint can be read again. AWS keeps 24
# hours. A reader that gets further ahead of its checkpoint than this would lose its way back.
KEPT_RECORDS = 1_000
KEPT_BYTES = 16_000_000


class Position(NamedTuple):
    """A position in a shard, in the form that GetShardIterator takes."""

    kind: Literal["TRIM_HORIZON", "AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"]
    sequence: str = ""


OLDEST = Position("TRIM_HORIZON")


@dataclass
class Checkpoint:
    """The stored position of one reader. Without a `path` it is kept only in memory."""

    path: Path | None = None
    position: Position = OLDEST

    def load(self) -> Position:
        """Returns the position that any process saved last; the oldest position if none was saved."""
        if self.path is not None and self.path.exists():
            kind, _, sequence = self.path.read_text().partition(" ")
            assert kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"), f"not a checkpoint: {self.path}"
            self.position = Position(kind, sequence)  # type: ignore[arg-type]
        return self.position

    def save(self, position: Position) -> None:
        """Saves the position atomically: a process killed meanwhile leaves the previous one."""
        if position == self.position:
            return
        self.position = position
        if self.path is not None:
            scratch = self.path.with_suffix(".new")
            scratch.write_text(f"{position.kind} {position.sequence}")
            scratch.replace(self.path)


log = logging.getLogger("headrace.dispatcher")
# Before the next poll of a busy stream: else each would find one record and cost as much as the append that wrote it.
PAUSE_SECONDS = 0.05
# How long a poll that finds nothing waits: an idle dispatcher costs a call for each, and takes as long to stop.
POLL_SECONDS = 3
PATIENTLY = "|wait="
"""In a shard iterator: what follows is how many seconds the emulated AWS may wait for a record. AWS itself never waits."""
# Before a retry: doubled each time.
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.05, 5.0
PAGE_RECORDS = 1000  # DynamoDB's limit

Json = dict[str, Any]
# Lambda's limit for the event of one invocation.
BATCH_BYTES = 6_000_000


class StreamPump:
    """One event source mapping of a stream. Batches are delivered one after the other; a failing batch blocks those
    behind it.

    The checkpoint follows the records that succeeded or were given up. The pump reads ahead of the checkpoint only as
    far as the stream still keeps the records after it.
    """

    def __init__(
        self,
        trigger: StreamTrigger,
        runtime: Invoker,
        streams: Any,
        sqs: Any,
        random: Random,
        checkpoint: Checkpoint | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._trigger = trigger
        self._runtime = runtime
        self._streams = streams
        self._sqs = sqs
        self._random = random
        self._clock = clock
        self._checkpoint = checkpoint or Checkpoint()
        self._iterator = ""
        self._last_read = ""
        # Sequence number and size of every record that was read and is not behind the checkpoint, wanted or not.
        self._ahead: deque[tuple[int, int]] = deque()
        self._buffer: list[Json] = []
        self._buffered_since = 0.0

    def prepare(self) -> None:
        """Loads the checkpoint, or starts at the oldest position, so that nothing written before the start is
        missed.
        """
        position = self._checkpoint.load()
        stream = self._streams.describe_stream(StreamArn=self._trigger.stream_arn)["StreamDescription"]
        where = {"SequenceNumber": position.sequence} if position.sequence else {}
        answer = self._streams.get_shard_iterator(
            StreamArn=self._trigger.stream_arn,
            ShardId=stream["Shards"][0]["ShardId"],
            ShardIteratorType=position.kind,
            **where,
        )
        self._iterator = answer["ShardIterator"]

    def run(self, stop: Event) -> None:
        """Polls records and invokes the function, until `stop` is set."""
        while not stop.is_set():
            found = self._poll() if self._may_read_on() else 0
            if found:
                self._note_progress()
            while self._batch_is_due() and not stop.is_set():
                self._dispatch(self._next_batch(), stop)
                if not stop.is_set():
                    self._note_progress()
            if found < PAGE_RECORDS:
                stop.wait(PAUSE_SECONDS)

    def _may_read_on(self) -> bool:
        return len(self._ahead) < KEPT_RECORDS and sum(size for _, size in self._ahead) < KEPT_BYTES

    def _note_progress(self) -> None:
        """Moves the checkpoint to the oldest record that is still waiting, or behind the last one that was read."""
        waiting = min((int(sequence_number(record)) for record in self._buffer), default=None)
        while self._ahead and (waiting is None or self._ahead[0][0] < waiting):
            self._ahead.popleft()
        if waiting is not None:
            self._checkpoint.save(Position("AT_SEQUENCE_NUMBER", str(waiting)))
        elif self._last_read:
            self._checkpoint.save(Position("AFTER_SEQUENCE_NUMBER", self._last_read))

    def _poll(self) -> int:
        """Reads one page, adds the records that the trigger's filters let through to the buffer, and returns how many
        records the page had. Waits for a record no longer than what is in the buffer may wait.
        """
        patience: float = POLL_SECONDS
        if self._buffer:
            patience = min(patience, self._buffered_since + self._trigger.window_seconds - self._clock())
        token = f"{self._iterator}{PATIENTLY}{max(0.0, patience):.2f}"
        answer = self._streams.get_records(ShardIterator=token, Limit=PAGE_RECORDS)
        self._iterator = answer["NextShardIterator"]
        records = [stream_record(record, self._trigger.stream_arn) for record in answer["Records"]]
        self._ahead.extend((int(sequence_number(r)), int(r["dynamodb"].get("SizeBytes", 0))) for r in records)
        if records:
            self._last_read = sequence_number(records[-1])
        wanted = [record for record in records if matches_any(self._trigger.filters, record)]
        if wanted and not self._buffer:
            self._buffered_since = self._clock()
        self._buffer = [*self._buffer, *shuffled_across_keys(wanted, partition_key, self._random)]
        return len(records)

    def _batch_is_due(self) -> bool:
        if not self._buffer:
            return False
        batch_is_full = len(self._buffer) >= self._trigger.batch_size or _bytes(self._buffer) >= BATCH_BYTES
        window_is_over = self._clock() - self._buffered_since >= self._trigger.window_seconds
        return batch_is_full or window_is_over or not self._may_read_on()

    def _next_batch(self) -> Batch:
        count, size = 0, 0
        for record in self._buffer[: self._trigger.batch_size]:
            size += _bytes([record])
            if count and size > BATCH_BYTES:
                break
            count += 1
        records, self._buffer = tuple(self._buffer[:count]), self._buffer[count:]
        self._buffered_since = self._clock()
        return Batch(records)

    def _dispatch(self, batch: Batch, stop: Event) -> None:
        """Delivers a batch, in order, until each of its records has succeeded or was given up."""
        waiting: deque[Batch] = deque([batch])
        pause = FIRST_RETRY_SECONDS
        while waiting and not stop.is_set():
            current = waiting.popleft()
            verdict, request_id = self._try(current)
            if verdict is None:
                pause = FIRST_RETRY_SECONDS
                continue
            if verdict.dead:
                self._give_up(verdict, request_id)
            waiting.extendleft(reversed(verdict.again))
            if verdict.again:
                stop.wait(pause)
                pause = min(pause * 2, LONGEST_RETRY_SECONDS)

    def _try(self, batch: Batch) -> tuple[Verdict | None, str]:
        """Invokes the function once with a batch. Returns None if it succeeded, else what to do next, and a request
        id.
        """
        failed_at: int | None = 0
        try:
            answer, request_id = self._runtime.invoke({"Records": list(batch.records)})
        except FunctionFailed as exc:
            request_id = exc.request_id
        else:
            identifiers = [sequence_number(record) for record in batch.records]
            failed_at = first_failed(answer, identifiers) if self._trigger.reports_item_failures else None
        if failed_at is None:
            return None, request_id
        oldest = batch.records[failed_at]["dynamodb"].get("ApproximateCreationDateTime", self._clock())
        age = self._clock() - oldest
        return after_failure(batch, self._trigger, failed_at=failed_at, oldest_age_seconds=age), request_id

    def _give_up(self, verdict: Verdict, request_id: str) -> None:
        assert verdict.dead is not None
        records = list(verdict.dead.records)
        first, last = sequence_number(records[0]), sequence_number(records[-1])
        log.error("%s gave up: records=%d first=%s last=%s", self._trigger.function, len(records), first, last)
        if self._trigger.on_failure_arn is None:
            return
        message = failed_batch(
            self._trigger,
            records,
            request_id=request_id,
            invocations=verdict.dead.attempts,
            condition=verdict.condition,
            at=datetime.fromtimestamp(self._clock(), UTC),
        )
        queue = self._sqs.get_queue_url(QueueName=name_in_arn(self._trigger.on_failure_arn))["QueueUrl"]
        self._sqs.send_message(QueueUrl=queue, MessageBody=json.dumps(message))


def _bytes(records: list[Json]) -> int:
    """Estimates the size of the event in bytes: base64 makes stored bytes a third larger."""
    return sum(int(record["dynamodb"].get("SizeBytes", 0)) * 4 // 3 + 512 for record in records)


@dataclass(frozen=True)
class Batch:
    """Records that are delivered together, and how often that was tried."""

    records: tuple[Json, ...]
    attempts: int = 0


@dataclass(frozen=True)
class Verdict:
    """What happens after a failure: the batches `again` are tried in this order before anything newer; records in
    `dead` go to the dead-letter destination, for the reason `condition`.
    """

    again: tuple[Batch, ...] = ()
    dead: Batch | None = None
    condition: str = ""


def shuffled_across_keys(records: Sequence[Json], key_of: Callable[[Json], str], random: Random) -> list[Json]:
    """Returns the records in a random order, except that records of the same key keep their order."""
    waiting: dict[str, deque[Json]] = {}
    for record in records:
        waiting.setdefault(key_of(record), deque()).append(record)
    # One ticket for each record, so that every merge of the keys is equally likely.
    tickets = [key for key, of_key in waiting.items() for _ in of_key]
    random.shuffle(tickets)
    return [waiting[key].popleft() for key in tickets]


def after_failure(batch: Batch, rule: StreamTrigger, *, failed_at: int = 0, oldest_age_seconds: float = 0) -> Verdict:
    """Decides what happens to a batch whose invocation failed from record number `failed_at` on.

    Records before `failed_at` have succeeded. Records that are too old are given up. If the function named a failed
    record after the first, the rest is tried again as a new batch. Otherwise, with bisect, a batch of several records
    is split in the middle, which does not count as an attempt; else the rest is tried again until its attempts are used
    up.
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
    """Returns the position of the first record that the function's answer reports as failed; None if all succeeded.

    An answer that names an unknown record, or is malformed, fails the whole batch, as on AWS.
    """
    failed = failed_identifiers(answer, identifiers)
    if failed is None:
        return 0
    return min((identifiers.index(identifier) for identifier in failed), default=None)


def failed_identifiers(answer: Any, identifiers: Sequence[str]) -> set[str] | None:
    """Returns the identifiers that an answer reports as failed; None if the answer is malformed or names an identifier
    that is not in `identifiers`, so that everything counts as failed. An answer of None, or without
    `batchItemFailures`, reports none.
    """
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
