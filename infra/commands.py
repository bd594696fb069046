"""Commands that packaging runs, at the repository's root."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


def run(command: Sequence[str], *arguments: str) -> str:
    """What the command printed; raises RuntimeError with it if the command fails."""
    full = [*command, *arguments]
    finished = subprocess.run(full, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        printed = finished.stdout + finished.stderr
        raise RuntimeError(f"bundling failed: command={shlex.join(full)}\n{printed}")
    return finished.stdout
