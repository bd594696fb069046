"""The Lambda entry of the indexer: which verbs an event asks for, and which metrics each writes.

Queue: a message is an S3 notification of a created object, which names a log or a requested job; or one verb. Looks run
before anything is started.

Job-state events and the schedule run the verbs follow and start. The rest is in `functions/worker.py`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote_plus

from functions.indexer.context import Context, open_context
from functions.indexer.follow import follow
from functions.indexer.look import audit, look
from functions.indexer.requests import remind, request
from functions.indexer.retire import rebuild, remove_generations, sweep_orphans
from functions.indexer.start import start
from functions.metrics import IndexerMetric
from functions.queue import Message, parse
from functions.wiring import make_logger
from functions.worker import SCHEDULED, Worker
from headrace.objects import keys

JOB_STATE = "EMR Serverless Job Run State Change"


class Indexer(Worker[Context]):
    """The worker that runs the verbs of the indexer."""

    scheduled = Message("tick")
    scheduled_by = frozenset({JOB_STATE, SCHEDULED})
    failed = IndexerMetric.VerbFailures
    poisoned = IndexerMetric.PoisonedLogs

    def parse(self, body: str) -> Iterable[Message]:
        """Returns the messages in the body of a queue message: one verb, or a look at each log of which a manifest was
        created. Raises what `messages` raises, while the result is iterated.
        """
        return messages(body)

    def run_each(self, messages: Iterable[Message]) -> list[Message]:
        """Runs the messages, a tick last. If there were looks or rebuilds and no tick, starts the work that they found.
        Returns the messages that failed.
        """
        wanted = sorted(messages, key=lambda message: message.verb == "tick")
        failed = super().run_each(wanted)
        verbs = {message.verb for message in wanted}
        if "tick" not in verbs and verbs & {"look", "rebuild"}:
            self._try_to_start()
        return failed

    def _try_to_start(self) -> None:
        """Starts what is due, and ignores errors: waiting logs have rows, so the next tick starts them."""
        try:
            self._start()
        except Exception:  # noqa: BLE001
            self.note_failure("start")

    def run(self, message: Message) -> None:
        """Runs the verb of a message and adds its metrics. Raises the verb's errors, and ValueError for an unknown
        verb.
        """
        context, meter = self.context, self.context.meter
        match message.verb:
            case "look":
                look(context, message.log_id)
            case "rebuild":
                meter.add(IndexerMetric.RunsRetired, rebuild(context, message.log_id))
            case "orphans":
                meter.add(IndexerMetric.OrphansRemoved, sweep_orphans(context, message.log_id))
                meter.add(IndexerMetric.GenerationsRemoved, remove_generations(context, message.log_id))
            case "request":
                meter.add(IndexerMetric.JobsStarted, int(request(context, message.job_id)))
            case "audit":
                if not message.surface:
                    remind(context)
                audited = audit(context, message)
                meter.add(IndexerMetric.LogsWaiting, sum(audited.found))
                self._note_failures(audited.failed)
            case "tick":
                self._tick()
            case _:
                raise ValueError(f"the indexer has no such verb: verb={message.verb}")

    def _tick(self) -> None:
        meter = self.context.meter
        meter.add(IndexerMetric.Ticks)  # also of one that fails: the function lives
        try:
            followed = follow(self.context)
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
                self.logger.error("log could not be indexed", log_id=log_id, reason=reason)
            if followed.jobs:
                self.logger.info(
                    "job is over", jobs=followed.jobs, published=followed.published, merged=followed.merged
                )
        finally:
            self._start()

    def _start(self) -> None:
        started = start(self.context)
        self.context.meter.add(IndexerMetric.JobsStarted, started.jobs)
        self.context.meter.add(IndexerMetric.TasksStarted, started.tasks)
        if started.jobs:
            self.context.meter.add(IndexerMetric.IndexWaitMs, started.waited_ms)
        self._note_failures(started.failed)
        if started.jobs:
            self.logger.info("job started", jobs=started.jobs, tasks=started.tasks, logs=started.logs)

    def _note_failures(self, failed: Sequence[tuple[str, Exception]]) -> None:
        self.context.meter.add(IndexerMetric.IndexFailures, len(failed))
        for log_id, exc in failed:
            self.count_poisoned(exc)
            self.logger.error("log could not be looked at", log_id=log_id, exc_info=exc)


def messages(body: str) -> Iterator[Message]:
    """Yields the messages in the body of a queue message: one verb; or a look at each log of which a manifest was
    created, and a start of each job that was requested.

    Raises:
        ValueError, HeadraceError: the body is neither, or of a newer release.
    """
    said = json.loads(body)
    if "verb" in said:
        yield parse(body)
        return
    if said.get("Event") == "s3:TestEvent":  # S3 sends one when the notification is set
        return
    for record in said["Records"]:
        key = unquote_plus(record["s3"]["object"]["key"])
        log_id, job_id = published_log(key), keys.requested_job(key)
        if log_id is not None:
            yield Message("look", log_id)
        elif job_id is not None:
            yield Message("request", job_id=job_id)


def published_log(key: str) -> str | None:
    """Returns the id of the log whose manifest has this object key; None if the key is no manifest's."""
    found = keys.artifact(key)
    return found[0] if found is not None and found[1] == "manifest" else None


@functools.cache
def worker() -> Indexer:
    """Returns the indexer of this process; creates it at the first call."""
    return Indexer(open_context(), make_logger("indexer"))


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Handles a Lambda event by running the verbs that it asks for. Returns the answer that Lambda expects for the
    event's source; raises an error if Lambda must repeat the event.
    """
    return worker().handle(event, context)
