"""Writes the committed template: `uv run --frozen python -m infra.synth`. Offline, seconds, nothing is bundled.

The template is production's. Without a bundle the CDK names each function's code after its place in the stack, so
the file changes when the infrastructure does, and not when the code of a function does.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from infra.app import build_app
from infra.environments import PROD

TEMPLATE = Path(__file__).resolve().parent / "template" / "headrace.template.json"


def synthesize(*, environment: str = PROD.name) -> str:
    """The template's text: two spaces, sorted keys, one newline at the end."""
    with tempfile.TemporaryDirectory() as outdir:
        app = build_app(
            context={"environment": environment, "aws:cdk:bundling-stacks": []},
            outdir=outdir,
        )
        template = app.synth().get_stack_by_name(f"headrace-{environment}").template
    return json.dumps(template, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    TEMPLATE.parent.mkdir(exist_ok=True)
    TEMPLATE.write_text(synthesize())
