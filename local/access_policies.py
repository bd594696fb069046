"""Who may do what, by IAM's rules for the policies of roles: an explicit deny, else one allow, else no.

Only what the template uses is known: Allow and Deny, wildcards in actions and resources, the conditions StringEquals and
StringLike. Anything else is refused when it is read, not guessed at when it is asked. Pure.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec


class UnknownPolicy(ValueError):
    """A policy says something that is not evaluated here; the message names it."""


class Call(msgspec.Struct, frozen=True):
    """One action on one resource, as IAM is asked about it. `context` holds the condition keys that are known."""

    action: str
    resource: str
    context: tuple[tuple[str, str], ...] = ()


class Statement(msgspec.Struct, frozen=True):
    """One statement of a role, with every reference replaced. Conditions: each key, and patterns of which one must fit."""

    sid: str
    effect: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Use(msgspec.Struct, frozen=True):
    """The part of a statement that a call fell under."""

    sid: str
    action: str
    resource: str


def read_statement(document: Mapping[str, Any]) -> Statement:
    """A statement of a policy document without references. Raises UnknownPolicy."""
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
    """IAM's answer."""
    effects = {statement.effect for statement in statements if next(uses(statement, call), None)}
    return effects == {"Allow"}


def uses(statement: Statement, call: Call) -> Iterator[Use]:
    """The pairs of action and resource under which the statement speaks of the call."""
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
    """A list of what may be one or many."""
    return value if isinstance(value, list) else [value]


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    """IAM's wildcards: a star is any text, slashes included; a question mark is one character."""
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(character) or re.escape(character) for character in text), re.DOTALL)
