"""The names of a deployment's resources: from a state file, the outputs of its stacks, or the environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cli.errors import BadInput
from headrace.settings import SETTING_OF_OUTPUT

_APPLICATION = "AWS::EMRServerless::Application"
_ALARM = "AWS::CloudWatch::Alarm"
_KEY = "AWS::KMS::Key"
# Ends the name of the stack with the data (`infra/environments.py`).
DATA_SUFFIX = "-data"
_DEAD_LETTERS = {
    "delay dead letters": "DelayDeadLetterQueueUrl",
    "stream dead letters": "StreamDeadLetterQueueUrl",
    "index dead letters": "IndexDeadLetterQueueUrl",
    "relay dead letters": "RelayDeadLetterQueueUrl",
    "relay stream dead letters": "RelayStreamDeadLetterQueueUrl",
    "fold dead letters": "FoldDeadLetterQueueUrl",
}


class Resources(NamedTuple):
    """The names of a deployment's resources.

    Attributes:
        settings: `HEADRACE_*` variables and, for an emulator, the `AWS_*` variables that point at it.
        dead_letters: URLs of dead-letter queues, by the name to show.
        url: the server's URL; empty if it is not known.
        stack: name of the CloudFormation stack, with which the names of alarms begin.
        has_alarms: whether its template has alarms; those of `dev` have none.
        has_customer_key: whether the template of its data has a key of the account, which `dev` has not by default; None if
            that is not known.
    """

    settings: Mapping[str, str]
    dead_letters: Mapping[str, str]
    url: str = ""
    stack: str = ""
    has_alarms: bool = False
    has_customer_key: bool | None = None


def of_state_file(path: Path) -> Resources:
    """Reads the resources from the file that `headrace dev --state-file` wrote.

    Raises:
        BadInput: the file is not such a file.
    """
    try:
        state = json.loads(path.read_bytes())
        settings = {str(name): str(value) for name, value in state["environment"].items()}
        return Resources(settings, _dead_letters(state["outputs"]), str(state["url"]))
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise BadInput(f"not a state file: {path}", "`headrace dev --state-file` writes one") from exc


def of_stack(cloudformation: Any, name: str) -> Resources:
    """Reads the resources from the outputs of the CloudFormation stack of an application, which may be destroyed, and of
    that of its data.

    Raises:
        BadInput: the stacks have no outputs of Headrace. Errors of botocore are passed on.
    """
    outputs = _outputs(cloudformation, f"{name}{DATA_SUFFIX}")
    settings = {setting: outputs[output] for output, setting in SETTING_OF_OUTPUT.items() if output in outputs}
    if not settings:
        raise BadInput(f"stack {name} has no outputs of a Headrace deployment", "`headrace-dev`, or `headrace-prod`?")
    has_key = _KEY in _resources(cloudformation, f"{name}{DATA_SUFFIX}")
    try:
        outputs |= _outputs(cloudformation, name)
    except cloudformation.exceptions.ClientError as exc:
        if "does not exist" not in str(exc):
            raise
        return Resources(settings, _dead_letters(outputs), "", name, has_customer_key=has_key)
    resources = _resources(cloudformation, name)
    if _APPLICATION in resources:
        settings["HEADRACE_SPARK_APPLICATION"] = resources[_APPLICATION]
    return Resources(settings, _dead_letters(outputs), outputs.get("ApiUrl", ""), name, _ALARM in resources, has_key)


def _resources(cloudformation: Any, name: str) -> dict[str, str]:
    """Returns by type the physical id of a stack's resources, of several of one type the last."""
    pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=name)
    found = [resource for page in pages for resource in page["StackResourceSummaries"]]
    return {resource["ResourceType"]: resource.get("PhysicalResourceId", "") for resource in found}


def _outputs(cloudformation: Any, name: str) -> dict[str, str]:
    (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}


def of_environment(environment: Mapping[str, str]) -> Resources | None:
    """Reads the resources from the `HEADRACE_*` environment variables, as the functions do; None if
    `HEADRACE_WAL_TABLE` is not set.
    """
    if not environment.get("HEADRACE_WAL_TABLE"):
        return None
    return Resources({name: value for name, value in environment.items() if name.startswith("HEADRACE_")}, {})


def _dead_letters(outputs: Mapping[str, str]) -> dict[str, str]:
    return {name: outputs[output] for name, output in _DEAD_LETTERS.items() if output in outputs}
