"""The ways to run the server: the contract holds in each of them.

Each push asks every test of the strictest one. The others get the tests that are marked `sensitive`, with a reason, since
their outcome can depend on the number of processes, on caches, or on whether records are sealed. `--full` asks all of all.
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
