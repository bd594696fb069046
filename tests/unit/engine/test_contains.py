"""`contains:` finds what looking into each record's texts finds, on the tail, in segments, in runs and compacted runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.query.language import grammar
from headrace.query.language.canonical import SearchConfig
from tests.support.examples import examples
from tests.unit.engine.strategies import BATCHES, QUERIES
from tests.unit.engine.world import CONFIG, NAME, Stream, naive

FIELDS = ("service", "code", "message", "why")
OFFERING: dict[str, Any] = {
    **CONFIG,
    "fields": {
        name: {**field, "contains": True} if name in FIELDS else field for name, field in CONFIG["fields"].items()
    },
}
PIECES = st.sampled_from(
    ["re", "e", "ed b", "d re", " blue ", "blue", "A", "é", "x1 7", "7", "red blue", "Red", "本", "zz"]
)


def config_of(stream: Stream) -> SearchConfig:
    config = stream.logs.definition(NAME).search
    assert config is not None
    return config


def texts_of(value: Any) -> list[str]:
    if isinstance(value, list):
        return [text for item in value for text in texts_of(item)]
    return [value] if isinstance(value, str) else []


def holds(document: Any, piece: str) -> bool:
    """Looks into a record, without the engine."""
    return any(piece.lower() in text.lower() for name in FIELDS for text in texts_of(document.get(name)))


def quoted(piece: str) -> str:
    return json.dumps(piece, ensure_ascii=False)


@examples(25)
@given(
    batches=BATCHES, piece=PIECES, other=QUERIES, shape=st.sampled_from(["{0}", "NOT {0}", "{0} {1}", "{0} OR {1}"])
)
def test_every_stage_finds_what_a_look_into_each_record_finds(
    batches: list[list[Any]], piece: str, other: str, shape: str
) -> None:
    stream = Stream(OFFERING)
    for stage in stream.stages(batches):
        config = config_of(stream)
        with_other = {offset for offset, _ in naive(config, 1, stream.documents, other, [("offset", True)])}
        expected = []
        for offset, document in enumerate(stream.documents):
            found, matches = holds(document, piece), offset in with_other
            wanted = {
                "{0}": found,
                "NOT {0}": not found,
                "{0} {1}": found and matches,
                "{0} OR {1}": found or matches,
            }
            if wanted[shape]:
                expected.append(offset)
        q = shape.format(f"contains:{quoted(piece)}", f"({other})")
        answer = stream.search(q, sort=["offset:asc"], size=500)
        assert [hit.candidate.offset for hit in answer.hits] == expected, (stage, q)
        assert (answer.total, answer.exact) == (len(expected), True), (stage, q)


def test_words_of_a_run_tell_which_records_must_be_looked_at() -> None:
    stream = Stream(OFFERING)
    documents = [
        {"message": f"order {number} failed: card {'declined' if number % 50 == 0 else 'paid'}"}
        for number in range(200)
    ]
    for stage in stream.stages([documents[:100], documents[100:]]):
        answer = stream.search('contains:"ard declin"', sort=["offset:asc"], size=500, explain=True)
        assert [hit.candidate.offset for hit in answer.hits] == [
            at for at in range(len(stream.documents)) if at % 50 == 0
        ]
        assert answer.explained is not None
        for plan in answer.explained["plan"]:
            assert plan["looked_at"] <= 4, (stage, plan)


def test_a_look_into_texts_needs_a_field_that_offers_it() -> None:
    stream = Stream(CONFIG)
    config = config_of(stream)
    for text in ("contains:card", "service:a contains:b"):
        with pytest.raises(InvalidRequest, match="contains: is not supported"):
            grammar.parse_query(text, config)
    config = config_of(Stream(OFFERING))
    for text in ('contains:""', "contains:>a", "contains:"):
        with pytest.raises(InvalidRequest):
            grammar.parse_query(text, config)
    with pytest.raises(InvalidRequest, match="contains: is not supported"):
        grammar.parse_filter("contains:card", config)
    with pytest.raises(InvalidRequest, match="contains: is not supported"):
        grammar.parse_query("contains:card", config, "rollups/a/include")
    chosen = config_of(Stream({**OFFERING, "containsDefaultFields": ["message"]}))
    assert chosen.contains_fields == ("message",)
    assert config.contains_fields == tuple(name for name in OFFERING["fields"] if name in FIELDS)
