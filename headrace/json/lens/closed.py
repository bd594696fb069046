"""Rewrites schemas for the proof: keeps only what the validator checks, and moves the targets of all references to one
place.

A closed schema is a pair of a fragment and definitions; all references in both lead to `#/definitions/NAME`. So a part
of a fragment means the same wherever it is moved, as long as the definitions come along.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from headrace.json import draft07, jsontext
from headrace.json.jsontext import Path

Fragment = dict[str, Any] | bool
"""A schema whose references lead to definitions kept elsewhere."""

_VALUES: Final = ("type", "enum", "const")
_NUMBERS: Final = ("multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum")
_STRINGS: Final = ("maxLength", "minLength", "pattern")
_CONTAINERS: Final = ("maxItems", "minItems", "uniqueItems", "maxProperties", "minProperties", "required")
_ASSERTIONS: Final = frozenset((*_VALUES, *_NUMBERS, *_STRINGS, *_CONTAINERS))
_ONE: Final = (
    "items",
    "not",
    "if",
    "then",
    "else",
    "additionalProperties",
    "propertyNames",
    "additionalItems",
    "contains",
)
_LIST: Final = ("allOf", "anyOf", "oneOf")
_BY_KEY: Final = ("properties", "patternProperties", "dependencies")

# With the format of jsonschema-rs this is exactly `instants.is_date_time`: which lets pass small letters, leap seconds
# and any number of digits.
_STRICT_DATE_TIME: Final = r"^[0-9-]{10}T[0-9]{2}:[0-9]{2}:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-][0-9:]{5})$"
DATE_TIME: Final[dict[str, Any]] = {"format": "date-time", "pattern": _STRICT_DATE_TIME}

_MAX_REFERENCES: Final = 8
_PLAIN_NAME: Final = re.compile(r"(?!at_)[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Closed:
    """A schema as a fragment, and the definitions to which it and they refer."""

    fragment: Fragment
    definitions: dict[str, Fragment]


def close(schema: Fragment) -> Closed:
    """Rewrites a draft-07 schema so that only keywords that the validator checks are left, and all references lead to
    `#/definitions/NAME`.

    Raises:
        InvalidRequest: a reference leads outside the schema, or to something that is no subschema.
    """
    targets = {
        subschema.path: subschema.here[0][0].path
        for subschema in draft07.Graph(schema)
        if "$ref" in subschema.keywords
    }
    rewriter = _Rewriter(schema, targets)
    definitions = {_name(path): rewriter.rewrite(path) for path in set(targets.values())}
    return Closed(rewriter.rewrite(()), definitions)


class _Rewriter:
    def __init__(self, schema: Fragment, targets: dict[Path, Path]) -> None:
        self._schema = schema
        self._targets = targets

    def rewrite(self, path: Path) -> Fragment:
        """Returns the subschema at a path as `close` rewrites it."""
        schema = jsontext.get(self._schema, path)
        if not isinstance(schema, dict):
            return bool(schema)
        if path in self._targets:
            return {"$ref": f"#/definitions/{_name(self._targets[path])}"}
        rewritten: dict[str, Any] = {}
        for keyword, value in schema.items():
            if keyword in _ASSERTIONS:
                rewritten[keyword] = value
            elif keyword in _LIST or (keyword == "items" and isinstance(value, list)):
                children = [self.rewrite((*path, keyword, str(at))) for at in range(len(value))]
                rewritten[keyword] = children
                if keyword == "oneOf" and "anyOf" not in schema and self._are_exclusive(path, len(value)):
                    rewritten["anyOf"] = rewritten.pop("oneOf")
            elif keyword in _ONE:
                rewritten[keyword] = self.rewrite((*path, keyword))
            elif keyword in _BY_KEY:
                rewritten[keyword] = {
                    key: child if isinstance(child, list) else self.rewrite((*path, keyword, key))
                    for key, child in value.items()
                }
        if schema.get("format") == "date-time":
            return {"allOf": [rewritten, DATE_TIME]}
        return rewritten

    def _are_exclusive(self, path: Path, count: int) -> bool:
        """Returns whether the branches of a `oneOf` are objects with a member whose constant text differs in each
        branch. Then it equals an `anyOf`.

        The schema library can't decide containment in a large `oneOf`, and events of many types are usually written
        this way.
        """
        branches = [self._marks((*path, "oneOf", str(at))) for at in range(count)]
        names = set.intersection(*(set(marks) for marks in branches)) if branches else set()
        return any(len({marks[name] for marks in branches}) == count for name in names)

    def _marks(self, path: Path) -> dict[str, str]:
        """Returns the members that an object schema requires and whose value must be one constant text, with that
        text.
        """
        for _ in range(_MAX_REFERENCES):
            path = self._targets.get(path, path)
        schema = jsontext.get(self._schema, path)
        if not isinstance(schema, dict) or schema.get("type") != "object" or path in self._targets:
            return {}
        members = {name: schema.get("properties", {}).get(name) for name in schema.get("required", ())}
        return {
            name: member["const"]
            for name, member in members.items()
            if isinstance(member, dict) and isinstance(member.get("const"), str) and "$ref" not in member
        }


def _name(path: Path) -> str:
    """Returns the name under which the subschema at a path becomes a definition. A definition of the schema keeps its
    own name, so that two versions of a schema share it.
    """
    if len(path) == 2 and path[0] == "definitions" and _PLAIN_NAME.fullmatch(path[1]):
        return path[1]
    return "at_" + jsontext.render_pointer(path).encode().hex()
