"""Every refusal of a registration, over HTTP: code, path and reason, and nothing is changed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.features.client import Namespace, answered, rejected
from tests.unit.features.pipeline.documents import count, derived, event, table
from tests.unit.features.pipeline.test_refusals import REFUSED


@pytest.fixture(scope="module")
def full(shared: Namespace) -> Namespace:
    """Returns a namespace in which one node is registered, whatever is refused in it."""
    return shared.has(event("Other"))


# JSON has no limit for integers, but the parser has: the body itself is refused then.
PARSED = [case for case in REFUSED if "many digits" not in case[3]]


@pytest.mark.parametrize(
    ("nodes", "code", "path", "said"), PARSED, ids=[f"{case[2]} {case[3]}"[:60] for case in PARSED]
)
def test_a_node_is_refused(full: Namespace, nodes: list[Any], code: str, path: str, said: str) -> None:
    assert said in rejected(full.register(*nodes, force=True), code, path)


def test_a_number_that_no_parser_takes_is_refused(full: Namespace) -> None:
    rejected(full.register(event(cold_after_ms=10**400)), "invalid_registration", "<body>")


def test_nothing_is_changed_by_what_is_refused(full: Namespace) -> None:
    assert answered(full.send("GET", "/registry"))["nodes"] == [event("Other")]
    assert full.version() == 1


def test_a_refusal_says_the_version(full: Namespace) -> None:
    for dry_run in (False, True):
        answer = full.register(table("T", upstream="Nope"), dry_run=dry_run)
        rejected(answer, "invalid_registration", "nodes[0].upstreams[0]")
        assert answer.json()["registry_version"] == 1


def test_the_first_error_wins(full: Namespace) -> None:
    wrong = table("V", agg={"f": count(where="n")})
    rejected(full.register(event(), wrong, {"kind": "x", "name": "T"}), "unsupported_node_kind", "nodes[2].T.kind")
    rejected(full.register(event(), wrong, table("W", agg={"f": {"op": "sum"}})), "aggregation_invalid_where")


def test_no_node_depends_on_itself(space: Namespace) -> None:
    space.has(event(), derived("A"), derived("B", upstream="A"))
    answer = space.register(derived("A", upstream="B"), force=True)
    assert "itself" in rejected(answer, "invalid_registration", "nodes[0].upstreams[0]")
    answer = space.register(derived("C", upstream="C"))
    assert "its own upstream" in rejected(answer, "invalid_registration", "nodes[0].upstreams[0]")


def test_tables_of_one_namespace_may_have_features_of_one_name(space: Namespace) -> None:
    space.has(event(), table("A"), table("B", keys=["n"]))
    assert (space.row("A", "x"), space.row("B", 1)) == ({}, {})
