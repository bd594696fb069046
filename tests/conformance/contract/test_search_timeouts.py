"""`_search` ends in time: what was found until then is answered, with 408."""

from __future__ import annotations

import time

import pytest

from tests.conformance.contract.client import expect
from tests.conformance.contract.stages import Stage
from tests.conformance.contract.test_search import ANSWER, COVERAGE


def test_a_search_that_reaches_its_timeout_answers_408_with_what_it_found(stage: Stage) -> None:
    answer = expect(stage.stream.search(q="note:card", timeout_ms=0), 408)
    found = answer.json()
    assert set(found) >= ANSWER
    assert set(found["coverage"]) >= COVERAGE
    assert found["timed_out"] is True
    assert found["timeout_ms"] == 0
    assert found["total"]["relation"] == "gte"
    assert len(found["hits"]) <= 50
    assert found["total"]["value"] >= len(found["hits"])
    assert found["snapshot_end_offset"] == stage.stream.end
    for hit in found["hits"]:
        assert hit["source"] == stage.documents[hit["source"]["n"]]
    assert answer.headers["search-timed-out"] == "true"
    assert answer.headers["search-timeout-ms"] == "0"
    assert answer.headers["search-total-relation"] == "gte"


def test_what_a_timeout_left_out_is_not_said_to_be_covered(stage: Stage) -> None:
    found = expect(stage.stream.search(q="has:title", timeout_ms=0, size=500, sort=["cost:asc"]), 408).json()
    everything = expect(stage.stream.search(q="has:title", size=500, sort=["cost:asc"]), 200).json()
    if found["hits"] != everything["hits"]:
        assert found["coverage"]["complete"] is False
        assert found["coverage"]["possible_missing_events_upper_bound"] > 0
        has_sealed = found["coverage"]["possible_missing_sealed_rows"] > 0
        assert (found["coverage"]["possible_missing_uploaded_segments"] > 0) is has_sealed


@pytest.mark.parametrize(("asked_ms", "effective_ms"), [(1, 1), (2999, 2999), (3000, 3000), (60_000, 3000)])
def test_a_timeout_is_at_most_three_seconds(stage: Stage, asked_ms: int, effective_ms: int) -> None:
    began = time.monotonic()
    answer = stage.stream.search(q="ref:R00001", timeout_ms=asked_ms)
    assert time.monotonic() - began < 5
    assert answer.status_code in (200, 408)
    assert answer.json()["timeout_ms"] == effective_ms
    assert answer.headers["search-timeout-ms"] == str(effective_ms)
    assert answer.json()["timed_out"] is (answer.status_code == 408)


def test_a_search_within_its_budget_answers_200(stage: Stage) -> None:
    found = expect(stage.stream.search(q="ref:R00007", timeout_ms=3000), 200).json()
    assert found["timed_out"] is False
    assert [hit["source"]["n"] for hit in found["hits"]] == [7]
