"""What a job run brings along: its entry point, the packages of the jobs, and an environment of what they import.

The environment holds locked wheels and no interpreter: `bin/python` starts the image's own, with the wheels on its path.
So it may be unpacked anywhere, and needs no Python, docker or tool on the machine that packs it. `emr-spark-8.0.0` brings
Python 3.11, 3.12 and 3.13 (Amazon EMR Release Guide, "Amazon runtime for Apache Spark (emr-spark-8.0.0)", versions).
"""

from __future__ import annotations

import gzip
import shutil
import tarfile
import tempfile
from pathlib import Path

from infra import wheels
from infra.bundle import copy_packages
from infra.machine import REPOSITORY, X86, Machine

# Python 3.11 is the oldest that the library knows, and the one that most of its tests run on.
SPARK = Machine(architecture=X86, python="3.11")
ENTRY_POINT = "main.py"
# Spark goes by the name's end, and the CDK keeps what follows the last dot.
ENVIRONMENT = "environment.tgz"
UNPACKED = "environment"  # what the submission calls the archive once it is unpacked
PACKAGES = ("headrace", "emr_jobs")
SERVICES = ("s3",)
# An executor fetches and unpacks it before its first task.
MAX_PACKED_BYTES = 100 * 1024 * 1024
MAX_UNPACKED_BYTES = 260 * 1024 * 1024
_LIBRARIES = "lib"
# Any moment will do, so long as it is always the same; some tars warn of 1970.
_TIME_S = 315_532_800

# `$0` is relative when Spark calls it, and Python's workers change their folder.
_LAUNCHER = """\
#!/bin/sh
# The image's own Python {version}, with the libraries beside this file on its path.
root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
PYTHONPATH="$root/{libraries}${{PYTHONPATH:+:$PYTHONPATH}}"
export PYTHONPATH
for python in python{version} /usr/bin/python{version} /usr/local/bin/python{version}; do
    if command -v "$python" >/dev/null 2>&1; then
        exec "$python" "$@"
    fi
done
echo "no Python {version} here: the libraries in $root are for that version alone" >&2
exit 127
"""


def copy_entry_point(folder: Path) -> None:
    """Writes the file that a job run starts with."""
    shutil.copy2(REPOSITORY / "emr_jobs" / ENTRY_POINT, folder / ENTRY_POINT)


def copy_jobs(folder: Path) -> None:
    """Writes the packages of the jobs; zipped, the folder is what Spark puts on every path."""
    copy_packages(PACKAGES, folder)


def pack_environment(folder: Path, machine: Machine = SPARK) -> None:
    """Writes the archive of everything that jobs import, for the Python and the processor of `machine`.

    Raises RuntimeError if a wheel cannot be had, ValueError if the result is too large.
    """
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        libraries = root / _LIBRARIES
        wheels.install(extra="spark", target=libraries, machine=machine, services=SERVICES)
        wheels.compile_all(libraries, version=machine.python, shown_as=f"{UNPACKED}/{_LIBRARIES}")
        launcher = root / "bin" / "python"
        launcher.parent.mkdir()
        launcher.write_text(_LAUNCHER.format(version=machine.python, libraries=_LIBRARIES))
        launcher.chmod(0o755)
        unpacked = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
        archive = folder / ENVIRONMENT
        pack(root, archive)
    packed = archive.stat().st_size
    if unpacked > MAX_UNPACKED_BYTES or packed > MAX_PACKED_BYTES:
        raise ValueError(
            f"environment too large: unpacked={unpacked} limit={MAX_UNPACKED_BYTES} packed={packed} "
            f"limit={MAX_PACKED_BYTES}"
        )


def pack(root: Path, archive: Path) -> None:
    """Writes a gzipped tar of what is in `root`. The same files give the same bytes: sorted, owned by uid 0, with one
    fixed mtime."""
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for path in sorted(root.rglob("*")):
            tar.add(path, arcname=str(path.relative_to(root)), recursive=False, filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = _TIME_S
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry
