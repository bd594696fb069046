"""CPU seconds of a command and of everything that it starts, however deep. Linux only: read from /proc."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_SAMPLE_S = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")


class Spent(NamedTuple):
    """Seconds: of all processors, and on the wall. `peak_bytes`: resident, of all processes together."""

    cpu_s: float
    wall_s: float
    peak_bytes: int
    status: int


def spend(command: Sequence[str]) -> Spent:
    """Runs a command to its end. A process that ended counts as it was last seen, up to 0.1 s before."""
    began = time.monotonic()
    process = subprocess.Popen(command, start_new_session=True)
    seen: dict[int, float] = {}
    peak = 0
    while process.poll() is None:
        peak = max(peak, _sample(process.pid, seen))
        time.sleep(_SAMPLE_S)
    return Spent(sum(seen.values()), time.monotonic() - began, peak, process.returncode)


def _sample(session: int, seen: dict[int, float]) -> int:
    """Notes the CPU seconds of each process of a session; returns their resident bytes."""
    resident = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if int(fields[3]) == session:
            seen[int(path.parent.name)] = (int(fields[11]) + int(fields[12])) / _TICKS
            resident += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return resident
