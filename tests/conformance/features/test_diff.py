"""What a registration would change: dry runs, the refusal of what drops state, and `force`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.contract.client import expect
from tests.conformance.features.client import Namespace, answered, refused, rejected, txn
from tests.unit.features.pipeline.documents import FIELDS, count, derived, event, table, total, where

LOGIN = {
    "kind": "event",
    "name": "Login",
    "schema": {"fields": {"user_id": "str", "device_id": "str"}, "optional_fields": []},
}
NARROW = event(fields=FIELDS | {"amount": "i64"})
KIND = {"kind": "type_change"}


def diff_of(space: Namespace, *nodes: Any, **flags: Any) -> dict[str, Any]:
    """Returns the diff of a dry run."""
    answer = answered(space.register(*nodes, dry_run=True, **flags))
    assert set(answer) == {"diff", "would_apply"} and answer["would_apply"] is False
    diff: dict[str, Any] = answer["diff"]
    return diff


def test_a_dry_run_says_what_would_change_and_changes_nothing(space: Namespace) -> None:
    space.has(event())
    new = {"kind": "new_descriptor", "descriptor_kind": "event", "name": "Login"}
    assert answered(space.register(LOGIN, event(), dry_run=True)) == {
        "diff": {"additive": [new], "destructive": [], "already_present": ["Txn"]},
        "would_apply": False,
    }
    refused(space.push({"user_id": "a", "device_id": "d"}, "Login"), 404, "event_not_found")
    assert answered(space.register())["registered_descriptors"] == ["Txn"]
    assert space.version() == 1


def test_a_dry_run_wins_over_force(space: Namespace) -> None:
    space.has(event(), table()).filled(txn())
    assert diff_of(space, NARROW, force=True) == diff_of(space, NARROW)
    assert diff_of(space, NARROW)["destructive"] == [KIND | {"field": "Txn.amount", "from": "f64", "to": "i64"}]
    assert (space.version(), space.row()) == (1, {"c": 1})


def test_a_dry_run_refuses_what_the_call_would_refuse(space: Namespace) -> None:
    space.has(event())
    rejected(space.register({"kind": "x", "name": "T"}, dry_run=True), "unsupported_node_kind", "nodes[0].T.kind")
    rejected(space.register(table(agg={"f": total("nope")}), dry_run=True), "aggregation_unknown_field")


@pytest.fixture(scope="module")
def changing(shared: Namespace) -> Namespace:
    """Returns a namespace that no test changes."""
    return shared.has(event(), event("Other"), TABLE)


TABLE = table("U", where("(n > 0)"), agg={"c": count(window="1h"), "s": total()})
KEYED = table("U", where("(n > 0)"), agg={"c": count(window="1h"), "s": total()}, keys=["n"])
REMOVED = {"kind": "agg_removal", "table": "U", "agg": "s"}
ADDED = {"kind": "new_agg", "table": "U", "agg": "s", "source": "Txn"}


@pytest.mark.parametrize(
    ("node", "additive", "destructive"),
    [
        (NARROW, [], [KIND | {"field": "Txn.amount", "from": "f64", "to": "i64"}]),
        (
            event(fields={name: kind for name, kind in FIELDS.items() if name != "extra"}),
            [],
            [KIND | {"field": "Txn.extra", "from": "json", "to": "<absent>"}],
        ),
        (event(fields=FIELDS | {"new": "str"}), [{"kind": "new_field", "event": "Txn", "field": "new", "type": "str"}], []),
        (
            event(fields={"fine" if name == "ok" else name: kind for name, kind in FIELDS.items()}),
            [{"kind": "new_field", "event": "Txn", "field": "fine", "type": "bool"}],
            [KIND | {"field": "Txn.ok", "from": "bool", "to": "<absent>"}],
        ),
        (event(optional=["n"]), [{"kind": "optional_field", "event": "Txn", "field": "n"}], []),
        (table("U", where("(n > 0)"), agg={"c": count(window="1h")}), [], [REMOVED]),
        (
            table("U", where("(n > 0)"), agg={"c": count(window="1h"), "s": total(), "m": total("n")}),
            [ADDED | {"agg": "m"}],
            [],
        ),
        (
            table("U", where("(n > 0)"), agg={"c": count(window="1h"), "t": total()}),
            [ADDED | {"agg": "t"}],
            [REMOVED],
        ),
        (
            table("U", where("(n > 0)"), agg={"c": count(window="1h"), "s": {"op": "mean", "params": {"field": "amount"}}}),
            [ADDED],
            [REMOVED],
        ),
        (table("U", where("(n > 0)"), agg={"c": count(window="1h"), "s": total("n")}), [ADDED], [REMOVED]),
        (
            table("U", where("(n > 0)"), agg={"c": count(window="1h"), "s": total(where="ok")}),
            [ADDED],
            [REMOVED],
        ),
        (
            table("U", where("(n > 0)"), agg={"c": count(window="2h"), "s": total()}),
            [],
            [{"kind": "window_change", "agg": "U.c", "from": "1h", "to": "2h"}],
        ),
        (
            table("U", agg={"c": count(window="1h"), "s": total()}),
            [],
            [{"kind": "op_removal", "descriptor": "U", "index": 0, "op": "filter"}],
        ),
        (
            table("U", where("(n > 1)"), agg={"c": count(window="1h"), "s": total()}),
            [],
            [
                {
                    "kind": "op_change",
                    "descriptor": "U",
                    "index": 0,
                    "from": {"op": "filter", "expr": "(n > 0)"},
                    "to": {"op": "filter", "expr": "(n > 1)"},
                }
            ],
        ),
        (KEYED, [], [{"kind": "key_cols_change", "table": "U", "from": ["user"], "to": ["n"]}]),
        (
            TABLE | {"upstreams": ["Other"]},
            [],
            [KIND | {"field": "U.upstreams", "from": "Txn", "to": "Other"}],
        ),
        (derived("U"), [], [KIND | {"field": "U", "from": "table", "to": "derived event"}]),
        # the same, in other words
        (table("U", where('( n>0 )'), agg={"c": count(window="60m"), "s": total()}), [], []),
        (table("U", where("(n > 0)"), agg={"s": total(), "c": count(window="1h")}), [], []),
    ],
)  # fmt: skip
def test_each_change_has_its_kind(
    changing: Namespace, node: Any, additive: list[Any], destructive: list[Any]
) -> None:
    present = [] if additive or destructive else [node["name"]]
    expected = {"additive": additive, "destructive": destructive, "already_present": present}
    assert diff_of(changing, node) == expected
    if not destructive:
        assert present == [] or answered(changing.register(node))["already_present"] == present
        return
    reason = "Destructive registry change requires force=true. See diff for details."
    assert expect(changing.register(node), 409).json() == {
        "error": {"code": "force_required", "reason": reason, "diff": expected},
        "registry_version": 1,
    }


def test_what_is_refused_without_force_is_refused_as_a_whole(space: Namespace) -> None:
    space.has(event(), table()).filled(txn(amount=1.5))
    expect(space.register(NARROW, event("More")), 409)
    refused(space.push({"user": "a"}, "More"), 404, "event_not_found")
    space.filled(txn(amount=1.5))
    assert (space.row(), space.version()) == ({"c": 2}, 1)


def test_force_drops_the_state_of_a_node_and_of_all_that_come_from_it_and_of_no_other(space: Namespace) -> None:
    big = derived("Big", where("(amount > 5)"))
    space.has(event(), big, table(), table("V", upstream="Big"), event("Other"), table("W", upstream="Other"))
    space.filled(txn(amount=9), txn(amount=9)).filled(txn(), event="Other")
    assert [space.row(name) for name in "UVW"] == [{"c": 2}, {"c": 2}, {"c": 1}]
    answer = answered(space.register(derived("Big", where("(amount > 6)")), force=True))
    assert (answer["added"], answer["registry_version"]) == (["Big"], 2)
    assert [space.row(name) for name in "UVW"] == [{"c": 2}, {}, {"c": 1}]
    answered(space.register(NARROW, force=True))
    assert [space.row(name) for name in "UVW"] == [{}, {}, {"c": 1}], (
        "tables that the call does not repeat stay, empty"
    )
    space.filled(txn(amount=7))
    assert [space.row(name) for name in "UVW"] == [{"c": 1}, {"c": 1}, {"c": 1}]
    names = answered(space.register())["registered_descriptors"]
    assert names == ["Txn", "Big", "U", "V", "Other", "W"]


def test_the_pages_replacement_is_refused_where_a_table_would_no_longer_compile(space: Namespace) -> None:
    space.has(event(), table(agg={"s": total("n")})).filled(txn(n=2))
    smaller = event(fields={"user": "str", "amount": "i64", "currency": "str"})
    reason = rejected(space.register(smaller, force=True), "invalid_registration", "nodes[0].Txn")
    assert "'U'" in reason and "'n'" in reason
    assert space.row() == {"s": 2.0}
    space.has(smaller, table(agg={"s": total()}), force=True)
    space.filled({"user": "a", "amount": 5, "currency": "EUR"})
    assert space.row() == {"s": 5.0}


def test_each_destructive_change_is_applied_with_force(space: Namespace) -> None:
    space.has(event(), event("Other"), TABLE)
    nodes = [NARROW, KEYED, TABLE | {"upstreams": ["Other"]}, table(), table(keys=["ok"]), derived("U"), TABLE]
    for version, node in enumerate(nodes, start=2):
        answer = answered(space.register(node, force=True))
        assert (answer["added"], answer["registry_version"]) == ([node["name"]], version)
        assert diff_of(space, node)["already_present"] == [node["name"]]


def test_force_keeps_what_it_does_not_change(space: Namespace) -> None:
    nodes = [event(), table(), table("V", keys=["n"])]
    space.has(*nodes).filled(txn())
    assert answered(space.register(*nodes, force=True))["added"] == []
    space.has(*nodes[:2], table("V", keys=["ok"]), force=True)
    assert (space.row("U"), space.row("V", True)) == ({"c": 1}, {})


def test_an_additive_change_keeps_the_state_and_begins_with_the_next_event(space: Namespace) -> None:
    space.has(event(), table(agg={"s": total()})).filled(txn(amount=1))
    space.has(event(fields=FIELDS | {"fee": "f64"}, optional=["fee"]))
    assert space.row() == {"s": 1.0}
    space.has(table(agg={"s": total(), "fees": total("fee"), "c": count()}))
    assert space.row() == {"s": 1.0, "fees": None, "c": 0}
    space.filled(txn(amount=2), txn(amount=3) | {"fee": 0.5})
    assert space.row() == {"s": 6.0, "fees": 0.5, "c": 2}


def test_a_feature_that_is_replaced_begins_again_alone(space: Namespace) -> None:
    space.has(event(), table(agg={"s": total(), "c": count()})).filled(txn(amount=4))
    space.has(table(agg={"s": total("n"), "c": count()}), force=True)
    space.filled(txn(n=7))
    assert space.row() == {"s": 7.0, "c": 1}, "the row of a table with a destructive change starts empty"
