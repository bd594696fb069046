"""What a change touches: the rules one by one, and against tables that are really changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.streams.profiles.touch import keys
from headrace.streams.profiles.touch.templates import Template, by_entity
from headrace.streams.profiles.touch.wait import Touched, change_of, touched
from tests.unit.profiles.json_values import VALUES, objects

BY_TENANT = Template(keys.template_id("todos", ("tenant",)), "todos", ("tenant",), ("string",), 10, 0, 0)
TABLE = keys.table_key("todos")


def record(operation: str, before: Any = None, after: Any = None, entity: str = "todos") -> dict[str, Any]:
    found: dict[str, Any] = {"type": entity, "key": "1", "headers": {"operation": operation}}
    if before is not None:
        found["old_value"] = before
    if after is not None:
        found["value"] = after
    return found


def touches(
    change: dict[str, Any], *, offset: int = 10, policy: str = "coarse", templates: Any = (BY_TENANT,)
) -> Touched:
    found = change_of(change)
    assert found is not None
    return touched(found, offset, by_entity(templates), policy)


def fine(change: dict[str, Any], **arguments: Any) -> set[int]:
    found = touches(change, **arguments)
    assert TABLE in found.keys
    return set(found.keys) - {TABLE}


def watch(tenant: str) -> int:
    return keys.watch_key(BY_TENANT.id, (tenant,))


def member(tenant: str) -> int:
    return keys.membership_key(BY_TENANT.id, (tenant,))


def field(name: str, tenant: str) -> int:
    return keys.field_key(BY_TENANT.id, name, (tenant,))


def test_a_row_enters_leaves_moves() -> None:
    assert fine(record("insert", after={"tenant": "a"})) == {watch("a"), member("a")}
    assert fine(record("delete", before={"tenant": "a"})) == {watch("a"), member("a")}
    moved = record("update", before={"tenant": "a"}, after={"tenant": "b"})
    assert fine(moved) == {watch("a"), member("a"), watch("b"), member("b")}


def test_a_change_within_the_tuple_touches_the_fields_that_changed() -> None:
    before = {"tenant": "a", "title": "x", "n": 1, "same": True, "tags": [1], "gone": None}
    after = {"tenant": "a", "title": "y", "n": True, "same": True, "tags": [2]}
    assert fine(record("update", before, after)) == {
        watch("a"),
        field("title", "a"),
        field("n", "a"),
        field("gone", "a"),
    }
    assert fine(record("update", {"tenant": "a", "n": 1}, {"tenant": "a", "n": 1.0})) == {watch("a")}
    assert fine(record("update", {"tenant": 1}, {"tenant": "1"})) == {watch("1")}


def test_a_template_touches_nothing_before_it_began() -> None:
    assert fine(record("insert", after={"tenant": "a"}), offset=9) == set()


def test_a_row_without_the_fields_touches_the_table_alone() -> None:
    assert fine(record("insert", after={"other": "a"})) == set()
    assert fine(record("insert", after=[1])) == set()
    assert fine(record("delete")) == set()


@pytest.mark.parametrize("before", [None, {"other": 1}, "text"])
def test_an_update_without_a_usable_old_value_follows_the_policy(before: Any) -> None:
    change = record("update", before, {"tenant": "a", "title": "x", "tags": []})
    assert fine(change, policy="coarse") == set()
    assert fine(change, policy="skipBefore") == {watch("a"), member("a"), field("title", "a")}
    assert touches(change, policy="error").everything
    assert not touches(change, policy="error", templates=()).everything


def test_control_messages_and_other_records_are_no_changes() -> None:
    other: Any
    for other in (
        {"headers": {"control": "reset"}},
        {"headers": {"control": "reset", "operation": "insert"}, "type": "t", "key": "k"},
        {"headers": {"operation": "upsert"}, "type": "t", "key": "k"},
        {"headers": {"operation": "insert"}, "type": " ", "key": "k"},
        {"headers": {"operation": "insert"}, "type": "t"},
        {"headers": []},
        [],
        None,
    ):
        assert change_of(other) is None


RECORDS = st.builds(
    lambda record, headers: {**record, "headers": headers},
    objects("type", "key", "value", "old_value"),
    st.fixed_dictionaries({"operation": st.sampled_from(["insert", "update", "delete"])}),
)


@given(VALUES | RECORDS, st.sampled_from(["coarse", "skipBefore", "error"]))
def test_whatever_is_stored_derives(found: Any, policy: str) -> None:
    change = change_of(found)
    if change is not None:
        template = Template(7, change.entity, ("a", "1"), ("string", "int64"), 0, 0, 0)
        assert keys.table_key(change.entity) in touched(change, 0, by_entity([template]), policy).keys


ROWS = st.none() | st.fixed_dictionaries(
    {"id": st.just("r"), "tenant": st.sampled_from(["a", "b"]), "title": st.integers(0, 2)}
)
CHANGES = st.tuples(st.sampled_from(["r1", "r2", "r3"]), ROWS)


@given(st.lists(CHANGES, max_size=20))
def test_a_wake_comes_if_and_only_if_the_result_changed(changes: list[tuple[str, dict[str, Any] | None]]) -> None:
    """Three kinds of queries over `tenant = a`, run for real before and after every change."""
    table: dict[str, dict[str, Any]] = {}

    def results() -> dict[int, Any]:
        rows = {key: row for key, row in table.items() if row["tenant"] == "a"}
        return {
            watch("a"): rows,
            member("a"): set(rows),
            field("title", "a"): {key: row["title"] for key, row in rows.items()},
        }

    for key, after in changes:
        before, was = table.get(key), results()
        if before is None and after is None:
            continue
        operation = "insert" if before is None else "delete" if after is None else "update"
        if after is None:
            table.pop(key)
        else:
            table[key] = after
        now = results()
        woken = touches(record(operation, before, after)).keys
        assert (member("a") in woken) == (now[member("a")] != was[member("a")])
        projected = {member("a"), field("title", "a")}
        assert bool(projected & woken) == (now[field("title", "a")] != was[field("title", "a")])
        if now[watch("a")] != was[watch("a")]:
            assert watch("a") in woken
