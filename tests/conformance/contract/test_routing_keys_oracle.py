"""`_routing_keys` lists every key once and in order, wherever its records are, whatever its case and script."""

from __future__ import annotations

import pytest

from tests.conformance.contract.client import expect, shown
from tests.conformance.contract.stages import Stage
from tests.oracle import keys


def keys_of(stage: Stage) -> list[str | None]:
    """Returns the routing key of each record."""
    return [document.get("key") for document in stage.documents]


@pytest.mark.parametrize("limit", [1, 7, 100, 500])
def test_pages_hold_every_key_once_and_in_order(stage: Stage, limit: int) -> None:
    after = None
    for _ in range(200):
        wanted, following = keys.page(keys_of(stage), after, limit)
        answer = expect(
            stage.stream.routing_keys(limit=str(limit), **({} if after is None else {"after": after})), 200
        )
        found = answer.json()
        assert found["keys"] == wanted, shown(answer)
        assert found["next_after"] == following, shown(answer)
        assert found["coverage"]["complete"] is True, shown(answer)
        if following is None:
            return
        after = following
    raise AssertionError("the listing does not end")


@pytest.mark.parametrize(
    "after", ["", "K", "K2", "Z", "_", "a", "k", "k12", "kz", "ключ", "ключ3", "日", "日本", "日本語", "𝒳"]
)
def test_a_page_begins_after_any_text(stage: Stage, after: str) -> None:
    wanted, _ = keys.page(keys_of(stage), after or None, 500)
    assert expect(stage.stream.routing_keys(limit="500", after=after), 200).json()["keys"] == wanted


def test_coverage_says_where_it_looked(stage: Stage) -> None:
    found = expect(stage.stream.routing_keys(limit="1"), 200).json()
    coverage, plan = found["coverage"], stage.plan
    assert coverage["complete"] is True
    assert coverage["indexed_segments"] == plan.indexed
    assert coverage["scanned_uploaded_segments"] == plan.segments - plan.indexed
    assert coverage["scanned_local_segments"] == 0
    assert coverage["scanned_wal_rows"] == len(stage.documents) - plan.segments * stage.segment_records
    assert coverage["possible_missing_uploaded_segments"] == coverage["possible_missing_local_segments"] == 0
    assert (found["timing"]["lexicon_runs_loaded"] > 0) is bool(plan.indexed)


def test_a_key_that_is_listed_can_be_read(stage: Stage) -> None:
    for key in ("日本", "ключ3", "k7", "K7", "_"):
        wanted = [document["n"] for document in stage.documents if document.get("key") == key]
        assert [record["n"] for record in stage.stream.records(key=key)] == wanted
