"""The schema registry: what an update may look like, and what it makes of the registry in force."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.definition import EMPTY, Definition
from headrace.errors import Conflict, InvalidRequest, PayloadTooLarge
from headrace.json import jsontext, lens, registry
from headrace.json.registry import Boundary, Registry, RoutingKey

NAME = "orders"
V1 = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
V2 = {**V1, "properties": {"a": {"type": "string"}, "b": {"type": "object"}}, "required": ["a", "b"]}
ADD_B = {"op": "add", "path": "/b", "schema": {"type": "object"}}
SEARCH = {
    "primaryTimestampField": "t",
    "fields": {
        "t": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/t"}], "column": True},
        "a": {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "/a"}], "exact": True},
    },
}
KEY = {"jsonPointer": "/a", "required": True}


def version_at(of: Registry, offset: int) -> int:
    return Definition(of, EMPTY.own).version_at(offset)


def lens_between(old: int, new: int, **changes: Any) -> dict[str, Any]:
    return {"apiVersion": "durable.lens/v1", "schema": NAME, "from": old, "to": new, "ops": [ADD_B], **changes}


def update(before: Registry, body: Any, next_offset: int = 0, is_empty: bool | None = None) -> Registry:
    return registry.apply(
        before,
        registry.parse_update(jsontext.dumps(body), NAME),
        name=NAME,
        next_offset=next_offset,
        is_empty=next_offset == 0 if is_empty is None else is_empty,
    )


ONE = update(Registry(), {"schema": V1})
FULL = update(Registry(), {"schema": V1, "routingKey": KEY, "search": SEARCH})


# --- documents


def test_a_stream_without_schema_shows_an_empty_registry() -> None:
    assert registry.document(Registry(), NAME) == {
        "apiVersion": "durable.streams/schema-registry/v1",
        "schema": NAME,
        "currentVersion": 0,
        "boundaries": [],
        "schemas": {},
        "lenses": {},
    }


def test_a_full_registry_shows_all_of_it_in_the_order_of_the_contract() -> None:
    shown = registry.document(update(FULL, {"schema": V2, "lens": lens_between(1, 2)}, next_offset=150), NAME)
    assert list(shown) == [
        "apiVersion", "schema", "currentVersion", "routingKey", "search", "boundaries", "schemas", "lenses",
    ]  # fmt: skip
    assert shown["currentVersion"] == 2
    assert shown["routingKey"] == KEY
    assert shown["search"]["fields"]["a"]["bindings"] == [{"version": 1, "jsonPointer": "/a"}]
    assert shown["boundaries"] == [{"offset": 0, "version": 1}, {"offset": 150, "version": 2}]
    assert shown["schemas"] == {"1": V1, "2": V2}
    assert shown["lenses"].keys() == {"1"}


def test_a_registry_is_stored_whole_with_integers_of_any_size() -> None:
    before = update(FULL, {"search": None, "schema": {"maximum": 2**80, **V2}, "lens": lens_between(1, 2)}, 7)
    assert msgspec.json.decode(msgspec.json.encode(before), type=Registry) == before


# --- shapes of an update


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        None,
        "x",
        {"apiVersion": "durable.streams/schema-registry/v1"},
        {"schema": V1, "apiVersion": "durable.streams/schema-registry/v2"},
        {"schema": V1, "apiVersion": None},
        {"schema": V1, "routingKey": None},
        {"routingKey": KEY, "search": None},
        {"lens": lens_between(0, 1)},
        {"routingKey": KEY, "lens": lens_between(0, 1)},
        {"schema": V1, "extra": 1},
        {"schemas": {"1": V1}, "lenses": {}},
        {"schema": NAME, "currentVersion": 1, "boundaries": [], "schemas": {"1": V1}, "lenses": {}},
        {"schema": V1, "indexes": []},
        {"schema": V1, "profile": {"kind": "evlog"}},
        {"schema": V1, "touch": {"enabled": True}},
        {"schema": V1, "routing_key": KEY},
        {"schema": V1, "routingKeyPointer": "/a"},
        {"routingKey": "/a"},
        {"routingKey": []},
        {"routingKey": {"jsonPointer": "/a"}},
        {"routingKey": {"required": True}},
        {"routingKey": {"jsonPointer": "a", "required": True}},
        {"routingKey": {"jsonPointer": "/a~2", "required": True}},
        {"routingKey": {"jsonPointer": 5, "required": True}},
        {"routingKey": {"jsonPointer": "/a", "required": 1}},
        {"routingKey": {"json_pointer": "/a", "required": True}},
        {"routingKey": {**KEY, "extra": 1}},
        {"schema": None},
        {"schema": []},
        {"schema": {"type": "foo"}},
        {"schema": {"$ref": "http://127.0.0.1:9/"}},
    ],
)
def test_any_other_shape_is_refused(body: Any) -> None:
    with pytest.raises(InvalidRequest):
        registry.parse_update(jsontext.dumps(body), NAME)


def test_a_body_that_is_not_json_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="not valid JSON"):
        registry.parse_update(b"{", NAME)


@given(
    st.dictionaries(
        st.sampled_from(["schema", "lens", "routingKey", "search", "apiVersion", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.sampled_from([NAME, "/a"]),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(st.sampled_from(["jsonPointer", "required", "schema", "from", "ops"]), inner)
            ),
        ),
    )
)
def test_no_body_raises_anything_but_a_refusal(body: Any) -> None:
    for before in (Registry(), FULL):
        try:
            update(before, body)
        except (InvalidRequest, Conflict) as exc:
            assert str(exc)


def test_the_api_version_may_be_given() -> None:
    assert update(Registry(), {"schema": V1, "apiVersion": registry.API_VERSION}) == ONE


# --- the first schema


def test_the_first_schema_begins_at_offset_0() -> None:
    assert Registry(current_version=1, schemas={"1": V1}, boundaries=(Boundary(0, 1),)) == ONE


@pytest.mark.parametrize("schema", [True, False, {}])
def test_a_boolean_or_empty_schema_is_one(schema: Any) -> None:
    assert update(Registry(), {"schema": schema}).schemas == {"1": schema}


def test_the_first_schema_needs_an_empty_stream() -> None:
    with pytest.raises(InvalidRequest, match="empty stream"):
        update(Registry(), {"schema": V1}, next_offset=3)


def test_a_lens_from_nothing_is_tolerated_and_forgotten() -> None:
    assert update(Registry(), {"schema": V1, "lens": lens_between(0, 1)}) == ONE
    assert update(Registry(), {"schema": V1, "lens": None}) == ONE


def test_a_first_lens_of_other_versions_conflicts() -> None:
    with pytest.raises(Conflict, match="lens version mismatch"):
        update(Registry(), {"schema": V1, "lens": lens_between(1, 2)})


def test_a_first_lens_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        update(Registry(), {"schema": V1, "lens": {"from": 0, "to": 1}})


# --- later schemas


def test_a_later_schema_begins_at_the_next_offset_with_its_lens() -> None:
    after = update(ONE, {"schema": V2, "lens": lens_between(1, 2)}, next_offset=150)
    assert after.current_version == 2
    assert after.boundaries == (Boundary(0, 1), Boundary(150, 2))
    assert lens.promote([lens.parse(after.lenses["1"], NAME, 1)], {"a": "x"}) == {"a": "x", "b": {}}


def test_a_default_that_the_proof_derives_is_kept_in_the_lens() -> None:
    after = update(ONE, {"schema": V2, "lens": lens_between(1, 2)})
    assert after.lenses["1"]["ops"][0]["default"] == {}


def test_a_later_schema_needs_a_lens() -> None:
    with pytest.raises(InvalidRequest, match="lens required"):
        update(ONE, {"schema": V2})


@pytest.mark.parametrize(("old", "new"), [(0, 1), (1, 3), (2, 3), (1, 1)])
def test_a_lens_of_other_versions_conflicts(old: int, new: int) -> None:
    with pytest.raises(Conflict, match="lens version mismatch"):
        update(ONE, {"schema": V2, "lens": lens_between(old, new)})


def test_a_lens_of_another_stream_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="lens schema mismatch"):
        update(ONE, {"schema": V2, "lens": lens_between(1, 2, schema="others")})


def test_a_lens_that_is_not_proven_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        update(ONE, {"schema": {**V2, "properties": {"b": {"type": "object"}}}, "lens": lens_between(1, 2)})


def test_two_changes_at_one_offset_leave_the_later_one_in_force() -> None:
    two = update(ONE, {"schema": V2, "lens": lens_between(1, 2)}, next_offset=5)
    v3 = {**V2, "properties": {**V2["properties"], "c": {"type": "object"}}}  # type: ignore[dict-item]
    third = lens_between(2, 3, ops=[{**ADD_B, "path": "/c"}])
    three = update(two, {"schema": v3, "lens": third}, next_offset=5)
    assert [version_at(three, offset) for offset in (0, 4, 5, 6)] == [1, 1, 3, 3]


def test_an_offset_that_javascript_could_not_hold_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="too large"):
        update(ONE, {"schema": V2, "lens": lens_between(1, 2)}, next_offset=2**53)


# --- routing key and search


def test_routing_key_and_search_carry_over_unless_they_are_given() -> None:
    after = update(FULL, {"schema": V2, "lens": lens_between(1, 2)}, next_offset=2)
    assert after.routing_key == RoutingKey("/a", True)
    assert after.search == FULL.search
    other = {"jsonPointer": "/b", "required": False}
    changed = update(FULL, {"schema": V2, "lens": lens_between(1, 2), "routingKey": other, "search": None}, 2)
    assert changed.routing_key == RoutingKey("/b", False)
    assert changed.search is None


def test_a_routing_key_alone_needs_no_schema_and_null_removes_it() -> None:
    with_key = update(Registry(), {"routingKey": KEY}, next_offset=9)
    assert with_key == Registry(routing_key=RoutingKey("/a", True))
    assert update(with_key, {"routingKey": None}, next_offset=9) == Registry()
    assert update(Registry(), {"routingKey": None}) == Registry()


def test_a_routing_key_set_before_the_first_schema_stays() -> None:
    with_key = update(Registry(), {"routingKey": KEY})
    assert update(with_key, {"schema": V1}).routing_key == RoutingKey("/a", True)


def test_search_alone_needs_a_schema_and_null_removes_it() -> None:
    with pytest.raises(InvalidRequest, match="requires an installed schema version"):
        update(Registry(), {"search": SEARCH})
    assert update(Registry(), {"search": None}) == Registry()
    with_search = update(ONE, {"search": SEARCH}, next_offset=4)
    assert with_search.search == FULL.search
    assert with_search.boundaries == ONE.boundaries
    assert update(with_search, {"search": None}, next_offset=4) == ONE


def test_search_is_checked_and_normalised() -> None:
    with pytest.raises(InvalidRequest):
        update(ONE, {"search": {}})
    with pytest.raises(InvalidRequest):
        update(Registry(), {"schema": V1, "search": {"fields": {}}})
    assert ONE.search is None
    assert update(ONE, {"search": FULL.search}).search == FULL.search


def test_an_update_is_whole_or_nothing() -> None:
    before = jsontext.dumps(registry.document(FULL, NAME))
    with pytest.raises(InvalidRequest):
        update(FULL, {"schema": V2, "lens": lens_between(1, 2), "search": {"fields": {}}})
    update(FULL, {"schema": V2, "lens": lens_between(1, 2)}, 3)
    assert jsontext.dumps(registry.document(FULL, NAME)) == before


def test_a_registry_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_REGISTRY_BYTES", 1000)
    with pytest.raises(PayloadTooLarge, match="limit=1000"):
        update(ONE, {"schema": {**V2, "description": "x" * 1000}, "lens": lens_between(1, 2)})


# --- boundaries


def test_the_version_of_a_record_is_that_of_the_last_boundary_at_or_before_it() -> None:
    some = Registry(current_version=2, boundaries=(Boundary(3, 1), Boundary(7, 2)))
    assert [version_at(some, offset) for offset in (0, 2, 3, 6, 7, 100)] == [0, 0, 1, 1, 2, 2]
    assert version_at(Registry(), 5) == 0


@given(st.lists(st.integers(0, 20), min_size=1, max_size=5), st.integers(0, 25))
def test_a_fork_keeps_what_was_before_it_and_writes_the_current_version(offsets: list[int], base: int) -> None:
    boundaries = tuple(Boundary(offset, number) for number, offset in enumerate([0, *sorted(offsets)], 1))
    parent = Registry(current_version=len(boundaries), boundaries=boundaries)
    fork = registry.cut(parent, base)
    for offset in range(base):
        assert version_at(fork, offset) == version_at(parent, offset)
    for offset in range(base, 30):
        assert version_at(fork, offset) == parent.current_version
    assert registry.cut(fork, base) == fork


def test_a_fork_of_a_stream_without_schema_has_none() -> None:
    assert registry.cut(Registry(), 5) == Registry()


def test_a_profile_puts_a_fresh_registry_in_place() -> None:
    body = {"schema": V2, "routingKey": KEY, "search": SEARCH}
    fresh = registry.install(body, name=NAME, next_offset=8)
    assert fresh == msgspec.structs.replace(
        update(Registry(), body), boundaries=(Boundary(8, 1),)
    )  # fmt: skip
    assert version_at(fresh, 7) == 0


# --- routing keys of documents


@pytest.mark.parametrize(
    ("text", "document", "key"),
    [
        ("/a", {"a": "x"}, "x"),
        ("/a/b", {"a": {"b": ""}}, ""),
        ("/a/1", {"a": ["x", "ÿ"]}, "ÿ"),
        ("/a~1b/~0", {"a/b": {"~": "x"}}, "x"),
        ("/", {"": "x"}, "x"),
        ("", "x", "x"),
        ("/a", {}, None),
        ("/a", {"a ": "x"}, None),
        ("/a/b", {"a": "x"}, None),
        ("/a/5", {"a": ["x"]}, None),
        ("/a", [], None),
        ("/a", "text", None),
    ],
)
def test_the_routing_key_of_a_document(text: str, document: Any, key: str | None) -> None:
    assert registry.routing_key_of(RoutingKey(text, False), document) == key
    if key is None:
        with pytest.raises(InvalidRequest, match="routing key missing"):
            registry.routing_key_of(RoutingKey(text, True), document)
    else:
        assert registry.routing_key_of(RoutingKey(text, True), document) == key


@pytest.mark.parametrize("value", [None, 5, True, 1.5, [], {}, ["x"]])
@pytest.mark.parametrize("required", [True, False])
def test_a_routing_key_that_is_no_text_is_refused(value: Any, required: bool) -> None:
    with pytest.raises(InvalidRequest, match="routing key must be string"):
        registry.routing_key_of(RoutingKey("/a", required), {"a": value})
