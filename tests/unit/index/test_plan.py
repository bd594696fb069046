"""Plans: what a run holds, and that the hash changes with it and with nothing else. Terms mean one thing each."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.definition import Definition, for_fork
from headrace.index import descriptors, families
from headrace.index.descriptors import hash_of, plan_of
from headrace.json import registry
from headrace.json.registry import Registry
from headrace.query.language import canonical
from headrace.streams import profiles

SEARCH: dict[str, Any] = {
    "primaryTimestampField": "time",
    "defaultFields": [{"field": "message"}],
    "aliases": {"lvl": "level"},
    "fields": {
        "time": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/time"}], "exact": True},
        "level": {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "/level"}], "exact": True},
        "id": {
            "kind": "keyword",
            "bindings": [{"version": 1, "jsonPointer": "/id"}],
            "prefix": True,
            "sortable": True,
        },
        "note": {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "/note"}], "exists": True},
        "took": {"kind": "float", "bindings": [{"version": 1, "jsonPointer": "/took"}], "aggregatable": True},
        "size": {"kind": "integer", "bindings": [{"version": 1, "jsonPointer": "/size"}], "exact": True},
        "message": {
            "kind": "text",
            "bindings": [{"version": 1, "jsonPointer": "/message"}],
            "analyzer": "unicode_word_v1",
            "positions": True,
        },
    },
    "rollups": {
        "calls": {
            "dimensions": ["level"],
            "intervals": ["1m"],
            "measures": {"n": {"kind": "count"}, "took": {"kind": "summary", "field": "took"}},
        }
    },
}
SCHEMA = {"type": "object", "properties": {"time": {"type": "string"}, "level": {"type": "string"}}}
LENS = {
    "apiVersion": "durable.lens/v1",
    "schema": "s",
    "from": 1,
    "to": 2,
    "ops": [{"op": "add", "path": "/extra", "schema": {"type": "string"}, "default": "x"}],
}


def _defined(search: dict[str, Any] | None = SEARCH, profile: str = "generic", *, versions: int = 1) -> Definition:
    """Returns a definition with a search configuration, as an update makes it."""
    update = registry.Update(schema=SCHEMA)
    found = registry.apply(Registry(), update, name="s", next_offset=0, is_empty=True)
    if versions == 2:
        grown = copy.deepcopy(SCHEMA)
        grown["properties"]["extra"] = {"type": "string"}  # type: ignore[index]
        found = registry.apply(
            found, registry.Update(schema=grown, lens=LENS), name="s", next_offset=50, is_empty=False
        )
    if search is not None:
        found = registry.apply(found, registry.Update(search=search), name="s", next_offset=90, is_empty=False)
    return Definition(found, profiles.parse({"kind": profile}))


def _changed(change: str, value: Any) -> dict[str, Any]:
    """Returns the configuration with a member of it changed: `fields/level/exact`."""
    search = copy.deepcopy(SEARCH)
    at: Any = search
    *path, last = change.split("/")
    for name in path:
        at = at[name]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return search


def test_a_plan_says_what_stands_where() -> None:
    plan = plan_of(_defined())
    assert plan is not None
    held = {field.name: (field.terms, field.words, field.column) for field in plan.fields}
    assert held == {
        "id": (True, False, "always"),
        "level": (True, False, "always"),
        "message": (False, True, "always"),
        "note": (False, False, "none"),
        "size": (True, False, "none"),
        "time": (True, False, "always"),
        "took": (False, False, "always"),
    }
    assert plan.families == ("kw", "lex", "col", "fts", "agg")
    assert plan.field("level") == plan.fields[1]
    assert plan.field("unknown") is None
    without_rollups = plan_of(_defined(_changed("rollups", None)))
    assert without_rollups is not None
    level = without_rollups.field("level")
    assert level is not None and level.column == "few"


def test_a_stream_without_search_has_no_plan() -> None:
    assert plan_of(_defined(None)) is None
    assert hash_of(_defined(None)) == descriptors.NONE


def test_a_profile_adds_its_families() -> None:
    plan = plan_of(_defined(profile="metrics"))
    assert plan is not None and "mblk" in plan.families
    assert hash_of(_defined(profile="metrics")) != hash_of(_defined())


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("fields/level/exact", False),
        ("fields/level/normalizer", "lowercase_v1"),
        ("fields/level/bindings", [{"version": 1, "jsonPointer": "/other"}]),
        ("fields/note/exact", True),
        ("fields/note/column", True),
        ("fields/message/positions", False),
        ("fields/size", None),
        ("fields/size/kind", "float"),
        ("fields/new", {"kind": "bool", "bindings": [{"version": 1, "jsonPointer": "/new"}], "exact": True}),
        ("rollups", None),
        ("rollups/calls/intervals", ["1m", "1h"]),
        ("rollups/calls/dimensions", None),
        ("rollups/calls/include", "level:a"),
        ("rollups/calls/measures/n/include", "level:a"),
    ],
)
def test_whatever_a_run_holds_changes_the_hash(change: str, value: Any) -> None:
    if change == "fields/level/exact":
        search = _changed("rollups", None)
        assert hash_of(_defined(search)) != hash_of(_defined({**search, **_only_fields(change, value)}))
    else:
        assert hash_of(_defined(_changed(change, value))) != hash_of(_defined())


def _only_fields(change: str, value: Any) -> dict[str, Any]:
    return {"fields": _changed(change, value)["fields"]}


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("aliases", {"other": "level"}),
        ("defaultFields", None),
        ("fields/note/exists", None),
        ("fields/id/exact", True),
        ("fields/level/bindings", [{"version": 1, "jsonPointer": "/level"}, {"version": 9, "jsonPointer": "/later"}]),
    ],
)
def test_what_no_run_holds_does_not_change_the_hash(change: str, value: Any) -> None:
    assert hash_of(_defined(_changed(change, value))) == hash_of(_defined())


def test_names_count_where_a_rollup_asks_a_query() -> None:
    asking = _changed("rollups/calls/include", "lvl:1")
    other = {**asking, "aliases": {"lvl": "size"}}
    assert hash_of(_defined(asking)) != hash_of(_defined(other))


def test_lenses_and_where_versions_begin_change_the_hash() -> None:
    one, two = _defined(), _defined(versions=2)
    assert hash_of(one) != hash_of(two)
    moved = msgspec.structs.replace(two.registry, boundaries=(registry.Boundary(5, 1), registry.Boundary(50, 2)))
    assert hash_of(Definition(moved, two.own)) != hash_of(two)


def test_a_fork_has_the_plan_of_its_ancestor() -> None:
    two = _defined(versions=2)
    assert hash_of(for_fork(two, 20)) == hash_of(for_fork(two, 80)) == hash_of(two)


def test_hashes_are_written_down() -> None:
    """A change of them re-indexes every stream: it must be meant."""
    assert hash_of(_defined()) == "519ca183c9ac4d93"
    assert len(hash_of(_defined())) == 16


names = st.text("abAB01._-", min_size=1, max_size=4).filter(lambda name: name[0].isalnum())
values = st.text(max_size=4) | st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)


@given(a=st.tuples(names, values), b=st.tuples(names, values))
def test_a_term_is_of_one_field_and_one_value(a: tuple[str, Any], b: tuple[str, Any]) -> None:
    same = (a[0], canonical.text(a[1])) == (b[0], canonical.text(b[1]))
    assert (families.value_term(*a) == families.value_term(*b)) == same
    assert families.text_of(families.value_term(*a)) == canonical.text(a[1])
    specials = {families.has_term(a[0]), families.lossy_term(a[0])}
    assert len(specials | {families.value_term(*a)}) == 3
    assert (specials == {families.has_term(b[0]), families.lossy_term(b[0])}) == (a[0] == b[0])


@given(field=names, other=names, text=st.text(max_size=3), value=st.text(max_size=6))
def test_a_prefix_ends_where_it_says(field: str, other: str, text: str, value: str) -> None:
    low = families.prefix_term(field, text)
    inside = low <= families.value_term(other, value) < families.after(low)
    assert inside == (field == other and value.startswith(text))
    for special in (families.has_term(other), families.lossy_term(other)):
        assert not low <= special < families.after(low)


def test_half_of_a_pair_is_a_term_too() -> None:
    assert families.text_of(families.word_term("a", "\ud800")) == "\ud800"
    assert families.after(b"a\xff") == b"b"
    with pytest.raises(ValueError, match="above"):
        families.after(b"\xff")
