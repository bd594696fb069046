"""The ways to run the server: the contract holds in each of them."""

from __future__ import annotations

from typing import NamedTuple


class Configuration(NamedTuple):
    """Arguments of `headrace dev`. `seals`: segments are written within a second or two."""

    arguments: tuple[str, ...]
    seals: bool = False


CONFIGURATIONS = {
    "one-process": Configuration(()),
    "three-processes": Configuration(
        ("--api-processes", "3", "--seal-records", "20", "--seal-age", "1s"), seals=True
    ),
    "cold": Configuration(("--cold",)),
}

SWITCH = "HEADRACE_TEST_THROTTLED"  # names the file whose existence makes the store of `throttled.py` refuse writes
