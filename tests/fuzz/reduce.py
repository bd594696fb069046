"""The committed corpus, kept small: an input stays if it takes a step in our code that no smaller one takes.

Inputs with names of their own (`seed-…`, or what a finding was about) are never dropped; the others are named by their
SHA-1, as libFuzzer does.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.targets import TARGETS, Target

CORPUS = Path(__file__).parent / "corpus"
_ROOT = Path(__file__).parents[2]
_OURS = tuple(f"{_ROOT / package}/" for package in ("headrace", "functions", "local"))
_MAX_BYTES = 2048

Step = tuple[str, int, int]


def keep(name: str, grown: Path) -> int:
    """Adds to the corpus of a target the inputs of `grown` that take a new step; how many there were."""
    home = CORPUS / name
    home.mkdir(parents=True, exist_ok=True)
    target = TARGETS[name]
    known: set[Step] = set()
    for path in sorted(home.iterdir()):
        known |= steps(target, path.read_bytes())
    kept = 0
    for data in _smallest_first(grown.iterdir()):
        taken = steps(target, data)
        if not taken <= known:
            (home / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)
            known |= taken
            kept += 1
    return kept


def _smallest_first(paths: Iterable[Path]) -> list[bytes]:
    found = {path.read_bytes() for path in paths}
    return sorted((data for data in found if len(data) <= _MAX_BYTES), key=lambda data: (len(data), data))


def steps(target: Target, data: bytes) -> set[Step]:
    """Counts the steps from line to line that the target takes in our code, after making the samples that it needs."""
    target(data)
    found: set[Step] = set()

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(_OURS):
            return None
        last = 0

        def follow(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal last
            found.add((file, last, frame.f_lineno))
            last = frame.f_lineno
            return follow

        return follow

    sys.settrace(enter)
    try:
        target(data)
    finally:
        sys.settrace(None)
    return found
