"""What a check found, and what to do. The worst of them is the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

Level = Literal["ok", "skipped", "warn", "fail"]
_EXIT = {"ok": 0, "skipped": 0, "warn": 1, "fail": 2}


class Check(msgspec.Struct, frozen=True):
    """One check.

    Attributes:
        name: of what was looked at.
        level: `skipped` where it can't be known; that is no finding.
        found: what was seen.
        advice: what to do; empty if nothing is to be done.
        docs: page and section that explain it.
    """

    name: str
    level: Level
    found: str
    advice: str = ""
    docs: str = ""


def exit_code(checks: Sequence[Check]) -> int:
    """0: nothing found; 1: something to watch; 2: something to do."""
    return max((_EXIT[check.level] for check in checks), default=0)


def summary(checks: Sequence[Check]) -> str:
    """`9 ok, 1 warn, 0 fail`."""
    counts = [(level, sum(check.level == level for check in checks)) for level in ("ok", "skipped", "warn", "fail")]
    return ", ".join(f"{count} {level}" for level, count in counts if count or level != "skipped")
