"""Laws of registrations over random histories, and bodies that no client should send."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headrace.features.errors import ForceRequired, RegistrationError
from headrace.features.pipeline.compiled import compile_pipeline
from headrace.features.pipeline.nodes import Derivation, EventNode, parse_nodes
from headrace.features.pipeline.registry import Plan, Registry, pipeline_of, plan
from tests.unit.features.pipeline.documents import FIELDS, count, derived, event, registered, table, total, where

OPS: list[list[dict[str, Any]]] = [
    [],
    [],
    [where("(n > 1)")],
    [where("( n  > 1 )")],
    [{"op": "map", "exprs": {"z": "(n + 1)"}}],
    [{"op": "rename", "mapping": {"amount": "z"}}],
    [{"op": "drop", "fields": ["ok"]}, where("(n > 1)")],
]
AGGS: dict[str, list[dict[str, Any]]] = {
    "a": [count(), count(), count(window="1h"), count(window="60m")],
    "b": [total("n"), total("n", where="ok")],
    "c": [total("z"), count(where="(z > 1)")],
    "d": [{"op": "last", "params": {"field": "user"}}],
}


def random_payload(random: Random, registry: Registry) -> list[dict[str, Any]]:
    """Returns nodes that mostly fit a registry."""
    streams = [node.name for node in registry.nodes if isinstance(node, EventNode) or node.output_kind == "event"]
    nodes: dict[str, dict[str, Any]] = {}
    for _ in range(random.randrange(1, 5)):
        kind, number = random.choice("EDDTT") if streams else "E", random.randrange(3)
        upstream = random.choice(streams) if random.random() < 0.95 and streams else "D2"
        if kind == "E":
            fields = {**FIELDS, "amount": random.choice(["f64", "f64", "f64", "f64", "i64"])}
            fields |= {"z": "i64"} if random.random() < 0.8 else {}
            settings = random.choice([{}, {}, {"cold_after_ms": 5}, {"cold_after_ms": None}, {"dedupe_key": "n"}])
            node = event(f"E{number}", fields, random.choice([[], [], ["ok"]]), **settings)
        elif kind == "D":
            node = derived(f"D{number}", *random.choice(OPS), upstream=upstream)
        else:
            names = random.sample(list(AGGS), random.randrange(1, 4))
            agg = {name: random.choice(AGGS[name]) for name in names}
            keys = random.choice([["user"], ["user"], []])
            node = table(f"T{number}", *random.choice(OPS), agg=agg, keys=keys, upstream=upstream)
        nodes[node["name"]] = node
        streams += [node["name"]] if kind != "T" else []
    return list(nodes.values())


def attempt(registry: Registry, nodes: list[Any], *, force: bool) -> Plan | None:
    """Returns the plan; None if the nodes are refused."""
    try:
        return plan(registry, nodes, force=force)
    except (RegistrationError, ForceRequired):
        return None


def pipelines(registry: Registry) -> dict[str, Any]:
    events = [node.name for node in registry.nodes if isinstance(node, EventNode)]
    return {name: pipeline_of(registry, name) for name in events}


def check(before: Registry, nodes: list[Any], planned: Plan) -> None:
    after = planned.registry
    assert sorted([*planned.added, *planned.already_present]) == sorted(node["name"] for node in nodes)
    if not planned.changed:
        assert after is before
        return
    assert after.version == before.version + 1
    old_names = [node.name for node in before.nodes]
    assert [node.name for node in after.nodes][: len(old_names)] == old_names, "nothing vanishes or moves"
    assert {node.name for node in after.nodes} == {*old_names, *planned.added}
    tables = {node.name: node for node in after.nodes if isinstance(node, Derivation) and node.output_kind == "table"}
    assert after.tables.keys() == tables.keys()
    for name, state in after.tables.items():
        assert state.started.keys() == tables[name].ops[-1]["agg"].keys()
        assert all(int(state.generation) <= version <= after.version for version in state.started.values())
        old = before.tables.get(name)
        if old is not None and not planned.is_destructive:
            assert state.generation == old.generation
            assert old.started.items() <= state.started.items()
    old_pipelines, new_pipelines = pipelines(before), pipelines(after)
    differ = {name for name, pipeline in new_pipelines.items() if pipeline != old_pipelines.get(name)}
    assert (
        set(planned.affected)
        == differ
        == {name for name, version in after.touched.items() if version == after.version}
    )
    for pipeline in new_pipelines.values():
        known = {pipeline.event.name}
        for node in pipeline.derivations:
            assert node.upstreams[0] in known
            known.add(node.name)
        compile_pipeline(pipeline)
    assert msgspec.json.decode(msgspec.json.encode(after), type=Registry) == after


def test_laws_hold_over_random_histories() -> None:
    outcomes = {"refused": 0, "forced": 0, "changed": 0, "same": 0}
    for seed in range(70):
        random = Random(seed)
        registry = Registry()
        for _ in range(8):
            nodes = random_payload(random, registry)
            gentle, forced = attempt(registry, nodes, force=False), attempt(registry, nodes, force=True)
            if gentle is not None:
                assert gentle == forced, "force changes nothing if nothing needs it"
                assert not gentle.is_destructive
            if forced is None:
                outcomes["refused"] += 1
                continue
            assert gentle is not None or forced.is_destructive
            check(registry, nodes, forced)
            outcomes["forced" if forced.is_destructive else "changed" if forced.changed else "same"] += 1
            again = plan(forced.registry, nodes, force=False)
            assert again.registry is forced.registry, "the same nodes again change nothing"
            assert again.already_present == [node["name"] for node in nodes]
            if random.random() < 0.7:
                registry = forced.registry
    assert min(outcomes.values()) > 3, outcomes


E0 = registered(event("E0"))


def test_nodes_in_one_call_or_one_by_one_give_the_same_registry() -> None:
    compared = 0
    for seed in range(150):
        random = Random(seed)
        nodes = [event("E0"), *(node for node in random_payload(random, E0) if node["name"] != "E0")]
        whole = attempt(Registry(), nodes, force=False)
        if whole is None:
            continue
        registry = Registry()
        for node in nodes:
            registry = plan(registry, [node], force=False).registry
        assert registry.nodes == whole.registry.nodes
        assert registry.version == len(nodes)
        assert registry.tables.keys() == whole.registry.tables.keys()
        compared += len(nodes) > 2
    assert compared > 10


JUNK: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    10**400,
    "",
    "user",
    "x" * 300,
    "\ud800\n",
    [],
    {},
    [None],
    {"a": {}},
    ["user"],
    {"\n": 1},
]
DEEP: Any = json.loads("[" * 900 + "]" * 900)


def mutate(random: Random, value: Any) -> Any:
    """Replaces, removes or adds something somewhere in a JSON value."""
    if isinstance(value, dict) and value and random.random() < 0.96:
        inner = [key for key, item in value.items() if isinstance(item, (dict, list)) and item]
        key = random.choice(inner if inner and random.random() < 0.8 else list(value))
        if random.random() < 0.1:
            return {name: item for name, item in value.items() if name != key}
        if random.random() < 0.1:
            return {**value, random.choice(["", "a b", "\n", "lanes", "x" * 200]): random.choice(JUNK)}
        return {**value, key: mutate(random, value[key])}
    if isinstance(value, list) and value and random.random() < 0.96:
        at = random.randrange(len(value))
        return [*value[:at], mutate(random, value[at]), *value[at + (random.random() < 0.9) :]]
    return random.choice([DEEP, copy.deepcopy(random.choice(JUNK))])


def test_a_mutilated_body_is_planned_or_refused_and_never_breaks_anything() -> None:
    base = [
        event("E0", optional=["ok"], keep_events_for="1d", dedupe_key="n", lanes=2, lane_key="user"),
        event("E1"),
        derived(
            "D0",
            *OPS[2],
            {"op": "cast", "type_map": {"n": "float"}},
            {"op": "fillna", "defaults": {"n": 0}},
            upstream="E0",
        ),
        table("T0", *OPS[4], agg={name: specs[-1] for name, specs in AGGS.items()}, upstream="D0"),
        table(
            "T1",
            agg={"a": count(window="1h"), "h": {"op": "histogram", "params": {"field": "n", "buckets": [1, 2]}}},
            upstream="E1",
        ),
    ]
    registry = plan(Registry(), base, force=False).registry
    outcomes: dict[str, int] = {}
    for seed in range(2200):
        random = Random(seed)
        nodes: Any = base
        for _ in range(random.randrange(1, 3)):
            nodes = mutate(random, nodes)
        outcome = "planned"
        try:
            parse_nodes({"nodes": nodes})
            planned = plan(random.choice([registry, Registry()]), nodes, force=random.random() < 0.5)
        except ForceRequired:
            outcome = "force"
        except RegistrationError as error:
            outcome = error.code
            assert len(error.path) < 400 and 0 < len(error.reason) <= 1000
            assert not any(character < " " for character in error.reason + error.path)
            assert (error.reason + error.path).encode()
        else:
            encoded = msgspec.json.encode(planned.registry)
            assert msgspec.json.decode(encoded, type=Registry) == planned.registry
            for name in pipelines(planned.registry):
                compile_pipeline(pipeline_of(planned.registry, name))
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert len(outcomes) > 7, outcomes


WORDS = st.sampled_from(
    ["kind", "event", "derivation", "name", "schema", "fields", "ops", "op", "group_by", "nodes", "str", "agg", "Txn"]
)
BODIES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=5) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=3), inner, max_size=5),
    max_leaves=6,
)


@given(
    st.dictionaries(WORDS, BODIES, max_size=5)
    | st.fixed_dictionaries({"nodes": st.lists(BODIES, max_size=3)})
    | BODIES
)
def test_an_arbitrary_body_is_parsed_or_refused(body: Any) -> None:
    try:
        parse_nodes(body)
        plan(Registry(), body["nodes"], force=True)
    except RegistrationError as error:
        assert error.code and error.path and error.reason
