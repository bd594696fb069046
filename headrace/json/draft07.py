"""A JSON schema of draft-07 as a graph of subschemas and references, and a bound on the cost of evaluating it.

Without references, a check costs at most (subschemas × values). With references, a schema of a few lines can cost two
to the power of its size, or overflow the process's stack; `measure` refuses such schemas before anything evaluates
them.

The cost model is that of jsonschema-rs: it remembers, for each value, the result of a reference back to a schema that
is being evaluated; any other reference is evaluated each time that a path leads to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple
from urllib.parse import unquote

from headrace.errors import InvalidRequest
from headrace.json import jsontext
from headrace.json.jsontext import Path

MAX_WEIGHT = 10_000  # subschemas evaluated per value: some 0.1 ms
MAX_SUBSCHEMAS = 10_000  # some 0.4 s to look at
MAX_HEIGHT = 200  # a third of what overflows a stack of 8 MB under a document of the greatest depth

_IN_PLACE_ONE = ("not", "if", "then", "else")
_IN_PLACE_LIST = ("allOf", "anyOf", "oneOf")
_NEVER_EVALUATED = ("definitions", "$defs")  # `$defs` is of a later draft, but where generators put definitions


@dataclass(eq=False)
class Subschema:
    """One subschema, and the subschemas that are evaluated after it, in groups. A group holds alternatives, of which at
    most one applies to a value.

    Attributes:
        path: its JSON pointer in the schema.
        keywords: the JSON object of the subschema; empty for a boolean schema.
        here: groups that are evaluated on the same value.
        members, items: groups that are evaluated on the members of an object, or the items of an array.
    """

    path: Path
    keywords: dict[str, Any]
    here: list[list[Subschema]] = field(default_factory=list)
    members: list[list[Subschema]] = field(default_factory=list)
    items: list[list[Subschema]] = field(default_factory=list)


@dataclass(frozen=True)
class Cost:
    """An upper bound on the cost of evaluating a schema.

    Attributes:
        weight: number of subschemas evaluated per value of the document.
        height: length of the longest path of subschemas before one is repeated.
        recursive: whether the schema refers to itself, so that it is evaluated as deep as the document is nested.
        ambiguous: whether it can refer to itself in several ways for one value. Then only a yes or no is cheap, because
            earlier results are remembered; a description of errors takes each way again.
    """

    weight: int
    height: int
    recursive: bool
    ambiguous: bool


class Graph:
    """The subschemas of a schema, with references resolved.

    Args:
        schema: an object or a boolean, nested no deeper than `jsontext.MAX_DEPTH`. Parts that are invalid in draft-07
            are skipped, because the metaschema refuses them.

    Raises:
        InvalidRequest: a reference leads outside the schema, or to something that is no subschema; or there are more
            than `MAX_SUBSCHEMAS`.
    """

    def __init__(self, schema: Any) -> None:
        self._by_path: dict[Path, Subschema] = {}
        self._by_name: dict[str, Subschema] = {}
        self._based: set[Path] = set()
        self.root = self._walk((), schema)
        for subschema in self:
            if "$ref" in subschema.keywords:
                target = self._target(subschema)
                subschema.here, subschema.members, subschema.items = [[target]], [], []  # siblings don't count

    def __iter__(self) -> Iterator[Subschema]:
        """Yields all subschemas, the schema itself first."""
        return iter(self._by_path.values())

    def _walk(self, path: Path, schema: Any) -> Subschema:
        keywords = schema if isinstance(schema, dict) else {}
        found = self._by_path[path] = Subschema(path, keywords)
        if len(self._by_path) > MAX_SUBSCHEMAS:
            raise InvalidRequest(f"schema has too many subschemas: limit={MAX_SUBSCHEMAS}")
        self._name(found)

        def child(*keys: str, of: Any) -> Subschema:
            return self._walk((*path, *keys), of)

        def children(keyword: str) -> list[Subschema]:
            value = keywords.get(keyword)
            if isinstance(value, list):
                return [child(keyword, str(at), of=one) for at, one in enumerate(value)]
            if isinstance(value, dict):
                return [child(keyword, key, of=one) for key, one in value.items() if isinstance(one, (dict, bool))]
            return []

        def only(keyword: str) -> list[Subschema]:
            value = keywords.get(keyword)
            return [child(keyword, of=value)] if isinstance(value, (dict, bool)) else []

        for keyword in _NEVER_EVALUATED:
            children(keyword)
        for keyword in _IN_PLACE_ONE:
            found.here.append(only(keyword))
        for keyword in (*_IN_PLACE_LIST, "dependencies"):
            found.here.extend([one] for one in children(keyword))
        found.members = [children("properties"), only("additionalProperties"), only("propertyNames")]
        found.members.extend([one] for one in children("patternProperties"))
        listed = children("items") if isinstance(keywords.get("items"), list) else only("items")
        found.items = [[*listed, *only("additionalItems")], only("contains")]
        return found

    def _name(self, found: Subschema) -> None:
        name = found.keywords.get("$id")
        if not isinstance(name, str):
            return
        if not name.startswith("#"):
            if found.path:
                self._based.add(found.path)
        elif self._by_name.setdefault(name[1:], found) is not found:
            raise InvalidRequest(f"schema has two subschemas of one $id: {name[:80]}")

    def _target(self, source: Subschema) -> Subschema:
        reference = source.keywords["$ref"]
        at = jsontext.render_pointer(source.path)
        if not isinstance(reference, str):
            raise InvalidRequest(f"$ref must be a string: at={at}/$ref")
        if not reference.startswith("#"):
            raise InvalidRequest(f"external $ref is not supported: at={at}/$ref")
        if any(source.path[: len(base)] == base for base in self._based):
            raise InvalidRequest(f"$ref under a nested $id is not supported: at={at}/$ref")
        name = unquote(reference[1:])
        is_pointer = not name or name.startswith("/")
        target = self._by_path.get(jsontext.parse_pointer(name)) if is_pointer else self._by_name.get(name)
        if target is None:
            raise InvalidRequest(f"$ref leads to no subschema: at={at}/$ref")
        return target


class _Measure(NamedTuple):
    """The cost of one subschema, computed from those below it.

    Attributes:
        weight, height: as in `Cost`.
        by_members, by_items: number of ways to get back to a schema being evaluated, for one member of an object or one
            item of an array.
    """

    weight: int
    height: int
    by_members: int
    by_items: int

    @property
    def ways(self) -> int:
        """The number of ways to get back to a schema being evaluated, for one value (an object or an array)."""
        return max(self.by_members, self.by_items)


# the measure of a way back to a schema that is being evaluated
_REPEATED = _Measure(weight=1, height=0, by_members=1, by_items=1)


def measure(root: Subschema) -> Cost:
    """Computes an upper bound on the cost of evaluating a schema.

    Raises:
        InvalidRequest: the cost is above the limits.
    """
    measures: dict[Subschema, _Measure] = {}
    repeated: set[Subschema] = set()
    open_ = {root}
    stack = [(root, iter(_next(root)))]
    while stack:
        subschema, rest = stack[-1]
        following = next(rest, None)
        if following is None:
            stack.pop()
            open_.remove(subschema)
            measures[subschema] = _combine(subschema, measures)
        elif following in open_:
            repeated.add(following)
        elif following not in measures:
            open_.add(following)
            stack.append((following, iter(_next(following))))
    cost = Cost(
        weight=measures[root].weight + sum(measures[one].weight for one in repeated),
        height=measures[root].height,
        recursive=bool(repeated),
        ambiguous=any(measures[one].ways > 1 for one in repeated),
    )
    if cost.height > MAX_HEIGHT:
        raise InvalidRequest(f"schema is nested too deeply: limit={MAX_HEIGHT}")
    if cost.weight > MAX_WEIGHT:
        raise InvalidRequest("schema is too costly: its $ref and applicators multiply")
    return cost


def _next(subschema: Subschema) -> Iterator[Subschema]:
    for groups in (subschema.here, subschema.members, subschema.items):
        for group in groups:
            yield from group


def _combine(subschema: Subschema, measures: dict[Subschema, _Measure]) -> _Measure:
    """Combines the measures of the following subschemas; one without a measure is still being evaluated, so it counts
    as a repetition.
    """

    def total(groups: list[list[Subschema]], of: Callable[[_Measure], int]) -> int:
        return sum(max((of(measures.get(one, _REPEATED)) for one in group), default=0) for group in groups)

    here, members, items = subschema.here, subschema.members, subschema.items
    weight, ways = attrgetter("weight"), attrgetter("ways")
    return _Measure(
        weight=1 + total(here, weight) + max(total(members, weight), total(items, weight)),
        height=1 + max((measures.get(one, _REPEATED).height for one in _next(subschema)), default=0),
        by_members=total(here, attrgetter("by_members")) + total(members, ways),
        by_items=total(here, attrgetter("by_items")) + total(items, ways),
    )
