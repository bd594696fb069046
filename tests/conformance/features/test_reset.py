"""What a reset removes, where one is allowed."""

from __future__ import annotations

import pytest

from tests.conformance.features.client import REPLAY, Namespace, answered, refused, txn, unused
from tests.unit.features.pipeline.documents import event, table


@pytest.mark.sensitive("what other processes know")
def test_a_reset_removes_everything_in_its_namespace_and_nothing_else(space: Namespace) -> None:
    other = unused(space.server).has(event(), table()).filled(txn())
    space.has(event(), table(), table("G", keys=[])).filled(txn(), txn())
    assert space.post("/reset", {}).content == b'{"reset":true,"registry_version":2}'
    for _ in range(3):  # each process
        refused(space.push(txn()), 404, "event_not_found")
        refused(space.get(), 404, "unknown_table")
        assert space.version() == 2
    assert answered(space.send("GET", "/registry"))["nodes"] == []
    assert other.row() == {"c": 1}


def test_what_is_registered_after_a_reset_begins_empty_and_versions_go_on(space: Namespace) -> None:
    space.has(event(dedupe_key="n"), table()).filled(txn(n=1))
    for version in (2, 4):
        assert answered(space.post("/reset"))["registry_version"] == version
        answer = answered(space.register(event(dedupe_key="n"), table()))
        assert (answer["registry_version"], answer["added"]) == (version + 1, ["Txn", "U"])
        assert space.row() == {}
        answer = space.push(txn(n=1))
        assert REPLAY not in answer.headers, "what was seen before is forgotten"
        assert answered(answer)["registry_version"] == version + 1
        assert space.row() == {"c": 1}


@pytest.mark.parametrize("kind", ["str", "i64"])
def test_another_shape_may_be_registered_after_a_reset(space: Namespace, kind: str) -> None:
    space.has(event(fields={"user": "str"}, lanes=4, lane_key="user"), table())
    for user in "abc":  # each process knows four lanes
        space.filled({"user": user})
    answered(space.post("/reset"))
    space.has(event(fields={"user": kind}), table())
    one, two, three = ("a", "b", "c") if kind == "str" else (1, 2, 3)
    for number in range(1, 4):
        answered(space.post("/push/Txn/batch", [{"user": one}, {"user": two}]))
        assert (space.row("U", one), space.row("U", three)) == ({"c": number}, {})


def test_a_reset_of_an_empty_namespace_counts_too(space: Namespace) -> None:
    assert answered(space.post("/reset"))["registry_version"] == 1
    assert answered(space.register(event()))["registry_version"] == 2
