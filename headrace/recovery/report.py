"""What recovery and verification say: plain values, fit for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Literal

import msgspec

Severity = Literal["error", "warning"]
Kind = Literal[
    "bucket.orphan",  # an object that nothing names (or that is just being published)
    "catalog.missing",
    "catalog.differs",
    "definition.missing",
    "definition.damaged",
    "description.missing",
    "description.damaged",
    "description.differs",
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
    "page.missing",
    "page.damaged",
    "payload.missing",
    "payload.damaged",
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
"""Called with what is being done, how much of it is done, and how much there is (0: not known)."""


def no_progress(what: str, done: int, total: int) -> None:
    """Shows nothing."""


class Finding(msgspec.Struct, frozen=True):
    """Something that is not as it must be.

    Attributes:
        severity: `error`: data are lost, unreadable or in danger. `warning`: nothing is, and the next run of the sealer,
            or a recovery, puts it right.
        where: the object's key, `slot N`, or the row.
    """

    kind: Kind
    severity: Severity
    log_id: str
    where: str
    expected: str = ""
    found: str = ""


class Notes:
    """Findings of one log, and counts of what was looked at."""

    def __init__(self, log_id: str) -> None:
        self.log_id = log_id
        self.findings: list[Finding] = []
        self.counts: Counter[str] = Counter()

    def error(self, kind: Kind, where: str, *, expected: object = "", found: object = "") -> None:
        """Data are lost, unreadable or in danger."""
        self.findings.append(Finding(kind, "error", self.log_id, where, str(expected), str(found)))

    def warn(self, kind: Kind, where: str, *, expected: object = "", found: object = "") -> None:
        """Notes what is not as it should be while nothing is in danger."""
        self.findings.append(Finding(kind, "warning", self.log_id, where, str(expected), str(found)))


class LogChecked(msgspec.Struct, frozen=True):
    """What was looked at in one log. `name`: with the role of a companion."""

    log_id: str
    name: str = ""
    generations: int = 0
    segments: int = 0
    records: int = 0
    bytes: int = 0
    entries: int = 0
    end_offset: int = 0


class VerifyReport(msgspec.Struct, frozen=True):
    """Everything that was checked, and everything found."""

    logs: tuple[LogChecked, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def clean(self) -> bool:
        """Nothing was found."""
        return not self.findings


Loss = Literal[
    "unpublished tail",  # entries behind the published end, if there were any
    "unpublished log",  # nothing of it was published: only that it existed
    "later end",  # a close or delete behind the published end, if there was one
    "producers",  # sequence numbers of producers beyond the 8 in the state
    "touches",  # reads that renewed a sliding expiry; the recovery renews it
]
Status = Literal["intact", "restored", "repaired", "ended", "gone", "superseded", "lost", "refused"]


class LogRecovered(msgspec.Struct, frozen=True):
    """What became of one log.

    Attributes:
        name: with the role of a companion.
        status: `intact`: nothing was to do. `restored`: it lives again, as published. `repaired`: its entries were there,
            a row was not. `ended`: it had ended, and says so again. `gone`: it has a tombstone, and nothing of it is
            needed. `superseded`: its name was created again later, so it had ended; its objects are left as they are.
            `lost`: only leftovers that don't say what log it was; nothing of it had been published.
            `refused`: nothing was changed; `reason` says why.
        end_offset: offset after the last record that is readable now.
        incarnation: in force now.
        wrote: what was written (or would be): `generation`, `entry`, `row`, `watermark`.
        lost: what may have been there and can't be restored.
        evidence_offset: a payload object shows that records were once written at this offset, behind the end.
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
    """What became of every log."""

    dry_run: bool
    logs: tuple[LogRecovered, ...] = ()

    @property
    def clean(self) -> bool:
        """No log was refused."""
        return all(log.status != "refused" for log in self.logs)

    @property
    def changed(self) -> bool:
        """Something was written, or would have been."""
        return any(log.wrote for log in self.logs)
