"""This machine, as something to pack for: what a test packs, it can run."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from infra.machine import ARM, X86, Machine

HERE = Machine(
    architecture=ARM if platform.machine() in ("aarch64", "arm64") else X86,
    python="{}.{}".format(*sys.version_info),
)
# The interpreter that the tests' environment was made from, which knows nothing of that environment.
PYTHON = Path(sys.base_prefix) / "bin" / f"python{HERE.python}"


def bare_environment(**more: str) -> dict[str, str]:
    """Variables of a process that finds that interpreter, Java and the system's commands, and nothing of the repository."""
    known = {name: os.environ[name] for name in ("JAVA_HOME", "LANG") if name in os.environ}
    path = os.pathsep.join([str(PYTHON.parent), "/usr/local/bin", "/usr/bin", "/bin"])
    return {**known, "PATH": path, **more}
