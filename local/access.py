"""The emulator's IAM: reads the policies of a template's roles, refuses calls that a role may not make, and records the
calls that roles made.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from headrace import decoding
from local.access_calls import ACCOUNT, API, REGION, Call, arn, key_calls, role_of


class UnknownPolicy(ValueError):
    """A policy has an element that this module does not evaluate; the message names it."""


class Statement(msgspec.Struct, frozen=True):
    """One statement of a role, with every reference resolved. `conditions` maps each key to patterns of which one must
    match.
    """

    sid: str
    effect: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Use(msgspec.Struct, frozen=True):
    """The part of a policy statement, allowing or denying, that matched a call."""

    sid: str
    action: str
    resource: str


def read_statement(document: Mapping[str, Any]) -> Statement:
    """Reads a statement of a policy document whose references are resolved. Raises UnknownPolicy if it has an element
    that is not evaluated here.
    """
    unknown = document.keys() - {"Sid", "Effect", "Action", "Resource", "Condition"}
    operators = document.get("Condition", {})
    if unknown or operators.keys() - {"StringEquals", "StringLike"}:
        raise UnknownPolicy(f"not evaluated: {sorted(unknown)} {sorted(operators)} in {document.get('Sid')}")
    conditions = [(key, tuple(listed(values))) for operator in operators.values() for key, values in operator.items()]
    literal = [value for values in operators.get("StringEquals", {}).values() for value in listed(values)]
    if any(set(value) & {"*", "?"} for value in literal):
        raise UnknownPolicy(f"not evaluated: wildcards that are none in {document.get('Sid')}")
    return Statement(
        sid=document.get("Sid", ""),
        effect=document["Effect"],
        actions=tuple(listed(document["Action"])),
        resources=tuple(listed(document["Resource"])),
        conditions=tuple(conditions),
    )


def is_allowed(statements: Sequence[Statement], call: Call) -> bool:
    """Returns whether IAM would allow the call under these statements: one that allows it matches, and none that denies
    it.
    """
    effects = {statement.effect for statement in statements if next(uses(statement, call), None)}
    return effects == {"Allow"}


def uses(statement: Statement, call: Call) -> Iterator[Use]:
    """Yields the pairs of action and resource in the statement that match the call; none if one of its conditions does
    not hold.
    """
    context = dict(call.context)
    for key, values in statement.conditions:
        if key not in context or not any(_pattern(value).fullmatch(context[key]) for value in values):
            return
    for action in statement.actions:
        # Actions are compared without case, resources with it.
        if not _pattern(action.lower()).fullmatch(call.action.lower()):
            continue
        for resource in statement.resources:
            if _pattern(resource).fullmatch(call.resource):
                yield Use(statement.sid, action, resource)


def listed(value: Any) -> list[Any]:
    """Returns a value as a list: policies may have one value or a list of them."""
    return value if isinstance(value, list) else [value]


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    """Compiles a pattern with IAM's wildcards: a star matches any text, slashes included; a question mark matches one
    character.
    """
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(character) or re.escape(character) for character in text), re.DOTALL)


_LOOPBACK = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?", re.ASCII)
FOREIGN = "the emulated AWS serves the programs of this machine, and no web pages"


def is_foreign(host: str, origin: str | None) -> bool:
    """Returns whether a request to an emulated service, with these headers, comes from a web page: an SDK sends no
    `Origin`, and has the loopback address as `Host`.
    """
    return origin is not None or not _LOOPBACK.fullmatch(host)


# Answers that are remembered: an emulator may run for weeks, and each object is a resource.
_REMEMBERED = 100_000


class Policies(msgspec.Struct, frozen=True):
    """The statements of each role, and the ARN of the key that encrypts the stores; empty if there is no key."""

    roles: dict[str, tuple[Statement, ...]] = {}
    key: str = ""


class Noted(msgspec.Struct, frozen=True):
    """A record of a call that a role made, and whether it was allowed."""

    role: str
    call: Call
    allowed: bool


class AccessDoor:
    """The check of permissions that every request to an emulated service passes.

    Args:
        policies: a file of Policies, read at the first request of a role, because it may be written after this object
            is created.
        record: a file to which each distinct call is appended as a line of JSON, if given.
    """

    def __init__(self, policies: Path | None = None, record: Path | None = None) -> None:
        self._file = policies
        self._record = record
        self._answers: dict[tuple[str, Call], str | None] = {}

    def denied(self, authorization: str, calls: Callable[[], Iterable[Call]]) -> str | None:
        """Returns the reason why a request is refused, as a sentence that names role, action and resource; None if it
        is allowed. Everything is allowed if no role signed the request, or no policies were given. Otherwise the role's
        calls, up to the first refused one, are recorded, if a record was given.

        `calls` returns the calls that the request makes; it is not called if the answer does not depend on them.
        """
        role = role_of(authorization)
        if role is None or self._file is None:
            return None
        return next(filter(None, (self._denied(role, call) for call in calls())), None)

    def _denied(self, role: str, call: Call) -> str | None:
        if (role, call) not in self._answers:
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            needed = (call, *key_calls(call, self._policies.key))
            refused = [one for one in needed if not self._may(role, one)]
            self._answers[role, call] = (
                f"{role} is not authorized to perform {refused[0].action} on resource {refused[0].resource}"
                if refused
                else None
            )
        return self._answers[role, call]

    def _may(self, role: str, call: Call) -> bool:
        allowed = is_allowed(self._policies.roles.get(role, ()), call)
        if self._record is not None:
            with self._record.open("ab") as file:
                file.write(msgspec.json.encode(Noted(role, call, allowed)) + b"\n")
        return allowed

    @functools.cached_property
    def _policies(self) -> Policies:
        assert self._file is not None
        return decoding.from_json(self._file.read_bytes(), Policies)


def noted(record: Path) -> list[Noted]:
    """Returns the calls that an `AccessDoor` recorded in a file, in their order."""
    return [decoding.from_json(line, Noted) for line in record.read_bytes().splitlines()]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the command line options `--policies` and `--record`, the arguments of `AccessDoor`."""
    parser.add_argument("--policies", type=Path, help="what roles may do; without it everything is allowed")
    parser.add_argument("--record", type=Path, help="note what roles did in this file")


