"""A Lambda artifact's folder: locked dependencies for its machine, the library, one function, byte code.

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

from infra.machine import LAMBDA, Machine

REPOSITORY = Path(__file__).resolve().parent.parent
# Lambda refuses an artifact above 250 MiB unzipped.
MAX_BYTES = 250 * 1024 * 1024
# Wheels carry tests, headers and console scripts that no function imports.
UNUSED = ("bin", "pyarrow/tests", "pyarrow/include", "pyarrow/src")
INSTALLER_LOCK = ".lock"
SHARED_FILES = ("functions/__init__.py", "functions/observability.py")


@jsii.implements(ILocalBundling)
class Bundle:
    """Fills an asset folder without docker."""

    def __init__(self, *, artifact: str, machine: Machine) -> None:
        self._artifact = artifact
        self._machine = machine

    def try_bundle(self, output_dir: str, *_options: Any, **_more_options: Any) -> bool:
        """Called by the CDK; True means done. Raises when it can't: there is no docker to fall back to."""
        build(artifact=self._artifact, target=Path(output_dir), machine=self._machine)
        return True


def build(*, artifact: str, target: Path, machine: Machine = LAMBDA) -> None:
    """Writes the artifact into the empty folder `target`, for `machine`, whatever this one is.

    Raises RuntimeError if a step fails, ValueError if the result is too large for Lambda.
    """
    install_dependencies(artifact=artifact, target=target, machine=machine)
    copy_sources(artifact=artifact, target=target)
    compile_sources(target, machine.python)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    if size > MAX_BYTES:
        raise ValueError(f"artifact too large: name={artifact} bytes={size} limit={MAX_BYTES}")


def locked_requirements(artifact: str) -> str:
    """The requirements, with hashes, that `uv.lock` holds for the library and the artifact's dependency group."""
    # Without colours: the CDK's CLI forces them, and a requirements file must not start with an escape.
    export = "uv export --color never --quiet --frozen --no-default-groups --no-emit-project --group"
    return _run(shlex.split(export), artifact)


def install_dependencies(*, artifact: str, target: Path, machine: Machine) -> None:
    """Installs the locked wheels for `machine`."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write(locked_requirements(artifact))
        requirements.flush()
        _run(
            shlex.split("uv pip install --quiet --require-hashes --no-deps --only-binary :all:"),
            *("--python-platform", machine.platform, "--python-version", machine.python),
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


def compile_sources(target: Path, version: str) -> None:
    """Compiles everything, since Lambda's code folder is read-only and would be compiled at each cold start.

    Byte code of another minor version is ignored by the runtime: without a Python of `version` the artifact
    ships without any, works, and starts about a second later. Unchecked hashes keep file times out of the byte code,
    so the same sources give the same artifact.
    """
    python = matching_python(version)
    if python is None:
        advice = f"uv python install {version}"
        print(f"artifact without byte code, cold starts will be slower; try: {advice}", file=sys.stderr)
        return
    # Paths in the byte code are those of Lambda: tracebacks must not show this machine's.
    _run(
        [python, *shlex.split("-m compileall -q --invalidation-mode unchecked-hash -p /var/task -s")],
        *(str(target), str(target)),
    )


def matching_python(version: str) -> str | None:
    """The first interpreter of a minor version ("3.13") that runs; a pyenv shim may be on the path and refuse to."""
    kept = [
        (Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions", f"{version}.*"),
        (Path(_run(shlex.split("uv python dir")).strip()), f"cpython-{version}.*"),
    ]
    installed = [str(path) for folder, name in kept for path in sorted(folder.glob(f"{name}/bin/python3"))]
    candidates = [sys.executable, shutil.which(f"python{version}"), *installed]
    for candidate in filter(None, candidates):
        probe = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        answer = subprocess.run(probe, capture_output=True, text=True, check=False)
        if answer.stdout.strip() == version:
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
