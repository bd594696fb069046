"""How registrations change a registry: incrementally, with a diff, and by force."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.features.errors import ForceRequired, RegistrationError
from headrace.features.pipeline.compiled import compile_pipeline
from headrace.features.pipeline.features import FeatureSet
from headrace.features.pipeline.nodes import Derivation, EventNode
from headrace.features.pipeline.registry import PipelineDocument, Plan, Registry, TableState, pipeline_of, plan
from tests.unit.features.pipeline.documents import (
    FIELDS,
    count,
    derived,
    event,
    register,
    registered,
    table,
    total,
    where,
)

BASE = registered(
    event(), derived("Big", where("(amount > 5)")), table("U", upstream="Big", agg={"c": count(), "s": total()})
)


def base(**tables: Any) -> list[dict[str, Any]]:
    return [
        event(),
        derived("Big", where("(amount > 5)")),
        table("U", upstream="Big", agg={"c": count(), "s": total()}),
    ]


def node(registry: Registry, name: str) -> Any:
    return next(node for node in registry.nodes if node.name == name)


def names(registry: Registry) -> list[str]:
    return [node.name for node in registry.nodes]


def refuse(registry: Registry, *nodes: Any) -> list[dict[str, Any]]:
    """Returns the destructive entries with which a registration is refused without force; a dry run shows the same."""
    with pytest.raises(ForceRequired) as refusal:
        register(registry, *nodes)
    assert refusal.value.code == "force_required"
    dry = register(registry, *nodes, force=True)
    assert dry.diff == refusal.value.diff and dry.is_destructive
    destructive: list[dict[str, Any]] = refusal.value.diff["destructive"]
    return destructive


def test_a_first_registration_adds_its_nodes_in_their_order() -> None:
    planned = register(Registry(), *base())
    assert planned.added == ["Txn", "Big", "U"]
    assert planned.already_present == []
    assert planned.affected == ("Txn",)
    assert planned.registry.version == 1
    assert names(planned.registry) == ["Txn", "Big", "U"]
    assert planned.registry.tables == {"U": TableState("1", {"c": 1, "s": 1})}
    assert planned.registry.touched == {"Txn": 1}
    assert planned.diff == {
        "additive": [
            {"kind": "new_descriptor", "descriptor_kind": "event", "name": "Txn"},
            {"kind": "new_descriptor", "descriptor_kind": "derivation", "name": "Big"},
            {"kind": "new_descriptor", "descriptor_kind": "derivation", "name": "U"},
        ],
        "destructive": [],
        "already_present": [],
    }


def test_what_a_call_does_not_mention_stays() -> None:
    planned = register(BASE, event("Click"), table("V", agg={"c": count()}))
    assert planned.added == ["Click", "V"]
    assert names(planned.registry) == ["Txn", "Big", "U", "Click", "V"]
    assert planned.registry.version == 2
    assert planned.affected == ("Txn", "Click")
    assert planned.registry.tables["U"] == BASE.tables["U"]
    assert planned.registry.tables["V"] == TableState("2", {"c": 2})


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("count_of_nodes", [0, 1, 3])
def test_what_is_there_already_changes_nothing(force: bool, count_of_nodes: int) -> None:
    planned = register(BASE, *base()[:count_of_nodes], force=force)
    assert planned.registry is BASE
    assert not planned.changed and planned.affected == ()
    assert planned.already_present == ["Txn", "Big", "U"][:count_of_nodes]
    assert planned.diff == {"additive": [], "destructive": [], "already_present": planned.already_present}


@pytest.mark.parametrize(
    "same",
    [
        event(fields=dict(reversed(FIELDS.items()))),
        event(unknown_key=[1], description="what for"),
        derived("Big", where("( amount  >  5 )")),
        derived("Big", where("((amount > 5))"), schema={"fields": {"amount": "str"}}),
        derived("Big", {"op": "filter", "params": {"expr": "(amount > 5)"}}),
        table("U", upstream="Big", agg={"s": total(), "c": count()}),
        table("U", upstream="Big", agg={"c": count(window="forever"), "s": total()}),
        table("U", upstream="Big", agg={"c": count(unknown=1), "s": total()}),
        table("U", upstream="Big", agg={"c": count(), "s": total()}, backfill=True),
    ],
)
def test_what_only_looks_different_changes_nothing(same: dict[str, Any]) -> None:
    assert register(BASE, same).registry is BASE


def test_windows_and_defaults_are_compared_by_their_meaning() -> None:
    agg = {
        "q": {"op": "quantile", "params": {"field": "n", "window": "1h"}},
        "e": {"op": "ema", "params": {"field": "n", "half_life": "60s"}},
    }
    other = {
        "q": {"op": "quantile", "params": {"field": "n", "window": "60m", "q": 0.5}},
        "e": {"op": "ewma", "params": {"field": "n", "half_life": "1m"}},
    }
    registry = registered(event(), table(agg=agg))
    assert register(registry, table(agg=other)).registry is registry


# Additive changes


def test_a_new_field_takes_effect_and_keeps_the_state() -> None:
    planned = register(BASE, event(fields={**FIELDS, "city": "str"}, optional=["city"]))
    assert planned.diff["additive"] == [{"kind": "new_field", "event": "Txn", "field": "city", "type": "str"}]
    assert planned.added == ["Txn"]
    assert node(planned.registry, "Txn").fields == {**FIELDS, "city": "str"}
    assert planned.registry.tables == BASE.tables
    assert planned.affected == ("Txn",)


def test_a_new_aggregation_takes_effect_and_keeps_the_others() -> None:
    planned = register(
        BASE,
        table("U", upstream="Big", agg={"m": {"op": "mean", "params": {"field": "n"}}, "c": count(), "s": total()}),
    )
    assert planned.diff["additive"] == [{"kind": "new_agg", "table": "U", "agg": "m", "source": "Big"}]
    assert planned.registry.tables["U"] == TableState("1", {"m": 2, "c": 1, "s": 1})


def test_an_added_aggregation_starts_empty_and_the_others_keep_their_state() -> None:
    def features(registry: Registry) -> FeatureSet:
        return compile_pipeline(pipeline_of(registry, "Txn")).tables["U"].features

    row = {"user": "a", "amount": 2.0, "n": 1, "ok": True, "extra": None}
    old = features(BASE)
    state = old.new()
    old.fold(state, row, 1000, 0, 0)
    wider = register(BASE, table("U", upstream="Big", agg={"c": count(), "s": total(), "d": count()})).registry
    new = features(wider)
    state = new.decode(old.encode(state))
    new.fold(state, row, 2000, 0, 1)
    assert new.read(state, 3000) == {"c": 2, "s": 4.0, "d": 1}

    without = register(wider, table("U", upstream="Big", agg={"c": count()}), force=True).registry
    assert features(without).read(features(without).decode(new.encode(state)), 3000) == {"c": 0}, "it began again"


@pytest.mark.parametrize(
    ("change", "setting", "old", "new"),
    [
        ({"keep_events_for": "30d"}, "keep_events_ms", None, 2_592_000_000),
        ({"keep_events_for_ms": 5}, "keep_events_ms", None, 5),
        ({"keep_events_for_ms": 5, "keep_events_for": None}, "keep_events_ms", None, 5),
        ({"keep_events_for_ms": 60_000, "keep_events_for": "1m"}, "keep_events_ms", None, 60_000),
        ({"cold_after_ms": 7}, "cold_after_ms", None, 7),
        ({"dedupe_key": "user"}, "dedupe_key", None, "user"),
        ({"dedupe_window_ms": 9}, "dedupe_window_ms", 86_400_000, 9),
        ({"search": True}, "search", False, True),
    ],
)
def test_a_setting_is_kept_if_it_is_absent_and_unset_by_null(
    change: dict[str, Any], setting: str, old: Any, new: Any
) -> None:
    planned = register(BASE, event(**change))
    entry = {"kind": "setting_change", "event": "Txn", "setting": setting, "from": old, "to": new}
    assert planned.diff["additive"] == [entry]
    assert getattr(node(planned.registry, "Txn"), setting) == new
    assert planned.registry.tables == BASE.tables
    assert register(planned.registry, event()).registry is planned.registry, "the SDK never sends settings"
    unset = register(planned.registry, event(**dict.fromkeys(change)))
    assert getattr(node(unset.registry, "Txn"), setting) == old


def test_lanes_are_kept_if_they_are_absent() -> None:
    registry = registered(event(lanes=4, lane_key="user"))
    assert register(registry, event()).registry is registry


def test_a_kept_setting_must_fit_the_new_fields() -> None:
    registry = registered(event(dedupe_key="n"))
    with pytest.raises(RegistrationError, match="'n' is not a field") as refusal:
        register(registry, event(fields={"user": "str"}), force=True)
    assert refusal.value.path == "nodes[0].dedupe_key"


def test_required_may_become_optional_but_not_the_reverse() -> None:
    planned = register(BASE, event(optional=["n"]))
    assert planned.diff["additive"] == [{"kind": "optional_field", "event": "Txn", "field": "n"}]
    assert refuse(planned.registry, event()) == [
        {"kind": "type_change", "field": "Txn.n", "from": "optional i64", "to": "i64"}
    ]


# Destructive changes


@pytest.mark.parametrize(
    ("change", "entries"),
    [
        (
            event(fields={**FIELDS, "amount": "i64"}),
            [{"kind": "type_change", "field": "Txn.amount", "from": "f64", "to": "i64"}],
        ),
        (
            event(fields={name: kind for name, kind in FIELDS.items() if name != "ok"}),
            [{"kind": "type_change", "field": "Txn.ok", "from": "bool", "to": "<absent>"}],
        ),
        (
            derived("Big", where("(amount > 6)")),
            [
                {
                    "kind": "op_change",
                    "descriptor": "Big",
                    "index": 0,
                    "from": where("(amount > 5)"),
                    "to": where("(amount > 6)"),
                }
            ],
        ),
        (derived("Big"), [{"kind": "op_removal", "descriptor": "Big", "index": 0, "op": "filter"}]),
        (
            derived("Big", where("ok"), where("(amount > 5)")),
            [{"kind": "op_insertion", "descriptor": "Big", "index": 0, "op": "filter"}],
        ),
        (
            table("U", agg={"c": count(), "s": total()}),
            [{"kind": "type_change", "field": "U.upstreams", "from": "Big", "to": "Txn"}],
        ),
        (
            table("U", upstream="Big", keys=["user", "n"], agg={"c": count(), "s": total()}),
            [{"kind": "key_cols_change", "table": "U", "from": ["user"], "to": ["user", "n"]}],
        ),
        (table("U", upstream="Big", agg={"c": count()}), [{"kind": "agg_removal", "table": "U", "agg": "s"}]),
        (
            table("U", upstream="Big", agg={"c": count(window="1h"), "s": total()}),
            [{"kind": "window_change", "agg": "U.c", "from": "forever", "to": "1h"}],
        ),
        (derived("U"), [{"kind": "type_change", "field": "U", "from": "table", "to": "derived event"}]),
    ],
    ids=lambda value: value[0]["kind"] if isinstance(value, list) else "",
)
def test_a_destructive_change_needs_force(change: dict[str, Any], entries: list[dict[str, Any]]) -> None:
    assert refuse(BASE, change) == entries


@pytest.mark.parametrize(
    "changed",
    [
        {"op": "mean", "params": {"field": "amount"}},
        total("n"),
        total(where="ok"),
        total(where="ok", window="1h"),
    ],
)
def test_an_aggregation_with_another_meaning_is_another_one(changed: dict[str, Any]) -> None:
    planned = register(BASE, table("U", upstream="Big", agg={"c": count(), "s": changed}), force=True)
    assert planned.diff["destructive"] == [{"kind": "agg_removal", "table": "U", "agg": "s"}]
    assert planned.diff["additive"] == [{"kind": "new_agg", "table": "U", "agg": "s", "source": "Big"}]


def test_force_starts_what_changed_and_what_depends_on_it_again_and_nothing_else() -> None:
    registry = registered(*base(), table("Raw"), event("Click", {"user": "str"}), table("Clicks", upstream="Click"))
    planned = register(
        registry, derived("Big", where("(amount > 6)")), table("Raw", agg={"c": count(), "d": count()}), force=True
    )
    assert planned.added == ["Big", "Raw"]
    assert names(planned.registry) == names(registry), "a dependent that is not repeated stays"
    assert planned.registry.tables == {
        "U": TableState("2", {"c": 2, "s": 2}),
        "Raw": TableState("1", {"c": 1, "d": 2}),
        "Clicks": TableState("1", {"c": 1}),
    }
    assert planned.affected == ("Txn",)
    assert planned.registry.touched == {"Txn": 2, "Click": 1}


def test_force_on_an_event_starts_all_its_tables_again() -> None:
    planned = register(BASE, event(fields={**FIELDS, "amount": "i64"}), force=True)
    assert planned.registry.tables == {"U": TableState("2", {"c": 2, "s": 2})}
    assert compile_pipeline(pipeline_of(planned.registry, "Txn")).tables["U"].types["s"]


def test_a_dependent_that_no_longer_compiles_is_the_reason_for_a_refusal() -> None:
    fields = {name: kind for name, kind in FIELDS.items() if name != "amount"}
    assert refuse_kinds(BASE, event(fields=fields)) == ["type_change"]
    with pytest.raises(RegistrationError) as refusal:
        register(BASE, event(fields=fields), force=True)
    assert (refusal.value.code, refusal.value.path) == ("invalid_registration", "nodes[0].Txn")
    assert "'Big'" in refusal.value.reason and "'amount'" in refusal.value.reason
    planned = register(BASE, event(fields=fields), derived("Big"), table("U", upstream="Big"), force=True)
    assert planned.added == ["Txn", "Big", "U"]


def refuse_kinds(registry: Registry, *nodes: Any) -> list[str]:
    with pytest.raises(ForceRequired) as refusal:
        register(registry, *nodes)
    return [entry["kind"] for entry in refusal.value.diff["destructive"]]


def test_a_new_field_can_break_a_dependent() -> None:
    registry = registered(event(), table("U", {"op": "rename", "mapping": {"n": "number"}}))
    with pytest.raises(RegistrationError, match="two fields would be named 'number'"):
        register(registry, event(fields={**FIELDS, "number": "i64"}))


def test_a_table_that_becomes_an_event_breaks_nothing_that_was_registered() -> None:
    planned = register(BASE, derived("U"), force=True)
    assert planned.registry.tables == {}
    with pytest.raises(RegistrationError, match="'U' is a table"):
        register(register(planned.registry, table("V", upstream="U")).registry, table("U"), force=True)


def test_a_table_that_moves_to_another_event_affects_both() -> None:
    registry = registered(event(), event("Click"), table("U"))
    planned = register(registry, table("U", upstream="Click"), force=True)
    assert planned.affected == ("Txn", "Click"), "the lane that loses a table must hear of it"
    assert pipeline_of(planned.registry, "Txn").derivations == ()
    assert [each.name for each in pipeline_of(planned.registry, "Click").derivations] == ["U"]


def test_upstreams_come_first_in_a_pipeline_whatever_the_order_of_registration() -> None:
    registry = registered(event(), table("U"))
    planned = register(registry, derived("A"), derived("B", upstream="A"), table("U", upstream="B"), force=True)
    assert names(planned.registry) == ["Txn", "U", "A", "B"]
    assert [each.name for each in pipeline_of(planned.registry, "Txn").derivations] == ["A", "B", "U"]
    assert list(compile_pipeline(pipeline_of(planned.registry, "Txn")).tables) == ["U"]


def test_a_feature_can_have_the_same_name_in_two_tables() -> None:
    assert register(BASE, table("V", agg={"c": count()})).added == ["V"]


def test_a_plan_never_changes_what_it_is_given() -> None:
    nodes = [*base(), event("Click"), table("V", agg={"f": count(where="ok")})]
    before = msgspec.json.encode([nodes, BASE])
    register(BASE, *nodes)
    assert msgspec.json.encode([nodes, BASE]) == before


def test_registries_and_pipelines_survive_their_encoding() -> None:
    for value in (BASE, pipeline_of(BASE, "Txn")):
        assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value)) == value


def test_the_document_of_a_pipeline_names_the_version_of_its_last_change() -> None:
    planned = register(BASE, event("Click"))
    assert pipeline_of(planned.registry, "Txn") == pipeline_of(BASE, "Txn")
    document = pipeline_of(planned.registry, "Click")
    assert document == PipelineDocument(2, node(planned.registry, "Click"), (), {})


def test_a_long_chain_of_derived_events_compiles_without_recursion() -> None:
    nodes = [
        event(),
        *(derived(f"D{i}", upstream=f"D{i - 1}" if i else "Txn") for i in range(998)),
        table("U", upstream="D997"),
    ]
    planned = register(Registry(), *nodes)
    assert len(planned.registry.nodes) == 1000
    assert len(pipeline_of(planned.registry, "Txn").derivations) == 999


def test_the_seeds_examples_register() -> None:
    fields = {"user_id": "str", "card_id": "str", "amount": "f64", "merchant": "str", "ip": "str"}
    txn = event(fields=fields, keep_events_for="30d", cold_after_ms=86_400_000)
    features = {
        "tx_count_1h": count(window="1h"),
        "tx_sum_1h": total(window="1h"),
        "tx_p99_1h": {"op": "quantile", "params": {"field": "amount", "q": 0.99, "window": "1h"}},
    }
    planned = register(Registry(), txn, table("UserTxnFeatures", keys=["user_id"], agg=features))
    assert (planned.added, planned.registry.version) == (["Txn", "UserTxnFeatures"], 1)
    planned = register(planned.registry, event("Click"), table("GlobalCounter", keys=[], upstream="Click"))
    assert (planned.added, planned.registry.version) == (["Click", "GlobalCounter"], 2)
    assert names(planned.registry) == ["Txn", "UserTxnFeatures", "Click", "GlobalCounter"]
    assert isinstance(node(planned.registry, "Txn"), EventNode)
    assert isinstance(node(planned.registry, "GlobalCounter"), Derivation)
    assert isinstance(plan(planned.registry, [], force=True), Plan)
