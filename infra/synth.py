"""Writes the committed templates: `uv run --frozen python -m infra.synth`. Works offline, takes seconds, and bundles
nothing.

The templates are those of the `prod` preset, one for each stack. Without bundling, the CDK names each function's code
after its place in the stack, so a file changes when the infrastructure does, and not when a function's code does.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.app import DATA_STACK_ID, STACK_ID, build_app
from infra.environments import PREFIX, PROD

TEMPLATES = Path(__file__).resolve().parent / "template"


def synthesize(*, environment: str = PROD.name, values: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Returns the templates as text by the names of their files, the data's first: two spaces of indentation, sorted
    keys, one newline at the end. `values` replace settings of the environment.

    Raises BadEnvironment for an unknown or invalid setting.
    """
    context = {f"{PREFIX}{name}": value for name, value in (values or {}).items()}
    with tempfile.TemporaryDirectory() as outdir:
        app = build_app(
            context={**context, "environment": environment, "aws:cdk:bundling-stacks": []},
            outdir=outdir,
        )
        stacks = {stack.id: stack.template for stack in app.synth().stacks}
    return {
        f"{id_}.template.json": json.dumps(stacks[id_], indent=2, sort_keys=True) + "\n"
        for id_ in (DATA_STACK_ID, STACK_ID)
    }


if __name__ == "__main__":
    TEMPLATES.mkdir(exist_ok=True)
    for name, text in synthesize().items():
        (TEMPLATES / name).write_text(text)
