"""A template without the resources that an emulator lacks; what refers to one gets a text in its place.

The text is of lower-case letters and digits, as the ids of EMR Serverless applications are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Json = Any


@dataclass
class Reduced:
    """What is left of a template.

    Attributes:
        template: to be deployed.
        removed: logical ids with their types.
        placeholders: where a reference was (`Resource/Properties/…`), and the text that is there now.
        changed: where something else was changed by who uses this, and to what.
    """

    template: dict[str, Any]
    removed: dict[str, str] = field(default_factory=dict)
    placeholders: dict[str, str] = field(default_factory=dict)
    changed: dict[str, str] = field(default_factory=dict)


def without(template: dict[str, Any], lacked: Callable[[dict[str, Any]], bool]) -> Reduced:
    """Returns the template without every resource that is `lacked`. The one given stays as it is.

    Raises ValueError for a reference inside a `Fn::Sub` text, which is not looked for.
    """
    removed = {id_: resource["Type"] for id_, resource in template["Resources"].items() if lacked(resource)}
    reduced = Reduced({}, removed)
    kept = {id_: resource for id_, resource in template["Resources"].items() if id_ not in removed}
    reduced.template = {
        **{part: _replaced(value, part, reduced) for part, value in template.items() if part != "Resources"},
        "Resources": {id_: _replaced(resource, id_, reduced) for id_, resource in kept.items()},
    }
    return reduced


def _replaced(value: Json, where: str, reduced: Reduced) -> Json:
    """`value`, with a placeholder for each reference to what was removed."""
    if isinstance(value, list):
        return [_replaced(item, f"{where}/{number}", reduced) for number, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    target = _target(value)
    if target is not None and target[0] in reduced.removed:
        text = "absent" + "".join(target).lower()
        reduced.placeholders[where] = text
        return text
    for id_ in reduced.removed:
        if "Fn::Sub" in value and f"${{{id_}" in str(value["Fn::Sub"]):
            raise ValueError(f"a reference in Fn::Sub is not replaced: at={where} to={id_}")
    return {
        name: [id_ for id_ in item if id_ not in reduced.removed]
        if name == "DependsOn" and isinstance(item, list)
        else _replaced(item, f"{where}/{name}", reduced)
        for name, item in value.items()
    }


def _target(value: dict[str, Any]) -> tuple[str, ...] | None:
    """Returns the logical id, and the attribute if any, that an intrinsic function refers to; None for any other
    value.
    """
    if len(value) != 1:
        return None
    if "Ref" in value:
        return (value["Ref"],)
    if "Fn::GetAtt" in value:
        id_, attribute = value["Fn::GetAtt"]
        return (id_, attribute)
    return None
