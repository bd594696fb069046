"""What feature tables cost in AWS calls, counted as they leave the clients. These are promises (docs/benchmarks.md)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from headrace.features.fold import Folder
from headrace.features.register import Registrations
from headrace.features.values import FEATURES, GetRequest, lane
from headrace.features.verbs import Features
from tests.support.counting import Counted, counted_stores
from tests.unit.features.world import event, table, tx


class Deployment(Counted):
    """Stores on moto, the calls made to them, and processes that use them."""

    def namespace(self, name: str, **settings: object) -> Features:
        """Returns a process that has registered an event and two tables in a namespace, and has pushed to it."""
        features = Features(self.stores)
        features.register(name, {"nodes": [event(**settings), table(), table("All", keys=[])]})
        features.push(name, "Tx", [tx(n=0)])
        return features

    def fold(self, name: str) -> None:
        """Folds its events."""
        Folder(Registrations(self.stores)).fold(lane(name, "Tx", 0), self.stores.clock.monotonic() + 60)


@pytest.fixture(scope="module")
def aws() -> Iterator[Deployment]:
    with counted_stores(surfaces=(FEATURES,)) as counted:
        yield Deployment(*counted)


def test_a_warm_push_is_one_write(aws: Deployment) -> None:
    features = aws.namespace("push")
    with aws.calls.during() as made:
        for _ in range(5):
            features.push("push", "Tx", [tx()])
    assert dict(made) == {"PutItem": 5}


def test_a_batch_is_one_write_and_one_object(aws: Deployment) -> None:
    features = aws.namespace("batch")
    noise = random.Random(1)
    events = [tx(user=f"user-{noise.random()}", amount=noise.random()) for _ in range(2_000)]
    with aws.calls.during() as made:
        features.push("batch", "Tx", events)
    assert dict(made) == {"PutObject": 1, "PutItem": 1}


def test_a_push_with_a_dedupe_value_is_one_transaction_and_a_repeat_reads_the_newest_state_once(
    aws: Deployment,
) -> None:
    features = aws.namespace("dedupe", dedupe_key="n")
    with aws.calls.during() as made:
        features.push("dedupe", "Tx", [tx(n=1)])
    assert dict(made) == {"TransactWriteItems": 1}
    with aws.calls.during() as made:
        assert features.push("dedupe", "Tx", [tx(n=1)]).is_replay
    assert made.pop("TransactWriteItems") <= 2
    assert sum(made.values()) <= 4, made


def test_a_warm_read_is_one_read_and_one_query_for_any_number_of_entities(aws: Deployment) -> None:
    features = aws.namespace("get")
    aws.fold("get")
    request = GetRequest("U", "a")
    features.get("get", [request])
    with aws.calls.during() as made:
        (row,) = features.get("get", [request]).rows
    assert row == {"c": 1, "s": 1.0}
    assert dict(made) == {"GetItem": 1, "Query": 1}
    with aws.calls.during() as made:
        features.get("get", [GetRequest("U", f"u{number}") for number in range(99)] + [GetRequest("All", "")])
    assert dict(made) == {"BatchGetItem": 1, "Query": 1}
    with aws.calls.during() as made:
        features.get("get", [request], stale=True)
    assert dict(made) == {"GetItem": 1}


def test_a_cold_read_costs_a_few_reads(aws: Deployment) -> None:
    aws.namespace("cold")
    aws.fold("cold")
    features = Features(aws.stores)
    with aws.calls.during() as made:
        assert features.get("cold", [GetRequest("U", "a")]).rows == [{"c": 1, "s": 1.0}]
    assert sum(made.values()) <= 11, made
    assert not {"PutItem", "UpdateItem", "TransactWriteItems"} & set(made)


def test_a_fold_is_one_write_for_each_row_and_the_mark(aws: Deployment) -> None:
    features = aws.namespace("fold")
    aws.fold("fold")  # the first pass also notes which tables it folds, before their rows
    for number in range(40):
        features.push("fold", "Tx", [tx(user=f"u{number % 4}")])
    with aws.calls.during() as made:
        aws.fold("fold")
    assert made["PutItem"] == 5 + 1, "rows of u0 to u3, the global one; and the mark"
    assert made["BatchGetItem"] == 1
    assert aws.calls.sent["Scan"] == 0
