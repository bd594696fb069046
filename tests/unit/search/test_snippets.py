"""Pieces of texts around what a query asks for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.json import search_config
from headrace.query.language import canonical, grammar, snippets
from headrace.query.language.snippets import SnippetRequest, Wanted, pieces_of
from tests.unit.search.samples import SEARCH

CONFIG = search_config.parse(
    {**SEARCH, "fields": {**SEARCH["fields"], "message": {**SEARCH["fields"]["message"], "contains": True}}}, 1
)
LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"


def shown(q: str, request: SnippetRequest, **texts: Any) -> dict[str, list[str]]:
    return snippets.snippets(request, grammar.parse_query(q, CONFIG), lambda field: texts.get(field, []))


def test_a_piece_is_what_stands_around_a_match() -> None:
    (piece,) = shown("message:nine", SnippetRequest(size=30), message=[LONG])["message"]
    assert "nine" in piece
    assert piece.startswith("…")
    assert piece.endswith("…")
    assert piece.strip("…").strip() in LONG
    assert len(piece) <= 32


def test_a_short_text_is_shown_whole() -> None:
    assert shown("message:two", SnippetRequest(), message=["One TWO three"]) == {"message": ["One TWO three"]}


@pytest.mark.parametrize(
    ("q", "texts", "expected"),
    [
        ('message:"five six"', {"message": ["four five six"]}, {"message": ["four five six"]}),
        ("message:fi*", {"message": ["four five six"]}, {"message": ["four five six"]}),
        ("contains:ou", {"message": ["four five six"]}, {"message": ["four five six"]}),
        ("four", {"message": ["four five"], "why": ["none"]}, {"message": ["four five"]}),
        ("service:Four", {"service": ["four"]}, {"service": ["four"]}),
        ("service:fo*", {"service": ["four"]}, {"service": ["four"]}),
        ("NOT message:four", {"message": ["four"]}, {}),
        ("message:four", {"message": ["fourteen"]}, {}),
        ("status:>1", {"message": ["four"]}, {}),
        ("message:four OR why:five", {"message": ["four"], "why": ["five"]}, {"message": ["four"], "why": ["five"]}),
    ],
    ids=str,
)
def test_the_fields_of_the_query_are_shown(
    q: str, texts: dict[str, list[str]], expected: dict[str, list[str]]
) -> None:
    assert shown(q, SnippetRequest(), **texts) == expected


def test_the_piece_with_the_most_of_the_query_comes_first_and_several_keep_their_order() -> None:
    text = "alpha " + "x " * 100 + "alpha beta " + "x " * 100 + "beta"
    wanted = [Wanted("alpha", True), Wanted("beta", True)]
    (best,) = pieces_of(text, wanted, 60, 1)
    assert "alpha beta" in best
    three = pieces_of(text, wanted, 60, 5)
    assert len(three) == 3
    assert three[0].startswith("alpha")
    assert three[2].endswith("beta")


def test_named_fields_alone_are_shown() -> None:
    request = snippets.parse({"fields": ["why"], "max_fragments": 2, "fragment_size": 20}, CONFIG)
    assert request == SnippetRequest(("why",), 20, 2)
    assert shown("message:four", request, message=["four"], why=["four too"]) == {"why": ["four too"]}
    assert snippets.parse(True, CONFIG) == SnippetRequest()
    assert (
        snippets.parse(None, CONFIG)
        is snippets.parse(False, CONFIG)
        is snippets.parse({"enabled": False}, CONFIG)
        is None
    )


@pytest.mark.parametrize(
    "asked",
    [
        1,
        [],
        {"size": 5},
        {"enabled": 1},
        {"fields": "message"},
        {"fields": ["unknown"]},
        {"fields": ["status"]},
        {"fields": [1]},
        {"fragment_size": 19},
        {"fragment_size": True},
        {"max_fragments": 6},
    ],
    ids=str,
)
def test_a_wrong_request_is_refused(asked: Any) -> None:
    with pytest.raises(InvalidRequest, match="snippet"):
        snippets.parse(asked, CONFIG)


@given(
    text=st.text(max_size=300),
    word=st.text(min_size=1, max_size=4),
    size=st.integers(20, 100),
    most=st.integers(1, 5),
)
def test_whatever_comes_a_piece_is_of_the_text_and_not_too_long(text: str, word: str, size: int, most: int) -> None:
    lower = text.lower()
    found = [Wanted(one, True) for one in canonical.words(word)] + [Wanted(word.lower(), False)]
    pieces = pieces_of(text, found, size, most)
    assert len(pieces) <= most
    assert bool(pieces) == (word.lower() in lower or any(one.text in canonical.words(text) for one in found[:-1]))
    for piece in pieces:
        assert len(piece) <= size + 2
        assert piece.strip("…").strip() in text or piece.strip("…").strip() in lower
