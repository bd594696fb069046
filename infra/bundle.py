"""A Lambda artifact's folder: locked dependencies for arm64, the library, one function, byte code.

Runs during a deployment's synth only, on any Linux or macOS machine with uv; no docker, no compiler.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsii
from aws_cdk import ILocalBundling

REPOSITORY = Path(__file__).resolve().parent.parent
PYTHON_VERSION = "3.13"
# Lambda's Python 3.12 and later runs on Amazon Linux 2023, glibc 2.34. Anything older than 2_28 would
# silently resolve a pyarrow that is years old.
PLATFORM = "aarch64-manylinux_2_28"
# Lambda refuses an artifact above 250 MiB unzipped.
MAX_BYTES = 250 * 1024 * 1024
# Wheels carry tests, headers and console scripts that no function imports.
UNUSED = ("bin", "pyarrow/tests", "pyarrow/include", "pyarrow/src")
INSTALLER_LOCK = ".lock"
SHARED_FILES = (
    "functions/__init__.py",
    "functions/metrics.py",
    "functions/observability.py",
    "functions/observed.py",
)


@jsii.implements(ILocalBundling)
class Bundle:
    """Fills an asset folder without docker."""

    def __init__(self, *, artifact: str) -> None:
        self._artifact = artifact

    def try_bundle(self, output_dir: str, *_options: Any, **_more_options: Any) -> bool:
        """Called by the CDK; True means done. Raises when it can't: there is no docker to fall back to."""
        build(artifact=self._artifact, target=Path(output_dir))
        return True


def build(*, artifact: str, target: Path) -> None:
    """Writes the artifact into the empty folder `target`. Raises if a step fails or the result is too large."""
    install_dependencies(artifact=artifact, target=target)
    copy_sources(artifact=artifact, target=target)
    compile_sources(target)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    if size > MAX_BYTES:
        raise ValueError(f"artifact too large: name={artifact} bytes={size} limit={MAX_BYTES}")


def locked_requirements(artifact: str) -> str:
    """The requirements, with hashes, that `uv.lock` holds for the library and the artifact's dependency group."""
    # Without colours: the CDK's CLI forces them, and a requirements file must not start with an escape.
    export = "uv export --color never --quiet --frozen --no-default-groups --no-emit-project --group"
    return _run(shlex.split(export), artifact)


def install_dependencies(*, artifact: str, target: Path) -> None:
    """Installs the locked wheels for Lambda's platform, whatever this machine is."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write(locked_requirements(artifact))
        requirements.flush()
        _run(
            shlex.split("uv pip install --quiet --require-hashes --no-deps --only-binary :all:"),
            *("--python-platform", PLATFORM, "--python-version", PYTHON_VERSION),
            *("--target", str(target), "--requirement", requirements.name),
        )
    for unused in UNUSED:
        shutil.rmtree(target / unused, ignore_errors=True)
    (target / INSTALLER_LOCK).unlink(missing_ok=True)


def copy_sources(*, artifact: str, target: Path) -> None:
    """Copies the library, what functions share, and the one function."""
    without_cache = shutil.ignore_patterns("__pycache__", "*.pyc")
    for folder in ("headrace", f"functions/{artifact}"):
        shutil.copytree(REPOSITORY / folder, target / folder, ignore=without_cache)
    for file in SHARED_FILES:
        if (REPOSITORY / file).exists():
            shutil.copy2(REPOSITORY / file, target / file)


def compile_sources(target: Path) -> None:
    """Compiles everything, since Lambda's code folder is read-only and would be compiled at each cold start.

    Byte code of another minor version is ignored by the runtime: without a Python 3.13 the artifact ships
    without any, works, and starts about a second later. Unchecked hashes keep file times out of the byte code,
    so the same sources give the same artifact.
    """
    python = _matching_python()
    if python is None:
        advice = f"uv python install {PYTHON_VERSION}"
        print(f"artifact without byte code, cold starts will be slower; try: {advice}", file=sys.stderr)
        return
    # Paths in the byte code are those of Lambda: tracebacks must not show this machine's.
    _run(
        [python, *shlex.split("-m compileall -q --invalidation-mode unchecked-hash -p /var/task -s")],
        *(str(target), str(target)),
    )


def _matching_python() -> str | None:
    """The first interpreter of Lambda's version that runs; a pyenv shim may be on the path and refuse to."""
    kept = [
        (Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions", f"{PYTHON_VERSION}.*"),
        (Path(_run(shlex.split("uv python dir")).strip()), f"cpython-{PYTHON_VERSION}.*"),
    ]
    installed = [str(path) for folder, version in kept for path in sorted(folder.glob(f"{version}/bin/python3"))]
    candidates = [sys.executable, shutil.which(f"python{PYTHON_VERSION}"), *installed]
    for candidate in filter(None, candidates):
        probe = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        answer = subprocess.run(probe, capture_output=True, text=True, check=False)
        if answer.stdout.strip() == PYTHON_VERSION:
            return candidate
    return None


def _run(command: Sequence[str], *arguments: str) -> str:
    """Runs at the repository's root and returns what was printed; raises RuntimeError with it on failure."""
    full = [*command, *arguments]
    finished = subprocess.run(full, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        printed = finished.stdout + finished.stderr
        raise RuntimeError(f"bundling failed: command={shlex.join(full)}\n{printed}")
    return finished.stdout
