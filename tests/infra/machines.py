"""This machine, as something to pack for: what a test packs, it can run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.machine import here

# The interpreter that the tests' environment was made from, which knows nothing of that environment.
PYTHON = Path(sys.base_prefix) / "bin" / f"python{here().python}"
_NO_WHEELS = ("Failed to fetch", "Network connectivity is disabled")


@contextmanager
def packed_or_skipped() -> Iterator[None]:
    """Skips the test where wheels can't be had: no network, and not in uv's cache."""
    try:
        yield
    except RuntimeError as exc:
        if any(reason in str(exc) for reason in _NO_WHEELS):
            pytest.skip("no network, and the wheels are not in uv's cache")
        raise


def bare_environment(**more: str) -> dict[str, str]:
    """Variables of a process that finds that interpreter, Java and the system's commands, and nothing of the repository."""
    known = {name: os.environ[name] for name in ("JAVA_HOME", "LANG") if name in os.environ}
    path = os.pathsep.join([str(PYTHON.parent), "/usr/local/bin", "/usr/bin", "/bin"])
    return {**known, "PATH": path, **more}
