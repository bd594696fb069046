"""Where a deployment's parts are: from a stack's outputs, from a state file, or from the environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cli.errors import BadInput
from headrace.settings import SETTING_OF_OUTPUT

_APPLICATION = "AWS::EMRServerless::Application"
_DEAD_LETTERS = {
    "delay dead letters": "DelayDeadLetterQueueUrl",
    "stream dead letters": "StreamDeadLetterQueueUrl",
    "index dead letters": "IndexDeadLetterQueueUrl",
}


class Resources(NamedTuple):
    """Names of what there is.

    Attributes:
        settings: `HEADRACE_*` and, of an emulator, `AWS_*` variables that point at it.
        dead_letters: URLs of queues, by what to call them.
        url: the server's; empty if nothing says it.
        stack: the stack's name; alarms begin with it.
    """

    settings: Mapping[str, str]
    dead_letters: Mapping[str, str]
    url: str = ""
    stack: str = ""


def of_state_file(path: Path) -> Resources:
    """What `headrace dev --state-file` wrote.

    Raises:
        BadInput: it is no such file.
    """
    try:
        state = json.loads(path.read_bytes())
        settings = {str(name): str(value) for name, value in state["environment"].items()}
        return Resources(settings, _dead_letters(state["outputs"]), str(state["url"]))
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise BadInput(f"not a state file: {path}", "`headrace dev --state-file` writes one") from exc


def of_stack(cloudformation: Any, name: str) -> Resources:
    """What CloudFormation says of a stack.

    Raises:
        BadInput: it has no outputs of ours. botocore's errors pass.
    """
    (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}
    settings = {setting: outputs[output] for output, setting in SETTING_OF_OUTPUT.items() if output in outputs}
    if not settings:
        raise BadInput(f"stack {name} has no outputs of a Headrace deployment", "`headrace-dev`, or `headrace-prod`?")
    for page in cloudformation.get_paginator("list_stack_resources").paginate(StackName=name):
        for resource in page["StackResourceSummaries"]:
            if resource["ResourceType"] == _APPLICATION:
                settings["HEADRACE_SPARK_APPLICATION"] = resource["PhysicalResourceId"]
    return Resources(settings, _dead_letters(outputs), outputs.get("ApiUrl", ""), name)


def of_environment(environment: Mapping[str, str]) -> Resources | None:
    """What variables name, as the functions have them; None if they name nothing."""
    if not environment.get("HEADRACE_WAL_TABLE"):
        return None
    return Resources({name: value for name, value in environment.items() if name.startswith("HEADRACE_")}, {})


def _dead_letters(outputs: Mapping[str, str]) -> dict[str, str]:
    return {name: outputs[output] for name, output in _DEAD_LETTERS.items() if output in outputs}
