"""Random records of a stream whose schema moves on, and random filters, each beside what it truly says.

A record is made from typed values, which are then written down in one of the ways in which JSON can say them. So the
naive evaluation reads no JSON: it knows the truth. A record's fields move between versions as the lenses say.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

Tree = tuple[Any, ...]
Truth = dict[str, tuple[Any, ...]]

LAST_VERSION = 3
DEFAULT_LEVEL = "Info"
KEYS = ("k", "é")
POINTERS = {  # by field: from which version on it is where
    "n": {1: "/n", 2: "/m"},
    "who": {1: "/who", 3: "/actor/name"},
    "level": {3: "/level"},
    "cost": {1: "/cost"},
    "paid": {1: "/paid"},
    "at": {1: "/at"},
    "tags": {1: "/tags"},
}
_KINDS: dict[str, dict[str, Any]] = {
    "n": {"kind": "integer"},
    "who": {"kind": "keyword", "normalizer": "lowercase_v1"},
    "level": {"kind": "keyword", "normalizer": "lowercase_v1"},
    "cost": {"kind": "float"},
    "paid": {"kind": "bool"},
    "at": {"kind": "date"},
    "tags": {"kind": "keyword"},
}
_LENSES: dict[int, list[dict[str, Any]]] = {
    1: [{"op": "rename", "from": "/n", "to": "/m"}],
    2: [
        {"op": "plunge", "from": "/who", "host": "/actor", "name": "name"},
        {"op": "add", "path": "/level", "schema": {"type": "string"}, "default": DEFAULT_LEVEL},
    ],
}
_NEEDED = {1: ["n", "who"], 2: ["m", "who"], 3: ["m", "actor", "level"]}
_NO_OBJECT = {"type": ["null", "boolean", "number", "string", "array"]}
_OPTIONAL = ("cost", "paid", "at", "tags", "key")


def update(version: int, name: str) -> dict[str, Any]:
    """Returns the body that brings a stream to a version of the schema, the search configuration and the routing key
    with it.
    """
    members: dict[str, Any] = dict.fromkeys((*_NEEDED[version], *_OPTIONAL), _NO_OBJECT)
    if "actor" in members:
        members["actor"] = {"type": "object", "required": ["name"]}
    schema = {
        "type": "object",
        "required": _NEEDED[version],
        "properties": members,
        "additionalProperties": False,
    }
    body: dict[str, Any] = {"schema": schema, "search": _search(version)}
    if version == 1:
        return {**body, "routingKey": {"jsonPointer": "/key", "required": False}}
    ops = _LENSES[version - 1]
    lens = {"apiVersion": "durable.lens/v1", "schema": name, "from": version - 1, "to": version, "ops": ops}
    return {**body, "lens": lens}


def _search(version: int) -> dict[str, Any]:
    fields = {
        name: {
            **_KINDS[name],
            "bindings": [{"version": since, "jsonPointer": at} for since, at in places.items() if since <= version],
            "exact": True,
            "column": True,
            "exists": True,
        }
        for name, places in POINTERS.items()
        if min(places) <= version
    }
    return {"primaryTimestampField": "at", "fields": fields}


# Records.


class Made(NamedTuple):
    """A record before it has a version: what it says of each field, how that is written, its routing key, its layout."""

    truth: Truth
    written: dict[str, Any]
    key: str | None
    spaced: bool


_VALUES: dict[str, SearchStrategy[Any]] = {
    "n": st.sampled_from([-1, 0, 1, 2**53, 2**53 + 1, 2**70]),
    "who": st.sampled_from(["ann", "bob", "été", "a b", 'q"', "back\\", "*"]),
    "level": st.sampled_from(["info", "warn"]),
    "cost": st.sampled_from([-1.5, 0.0, 0.1, 2.0, 1e21]),
    "paid": st.booleans(),
    "at": st.integers(1_767_225_600_000, 1_767_225_600_003),
    "tags": st.sampled_from(["red", "Red", "blue"]),
}
_JUNK: dict[str, SearchStrategy[Any]] = {
    "n": st.sampled_from([None, True, 1.5, "one", []]),
    "who": st.sampled_from([None, 7, []]),
    "level": st.sampled_from([None, 0, []]),
    "cost": st.sampled_from([None, "many", False]),
    "paid": st.sampled_from([None, 1, "perhaps"]),
    "at": st.sampled_from([None, "soon", "2026-02-30", False]),
    "tags": st.sampled_from([None, 1, [None, [None]]]),
}


def _writings(field: str, value: Any) -> list[Any]:
    """Returns some JSON values that say this one."""
    if field in ("who", "level"):
        return [value, value.upper(), value.capitalize()]
    if field == "n":
        return [value, str(value), *([float(value)] if abs(value) < 2**53 else [])]
    if field == "cost":
        return [value, repr(value)]
    if field == "paid":
        return [value, str(value)]
    if field == "at":
        moment = datetime.fromtimestamp(value // 1000, UTC).replace(microsecond=value % 1000 * 1000)
        return [value, moment.isoformat(timespec="milliseconds")[:-6] + "Z"]
    return [value]


@st.composite
def records(draw: st.DrawFn) -> Made:
    """Returns a record with values, nulls, junk and (nested) arrays in its fields."""
    truth: Truth = {}
    written: dict[str, Any] = {}
    for field, values in _VALUES.items():
        shape = draw(st.sampled_from(["value", "junk", "array", "absent"]))
        if shape == "junk" or (shape == "absent" and field in ("n", "who", "level")):
            written[field] = draw(_JUNK[field])
        elif shape != "absent":
            said = tuple(draw(st.lists(values, min_size=1, max_size=2 if shape == "array" else 1)))
            items = [draw(st.sampled_from(_writings(field, value))) for value in said]
            truth[field] = said
            written[field] = [items[0], [None, [*items[1:]]]] if shape == "array" else items[0]
    return Made(truth, written, draw(st.none() | st.sampled_from(KEYS)), draw(st.booleans()))


def document(made: Made, version: int) -> dict[str, Any]:
    """Returns the record as the schema of a version wants it."""
    found = {name: made.written[name] for name in ("cost", "paid", "at", "tags") if name in made.written}
    found["n" if version == 1 else "m"] = made.written["n"]
    if version < 3:
        found["who"] = made.written["who"]
    else:
        found["actor"], found["level"] = {"name": made.written["who"]}, made.written["level"]
    return found if made.key is None else {**found, "key": made.key}


def text(made: Made, version: int) -> bytes:
    """Returns the record's JSON, with white space or without."""
    separators = (" , ", "\t:\n") if made.spaced else (",", ":")
    return json.dumps(document(made, version), ensure_ascii=False, separators=separators).encode()


