"""`_aggregate` adds up what is there, wherever it is: in the tail, in segments, in index runs, after a lens."""

from __future__ import annotations

import random

import pytest

from tests.conformance.contract.asking import aggregate_differs
from tests.conformance.contract.client import expect
from tests.conformance.contract.stages import Stage
from tests.oracle import catalogue
from tests.oracle.aggregates import Request

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2))]
REQUESTS_PER_SEED = 10


def check(stage: Stage, requests: list[Request]) -> None:
    """Asks them all, and fails with all that differ."""
    found = [problem for request in requests if (problem := aggregate_differs(stage, request))]
    assert not found, "\n".join([f"{len(found)} of {len(requests)} differ:", *found[:5]])


@pytest.mark.parametrize("kind", catalogue.REQUESTS)
def test_an_aggregate_is_the_same_in_every_stage(stage: Stage, kind: str) -> None:
    check(stage, list(catalogue.REQUESTS[kind]))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_aggregate_is_the_same_in_every_stage(stage: Stage, seed: int) -> None:
    luck = random.Random(seed)
    check(stage, [catalogue.random_request(luck) for _ in range(REQUESTS_PER_SEED)])


def test_coverage_says_where_it_looked(stage: Stage) -> None:
    hour = 3_600_000
    start = catalogue.START_MS // hour * hour
    asked = Request("requests", start, start + 6 * hour, "1h").body()
    coverage = expect(stage.stream.aggregate(asked), 200).json()["coverage"]
    assert coverage["complete"] is True
    assert coverage["mode"] == "complete"
    assert coverage["indexed_segments"] == stage.plan.indexed
    assert coverage["scanned_segments"] == stage.plan.segments - stage.plan.indexed
    assert coverage["scanned_tail_docs"] == len(stage.documents) - stage.plan.segments * stage.segment_records
    assert coverage["used_rollups"] is bool(stage.plan.indexed)
    assert ("agg" in coverage["index_families_used"]) is bool(stage.plan.indexed)
    assert coverage["stream_head_offset"] == coverage["visible_through_offset"] == stage.stream.end
    assert [coverage[name] for name in coverage if name.startswith("possible_missing_")] == [0, 0, 0, 0]
