"""Where checks of one log write what they find."""

from __future__ import annotations

from collections import Counter

from headrace.recovery.report import Finding, Kind


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
