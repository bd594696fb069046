"""What the operating system and the interpreter say of this process, and the highest that was seen of each figure."""

from __future__ import annotations

import re
import resource
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_STATUS = Path("/proc/self/status")
_LINE = re.compile(r"^(VmRSS|VmHWM|VmData|RssAnon|RssFile|RssShmem):\s+(\d+) kB$", re.MULTILINE)


class Memory(NamedTuple):
    """Memory of the process, in bytes.

    Attributes:
        resident, peak: in RAM, now and at the most.
        private: what the interpreter and its libraries have asked for, whether it is in RAM or not.
        anonymous, file, shared: parts of `resident`; None where the system does not tell them apart.
    """

    resident: int
    peak: int
    private: int
    anonymous: int | None
    file: int | None
    shared: int | None


def memory() -> Memory:
    """Returns the memory of this process, now."""
    try:
        status = _STATUS.read_text()
    except OSError:
        status = ""
    return parse(status, _peak_bytes())


def parse(status: str, peak: int) -> Memory:
    """Memory as Linux tells it in `/proc/self/status`; elsewhere the text is empty, and only `peak` is known."""
    found = {name: int(kilobytes) * 1024 for name, kilobytes in _LINE.findall(status)}
    return Memory(
        resident=found.get("VmRSS", peak),
        peak=max(found.get("VmHWM", 0), found.get("VmRSS", peak)),
        private=found.get("VmData", peak),
        anonymous=found.get("RssAnon"),
        file=found.get("RssFile"),
        shared=found.get("RssShmem"),
    )


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class Mark(NamedTuple):
    """The highest value seen, and when (RFC 3339)."""

    value: int
    at: str


class HighWater:
    """Marks by group and name. Somebody must look for a mark to be made. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._marks: dict[str, dict[str, Mark]] = {}

    def observe(self, group: str, values: Mapping[str, object], at: str) -> None:
        """Raises the marks of a group; what is no number is passed over."""
        with self._lock:
            marks = self._marks.setdefault(group, {})
            for name, value in values.items():
                if isinstance(value, bool) or not isinstance(value, int):
                    continue
                if name not in marks or marks[name].value < value:
                    marks[name] = Mark(value, at)

    def of(self, group: str) -> dict[str, dict[str, object]]:
        """Returns the marks of a group, as documents."""
        with self._lock:
            return {name: mark._asdict() for name, mark in self._marks.get(group, {}).items()}
