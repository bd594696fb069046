"""Events with a dedupe value: each has one effect within its window."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.conformance.features.client import REPLAY, Namespace, answered, refused, txn
from tests.conformance.topics.client import at_once
from tests.unit.features.pipeline.documents import event, table, total


def deduped(space: Namespace, **more: Any) -> Namespace:
    """Returns the namespace with an event that is deduplicated by `n`, and another one that is not."""
    return space.has(event(dedupe_key="n", **more), table(agg={"s": total()}), event("Plain"))


def test_a_repeat_has_the_first_answer_byte_for_byte_and_a_header(space: Namespace) -> None:
    deduped(space)
    first = space.push(txn(n=7, amount=1))
    space.filled(txn(n=8, amount=10))
    space.has(event("Later"))
    for data in (txn(n=7, amount=1), txn(n=7, amount=99, user="b"), txn(n=7.0)):
        again = space.push(data)
        assert (again.status_code, again.content) == (200, first.content)
        assert again.headers[REPLAY] == "1"
    assert again.json()["idempotent_replay"] is False
    assert space.row() == {"s": 11.0} and space.row("U", "b") == {}


def test_a_repeat_is_checked_like_any_event(space: Namespace) -> None:
    deduped(space).filled(txn(n=7))
    refused(space.push(txn(n=7, amount="x")), 400, "invalid_event")


@pytest.mark.sensitive("transactions of the table")
def test_repeats_at_one_moment_have_one_effect(space: Namespace) -> None:
    deduped(space)
    answers = at_once([lambda n=n: space.push(txn(n=5, amount=n)) for n in range(1, 9)])
    assert len({answer.content for answer in answers}) == 1, [answer.text for answer in answers]
    assert sum(REPLAY not in answer.headers for answer in answers) == 1
    (kept,) = [n for n, answer in enumerate(answers, start=1) if REPLAY not in answer.headers]
    assert space.row() == {"s": float(kept)}


def test_a_window_ends(space: Namespace) -> None:
    deduped(space, dedupe_window_ms=700).filled(txn(n=7))
    assert REPLAY in space.push(txn(n=7)).headers
    time.sleep(0.8)  # the window
    answer = space.push(txn(n=7))
    assert REPLAY not in answer.headers and answered(answer)
    assert REPLAY in space.push(txn(n=7)).headers
    assert space.row() == {"s": 2.0}


def test_values_are_those_of_one_event_and_one_namespace(space: Namespace) -> None:
    deduped(space).has(event("Second", dedupe_key="n"), table("V", upstream="Second"))
    space.filled(txn(n=7)).filled(txn(n=7), event="Second").filled(txn(n=7), txn(n=7), event="Plain")
    assert (space.row(), space.row("V")) == ({"s": 1.0}, {"c": 1})


def test_an_event_without_a_value_repeats_none(space: Namespace) -> None:
    space.has(event("Ev", fields={"u": "str", "id": "str"}, optional=["id"], dedupe_key="id"))
    space.has(table(upstream="Ev", keys=["u"]))
    space.filled({"u": "a"}, {"u": "a", "id": None}, {"u": "a", "id": ""}, {"u": "a", "id": ""}, event="Ev")
    assert space.row() == {"c": 3}


def test_a_batch_leaves_out_what_repeats(space: Namespace) -> None:
    deduped(space).filled(txn(n=1))
    answer = space.post("/push/Txn/batch", [txn(n=number, amount=10) for number in range(1, 4)])
    assert answered(answer) and REPLAY not in answer.headers
    assert space.row() == {"s": 21.0}
    again = space.post("/push/Txn/batch", [txn(n=number, amount=10) for number in range(2, 4)])
    assert again.headers[REPLAY] == "1"
    refused(space.post("/push/Txn/batch", [txn(n=9), txn(n=9)]), 400, "invalid_request")
    refused(space.post("/push/Txn/batch", [txn(n=n) for n in range(100, 191)]), 400, "invalid_request")
    answered(space.post("/push/Txn/batch", [txn(n=n, amount=0) for n in range(100, 190)]))
    assert space.row() == {"s": 21.0}


def test_dedupe_can_begin_and_end_with_a_registration(space: Namespace) -> None:
    space.has(event(), table()).filled(txn(n=7))
    space.has(event(dedupe_key="n")).filled(txn(n=7), txn(n=7))
    assert space.row() == {"c": 2}
    space.has(event(dedupe_key=None)).filled(txn(n=7))
    assert space.row() == {"c": 3}
