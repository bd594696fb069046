"""Sets of documents, described by schemas: comparing them, splitting them into cases, and putting them together again.

The proof follows a lens with such sets: it starts with what the old schema accepts, and ends with a set that must be
within the new schema. Containment and the normal form of schemas come from jsonschema-rs, which also validates records.

A description may be wider than the set it stands for, never narrower. So what is proven of a description is true of the
documents, and a constraint that is hard to follow may be dropped.

A case is one kind of value that a set can contain: an object, an array, or a value without parts. It is immutable, and
describes its values by fragments of a schema; the description may be too wide.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import jsonschema_rs
from jsonschema_rs import CanonicalSchema, canonical

from headrace.errors import InvalidRequest
from headrace.json import jsontext
from headrace.json.lens.closed import Fragment


class CaseFragment(dict[str, Any]):
    """A schema that was built from cases and keeps them, so that it need not be split into cases again."""

    def __init__(self, *cases: Case, **keywords: Any) -> None:
        super().__init__(keywords)
        self.cases = cases


@dataclass(frozen=True)
class ObjectCase:
    """The case that a value is an object.

    Attributes:
        required: names of members that are always present.
        properties: a description of each member's value if it is present; False if it is never present.
        patterns: descriptions for all members whose names match a pattern.
        additional: a description for all other members.
        names: a description of members' names.
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
        """Returns a description of a member's value if it is present; ignores `names`."""
        demands = [child for pattern, child in self.patterns.items() if matches(pattern, name)]
        if name in self.properties:
            demands.append(self.properties[name])
        elif not demands:
            return self.additional
        return demands[0] if len(demands) == 1 else {"allOf": demands}

    @property
    def fragment(self) -> CaseFragment:
        """This case as a JSON schema, which remembers that it was made from this case."""
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
    """The case that a value is an array.

    Attributes:
        prefix: a description of each of the first items, if the array has so many.
        rest: a description of the items after those.
        low, high: bounds on the number of items.
    """

    prefix: tuple[Fragment, ...] = ()
    rest: Fragment = True
    low: int = 0
    high: int | None = None

    def item(self, position: int) -> Fragment:
        """Returns a description of the item at a position, if the array has it."""
        return self.prefix[position] if position < len(self.prefix) else self.rest

    @property
    def fragment(self) -> CaseFragment:
        """This case as a JSON schema, which remembers that it was made from this case."""
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
    """The case that a value is neither an object nor an array; the proof does not look into it."""

    fragment: Fragment


Case = ObjectCase | ArrayCase | Other


@functools.lru_cache(maxsize=1024)
def matches(pattern: str, name: str) -> bool:
    """Returns whether a name matches a schema's pattern, by the validator's rules."""
    return jsonschema_rs.Draft7Validator({"pattern": pattern}).is_valid(name)


def of_value(value: Any) -> Case:
    """Returns the case that describes exactly one value."""
    if isinstance(value, dict):
        properties: dict[str, Fragment] = {name: {"const": member} for name, member in value.items()}
        return ObjectCase(frozenset(value), properties, additional=False, low=len(value), high=len(value))
    if isinstance(value, list):
        size = len(value)
        return ArrayCase(tuple({"const": item} for item in value), rest=False, low=size, high=size)
    return Other({"const": value})


MAX_CASES = 256
MAX_REFERENCES = 16  # followed in a row before a schema counts as unknown

_MAX_UNMERGED = 32  # more cases than that are brought into normal form, which finds fewer if there are
_MAX_EXACT = 2**53
_MAX_WORK = 500_000  # comparisons of alternatives: some 10 s at worst
_OUTGROWN = (canonical.RawReason.OUTGREW_CASES, canonical.RawReason.OUTGREW_INTERSECTIONS)

NOTHING: Fragment = False
_UNKNOWN: tuple[Case, ...] = (ObjectCase(), ArrayCase(), Other({"type": ["null", "boolean", "number", "string"]}))


