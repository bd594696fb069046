"""The environment that the CDK's context describes: a preset, and values that replace its own.

`environment` names the preset. A value is `headrace:<its name>`: `-c headrace:streaming_door=false` on the command line,
where everything is text, or `"headrace:streaming_door": false` in `cdk.json`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from infra.environments import DEV, ENVIRONMENTS, BadEnvironment, Environment

PREFIX = "headrace:"


def environment_of(context: Mapping[str, Any]) -> Environment:
    """The environment; `dev` unless said otherwise. Other keys of the context are none of our business.

    Raises:
        BadEnvironment: an unknown preset or value, or one that makes no sense.
    """
    preset = context.get("environment") or DEV.name
    if preset not in ENVIRONMENTS:
        raise BadEnvironment(f"unknown environment: expected={sorted(ENVIRONMENTS)} actual={preset}")
    kinds = {one.name: str(one.type) for one in fields(Environment)}
    given: dict[str, Any] = {}
    for key, value in context.items():
        name = key.removeprefix(PREFIX)
        if name == key:
            continue
        if name not in kinds:
            near = difflib.get_close_matches(name, kinds, n=1)
            advice = f"did you mean {PREFIX}{near[0]}?" if near else f"known={','.join(kinds)}"
            raise BadEnvironment(f"unknown value {key}: {advice}")
        given[name] = _parsed(kinds[name], value)
    return replace(ENVIRONMENTS[preset], **given)


def _parsed(kind: str, value: Any) -> Any:
    """Text as a number or a truth value where one is wanted. What it can't be stays as it is, and is refused."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if kind == "bool":
        return {"true": True, "false": False}.get(text.lower(), value)
    if kind == "int":
        return int(text) if text.isascii() and text.isdigit() else value
    return text
