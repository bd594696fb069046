"""Builds exactly what `cdk deploy` would deploy: `python -m infra.assembly [--environment dev] [--outdir cdk.out]`.

Bundles the functions, synthesizes the stacks, and prints a summary. Needs no docker, account or network if uv's cache is
filled. For the committed templates see `infra/synth.py`.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.app import DATA_STACK_ID, STACK_ID, build_app
from infra.environments import DEV, ENVIRONMENTS, PREFIX
from infra.machine import LAMBDA, PLATFORMS, PYTHONS, Machine

DEFAULT_OUTDIR = "cdk.out"


@dataclass(frozen=True)
class Asset:
    """A file or folder that is uploaded before the stack is created.

    Attributes:
        name: where in the stack it is used.
        path: the file, or the folder that is uploaded as one zip.
        is_zipped: whether it is a folder to be zipped.
        key: key of the uploaded object in the bootstrap's bucket.
    """

    name: str
    path: Path
    is_zipped: bool
    key: str

    @property
    def size(self) -> int:
        """Returns the size in bytes, unzipped."""
        files = self.path.rglob("*") if self.path.is_dir() else [self.path]
        return sum(file.stat().st_size for file in files if file.is_file())


@dataclass(frozen=True)
class StackTemplate:
    """One stack of a synthesized app: its name, its template, and whether it refuses to be deleted."""

    name: str
    template: dict[str, Any]
    is_protected: bool

    @property
    def resources(self) -> Counter[str]:
        """Returns the number of resources of each type."""
        return Counter(resource["Type"] for resource in self.template["Resources"].values())


@dataclass(frozen=True)
class Assembly:
    """A synthesized app: its stacks in the order of their deployment, and the assets that their templates refer to."""

    folder: Path
    data: StackTemplate
    application: StackTemplate
    assets: tuple[Asset, ...]

    @property
    def stacks(self) -> tuple[StackTemplate, StackTemplate]:
        """Returns the stacks in the order of their deployment."""
        return (self.data, self.application)


def assemble(
    *,
    outdir: Path,
    environment: str = DEV.name,
    machine: Machine = LAMBDA,
    values: Mapping[str, Any] | None = None,
) -> Assembly:
    """Synthesizes the app into `outdir` and returns the result; `values` replace settings of the environment. Raises
    the errors of `build_app` and of bundling.
    """
    context = {
        "environment": environment,
        "architecture": machine.architecture,
        "python": machine.python,
        **{f"{PREFIX}{name}": value for name, value in (values or {}).items()},
    }
    build_app(context=context, outdir=str(outdir)).synth()
    return read(outdir)


def read(folder: Path) -> Assembly:
    """Reads a synthesized app from a folder."""
    artifacts = json.loads((folder / "manifest.json").read_text())["artifacts"]
    stacks, assets = {}, []
    for id_ in (DATA_STACK_ID, STACK_ID):
        properties = artifacts[id_]["properties"]
        path = folder / properties["templateFile"]
        stacks[id_] = StackTemplate(
            properties["stackName"],
            json.loads(path.read_text()),
            is_protected=properties.get("terminationProtection", False),
        )
        manifest = json.loads((folder / f"{id_}.assets.json").read_text())
        found = [_asset(folder, entry) for entry in manifest["files"].values()]
        assets += [asset for asset in found if asset.path != path]
    return Assembly(folder, stacks[DATA_STACK_ID], stacks[STACK_ID], tuple(assets))


def _asset(folder: Path, entry: Mapping[str, Any]) -> Asset:
    (destination,) = entry["destinations"].values()
    source = entry["source"]
    return Asset(
        name=entry["displayName"],
        path=folder / source["path"],
        is_zipped=source["packaging"] == "zip",
        key=destination["objectKey"],
    )


def described(assembly: Assembly) -> str:
    """Formats resource types and assets as text for people."""
    lines = []
    for stack in assembly.stacks:
        lines += [f"{stack.name}: {stack.resources.total()} resources"]
        lines += [f"  {count:3} {type_}" for type_, count in sorted(stack.resources.items())]
    lines += [f"{len(assembly.assets)} assets, bytes unzipped"]
    lines += [f"  {asset.size:12,} {asset.name}" for asset in assembly.assets]
    return "\n".join([*lines, f"in {assembly.folder}"])


def main() -> None:
    """Synthesizes the app that the command line asks for, and prints a summary."""
    parser = argparse.ArgumentParser(prog="python -m infra.assembly", description=__doc__)
    parser.add_argument("--environment", choices=sorted(ENVIRONMENTS), default=DEV.name)
    parser.add_argument("--outdir", type=Path, default=Path(DEFAULT_OUTDIR))
    parser.add_argument("--architecture", choices=sorted(PLATFORMS), default=LAMBDA.architecture)
    parser.add_argument("--python", choices=PYTHONS, default=LAMBDA.python)
    asked = parser.parse_args()
    machine = Machine(architecture=asked.architecture, python=asked.python)
    print(described(assemble(outdir=asked.outdir, environment=asked.environment, machine=machine)))


if __name__ == "__main__":
    main()