_PSEUDO = {
    "AWS::AccountId": ACCOUNT,
    "AWS::Partition": "aws",
    "AWS::Region": REGION,
    "AWS::URLSuffix": "amazonaws.com",
}
# ARNs of what is not deployed; `{}` is the logical id.
_NOT_DEPLOYED = {
    "AWS::ApiGatewayV2::Api": API,
    "AWS::EMRServerless::Application": arn("emr-serverless", "/applications/00headraceemulator"),
    "AWS::IAM::Role": f"arn:aws:iam::{ACCOUNT}:role/{{}}",
    "AWS::KMS::Key": arn("kms", "key/{}"),
    "AWS::Lambda::Alias": arn("lambda", "function:{}"),
    "AWS::Logs::LogGroup": arn("logs", "log-group:{}"),
    "AWS::SecretsManager::Secret": arn("secretsmanager", "secret:{}"),
}

Json = dict[str, Any]


def read_policies(resources: Json, resolved: Mapping[str, str]) -> Policies:
    """Returns the statements that the template's policies attach to its roles, and its customer-managed key, if it has
    exactly one.

    Args:
        resolved: maps the JSON text of an intrinsic function to the text that CloudFormation resolved it to.

    Raises:
        UnknownPolicy: a policy has an element that this module does not evaluate.
    """
    roles: dict[str, list[Statement]] = {}
    for name, part in resources.items():
        if part["Type"] == "AWS::IAM::Role":
            roles.setdefault(name, [])
            if part["Properties"].keys() & {"ManagedPolicyArns", "Policies"}:
                raise UnknownPolicy(f"{name}: only policies of their own are read")
        if part["Type"] != "AWS::IAM::Policy":
            continue
        statements = [
            read_statement(_resolve(document, resources, resolved))
            for document in part["Properties"]["PolicyDocument"]["Statement"]
        ]
        for role in part["Properties"]["Roles"]:
            roles.setdefault(role["Ref"], []).extend(statements)
    keys = [name for name, part in resources.items() if part["Type"] == "AWS::KMS::Key"]
    key = _NOT_DEPLOYED["AWS::KMS::Key"].format(keys[0]) if len(keys) == 1 else ""
    return Policies({role: tuple(statements) for role, statements in roles.items()}, key)


def _resolve(value: Any, resources: Json, resolved: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_resolve(element, resources, resolved) for element in value]
    if not isinstance(value, dict):
        return value
    known = resolved.get(json.dumps(value, sort_keys=True))
    if known is not None:
        return known
    match value:
        case {"Ref": name} if name in _PSEUDO:
            return _PSEUDO[name]
        case {"Fn::Join": [between, parts]}:
            return between.join(_resolve(part, resources, resolved) for part in parts)
        case {"Fn::Sub": str(text)}:
            for name, instead in _PSEUDO.items():
                text = text.replace(f"${{{name}}}", instead)
            return text
        case {"Ref": name} | {"Fn::GetAtt": [name, "Arn"]} if resources.get(name, {}).get("Type") in _NOT_DEPLOYED:
            return _NOT_DEPLOYED[resources[name]["Type"]].format(name)
    if any(key == "Ref" or key.startswith("Fn::") for key in value):
        raise UnknownPolicy(f"a policy refers to what the emulator does not have: {value}")
    return {key: _resolve(inner, resources, resolved) for key, inner in value.items()}
