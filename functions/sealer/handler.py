"""The Lambda entry of the sealer: which verbs an event asks for, and which metrics each writes.

Stream: events are hints that name logs. Delayed messages are sent first, then each log is looked at that may be due, as
its entries say. A log that fails
is tried again by a delayed message and the batch succeeds, because otherwise the stream would repeat everything behind
it. The batch fails only if that message can't be sent.

Queue and schedule: `functions/worker.py`; a schedule without a message is the sweep.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from functions.metrics import Metric, SealerMetric
from functions.queue import Message, NotQueued
from functions.sealer import memo, policy
from functions.sealer.audit import audit, sweep
from functions.sealer.context import Context, open_context
from functions.sealer.policy import Hint
from functions.sealer.purge import overdue, purge
from functions.sealer.seal import seal
from functions.sealer.trim import sweep_orphans, trim
from functions.wiring import make_logger
from functions.worker import Json, Worker
from headrace.wal.state import offset_of_slot


class Sealer(Worker[Context]):
    """The worker that runs the verbs of the sealer."""

    scheduled = Message("sweep")
    failed = SealerMetric.VerbFailures
    failed_verbs: ClassVar[Mapping[str, Metric]] = {"seal": SealerMetric.SealFailures}
    poisoned = SealerMetric.PoisonedLogs

    def on_stream(self, records: Sequence[Json]) -> None:
        """Sends the delayed messages that new entries need, then seals the logs that are due. A log whose entries alone say
        that it can't be due costs no call.
        """
        hints = hints_by_log(records)
        now_ms = self.context.now_ms()
        times_ms = [hint.committed_ms for its_hints in hints.values() for hint in its_hints]
        self.context.meter.add(SealerMetric.StreamEvents, len(times_ms))
        if times_ms:
            self.context.meter.add(SealerMetric.StreamLagMs, max(0, now_ms - min(times_ms)))
        wanted = [
            message
            for log_id, its_hints in hints.items()
            for message in policy.messages(log_id, its_hints, now_ms, self.context.limits)
        ]
        if wanted:
            self.context.queue.send(wanted, now_ms)
        limits = self.context.limits
        due = [log_id for log_id, its_hints in hints.items() if policy.may_be_due(its_hints, now_ms, limits)]
        failed = self.run_each([Message("seal", log_id) for log_id in due])
        if failed:
            raise NotQueued(f"logs failed, and so did asking for another try: count={len(failed)} first={failed[0]}")

    def run_each(self, messages: Iterable[Message]) -> list[Message]:
        """Runs the messages and returns those that failed, as every worker does; but a seal that failed is tried again by
        one message of its own at a time, however many events and messages ask for it.
        """
        return [message for message in super().run_each(messages) if not self._is_tried_again(message)]

    def _is_tried_again(self, message: Message) -> bool:
        if message.verb != "seal":
            return False
        try:
            memo.go_on(self.context, message, has_failed=True)
        except Exception:  # noqa: BLE001 - then its event or message is repeated
            self.note_failure("try again", message.log_id)
            return False
        return True

    def run(self, message: Message) -> None:
        """Runs the verb of a message and adds its metrics. Raises the verb's errors, and ValueError for an unknown
        verb.
        """
        parts, meter, log_id = self.context, self.context.meter, message.log_id
        match message.verb:
            case "seal":
                self._seal(message)
            case "trim":
                self._trim(message)
            case "purge":
                purged = purge(parts, log_id)
                meter.add(SealerMetric.LogsPurged, int(purged.is_done))
                self._end(message, purged.next_ms)
            case "overdue":
                meter.add(SealerMetric.WorkMissed, overdue(parts))
            case "orphans":
                meter.add(SealerMetric.OrphansRemoved, sweep_orphans(parts, log_id))
            case "audit":
                audited = audit(parts, message)
                meter.add(SealerMetric.WorkMissed, sum(audited.found))
                self._note_failures(audited.failed, "log could not be audited")
            case "sweep":
                self._sweep()
            case _:
                raise ValueError(f"the sealer has no such verb: verb={message.verb}")

    def _seal(self, message: Message) -> None:
        began_ms = self.context.now_ms()
        sealed = seal(self.context, message.log_id, force=message.force)
        meter = self.context.meter
        meter.add(SealerMetric.SegmentsSealed, sealed.segments)
        meter.add(SealerMetric.SealedRecords, sealed.records)
        meter.add(SealerMetric.SealedBytes, sealed.payload_bytes)
        meter.add(SealerMetric.SealRacesLost, sealed.races_lost)
        if sealed.generations:
            meter.add(SealerMetric.UnsealedAgeMs, sealed.unsealed_age_ms)
            meter.add(SealerMetric.SealLagMs, sealed.unsealed_age_ms + self.context.now_ms() - began_ms)
            self.logger.info("log sealed", log_id=message.log_id, **sealed._asdict())
        self._end(message, None if sealed.is_done else 0)

    def _trim(self, message: Message) -> None:
        trimmed = trim(self.context, message.log_id)
        self.context.meter.add(SealerMetric.ItemsTrimmed, trimmed.items)
        if trimmed.items:
            self.context.meter.add(SealerMetric.TrimLagMs, trimmed.lag_ms)
        self._end(message, None if trimmed.is_done else 0)

    def _end(self, message: Message, next_ms: int | None) -> None:
        """Asks for the rest of a verb's work, at `next_ms` or later; notes that it is done if that is None."""
        if next_ms is None:
            memo.finish(self.context, message)
        else:
            memo.go_on(self.context, message, not_before_ms=next_ms)

    def _sweep(self) -> None:
        self.context.meter.add(SealerMetric.Sweeps)  # also of one that fails: the function lives
        self.context.meter.add(SealerMetric.StreamEvents, 0)
        swept = sweep(self.context)
        self.context.meter.add(SealerMetric.LogsExpired, swept.ended)
        self.context.meter.add(SealerMetric.DeadlinesMoved, swept.moved)
        self.context.meter.add(SealerMetric.OrphansRemoved, swept.orphans)
        if swept.slots:
            self.logger.info("slots freed whose deadline had passed", count=swept.slots)
        self._note_failures(swept.failed, "log could not be expired, or slots not freed")

    def _note_failures(self, failed: Sequence[tuple[str, Exception]], what: str) -> None:
        for log_id, exc in failed:
            self.context.meter.add(SealerMetric.VerbFailures)
            self.count_poisoned(exc)
            self.logger.error(what, log_id=log_id, exc_info=exc)


