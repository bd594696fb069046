"""The CDK application: `cdk synth -c environment=prod`, or `CDK_OUTDIR=cdk.out python -m infra.app`.

Both bundle the functions, which needs uv, and its cache or a network; neither needs docker or an AWS account.
`python -m infra.synth` gives the template alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import App

from infra.context import environment_of
from infra.stack import HeadraceStack

STACK_ID = "Headrace"


def build_app(*, context: Mapping[str, Any] | None = None, outdir: str | None = None) -> App:
    """The app for the environment that the context describes (`infra/context.py`).

    Raises BadEnvironment if it describes none.
    """
    app = App(context=context, outdir=outdir, analytics_reporting=False)
    environment = environment_of(app.node.get_all_context())
    HeadraceStack(app, STACK_ID, environment=environment)
    return app


if __name__ == "__main__":
    build_app().synth()
