"""A Lambda artifact's folder: locked dependencies for its machine, the library, one function, byte code.

Runs during a deployment's synth only, on any Linux or macOS machine with uv; no docker, no compiler.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsii
from aws_cdk import ILocalBundling

from infra import bytecode, wheels
from infra.commands import REPOSITORY
from infra.machine import LAMBDA, Machine

# Lambda refuses an artifact above 250 MiB unzipped.
MAX_BYTES = 250 * 1024 * 1024
LAMBDA_FOLDER = "/var/task"
# What each function calls, as botocore names it.
SERVICES = {
    "api": ("dynamodb", "s3", "secretsmanager"),
    "sealer": ("dynamodb", "s3", "sqs"),
    "indexer": ("dynamodb", "s3", "sqs", "emr-serverless"),
}


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
    wheels.install(extra=artifact, target=target, machine=machine, services=SERVICES[artifact])
    copy_sources(artifact=artifact, target=target)
    bytecode.compile_all(target, version=machine.python, shown_as=LAMBDA_FOLDER)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    if size > MAX_BYTES:
        raise ValueError(f"artifact too large: name={artifact} bytes={size} limit={MAX_BYTES}")


def copy_sources(*, artifact: str, target: Path) -> None:
    """Copies the library, the one function, and what functions share: whatever beside it has no handler."""
    copy_packages(("headrace", f"functions/{artifact}"), target)
    for path in sorted((REPOSITORY / "functions").iterdir()):
        if path.suffix == ".py":
            shutil.copy2(path, target / "functions" / path.name)
        elif (path / "__init__.py").exists() and not (path / "handler.py").exists():
            copy_packages((f"functions/{path.name}",), target)


def copy_packages(folders: Iterable[str], target: Path) -> None:
    """Copies folders of the repository, sources alone."""
    for folder in folders:
        shutil.copytree(REPOSITORY / folder, target / folder, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
