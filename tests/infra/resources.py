"""A synthesized template, asked in the words of the tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Statement:
    """One allow or deny of a role's policy."""

    sid: str
    effect: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    """Each as JSON text, with intrinsic functions as they stand."""
    condition: str


@dataclass(frozen=True)
class Resources:
    """The resources of one template by logical id."""

    by_id: dict[str, dict[str, Any]]
    outputs: dict[str, dict[str, Any]]

    @classmethod
    def parse(cls, text: str) -> Resources:
        """From a template's JSON text."""
        template = json.loads(text)
        return cls(by_id=template["Resources"], outputs=template["Outputs"])

    def of(self, kind: str) -> dict[str, dict[str, Any]]:
        """Resources of `AWS::<kind>`; at least one, so that no law holds for want of subjects."""
        found = {key: value for key, value in self.by_id.items() if value["Type"] == f"AWS::{kind}"}
        assert found, f"the template has no AWS::{kind}"
        return found

    def one(self, kind: str, part: str = "") -> tuple[str, dict[str, Any]]:
        """Returns the only resource of a type whose logical id contains `part`: its id and its properties."""
        ((key, value),) = ((k, v) for k, v in self.of(kind).items() if part in k)
        return key, value["Properties"]

    def function(self, name: str) -> dict[str, Any]:
        """Properties of the function whose handler is in `functions/<name>`; of the streaming one for `streaming`."""
        handler = "functions.api.door.streaming" if name == "streaming" else f"functions.{name}.handler.handler"
        (found,) = (
            value["Properties"]
            for value in self.of("Lambda::Function").values()
            if value["Properties"]["Handler"] == handler
        )
        return dict(found)

    def called(self, target: Any) -> dict[str, Any]:
        """Properties of the function that is called through the alias that `target` refers to."""
        text = json.dumps(target)
        (alias,) = (one["Properties"] for key, one in self.of("Lambda::Alias").items() if f'"{key}"' in text)
        return dict(self.by_id[alias["FunctionName"]["Ref"]]["Properties"])

    @property
    def serving(self) -> dict[str, dict[str, Any]]:
        """Properties of the functions of the product by their logical ids: all but the one that removes versions, whose
        code is in the template.
        """
        functions = {key: one["Properties"] for key, one in self.of("Lambda::Function").items()}
        return {key: one for key, one in functions.items() if "ZipFile" not in one["Code"]}

    def statements(self, function: str) -> Iterator[Statement]:
        """Yields the statements of the function's role."""
        role = self.function(function)["Role"]["Fn::GetAtt"][0]
        assert "ManagedPolicyArns" not in self.by_id[role]["Properties"], "managed policies hide what is allowed"
        assert "Policies" not in self.by_id[role]["Properties"]
        yield from self.statements_of(role)

    def allowed_to_role(self, part: str) -> dict[str, set[str]]:
        """Actions that the only role whose logical id contains `part` may call, each with the resources."""
        role, properties = self.one("IAM::Role", part)
        assert "ManagedPolicyArns" not in properties
        return _allowed(self.statements_of(role))

    def statements_of(self, role: str) -> Iterator[Statement]:
        """Yields the statements of all policies of a role, which is given by its logical id."""
        for policy in self.of("IAM::Policy").values():
            if {"Ref": role} not in policy["Properties"]["Roles"]:
                continue
            for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
                yield Statement(
                    sid=statement["Sid"],
                    effect=statement["Effect"],
                    actions=tuple(_listed(statement["Action"])),
                    resources=tuple(json.dumps(r) for r in _listed(statement["Resource"])),
                    condition=json.dumps(statement.get("Condition")),
                )

    def allowed(self, function: str, service: str) -> dict[str, set[str]]:
        """Actions of a service that the function may call, each with the resources it may call them on."""
        found = _allowed(self.statements(function))
        return {action: targets for action, targets in found.items() if action.startswith(f"{service}:")}


def _allowed(statements: Iterable[Statement]) -> dict[str, set[str]]:
    allowed: dict[str, set[str]] = {}
    for statement in statements:
        for action in statement.actions:
            if statement.effect == "Allow":
                allowed.setdefault(action, set()).update(statement.resources)
    return allowed


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
