"""The CDK application: `cdk synth -c environment=prod`, or `CDK_OUTDIR=cdk.out python -m infra.app`.

Both commands bundle the functions, which needs uv with a filled cache or a network, but no docker and no AWS account.
`python -m infra.synth` writes only the template.
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
    """Returns the CDK app for the environment that the context describes (`infra/environments.py`).

    Its synth raises RuntimeError, and prints the findings, if the template has a finding that is not acknowledged.

    `architecture` and `python` in the context choose another machine than Lambda's usual one, for which functions are
    built and on which they run: `-c architecture=x86_64 -c python=3.12` is for trying the artifacts on a machine at
    hand.

    Raises BadEnvironment if the context describes no environment, ValueError for an unknown architecture or Python.
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
