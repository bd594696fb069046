"""Installs locked wheels in a folder, removes files that nothing imports, and compiles byte code: for Lambda artifacts
and Spark jobs.

The result has the same bytes on any machine, because artifacts are named by their hash.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from infra.machine import Machine, run

# Tests, headers, sources, type stubs, console scripts, bills of materials; and the installer's notes, which would differ
# from machine to machine. Metadata and licences stay.
_EVERYWHERE = (
    "bin",
    "**/tests",
    "**/*.pyi",
    "**/*.pyx",
    "**/*.pxd",
    "**/*.pxi",
    "**/*.h",
    "**/*.hpp",
    "**/*.cpp",
    "**/*.dist-info/sboms",
    "**/*.dist-info/RECORD",
    "**/*.dist-info/REQUESTED",
    "**/*.dist-info/INSTALLER",
    ".lock",
)
# Each wheel's own. pyarrow: other file systems, formats and protocols than local files and Parquet, with the libraries that
# only they need; and two more copies of the same library, of which the loader asks for the one named `.so.<major>`.
# Substrait and dataset stay, since everything in pyarrow is linked to both. numpy: the builder of Fortran modules.
# zstandard: the backend for Pythons other than CPython.
_OF_WHEELS = (
    "pyarrow/include",
    "pyarrow/src",
    "pyarrow/includes",
    "pyarrow/*_flight*",
    "pyarrow/*_s3*",
    "pyarrow/*_gcsfs*",
    "pyarrow/*_azurefs*",
    "pyarrow/*_hdfs*",
    "pyarrow/*_orc*",
    "pyarrow/*_substrait.cpython*",
    "pyarrow/*parquet_encryption*",
    "pyarrow/_pyarrow_cpp_tests*",
    "pyarrow/libarrow_python.so",
    "pyarrow/libarrow_python.so.*.*.*",
    "numpy/f2py",
    "numpy/_pyinstaller",
    "zstandard/_cffi*",
    "botocore/data/*/*/examples-1.json",
    "boto3/examples",
)


def locked_requirements(extra: str) -> str:
    """Returns the requirements, with hashes, that `uv.lock` holds for an extra, without what only the command line
    client needs.
    """
    # Without colours: the CDK's CLI forces them, and a requirements file must not start with an escape.
    export = "uv export --color never --quiet --frozen --no-default-groups --no-emit-project"
    client = "--prune click --prune rich --prune httpx --extra"
    return run(shlex.split(f"{export} {client}"), extra)


def install(*, extra: str, target: Path, machine: Machine, services: Iterable[str]) -> None:
    """Installs the locked wheels of an extra of `pyproject.toml`, for `machine`, in the folder `target`, and removes
    what is not needed.

    Args:
        services: the AWS services that the code calls, as botocore names them; the descriptions of all others (some
            400) are removed.
    Raises:
        RuntimeError: a wheel is missing, or differs from the locked one.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write(locked_requirements(extra))
        requirements.flush()
        run(
            shlex.split("uv pip install --quiet --require-hashes --no-deps --only-binary :all:"),
            *("--python-platform", machine.platform, "--python-version", machine.python),
            *("--target", str(target), "--requirement", requirements.name),
        )
    trim(target, services)


def trim(target: Path, services: Iterable[str]) -> None:
    """Removes from the installation in `target` the files that no function or job imports, and botocore's descriptions
    of all AWS services but `services`.
    """
    for pattern in (*_EVERYWHERE, *_OF_WHEELS):
        for path in sorted(target.glob(pattern)):
            _remove(path)
    needed = set(services)
    for described in (target / "botocore" / "data").glob("*"):  # none in an artifact that calls no service
        if described.is_dir() and described.name not in needed:
            _remove(described)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def compile_all(folder: Path, *, version: str, shown_as: str) -> bool:
    """Compiles everything in `folder` to byte code. Returns False, with a warning, if no Python of `version` is
    installed.

    Lambda ignores byte code of another minor version. Without a Python of `version` the artifact has no byte code: it
    works, but starts more slowly (docs/benchmarks.md). Unchecked hashes keep file times out of the byte code, so the
    same sources give the same artifact.

    Args:
        version: of the Python that will run it, such as "3.13".
        shown_as: the folder that tracebacks show instead of this machine's.
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
    """Returns the first interpreter of a minor version that really runs (a pyenv shim on the path may refuse to); None
    if there is none.
    """
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
