"""Node for the tests that need it: packages come from the committed lock file, once per checkout."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def install_packages(folder: Path) -> None:
    """Installs what `folder/package-lock.json` names, unless that has been done; runs no install scripts."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.fail("node and npm are needed: install Node.js 20 or newer")
    marker = folder / "node_modules" / ".package-lock.json"
    lock = folder / "package-lock.json"
    if marker.exists() and marker.stat().st_mtime >= lock.stat().st_mtime:
        return
    done = subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode != 0:
        pytest.fail(f"npm ci failed in {folder}:\n{done.stdout}\n{done.stderr}")
