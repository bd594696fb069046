"""The Lambda entry of the folder: each message of its queue is one pass over a lane.

What is left when a pass ends is asked for by another message. So is a repeat of a pass that failed: SQS itself repeats only
messages whose folder ended without an answer, and says how often. From that a pass learns that folders die of something in
it, which a store that does not answer must not look like. A pass that no repeat heals is not repeated: the lane's next
event, or the audit of the relay, leads to another one.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from aws_lambda_powertools import Logger
from msgspec.structs import replace

from functions.fold_queue import Fold, parse
from functions.folder.context import Context, open_context
from functions.metrics import FolderMetric
from functions.wiring import make_logger
from functions.worker import is_poison
from headrace.errors import Gone, NotFound
from headrace.features.fold import Pass
from headrace.log.seam import which_of

PASS_S = 10.0  # the function has twice that: what was begun by then must end, and a message must be sent
Json = Mapping[str, Any]


class FolderFunction:
    """The function that folds lanes."""

    def __init__(self, context: Context, logger: Logger) -> None:
        self.context = context
        self.logger = logger

    def handle(self, event: Json, lambda_context: object) -> dict[str, Any]:
        """Folds the lanes that messages name. Returns the answer for SQS, with the messages that it must repeat. Raises
        ValueError for an event that is not of a queue.
        """
        self.logger.append_keys(request_id=getattr(lambda_context, "aws_request_id", None))
        records: Sequence[Json] = event.get("Records", ())
        if not records or records[0].get("eventSource") != "aws:sqs":
            raise ValueError(f"event is of no known kind: keys={sorted(event)}")
        try:
            failed = [record["messageId"] for record in records if not self._is_handled(record)]
        finally:
            self._finish()
        return {"batchItemFailures": [{"itemIdentifier": one} for one in failed]}

    def _is_handled(self, record: Json) -> bool:
        """Runs a message. Returns whether that is done, or left to another message."""
        try:
            message = parse(record["body"])
        except Exception as exc:  # noqa: BLE001 - a message that is not understood must not repeat others
            self._note_failure(exc, "unreadable")
            return False
        tries = int(record["attributes"]["ApproximateReceiveCount"])
        try:
            is_left = self.fold(message, tries)
        except Exception as exc:  # noqa: BLE001 - as said
            self._note_failure(exc, message.log_id)
            is_left = not is_poison(exc)
        if not is_left:
            return True
        try:
            again = replace(message, again=record["messageId"])
            self.context.queue.send([again], self.context.stores.clock.now_ms())
        except Exception as exc:  # noqa: BLE001 - SQS repeats it
            self._note_failure(exc, message.log_id)
            return False
        return True

    def fold(self, message: Fold, tries: int = 1) -> bool:
        """Makes one pass over a lane. Returns whether another one is wanted at once. Raises what the pass raises, but not
        that the lane has ended.
        """
        clock, meter = self.context.stores.clock, self.context.meter
        until = clock.monotonic() + PASS_S
        meter.add(FolderMetric.Passes)
        try:
            found = self.context.folder.fold(which_of(message.name, message.role), until, tries)
        except (NotFound, Gone):
            return False
        self._measure(message, found)
        if found.is_done:
            return bool(found.due_ms) and found.due_ms <= clock.now_ms()
        if clock.monotonic() < until:
            meter.add(FolderMetric.PassesOvertaken)
        return True

    def _measure(self, message: Fold, found: Pass) -> None:
        meter = self.context.meter
        meter.add(FolderMetric.EventsFolded, found.events)
        if found.lag_ms:
            meter.add(FolderMetric.FoldLagMs, found.lag_ms)
        meter.add(FolderMetric.TablesStopped, len(found.stopped))
        for stop in found.stopped:
            self.logger.error(
                "table stopped",
                log_id=message.log_id,
                generation=stop.generation,
                offset=stop.offset,
                reason=stop.reason,
            )

    def _note_failure(self, error: Exception, log_id: str) -> None:
        """Logs and counts the error that is being handled."""
        self.logger.exception("pass failed", log_id=log_id)
        self.context.meter.add(FolderMetric.PassFailures)
        self.context.meter.add(FolderMetric.PoisonedLogs, int(is_poison(error)))

    def _finish(self) -> None:
        """Writes metrics and request counts. Ignores errors, because no pass may fail because of a counter."""
        try:
            self.context.counts.flush(self.context.stores.watermarks)
        except Exception:
            self.logger.exception("request counts were not added")
        self.context.meter.flush()


@functools.cache
def function() -> FolderFunction:
    """Returns the folder of this process; creates it at the first call."""
    return FolderFunction(open_context(), make_logger("folder"))


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Handles a Lambda event: messages of the queue. Returns the messages that SQS must repeat."""
    return function().handle(event, context)
