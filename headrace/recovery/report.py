"""The results of recovery and verification: plain values that can be written as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Literal

import msgspec

Severity = Literal["error", "warning"]
Kind = Literal[
    "bucket.orphan",  # an object that nothing names (or that a writer or the sealer is just publishing)
    "catalog.missing",
    "catalog.damaged",
    "catalog.differs",
    "counter.differs",  # a limit counts another number of names than there are
    "definition.missing",
    "definition.damaged",
    "description.missing",
    "description.damaged",
    "description.differs",
    "follower.missing",  # a log counts followers that have no row: its entries are sent to nobody
    "follower.uncounted",  # a follower has a row, and its log does not say so: it hears of no append
    "fork.uncounted",  # a fork reads from a log that does not count it: the log could be purged
    "index.missing",  # searches fail; a rebuild puts it right
    "index.damaged",
    "keypage.missing",
    "keypage.damaged",
    "lineage.short",  # an ancestor does not reach the fork point
    "log.unreadable",  # the stores did not answer, or nothing says what log it is
    "manifest.missing",
    "manifest.damaged",
    "manifest.rule",  # a generation may not follow the one before
    "object.missing",  # an object of the surface's own (removed records, a snapshot) that the state names
    "object.damaged",
    "page.missing",
    "page.damaged",
    "payload.missing",
    "payload.damaged",
    "row.differs",  # a row that a surface derives: from the states of its logs or, in a feature table, from records
    "segment.missing",
    "segment.damaged",
    "tombstone.damaged",
    "tombstone.living",
    "wal.behind",  # the newest entry is before the published end
    "wal.dead",  # an entry that is not part of the chain
    "wal.empty",
    "wal.entry",  # an entry contradicts itself
    "wal.join",  # the tail does not continue the manifest
    "wal.missing",  # an entry names a predecessor that is not there
    "watermark.behind",
    "watermark.differs",
]

Progress = Callable[[str, int, int], None]
"""A function that is called with the current step, how much of it is done, and how much there is (0: unknown)."""


def no_progress(what: str, done: int, total: int) -> None:
    """Does nothing, for callers that show no progress."""


class Finding(msgspec.Struct, frozen=True):
    """A finding of verification: something that is wrong.

    Attributes:
        severity: `error` if data is lost, unreadable or in danger; `warning` if not, and the next run of the sealer or
            a recovery repairs it.
        where: the object's key, `slot N`, or the row.
    """

    kind: Kind
    severity: Severity
    log_id: str
    where: str
    expected: str = ""
    found: str = ""


class Notes:
    """The findings of one log, and counts of what was checked."""

    def __init__(self, log_id: str) -> None:
        self.log_id = log_id
        self.findings: list[Finding] = []
        self.counts: Counter[str] = Counter()

    def error(self, kind: Kind, where: str, *, expected: object = "", found: object = "") -> None:
        """Adds a finding of severity error: data is lost, unreadable or in danger."""
        self.findings.append(Finding(kind, "error", self.log_id, where, str(expected), str(found)))

    def warn(self, kind: Kind, where: str, *, expected: object = "", found: object = "") -> None:
        """Adds a finding of severity warning: something is wrong, but no data is in danger."""
        self.findings.append(Finding(kind, "warning", self.log_id, where, str(expected), str(found)))


class LogChecked(msgspec.Struct, frozen=True):
    """The numbers of generations, segments, records, bytes and entries that were checked in one log, and its end offset.
    `name` includes the role of a companion.
    """

    log_id: str
    name: str = ""
    generations: int = 0
    segments: int = 0
    records: int = 0
    bytes: int = 0
    entries: int = 0
    end_offset: int = 0


class VerifyReport(msgspec.Struct, frozen=True):
    """The result of verification: everything that was checked, and all findings."""

    logs: tuple[LogChecked, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether there are no findings."""
        return not self.findings


Loss = Literal[
    "unpublished tail",  # entries behind the published end, if there were any
    "unpublished log",  # nothing of it was published: only that it existed
    "later end",  # a close or delete behind the published end, if there was one
    "producers",  # sequence numbers of producers beyond the 8 in the state
    "touches",  # reads that renewed a sliding expiry; the recovery renews it
]
Status = Literal["intact", "restored", "repaired", "ended", "gone", "superseded", "lost", "refused"]


class Counted(msgspec.Struct, frozen=True):
    """A counter that is wrong: its name (a surface's, or `total_bytes`), what it should say, and what it says."""

    what: str
    right: int
    said: int


class LogRecovered(msgspec.Struct, frozen=True):
    """The result of recovery for one log.

    Attributes:
        name: the name, with the role of a companion.
        status: `intact`: there was nothing to do. `restored`: it lives again, as published. `repaired`: its entries
            existed, but a row was missing or wrong. `ended`: it had ended, and its entries say so again. `gone`: it has
            a tombstone, and nothing of it is needed. `superseded`: its name was created again later, so it had ended;
            its objects are left as they are. `lost`: only objects that don't tell which log it was; nothing of it had
            been published. `refused`: it was not recovered, and `reason` says why; if a store failed on the way, the
            steps in `wrote` were done.
        end_offset: offset after the last record that is readable now.
        incarnation: the incarnation now.
        wrote: what was written (or would be): `generation`, `entry`, `row`, `watermark`.
        lost: what may have existed and can't be restored.
        evidence_offset: an offset after the end at which, as a payload object shows, records were once written.
    """

    log_id: str
    surface: str
    name: str
    status: Status
    end_offset: int = 0
    incarnation: int = 0
    wrote: tuple[str, ...] = ()
    lost: tuple[Loss, ...] = ()
    evidence_offset: int | None = None
    reason: str = ""


class RecoverReport(msgspec.Struct, frozen=True):
    """The results of recovery, one for each log, the counters of names that were wrong, what was wrong of the rows that
    surfaces derive from the states of their logs, and whether it was a dry run.
    """

    dry_run: bool
    logs: tuple[LogRecovered, ...] = ()
    counters: tuple[Counted, ...] = ()
    derived: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether no log was refused."""
        return all(log.status != "refused" for log in self.logs)

    @property
    def changed(self) -> bool:
        """Whether something was written, or would have been."""
        return any(log.wrote for log in self.logs) or bool(self.counters) or bool(self.derived)
