"""The CDK application: `cdk synth -c environment=prod`, or `CDK_OUTDIR=cdk.out python -m infra.app`.

Both bundle the functions, which needs uv, and its cache or a network; neither needs docker or an AWS account.
`python -m infra.synth` gives the template alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import App

from infra import findings
from infra.environments import environment_of
from infra.machine import LAMBDA, Machine
from infra.stack import HeadraceStack

STACK_ID = "Headrace"


def build_app(*, context: Mapping[str, Any] | None = None, outdir: str | None = None) -> App:
    """Returns the app for the environment that the context describes (`infra/environments.py`).

    Its synth raises RuntimeError, and prints what was found, when the template has a finding that is not
    acknowledged.

    `architecture` and `python` in the context have functions built for, and run on, another machine than Lambda's
    usual
    one here: `-c architecture=x86_64 -c python=3.12` is for trying the artifacts on a machine at hand.

    Raises BadEnvironment if it describes none, ValueError for an unknown architecture or Python.
    """
    app = App(context=context, outdir=outdir, analytics_reporting=False)
    environment = environment_of(app.node.get_all_context())
    machine = Machine(
        architecture=app.node.try_get_context("architecture") or LAMBDA.architecture,
        python=app.node.try_get_context("python") or LAMBDA.python,
    )
    findings.acknowledge(HeadraceStack(app, STACK_ID, environment=environment, machine=machine))
    findings.check(app)
    return app


if __name__ == "__main__":
    build_app().synth()
