"""The ways to run the server: the contract holds in each of them.

Each push asks every test in memory: three applications that share their stores, of which one forgets everything after
each request, answer in a millisecond. Tests that are marked `sensitive`, with a reason, are asked of the strictest
configuration, too: their outcome can depend on processes, on caches, or on whether records are sealed. What the relay does
is asked of that one alone. `--full` asks all of all.
"""

from __future__ import annotations

from typing import NamedTuple


class Configuration(NamedTuple):
    """Arguments of `headrace dev`. `seals`: segments are written within a second or two."""

    arguments: tuple[str, ...]
    seals: bool = False


STRICTEST = "three-processes"
CONFIGURATIONS = {
    "one-process": Configuration(()),
    STRICTEST: Configuration(("--api-processes", "3", "--seal-records", "20", "--seal-age", "1s"), seals=True),
    "cold": Configuration(("--cold",)),
}

SWITCH = "HEADRACE_TEST_THROTTLED"  # names the file whose existence makes the store of `throttled.py` refuse writes
