"""Which verbs an event asks for, and who retries what failed.

Stream: events are hints that name logs. Delayed messages go out first, then each log is looked at; one that
fails goes to the delayed queue and the batch succeeds, because a stream would repeat everything behind it.
Only if the queue fails, too, does the batch.

Queue: each message is one verb; SQS repeats those that fail.

Schedule: the sweep, or the message that the rule's constant input is (`{"verb": "audit"}`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from aws_lambda_powertools import Logger

from functions.metrics import SealerMetric
from functions.observability import Meter, is_poison
from functions.sealer import policy
from functions.sealer.audit import audit
from functions.sealer.orphans import sweep_orphans
from functions.sealer.parts import Parts
from functions.sealer.policy import Hint
from functions.sealer.purge import purge
from functions.sealer.queue import Message
from functions.sealer.seal import seal
from functions.sealer.sweep import sweep
from functions.sealer.trim import trim

RETRY_AFTER_MS = 15_000

Json = Mapping[str, Any]
_message_decoder = msgspec.json.Decoder(Message)


class Dispatcher:
    """Runs the verbs of one event."""

    def __init__(self, parts: Parts, logger: Logger, meter: Meter[SealerMetric]) -> None:
        self._parts = parts
        self._logger = logger
        self._meter = meter

    def dispatch(self, event: Json) -> dict[str, Any]:
        """Does what the event asks for; the answer is what Lambda expects for its source.

        Raises:
            ValueError: the event is of no known kind.
            Exception: of a stream batch that must be repeated, or a scheduled verb that failed.
        """
        records: Sequence[Json] = event.get("Records", ())
        source = records[0].get("eventSource") if records else None
        if source == "aws:dynamodb":
            self._on_stream(records)
            return {"batchItemFailures": []}
        if source == "aws:sqs":
            return {"batchItemFailures": [{"itemIdentifier": failed} for failed in self._on_queue(records)]}
        if "verb" in event:
            self._run(msgspec.convert(dict(event), Message))
            return {}
        if event.get("detail-type") == "Scheduled Event":
            self._run(Message("sweep"))
            return {}
        raise ValueError(f"event is of no known kind: keys={sorted(event)} source={source}")

    def _on_stream(self, records: Sequence[Json]) -> None:
        hints = hints_by_log(records)
        now_ms = self._parts.now_ms()
        times_ms = [hint.committed_ms for its_hints in hints.values() for hint in its_hints]
        self._meter.add(SealerMetric.StreamEvents, len(times_ms))
        if times_ms:
            self._meter.add(SealerMetric.StreamLagMs, max(0, now_ms - min(times_ms)))
        wanted = [
            message
            for log_id, its_hints in hints.items()
            for message in policy.messages(log_id, its_hints, now_ms, self._parts.limits)
        ]
        self._parts.queue.send(wanted, now_ms)
        for log_id in hints:
            message = Message("seal", log_id)
            try:
                self._run(message)
            except Exception:  # noqa: BLE001 - one poisoned log must not hold up the others
                self._note_failure(message)
                retry = msgspec.structs.replace(message, not_before_ms=self._parts.now_ms() + RETRY_AFTER_MS)
                self._parts.queue.send([retry], self._parts.now_ms())

    def _on_queue(self, records: Sequence[Json]) -> list[str]:
        """Runs equal messages once: a busy log has many trims waiting. Returns the ids of those to repeat."""
        failed = []
        succeeded: dict[Message, bool] = {}
        for record in records:
            message: Message | None = None
            try:
                message = _message_decoder.decode(record["body"])
                if message.not_before_ms > self._parts.now_ms():
                    self._parts.queue.send([message], self._parts.now_ms())
                    continue
                same = msgspec.structs.replace(message, not_before_ms=0)
                if same not in succeeded:
                    succeeded[same] = False
                    self._run(message)
                    succeeded[same] = True
                if not succeeded[same]:
                    failed.append(record["messageId"])
            except Exception:  # noqa: BLE001 - one poisoned message must not repeat the others
                self._note_failure(message)
                failed.append(record["messageId"])
        return failed

    def _note_failure(self, message: Message | None) -> None:
        verb = message.verb if message else "unreadable"
        self._logger.exception("verb failed", verb=verb, log_id=message.log_id if message else "")
        self._meter.add(SealerMetric.SealFailures if verb == "seal" else SealerMetric.VerbFailures)
        self._meter.add(SealerMetric.PoisonedLogs, int(is_poison(sys.exc_info()[1])))

    def _run(self, message: Message) -> None:
        """One verb, with its metrics."""
        parts, meter, log_id = self._parts, self._meter, message.log_id
        match message.verb:
            case "seal":
                self._seal(message)
            case "trim":
                self._trim(log_id)
            case "purge":
                meter.add(SealerMetric.LogsPurged, int(purge(parts, log_id)))
            case "orphans":
                meter.add(SealerMetric.OrphansRemoved, sweep_orphans(parts, log_id))
            case "audit":
                meter.add(SealerMetric.WorkMissed, audit(parts, message.surface, message.after))
            case "sweep":
                self._sweep()

    def _seal(self, message: Message) -> None:
        began_ms = self._parts.now_ms()
        sealed = seal(self._parts, message.log_id, force=message.force)
        meter = self._meter
        meter.add(SealerMetric.SegmentsSealed, sealed.segments)
        meter.add(SealerMetric.SealedRecords, sealed.records)
        meter.add(SealerMetric.SealedBytes, sealed.payload_bytes)
        meter.add(SealerMetric.SealRacesLost, sealed.races_lost)
        if sealed.generations:
            meter.add(SealerMetric.UnsealedAgeMs, sealed.unsealed_age_ms)
            meter.add(SealerMetric.SealLagMs, sealed.unsealed_age_ms + self._parts.now_ms() - began_ms)
            self._logger.info("log sealed", log_id=message.log_id, **sealed._asdict())

    def _trim(self, log_id: str) -> None:
        trimmed = trim(self._parts, log_id)
        self._meter.add(SealerMetric.ItemsTrimmed, trimmed.items)
        if trimmed.items:
            self._meter.add(SealerMetric.TrimLagMs, trimmed.lag_ms)

    def _sweep(self) -> None:
        self._meter.add(SealerMetric.Sweeps)  # also of one that fails: the function lives
        for metric in (SealerMetric.StreamEvents, SealerMetric.PoisonedLogs, SealerMetric.StoreThrottles):
            self._meter.add(metric, 0)
        swept = sweep(self._parts)
        self._meter.add(SealerMetric.LogsExpired, swept.ended)
        self._meter.add(SealerMetric.DeadlinesMoved, swept.moved)
        for log_id, exc in swept.failed:
            self._meter.add(SealerMetric.VerbFailures)
            self._meter.add(SealerMetric.PoisonedLogs, int(is_poison(exc)))
            self._logger.error("log could not be expired", log_id=log_id, exc_info=exc)


def hints_by_log(records: Sequence[Json]) -> dict[str, list[Hint]]:
    """What the records of a stream batch say, by log. Removals say nothing."""
    hints: dict[str, list[Hint]] = {}
    for record in records:
        change = record["dynamodb"]
        image = change.get("NewImage")
        if image is None:
            continue
        hint = Hint(
            kind=image["kind"]["S"],
            committed_ms=int(image["committed"]["N"]),
            prev_slot=int(image["prev"]["N"]),
            prev_committed_ms=int(image["prev_committed"]["N"]),
        )
        hints.setdefault(change["Keys"]["log_id"]["S"], []).append(hint)
    return hints
