"""Writes the committed template: `uv run --frozen python -m infra.synth`. Works offline, takes seconds, and bundles
nothing.

The template is that of the `prod` preset. Without bundling, the CDK names each function's code after its place in the
stack, so the file changes when the infrastructure does, and not when a function's code does.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.app import build_app
from infra.environments import PREFIX, PROD

TEMPLATE = Path(__file__).resolve().parent / "template" / "headrace.template.json"


def synthesize(*, environment: str = PROD.name, values: Mapping[str, Any] | None = None) -> str:
    """Returns the template as text: two spaces of indentation, sorted keys, one newline at the end. `values` replace
    settings of the environment.

    Raises BadEnvironment for an unknown or invalid setting.
    """
    context = {f"{PREFIX}{name}": value for name, value in (values or {}).items()}
    with tempfile.TemporaryDirectory() as outdir:
        app = build_app(
            context={**context, "environment": environment, "aws:cdk:bundling-stacks": []},
            outdir=outdir,
        )
        (stack,) = app.synth().stacks
        template = stack.template
    return json.dumps(template, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    TEMPLATE.parent.mkdir(exist_ok=True)
    TEMPLATE.write_text(synthesize())