def truth_at(made: Made, written_at: int, version: int) -> Truth:
    """Returns what a record of an older version says in a newer one: the same, but what an `add` sets."""
    if version >= 3 > written_at:
        return {**made.truth, "level": (DEFAULT_LEVEL.lower(),)}
    return made.truth


def promoted(made: Made, written_at: int, version: int) -> dict[str, Any]:
    """Returns the record as a reader at a newer version sees it."""
    shown = document(made, version)
    if version >= 3 > written_at:
        shown["level"] = DEFAULT_LEVEL
    return shown


# Filters.


def filters(version: int) -> SearchStrategy[Tree]:
    """Trees of clauses over the fields that a version has."""
    fields = [name for name, places in POINTERS.items() if min(places) <= version]
    typed = [name for name in fields if _KINDS[name]["kind"] != "keyword"]
    clauses = st.one_of(
        st.sampled_from(fields).flatmap(lambda f: st.tuples(st.just("equal"), st.just(f), _VALUES[f])),
        st.sampled_from(typed).flatmap(
            lambda f: st.tuples(st.sampled_from(["<", "<=", ">", ">="]), st.just(f), _VALUES[f])
        ),
        st.tuples(st.just("has"), st.sampled_from(fields)),
    )
    return st.recursive(
        clauses,
        lambda inner: st.one_of(
            st.tuples(st.just("not"), inner),
            st.tuples(st.sampled_from(["and", "or"]), inner, inner),
        ),
        max_leaves=4,
    )


def query(tree: Tree) -> str:
    """Returns the text of a filter."""
    kind, *rest = tree
    if kind in ("and", "or"):
        return f"({query(rest[0])}) {kind} ({query(rest[1])})"
    if kind == "not":
        return f"-({query(rest[0])})"
    if kind == "has":
        return f"has:{rest[0]}"
    field, value = rest
    said = _writings(field, value)[-1] if field != "n" else value
    quoted = str(said).replace("\\", "\\\\").replace('"', '\\"').replace("*", "\\*")
    return f'{field}:{"" if kind == "equal" else kind}"{quoted}"'


def holds(tree: Tree, truth: Truth) -> bool:
    """Returns whether a record with these values matches."""
    kind, *rest = tree
    if kind == "and":
        return holds(rest[0], truth) and holds(rest[1], truth)
    if kind == "or":
        return holds(rest[0], truth) or holds(rest[1], truth)
    if kind == "not":
        return not holds(rest[0], truth)
    said = truth.get(rest[0], ())
    if kind == "has":
        return bool(said)
    wanted = rest[1]
    if kind == "equal":
        return wanted in said
    return any({"<": one < wanted, "<=": one <= wanted, ">": one > wanted, ">=": one >= wanted}[kind] for one in said)
