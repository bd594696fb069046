"""What a value can be, one case at a time: an object, an array, or something without parts.

A case is immutable and says what it knows as a fragment of a schema. See `shapes` on why it may know too little.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs

from headrace.json.lens.closed import Fragment


class CaseFragment(dict[str, Any]):
    """A schema that was made from cases and remembers them, so that nobody has to take it apart again."""

    def __init__(self, *cases: Case, **keywords: Any) -> None:
        super().__init__(keywords)
        self.cases = cases


@dataclass(frozen=True)
class ObjectCase:
    """An object.

    Attributes:
        required: names of members that are there.
        properties: what a member is if it is there; False: it is not.
        patterns: the same for all members whose names match.
        additional: the same for members with no entry in either.
        names: what the name of a member may be.
        low, high: bounds on the number of members.
    """

    required: frozenset[str] = frozenset()
    properties: Mapping[str, Fragment] = field(default_factory=dict)
    patterns: Mapping[str, Fragment] = field(default_factory=dict)
    additional: Fragment = True
    names: Fragment = True
    low: int = 0
    high: int | None = None

    def member(self, name: str) -> Fragment:
        """What the member of a name is, if it is there; `names` aside."""
        demands = [child for pattern, child in self.patterns.items() if matches(pattern, name)]
        if name in self.properties:
            demands.append(self.properties[name])
        elif not demands:
            return self.additional
        return demands[0] if len(demands) == 1 else {"allOf": demands}

    @property
    def fragment(self) -> CaseFragment:
        """The case as a schema."""
        found = CaseFragment(self, type="object")
        if self.required:
            found["required"] = sorted(self.required)
        # Where other members are forbidden anyway, saying it of one again only hides from the library what is equal.
        closed = self.additional is False and not self.patterns
        properties = {name: child for name, child in self.properties.items() if not (closed and child is False)}
        if properties:
            found["properties"] = properties
        if self.patterns:
            found["patternProperties"] = dict(self.patterns)
        if self.additional is not True:
            found["additionalProperties"] = self.additional
        if self.names is not True:
            found["propertyNames"] = self.names
        if self.low > len(self.required):
            found["minProperties"] = self.low
        if self.high is not None:
            found["maxProperties"] = self.high
        return found


@dataclass(frozen=True)
class ArrayCase:
    """An array.

    Attributes:
        prefix: what the first items are, if there are so many.
        rest: what each item after those is.
        low, high: bounds on the number of items.
    """

    prefix: tuple[Fragment, ...] = ()
    rest: Fragment = True
    low: int = 0
    high: int | None = None

    def item(self, position: int) -> Fragment:
        """What the item at a position is, if it is there."""
        return self.prefix[position] if position < len(self.prefix) else self.rest

    @property
    def fragment(self) -> CaseFragment:
        """The case as a schema."""
        found = CaseFragment(self, type="array")
        if self.prefix:
            found["items"], found["additionalItems"] = list(self.prefix), self.rest
        elif self.rest is not True:
            found["items"] = self.rest
        if self.low > 0:
            found["minItems"] = self.low
        if self.high is not None:
            found["maxItems"] = self.high
        return found


@dataclass(frozen=True)
class Other:
    """A value that the proof does not look into: no object, no array."""

    fragment: Fragment


Case = ObjectCase | ArrayCase | Other


@functools.lru_cache(maxsize=1024)
def matches(pattern: str, name: str) -> bool:
    """Whether a name matches a pattern of a schema, as the validator sees it."""
    return jsonschema_rs.Draft7Validator({"pattern": pattern}).is_valid(name)


def of_value(value: Any) -> Case:
    """The case of exactly one value."""
    if isinstance(value, dict):
        properties: dict[str, Fragment] = {name: {"const": member} for name, member in value.items()}
        return ObjectCase(frozenset(value), properties, additional=False, low=len(value), high=len(value))
    if isinstance(value, list):
        size = len(value)
        return ArrayCase(tuple({"const": item} for item in value), rest=False, low=size, high=size)
    return Other({"const": value})