class Shapes:
    """Operations on fragments, which all refer to the same definitions.

    Raises (every method):
        InvalidRequest: a schema is too complex to reason about.
    """

    def __init__(self, definitions: dict[str, Fragment]) -> None:
        self._definitions = definitions
        self._work = 0

    def covers(self, wide: Fragment | CanonicalSchema, narrow: Fragment) -> bool:
        """Returns whether it can be proven that every value of `narrow` is a value of `wide`."""
        if wide is True or narrow is False:
            return True
        outer = wide if isinstance(wide, CanonicalSchema) else self.normal(wide)
        try:
            return outer.covers(self.normal(narrow)) == canonical.Containment.YES
        except canonical.CanonicalizationError:
            return False

    def is_empty(self, fragment: Fragment) -> bool:
        """Returns whether it can be proven that a fragment has no value."""
        if isinstance(fragment, bool):
            return not fragment
        return "const" not in fragment and self.normal(fragment).satisfiability() == canonical.Satisfiability.NO

    def accepts(self, fragment: Fragment, value: Any) -> bool:
        """Returns whether it can be proven that a value is in a fragment."""
        return self.covers(fragment, {"const": value})

    def union(self, fragments: Sequence[Fragment]) -> Fragment:
        """Returns a fragment that has all values of all these fragments, perhaps more; False, which has none, without
        fragments.
        """
        distinct = list({jsontext.dumps(fragment): fragment for fragment in fragments}.values())
        if len(distinct) < 2:
            return distinct[0] if distinct else NOTHING
        known = [fragment for fragment in distinct if isinstance(fragment, CaseFragment)]
        cases = [case for fragment in known for case in fragment.cases]
        if len(known) == len(distinct) and len(cases) <= _MAX_UNMERGED:
            return CaseFragment(*cases, anyOf=distinct)
        return self._fragment(self.normal({"anyOf": distinct}))

    def values(self, fragment: Fragment) -> list[Any] | None:
        """Returns all values of a fragment that lists them; else None."""
        return _values(self.normal(fragment))

    def cases(self, fragment: Fragment) -> list[Case]:
        """Splits a fragment into cases, at most `MAX_CASES`; each of its values is in at least one case."""
        if isinstance(fragment, CaseFragment):
            return list(fragment.cases)
        found = list(self._cases(self.normal(fragment), MAX_REFERENCES))
        if len(found) > MAX_CASES:
            raise InvalidRequest(f"too many cases to follow: limit={MAX_CASES} actual={len(found)}")
        return found

    def normal(self, fragment: Fragment) -> CanonicalSchema:
        """Returns the normal form of a fragment together with its definitions."""
        whole = {**fragment, "definitions": self._definitions} if isinstance(fragment, dict) else fragment
        try:
            found = jsonschema_rs.canonicalize(whole, draft=jsonschema_rs.Draft7, validate_formats=True, offline=True)
        except (ValueError, jsonschema_rs.ValidationError) as exc:
            raise InvalidRequest(f"a schema is too complex to reason about: {str(exc)[:200]}") from exc
        view = found.view()
        if isinstance(view, canonical.AnyOfView):
            self._work += len(view.branches) ** 2
        if self._work > _MAX_WORK or (isinstance(view, canonical.RawView) and view.reason in _OUTGROWN):
            raise InvalidRequest("a schema is too complex to reason about: it has too many alternatives")
        return found

    def _fragment(self, schema: CanonicalSchema) -> Fragment:
        found = schema.to_json_schema()
        if not isinstance(found, dict):
            return bool(found)
        found.pop("$schema", None)
        definitions = found.pop("definitions", {})
        if not isinstance(definitions, dict) or definitions.keys() - self._definitions.keys():
            raise InvalidRequest("a schema is too complex to reason about: recursive")
        return found

    def _cases(self, schema: CanonicalSchema, references: int) -> Sequence[Case]:
        view = schema.view()
        match view:
            case canonical.FalseView():
                return ()
            case canonical.ObjectView():
                return (self._object(view),)
            case canonical.ArrayView():
                return (self._array(view),)
            case canonical.MultiTypeView():
                return [_anything_of(type_name) for type_name in view.types]
            case canonical.ConstView():
                return (of_value(view.value),)
            case canonical.EnumView():
                return _of_values(view.values)
            case canonical.StringView() | canonical.IntegerView() | canonical.NumberView():
                return (Other(self._fragment(schema)),)
            case canonical.AnyOfView() | canonical.OneOfView():
                return [case for branch in view.branches for case in self._cases(branch, references)]
            case canonical.AllOfView():
                # Any one of the branches describes the value; the one with the fewest cases says most.
                return min((self._cases(branch, references) for branch in view.branches), key=len)
            case canonical.ReferenceView() if references:
                target = schema.definition(view.uri)
                return _UNKNOWN if target is None else self._cases(target, references - 1)
            case canonical.TypedGroupView(type_name="object" | "array"):
                kind = type(_anything_of(view.type_name))
                return [case for case in self._cases(view.body, references) if isinstance(case, kind)]
            case canonical.TypedGroupView():
                return (Other(self._fragment(schema)),)
        return _UNKNOWN

    def _object(self, view: canonical.ObjectView) -> ObjectCase:
        case = ObjectCase(
            required=frozenset(view.required),
            properties={name: self._fragment(child) for name, child in view.properties.items()},
            patterns={pattern: self._fragment(child) for pattern, child in view.pattern_properties.items()},
            additional=True if view.additional_properties is None else self._fragment(view.additional_properties),
            low=view.min_properties or 0,
            high=view.max_properties,
        )
        if view.property_names is None:
            return case
        names = _values(view.property_names)
        if names is None:
            return replace(case, names=self._fragment(view.property_names))
        listed = {name: case.member(name) for name in names if isinstance(name, str)}
        return replace(case, properties=listed, patterns={}, additional=False)

    def _array(self, view: canonical.ArrayView) -> ArrayCase:
        return ArrayCase(
            prefix=tuple(self._fragment(item) for item in view.prefix_items),
            rest=True if view.items is None else self._fragment(view.items),
            low=view.min_items or 0,
            high=view.max_items,
        )


def _of_values(values: Sequence[Any]) -> list[Case]:
    """Returns the cases of a list of values: one for each object and array, and one for all others."""
    others = [value for value in values if not isinstance(value, (dict, list))]
    found = [of_value(value) for value in values if isinstance(value, (dict, list))]
    return [*found, Other({"enum": others})] if others else found


def _values(schema: CanonicalSchema) -> list[Any] | None:
    view = schema.view()
    match view:
        case canonical.FalseView():
            return []
        case canonical.ConstView() if _is_exact(view.value):
            return [view.value]
        case canonical.EnumView() if all(map(_is_exact, view.values)):
            return list(view.values)
        case canonical.MultiTypeView() if set(view.types) <= {"null", "boolean"}:
            return [value for type_name in view.types for value in ([None] if type_name == "null" else [False, True])]
        case canonical.AnyOfView():
            found = [_values(branch) for branch in view.branches]
            if all(values is not None for values in found):
                return [value for values in found for value in values or ()]
    return None


def _is_exact(value: Any) -> bool:
    """Returns whether equal numbers are always the same Python value here, however they are written. Larger numbers
    lose digits as doubles.
    """
    return not isinstance(value, Decimal) and (not isinstance(value, (int, float)) or abs(value) <= _MAX_EXACT)


def _anything_of(type_name: str) -> Case:
    if type_name == "object":
        return ObjectCase()
    if type_name == "array":
        return ArrayCase()
    return Other({"type": type_name})
