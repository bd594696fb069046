"""Builds exactly what `cdk deploy` would deploy: `python -m infra.assembly [--environment dev] [--outdir cdk.out]`.

Bundles the functions, synthesizes the stack, and prints a summary. Needs no docker, account or network if uv's cache is
filled. For the committed template see `infra/synth.py`.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.app import STACK_ID, build_app
from infra.environments import DEV, ENVIRONMENTS
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
class Assembly:
    """A synthesized app: the template of its stack, and the assets that the template refers to."""

    folder: Path
    stack_name: str
    template: dict[str, Any]
    assets: tuple[Asset, ...]

    @property
    def resources(self) -> Counter[str]:
        """Returns the number of resources of each type."""
        return Counter(resource["Type"] for resource in self.template["Resources"].values())


def assemble(*, outdir: Path, environment: str = DEV.name, machine: Machine = LAMBDA) -> Assembly:
    """Synthesizes the app into `outdir` and returns the result. Raises the errors of `build_app` and of bundling."""
    context = {"environment": environment, "architecture": machine.architecture, "python": machine.python}
    build_app(context=context, outdir=str(outdir)).synth()
    return read(outdir)


def read(folder: Path) -> Assembly:
    """Reads a synthesized app from a folder."""
    (stack,) = (
        artifact
        for artifact in json.loads((folder / "manifest.json").read_text())["artifacts"].values()
        if artifact["type"] == "aws:cloudformation:stack"
    )
    template = folder / stack["properties"]["templateFile"]
    manifest = json.loads((folder / f"{STACK_ID}.assets.json").read_text())
    assets = [_asset(folder, entry) for entry in manifest["files"].values()]
    return Assembly(
        folder=folder,
        stack_name=stack["properties"]["stackName"],
        template=json.loads(template.read_text()),
        assets=tuple(asset for asset in assets if asset.path != template),
    )


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
    lines = [f"{assembly.stack_name}: {assembly.resources.total()} resources"]
    lines += [f"  {count:3} {type_}" for type_, count in sorted(assembly.resources.items())]
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
