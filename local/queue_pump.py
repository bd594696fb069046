"""An SQS queue's event source mapping: receives, invokes, deletes what succeeded and leaves the rest."""

from __future__ import annotations

import logging
from threading import Event
from typing import Any

from local.batches import failed_identifiers
from local.deployment import QueueTrigger, name_in_arn
from local.event_filter import matches_any
from local.lambda_events import filterable_message, queue_record
from local.lambda_runtime import FunctionFailed, Invoker

log = logging.getLogger("headrace.dispatcher")
# Short enough that a stop is prompt, long enough that an idle queue costs nothing.
POLL_SECONDS = 1
# ReceiveMessage's own limit.
RECEIVED_AT_ONCE = 10


class QueuePump:
    """One mapping. A message that fails comes back after the queue's visibility timeout; redrive is the queue's."""

    def __init__(self, trigger: QueueTrigger, runtime: Invoker, sqs: Any) -> None:
        self._trigger = trigger
        self._runtime = runtime
        self._sqs = sqs
        self._url = ""

    def prepare(self) -> None:
        """Looks up the queue's URL."""
        self._url = self._sqs.get_queue_url(QueueName=name_in_arn(self._trigger.queue_arn))["QueueUrl"]

    def run(self, stop: Event) -> None:
        """Receives and dispatches until told to stop."""
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
        """Hands the records over and returns those that need not come back: refused by the filter, or succeeded."""
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
