"""`filter=` and `key=` read what is there, wherever it is: in the tail, in segments, under index runs, after a lens."""

from __future__ import annotations

import random

import pytest

from tests.conformance.contract.stages import Stage
from tests.oracle import catalogue
from tests.oracle.queries import Has, Query, is_filter

RANDOM = [query for seed in range(400) if is_filter(query := catalogue.random_query(random.Random(seed)))][:12]
KEYS = ("日本", "k7", "K7", "_", "no such key")


def differs(stage: Stage, query: Query, key: str | None = None) -> str | None:
    """Compares all that a filtered read finds."""
    expected = [
        position
        for position, document in enumerate(stage.documents)
        if query.score(stage.config, document) is not None and (key is None or document.get("key") == key)
    ]
    params = {"filter": query.text(), **({} if key is None else {"key": key})}
    found = [record["n"] for record in stage.stream.records(**params)]
    missing, extra = sorted({*expected} - {*found}), sorted({*found} - {*expected})
    return None if found == expected else f"{stage.name}: {params}: missing {missing[:9]}, extra {extra[:9]}"


@pytest.mark.parametrize("kind", [kind for kind, all_of in catalogue.QUERIES.items() if any(map(is_filter, all_of))])
def test_a_filter_finds_the_same_in_every_stage(stage: Stage, kind: str) -> None:
    queries = [query for query in catalogue.QUERIES[kind] if is_filter(query)]
    assert [problem for query in queries if (problem := differs(stage, query))] == []


def test_a_random_filter_finds_the_same_in_every_stage(stage: Stage) -> None:
    assert [problem for query in RANDOM if (problem := differs(stage, query))] == []


@pytest.mark.parametrize("key", KEYS)
def test_a_filter_and_a_key_apply_together_in_every_stage(stage: Stage, key: str) -> None:
    assert [problem for query in (*RANDOM[:3], Has("title")) if (problem := differs(stage, query, key))] == []


def test_a_keyed_read_goes_on_from_any_hit(stage: Stage) -> None:
    wanted = [document["n"] for document in stage.documents if document.get("key") == "k7"]
    every = stage.stream.search(q="has:title", size=500, sort=["offset:asc"]).json()["hits"]
    for hit in every[:400:100]:
        after = [n for n in wanted if n > hit["source"]["n"]]
        assert [record["n"] for record in stage.stream.records(key="k7", offset=hit["offset"])] == after
