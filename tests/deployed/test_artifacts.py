"""Built artifacts: small enough, for the right machine, complete, and no slower to start than they have to be."""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks.starts import measure
from benchmarks.starts.measure import Start
from infra import wheels
from infra.assembly import Assembly
from infra.bundle import SERVICES, build
from infra.machine import LAMBDA, Machine
from tests.support.emulated_cloud import emulated_cloud

ARTIFACTS = ("api", "sealer", "indexer", "relay", "folder", "webhook")
MB = 1_000_000
# Unpacked and zipped, a few percent above what they are: who adds a dependency learns what it weighs.
# Of the api's, PyNaCl and cffi are 5 MB, Headrace itself is 6. Lambda's limit is 262 MB unpacked.
BUDGETS_MB = {
    "api": (230, 77),
    "sealer": (130, 43),
    "indexer": (48, 18),
    "relay": (52, 18),
    "folder": (36, 12),
    "webhook": (13, 5),
}
AARCH64 = 0xB7  # e_machine of ELF
# Modules after the first answer, a few percent above what they are.
MODULES = {"api": 1000, "sealer": 650, "indexer": 630, "relay": 660, "folder": 700, "webhook": 225}
# None of these is needed for a first answer; most are never needed.
NEVER = {"pyspark", "pandas", "moto", "aws_cdk", "pytest", "uvicorn", "click", "aws_xray_sdk", "requests", "aiohttp"}
LATER = {
    "api": {"pyarrow", "numpy", "obstore"},  # with the first search or large append
    "sealer": {"fastapi", "pydantic", "mangum", "numpy", "obstore", "jsonschema_rs"},
    "indexer": {"fastapi", "pydantic", "mangum", "pyarrow", "numpy", "obstore"},
    "relay": {"fastapi", "pydantic", "mangum", "pyarrow", "numpy", "obstore", "jsonschema_rs", "nacl"},
    "folder": {"fastapi", "pydantic", "mangum", "pyarrow", "numpy", "obstore", "jsonschema_rs", "nacl"},
    "webhook": {"fastapi", "pydantic", "mangum", "pyarrow", "numpy", "obstore", "jsonschema_rs", "nacl", "botocore"},
}

ARROW = """
import importlib, io, os, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import zstandard
import headrace.query.engine, headrace.index, headrace.segment
for package in (headrace.query.engine, headrace.index, headrace.segment):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
import obstore.auth.boto3
import pyarrow, pyarrow.compute, pyarrow.parquet
table = pyarrow.table({"a": [1, 2, 3], "b": ["x", None, "y"], "c": [[1], [], None]})
file = io.BytesIO()
pyarrow.parquet.write_table(table, file, compression="zstd")
read = pyarrow.parquet.read_table(io.BytesIO(file.getvalue()))
print(zstandard.backend, read.equals(table) and pyarrow.compute.sum(read["a"]).as_py() == 6, flush=True)
os._exit(0)  # as functions end: their threads are not joined, and on a busy machine one may not have begun yet
"""


def folders_of(assembly: Assembly) -> dict[str, Path]:
    """Returns the unpacked code of each function by its name."""
    paths = {asset.name: asset.path for asset in assembly.assets}
    return {artifact: paths[f"{artifact.title()}/Function/Code"] for artifact in ARTIFACTS}


@pytest.fixture(scope="module")
def shipped(synthesized: Assembly) -> dict[str, Path]:
    """Returns the artifacts for Lambda."""
    return folders_of(synthesized)


@pytest.fixture(scope="module")
def runnable(assembly: Assembly) -> dict[str, Path]:
    """Returns the artifacts for this machine."""
    return folders_of(assembly)


@pytest.fixture(scope="module")
def starts(runnable: dict[str, Path], interpreter: str) -> dict[str, Start]:
    """Starts each artifact for the first time, on an interpreter without packages; returns the starts by name."""
    with emulated_cloud() as cloud:
        return {name: measure.start(name, one, interpreter, cloud.environment) for name, one in runnable.items()}


