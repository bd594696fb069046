"""Byte code for code that will stand in a read-only folder, where it would be compiled anew by every process."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from infra.commands import run


def compile_all(folder: Path, *, version: str, shown_as: str) -> bool:
    """Compiles everything in `folder`; False, with a warning, if there is no Python to do it with.

    Byte code of another minor version is ignored where it runs: without a Python of `version` the code ships without any,
    works, and starts later (docs/benchmarks.md). Unchecked hashes keep file times out of the byte code, so the same sources
    give the same artifact.

    Args:
        version: of the Python that will run it, "3.13".
        shown_as: the folder in tracebacks: they must not show this machine's.
    """
    python = matching_python(version)
    if python is None:
        advice = f"uv python install {version}"
        print(f"artifact without byte code, cold starts will be slower; try: {advice}", file=sys.stderr)
        return False
    options = f"-m compileall -q --invalidation-mode unchecked-hash -p {shlex.quote(shown_as)} -s"
    run([python, *shlex.split(options)], str(folder), str(folder))
    return True


def matching_python(version: str) -> str | None:
    """The first interpreter of a minor version that runs; a pyenv shim may be on the path and refuse to."""
    kept = [
        (Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions", f"{version}.*"),
        (Path(run(shlex.split("uv python dir")).strip()), f"cpython-{version}.*"),
    ]
    installed = [str(path) for folder, name in kept for path in sorted(folder.glob(f"{name}/bin/python3"))]
    candidates = [sys.executable, shutil.which(f"python{version}"), *installed]
    for candidate in filter(None, candidates):
        probe = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        answer = subprocess.run(probe, capture_output=True, text=True, check=False)
        if answer.stdout.strip() == version:
            return candidate
    return None