class _Totals(msgspec.Struct, frozen=True):
    """What a hint needs of the state in an entry."""

    total_bytes: int = 0


_totals = msgspec.json.Decoder(_Totals)


def hints_by_log(records: Sequence[Json]) -> dict[str, list[Hint]]:
    """Returns what the records of a stream batch say about new entries, by log id. Records of removals are left out."""
    hints: dict[str, list[Hint]] = {}
    for record in records:
        change = record["dynamodb"]
        image = change.get("NewImage")
        if image is None:
            continue
        offset = offset_of_slot(int(image["slot"]["N"]))
        hint = Hint(
            kind=image["kind"]["S"],
            committed_ms=int(image["committed"]["N"]),
            prev_slot=int(image["prev"]["N"]),
            prev_committed_ms=int(image["prev_committed"]["N"]),
            records=(offset, offset + int(image["count"]["N"])),
            total_bytes=(int(image["prev_bytes"]["N"]), _totals.decode(image["state"]["S"]).total_bytes),
        )
        hints.setdefault(change["Keys"]["log_id"]["S"], []).append(hint)
    return hints


@functools.cache
def worker() -> Sealer:
    """Returns the sealer of this process; creates it at the first call."""
    return Sealer(open_context(), make_logger("sealer"))


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Handles a Lambda event by running the verbs that it asks for. Returns the answer that Lambda expects for the
    event's source; raises an error if Lambda must repeat the event.
    """
    return worker().handle(event, context)
