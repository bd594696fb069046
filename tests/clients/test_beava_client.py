"""PyPI `beava`, unmodified, over HTTP."""

import uuid
from collections.abc import Iterator
from typing import Any

import beava as bv
import pytest


@pytest.fixture
def app(server_url: str) -> Iterator[bv.App]:
    """An application of the client, in a namespace of its own."""
    with_namespace = f"{server_url}/features/client-{uuid.uuid4().hex}"
    client = bv.App(with_namespace)
    yield client
    client.close()


@bv.event
class Txn:
    """A payment."""

    user_id: str
    amount: float
    n: int


@bv.event
def Large(rows: Txn) -> Any:  # noqa: N802 - the client takes names from here
    return rows.filter(bv.col("amount") > 10)


@bv.table(key="user_id")
def Spending(rows: Txn) -> Any:  # noqa: N802
    return rows.group_by("user_id").agg(
        count=bv.count(window="1h"),
        total=bv.sum("amount", window="1h"),
        large=bv.count(where=bv.col("amount") > 10),
        last=bv.last("n"),
    )


NODES = (Txn, Large, Spending)


@pytest.mark.timeout(60)
def test_an_application_registers_pushes_and_reads(app: bv.App) -> None:
    tried = app.register(*NODES, dry_run=True)
    assert [entry["kind"] for entry in tried["diff"]["additive"]] == ["new_descriptor"] * 3
    first = app.register(*NODES)
    assert (first["status"], first["registry_version"]) == ("ok", 1)
    assert sorted(first["added"]) == ["Large", "Spending", "Txn"]
    assert app.register(*NODES)["added"] == []

    acks = [app.push("Txn", {"user_id": "alice", "amount": amount, "n": int(amount)}) for amount in (5.0, 20.0, 11.5)]
    assert [ack["ack_lsn"] for ack in acks] == sorted({ack["ack_lsn"] for ack in acks})
    row = {"count": 3, "total": 36.5, "large": 2, "last": 11}
    assert app.get("Spending", "alice") == row
    assert app.get("Spending", ["alice"], features=["large", "last"]) == {"large": 2, "last": 11}
    assert app.batch_get([("Spending", "alice"), ("Spending", "nobody")]) == [row, {}]
    assert app.ping()["registry_version"] == 1
    app.reset()
    assert app.ping()["registry_version"] == 2


@pytest.mark.timeout(60)
def test_refusals_reach_the_application_with_their_codes(app: bv.App) -> None:
    app.register(*NODES)
    for call, code in (
        (lambda: app.push("Txn", {"user_id": "a", "amount": "much", "n": 1}), "invalid_event"),
        (lambda: app.push("Other", {}), "event_not_found"),
        (lambda: app.get("Other", "a"), "unknown_table"),
    ):
        with pytest.raises(Exception, match=code):
            call()