@pytest.mark.parametrize("artifact", ARTIFACTS)
def test_an_artifact_keeps_to_its_budget(shipped: dict[str, Path], artifact: str, tmp_path: Path) -> None:
    files = sorted(path for path in shipped[artifact].rglob("*") if path.is_file())
    unpacked = sum(path.stat().st_size for path in files)
    with zipfile.ZipFile(tmp_path / "artifact.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            archive.write(path, path.relative_to(shipped[artifact]))
    zipped = (tmp_path / "artifact.zip").stat().st_size
    allowed_unpacked, allowed_zipped = BUDGETS_MB[artifact]
    assert unpacked <= allowed_unpacked * MB
    assert zipped <= allowed_zipped * MB


@pytest.mark.parametrize("artifact", ARTIFACTS)
def test_every_library_is_for_lambdas_processor_and_python(shipped: dict[str, Path], artifact: str) -> None:
    libraries = [path for path in shipped[artifact].rglob("*") if ".so" in path.suffixes and path.is_file()]
    assert libraries
    for path in libraries:
        with path.open("rb") as file:
            header = file.read(20)
        assert header[:4] == b"\x7fELF", path
        assert struct.unpack("<H", header[18:20]) == (AARCH64,), path
        if "cpython-" in path.name:
            assert ".cpython-313-aarch64" in path.name, path


@pytest.mark.parametrize("artifact", ARTIFACTS)
def test_every_source_has_byte_code_that_is_not_checked_against_it(shipped: dict[str, Path], artifact: str) -> None:
    if wheels.matching_python(LAMBDA.python) is None:
        pytest.skip(f"no Python {LAMBDA.python} on this machine: artifacts ship without byte code")
    folder = shipped[artifact]
    sources = [path for path in folder.rglob("*.py") if path.stat().st_size]
    compiled = {path: path.parent / "__pycache__" / f"{path.stem}.cpython-313.pyc" for path in sources}
    missing = {str(path.relative_to(folder)) for path, code in compiled.items() if not code.exists()}
    assert not missing
    unchecked_hash = 0b01  # PEP 552: a hash instead of a time, and nobody compares it
    flags = {struct.unpack("<I", code.read_bytes()[4:8])[0] for code in compiled.values()}
    assert flags == {unchecked_hash}


@pytest.mark.parametrize("artifact", ARTIFACTS)
def test_nothing_is_shipped_that_nobody_imports(shipped: dict[str, Path], artifact: str) -> None:
    folder = shipped[artifact]
    unneeded = {".pyi", ".pyx", ".pxd", ".h", ".hpp", ".cpp"}
    assert not [path for path in folder.rglob("*") if path.suffix in unneeded or path.name in ("tests", "RECORD")]
    services = {path.name for path in folder.glob("botocore/data/*") if path.is_dir()}
    assert services == set(SERVICES[artifact])


def test_the_same_lock_gives_the_same_artifact(shipped: dict[str, Path], tmp_path: Path) -> None:
    again = tmp_path / "indexer"
    again.mkdir()
    build(artifact="indexer", target=again)
    assert _digests(again) == _digests(shipped["indexer"])


@pytest.mark.parametrize("artifact", ARTIFACTS)
def test_a_function_answers_from_its_artifact_alone(
    starts: dict[str, Start], runnable: dict[str, Path], machine: Machine, artifact: str
) -> None:
    """All that it loads is its own or Python's: nothing that was trimmed is missed, and nothing is lent by the tests."""
    answer: Any = starts[artifact].answer
    match artifact:
        case "api":
            assert answer["statusCode"] == 404
        case "webhook":
            assert answer["error"].startswith("refused")
        case "folder":
            assert answer == {"batchItemFailures": []}
        case _:
            assert answer == {}
    homes = (f"{runnable[artifact]}{os.sep}", f"{os.sep}lib{os.sep}python{machine.python}{os.sep}")
    files = set(starts[artifact].files) - {str(measure.PROBE)}
    assert not {file for file in files if "site-packages" in file or not any(home in file for home in homes)}


@pytest.mark.parametrize("artifact", ARTIFACTS)
def test_a_start_imports_no_more_than_its_budget(starts: dict[str, Start], artifact: str) -> None:
    modules = starts[artifact].modules
    packages = {name.split(".")[0] for name in modules}
    assert not packages & (NEVER | LATER[artifact])
    assert len(modules) <= MODULES[artifact]


def test_what_is_left_of_arrow_reads_and_writes_what_it_has_to(runnable: dict[str, Path], interpreter: str) -> None:
    """Everything that the code imports of pyarrow, from the api's artifact: a library that was trimmed fails to load."""
    finished = subprocess.run(
        [interpreter, "-I", "-S", "-B", "-c", ARROW, runnable["api"]], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.split() == ["cext", "True"]


def _digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
