"""Which verbs an event asks for, and who retries what failed.

Queue: a message is an object that was created, and names a log; or one verb. SQS repeats those that fail.

Job-state event, schedule: what became of job runs is asked, and the next one is started. Lambda repeats a failed event
twice, and the next tick does anyway. The daily rule's constant input is `{"verb": "audit"}`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote_plus

import msgspec
from aws_lambda_powertools import Logger

from functions.indexer.audit import audit
from functions.indexer.follow import follow
from functions.indexer.generations import remove_generations
from functions.indexer.look import look
from functions.indexer.orphans import sweep_orphans
from functions.indexer.parts import Parts
from functions.indexer.queue import Message
from functions.indexer.rebuild import rebuild
from functions.indexer.start import start
from functions.metrics import IndexerMetric
from functions.observability import Meter, is_poison
from headrace.objects import keys

Json = Mapping[str, Any]
JOB_STATE = "EMR Serverless Job Run State Change"
_TICK = Message("tick")


class Dispatcher:
    """Runs the verbs of one event."""

    def __init__(self, parts: Parts, logger: Logger, meter: Meter[IndexerMetric]) -> None:
        self._parts = parts
        self._logger = logger
        self._meter = meter

    def dispatch(self, event: Json) -> dict[str, Any]:
        """Does what the event asks for; the answer is what Lambda expects for its source.

        Raises:
            ValueError: the event is of no known kind.
            Exception: of a verb that failed and is not one of several.
        """
        records: Sequence[Json] = event.get("Records", ())
        if records and records[0].get("eventSource") == "aws:sqs":
            return {"batchItemFailures": [{"itemIdentifier": failed} for failed in self._on_queue(records)]}
        if "verb" in event:
            self._run(msgspec.convert(dict(event), Message))
            return {}
        if event.get("detail-type") in (JOB_STATE, "Scheduled Event"):
            self._run(_TICK)
            return {}
        raise ValueError(f"event is of no known kind: keys={sorted(event)}")

    def _on_queue(self, records: Sequence[Json]) -> list[str]:
        """Runs equal messages once, looks before anything is started. Returns the ids of messages to repeat."""
        wanted: dict[Message, list[str]] = {}
        failed: list[str] = []
        for record in records:
            try:
                for message in messages(record["body"]):
                    wanted.setdefault(message, []).append(record["messageId"])
            except Exception:  # noqa: BLE001 - one poisoned message must not repeat the others
                self._note_failure("unreadable", "")
                failed.append(record["messageId"])
        looked = False
        for message, ids in wanted.items():
            if message == _TICK:
                continue
            looked = looked or message.verb in ("look", "rebuild")
            try:
                self._run(message)
            except Exception:  # noqa: BLE001 - one poisoned log must not repeat the others
                self._note_failure(message.verb, message.log_id)
                failed += ids
        if _TICK in wanted:
            try:
                self._run(_TICK)
            except Exception:  # noqa: BLE001 - looks that succeeded need not be repeated
                self._note_failure("tick", "")
                failed += wanted[_TICK]
        elif looked:
            self._try_to_start()
        return sorted(set(failed))

    def _try_to_start(self) -> None:
        """What waits has its row: if this fails, the next tick starts it."""
        try:
            self._start()
        except Exception:  # noqa: BLE001
            self._note_failure("start", "")

    def _run(self, message: Message) -> None:
        """One verb, with its metrics."""
        parts, meter = self._parts, self._meter
        match message.verb:
            case "look":
                look(parts, message.log_id)
            case "rebuild":
                meter.add(IndexerMetric.RunsRetired, rebuild(parts, message.log_id))
            case "orphans":
                meter.add(IndexerMetric.OrphansRemoved, sweep_orphans(parts, message.log_id))
                meter.add(IndexerMetric.GenerationsRemoved, remove_generations(parts, message.log_id))
            case "audit":
                audited = audit(parts, message.surface, message.after)
                meter.add(IndexerMetric.LogsWaiting, audited.waiting)
                self._note_failures(audited.failed)
            case "tick":
                self._tick()

    def _tick(self) -> None:
        meter = self._meter
        meter.add(IndexerMetric.Ticks)  # also of one that fails: the function lives
        for metric in (IndexerMetric.PoisonedLogs, IndexerMetric.StoreThrottles):
            meter.add(metric, 0)
        try:
            followed = follow(self._parts)
            meter.add(IndexerMetric.JobsSucceeded, followed.jobs - followed.jobs_failed)
            meter.add(IndexerMetric.JobsFailed, followed.jobs_failed)
            meter.add(IndexerMetric.RunsPublished, followed.published)
            meter.add(IndexerMetric.SegmentsMerged, followed.merged)
            meter.add(IndexerMetric.IndexFailures, len(followed.failed))
            meter.add(IndexerMetric.PoisonedLogs, followed.poisoned)
            for age_ms in followed.ages_ms:
                meter.add(IndexerMetric.JobAgeMs, age_ms)
            for took_ms in followed.took_ms:
                meter.add(IndexerMetric.JobMs, took_ms)
            for log_id, reason in followed.failed:
                self._logger.error("log could not be indexed", log_id=log_id, reason=reason)
            if followed.jobs:
                self._logger.info(
                    "job is over", jobs=followed.jobs, published=followed.published, merged=followed.merged
                )
        finally:
            self._start()

    def _start(self) -> None:
        started = start(self._parts)
        self._meter.add(IndexerMetric.JobsStarted, started.jobs)
        self._meter.add(IndexerMetric.TasksStarted, started.tasks)
        if started.jobs:
            self._meter.add(IndexerMetric.IndexWaitMs, started.waited_ms)
        self._note_failures(started.failed)
        if started.jobs:
            self._logger.info("job started", jobs=started.jobs, tasks=started.tasks, logs=started.logs)

    def _note_failures(self, failed: Sequence[tuple[str, Exception]]) -> None:
        self._meter.add(IndexerMetric.IndexFailures, len(failed))
        for log_id, exc in failed:
            self._meter.add(IndexerMetric.PoisonedLogs, int(is_poison(exc)))
            self._logger.error("log could not be looked at", log_id=log_id, exc_info=exc)

    def _note_failure(self, verb: str, log_id: str) -> None:
        self._logger.exception("verb failed", verb=verb, log_id=log_id)
        self._meter.add(IndexerMetric.VerbFailures)
        self._meter.add(IndexerMetric.PoisonedLogs, int(is_poison(sys.exc_info()[1])))


def messages(body: str) -> Iterator[Message]:
    """What the body of a message asks for: a verb, or a look at each log whose manifest it says was created.

    Raises:
        ValueError, msgspec.MsgspecError: it is none of these.
    """
    said = json.loads(body)
    if "verb" in said:
        yield msgspec.convert(said, Message)
        return
    if said.get("Event") == "s3:TestEvent":  # S3 sends one when the notification is set
        return
    for record in said["Records"]:
        log_id = published_log(unquote_plus(record["s3"]["object"]["key"]))
        if log_id is not None:
            yield Message("look", log_id)


def published_log(key: str) -> str | None:
    """The log whose manifest stands under a key; None for any other object."""
    found = keys.artifact(key)
    return found[0] if found is not None and found[1] == "manifest" else None
