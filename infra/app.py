"""The CDK application: `cdk synth -c environment=prod`, or `CDK_OUTDIR=cdk.out python -m infra.app`.

Both bundle the functions, which needs uv, and its cache or a network; neither needs docker or an AWS account.
`python -m infra.synth` gives the template alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import App

from infra import findings
from infra.environments import DEV, ENVIRONMENTS
from infra.stack import HeadraceStack

STACK_ID = "Headrace"


def build_app(*, context: Mapping[str, Any] | None = None, outdir: str | None = None) -> App:
    """The app for the environment that `environment` in the context names; `dev` unless said otherwise.

    Its synth raises RuntimeError, and prints what was found, when the template has a finding that is not acknowledged.

    Raises ValueError for an unknown environment.
    """
    app = App(context=context, outdir=outdir, analytics_reporting=False)
    name = app.node.try_get_context("environment") or DEV.name
    if name not in ENVIRONMENTS:
        raise ValueError(f"unknown environment: expected={sorted(ENVIRONMENTS)} actual={name}")
    findings.acknowledge(HeadraceStack(app, STACK_ID, environment=ENVIRONMENTS[name]))
    findings.check(app)
    return app


if __name__ == "__main__":
    build_app().synth()
