"""The machine that code is packed for (its processor and Python version), and a helper that runs the commands that pack
it.
"""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ARM = "arm64"
X86 = "x86_64"
# Lambda's Python 3.12 and later, and EMR's images, run on Amazon Linux 2023, glibc 2.34. Anything older than 2_28 would
# silently resolve a pyarrow that is years old.
PLATFORMS = {ARM: "aarch64-manylinux_2_28", X86: "x86_64-manylinux_2_28"}
PYTHONS = ("3.11", "3.12", "3.13")  # the versions that pyproject.toml allows
REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A processor architecture and a Python version. Raises ValueError if one of them is not supported."""

    architecture: str
    """`arm64` or `x86_64`, as Lambda calls it."""

    python: str
    """Major and minor version, such as `3.13`."""

    def __post_init__(self) -> None:
        if self.architecture not in PLATFORMS:
            raise ValueError(f"unknown architecture: expected={sorted(PLATFORMS)} actual={self.architecture}")
        if self.python not in PYTHONS:
            raise ValueError(f"unknown Python: expected={list(PYTHONS)} actual={self.python}")

    @property
    def platform(self) -> str:
        """Returns uv's name of the wheel platform."""
        return PLATFORMS[self.architecture]


def here(python: str = "") -> Machine:
    """Returns the machine that this runs on, so that what is built for it can be run here. Its Python is the running
    one unless `python` names another.
    """
    architecture = ARM if platform.machine() in ("arm64", "aarch64") else X86
    return Machine(architecture=architecture, python=python or "{}.{}".format(*sys.version_info))


LAMBDA = Machine(architecture=ARM, python="3.13")


def run(command: Sequence[str], *arguments: str) -> str:
    """Runs a command and returns what it printed. Raises RuntimeError with that if the command fails."""
    full = [*command, *arguments]
    finished = subprocess.run(full, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        printed = finished.stdout + finished.stderr
        raise RuntimeError(f"bundling failed: command={shlex.join(full)}\n{printed}")
    return finished.stdout
