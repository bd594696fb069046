"""Where uv is, for tests that install packages beside the project's own."""

from __future__ import annotations

import os
import shutil


def find_uv() -> str:
    """Returns uv as `uv run` names it, else from the path. Raises FileNotFoundError if there is none."""
    found = os.environ.get("UV") or shutil.which("uv")
    if found is None:
        raise FileNotFoundError("uv is needed: use ./run or `uv run`")
    return found
