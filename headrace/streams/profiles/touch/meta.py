"""Builds the answers of `touch/meta` and `touch/wait`.

The Prisma Streams server reports on a journal in its memory. Here there is no journal, since touches are in the log
itself. So nothing is ever pending, a cursor is always settled, and fields about buckets, filters and degradation are
zero. Counters count only what the answering process has done.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.errors import InvalidRequest
from headrace.streams.profiles.numbers import number_or_none
from headrace.streams.profiles.touch.config import TouchConfig
from headrace.streams.profiles.touch.cursor import TouchCursor
from headrace.streams.profiles.touch.wait import DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS, Interest


class Place(NamedTuple):
    """The position up to which the log was looked at.

    Attributes:
        cursor: the cursor; its generation is the offset after the last record seen.
        appended_ms: append time of that record; 0 if there is none.
    """

    cursor: TouchCursor
    appended_ms: int = 0

    @property
    def fields(self) -> dict[str, Any]:
        """The members `bucketMaxSourceOffsetSeq`, `flushAtMs` and `bucketStartMs` of every answer to a wait: the offset of
        the last record seen, as text, and twice its append time.
        """
        return {
            "bucketMaxSourceOffsetSeq": str(self.cursor.generation - 1),
            "flushAtMs": self.appended_ms,
            "bucketStartMs": self.appended_ms,
        }


class Counters(NamedTuple):
    """The counters of one process for the waits of a stream.

    Attributes:
        fine_waiters, coarse_waiters, broad_waiters: requests that are waiting now; a broad one has more than 64 keys.
        waits_touched, waits_timed_out, waits_stale: answers sent so far.
        records_scanned, scans, empty_scans: records that were examined, the number of scans for that, and the number of
            scans that woke no request.
    """

    fine_waiters: int = 0
    coarse_waiters: int = 0
    broad_waiters: int = 0
    waits_touched: int = 0
    waits_timed_out: int = 0
    waits_stale: int = 0
    records_scanned: int = 0
    scans: int = 0
    empty_scans: int = 0


def parse_meta(settle: str | None, timeout_ms: str | None) -> int:
    """Parses the query of `touch/meta` and returns its timeout in milliseconds: 30,000 if missing, and cut to 0 to 120,000.
    `settle=flush` never has to wait here.

    Raises:
        InvalidRequest: `settle` has another value, or the timeout is no number.
    """
    if settle is not None and settle != "flush":
        raise InvalidRequest("meta.settle must be 'flush' when provided")
    if timeout_ms is None or not timeout_ms.strip():
        return DEFAULT_TIMEOUT_MS
    number = number_or_none(timeout_ms)
    if number is None:
        raise InvalidRequest("meta.timeoutMs must be a number (ms)")
    return int(max(0, min(MAX_TIMEOUT_MS, number)))


def answer_wait(interest: Interest, place: Place, *, was_touched: bool) -> dict[str, Any]:
    """Returns the answer to a wait that has ended: something was touched, or the time was over.

    Args:
        place: where the next wait must begin. After a touch it may be the end of the log, since the client runs its
            query again anyway. Otherwise it is the position up to which records were examined.
    """
    return {
        "touched": was_touched,
        "cursor": str(place.cursor),
        "effectiveWaitKind": interest.kind,
        **place.fields,
    }


def answer_stale(interest: Interest, place: Place, reason: str = "cursor epoch mismatch") -> dict[str, Any]:
    """Returns the answer to a wait that can't tell what has changed since its cursor: the client must run its query again,
    and wait from `place` on. By default, the cursor is of another incarnation.
    """
    return {
        "stale": True,
        "cursor": str(place.cursor),
        "epoch": place.cursor.epoch,
        "generation": place.cursor.generation,
        "effectiveWaitKind": interest.kind,
        **place.fields,
        "error": {"code": "stale", "message": f"{reason}; rerun/re-subscribe and start from cursor"},
    }


def answer_meta(
    config: TouchConfig, place: Place, *, next_offset: str, active_templates: int, counters: Counters
) -> dict[str, Any]:
    """Returns the document of `touch/meta`, with every field of the Prisma Streams server.

    Args:
        place: the position of the log's end.
        next_offset: the same position as a cursor text.
        counters: the counters of this process.
    """
    waiters = counters.fine_waiters + counters.coarse_waiters
    return {
        "mode": "log",
        "cursor": str(place.cursor),
        "epoch": place.cursor.epoch,
        "generation": place.cursor.generation,
        **dict.fromkeys(("bucketMs", "coalesceMs", "filterSize", "k", "pendingKeys", "overflowBuckets"), 0),
        "activeWaiters": waiters,
        "bucketMaxSourceOffsetSeq": place.fields["bucketMaxSourceOffsetSeq"],
        "lastFlushAtMs": place.appended_ms,
        "flushIntervalMsMaxLast10s": 0,
        "flushIntervalMsP95Last10s": 0,
        "settled": True,
        "coarseIntervalMs": config.settings["coarseIntervalMs"],
        "touchCoalesceWindowMs": config.settings["touchCoalesceWindowMs"],
        "activeTemplates": active_templates,
        "lagSourceOffsets": 0,
        "touchMode": "fine" if waiters else "idle",
        "walScannedThrough": next_offset,
        **dict.fromkeys(_HOT, 0),
        "fineWaitersActive": counters.fine_waiters,
        "coarseWaitersActive": counters.coarse_waiters,
        "broadFineWaitersActive": counters.broad_waiters,
        "hotKeyFilteringEnabled": False,
        "hotTemplateFilteringEnabled": False,
        "scanRowsTotal": counters.records_scanned,
        "scanBatchesTotal": counters.scans,
        "scannedButEmitted0BatchesTotal": counters.empty_scans,
        **dict.fromkeys(_NO_TOTALS, 0),
        "waitTouchedTotal": counters.waits_touched,
        "waitTimeoutTotal": counters.waits_timed_out,
        "waitStaleTotal": counters.waits_stale,
        **dict.fromkeys(_NO_JOURNAL, 0),
    }


_HOT = (
    *("hotFineKeys", "hotTemplates", "hotFineKeysActive", "hotFineKeysGrace"),
    *("hotTemplatesActive", "hotTemplatesGrace"),
)
_NO_TOTALS = (
    *("processedThroughDeltaTotal", "touchesEmittedTotal", "touchesTableTotal", "touchesTemplateTotal"),
    *("fineTouchesDroppedDueToBudgetTotal", "fineTouchesSkippedColdTemplateTotal"),
    *("fineTouchesSkippedColdKeyTotal", "fineTouchesSkippedTemplateBucketTotal"),
)
_NO_JOURNAL = (
    *("journalFlushesTotal", "journalNotifyWakeupsTotal", "journalNotifyWakeMsTotal", "journalNotifyWakeMsMax"),
    *("journalTimeoutsFiredTotal", "journalTimeoutSweepMsTotal"),
)
