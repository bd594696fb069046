"""What searches have beyond the contract: pieces of texts, and snippets."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.contract.client import JSON, Api, Stream, expect, refused


def field(kind: str, name: str, *capabilities: str, **more: str) -> dict[str, Any]:
    bindings = [{"version": 1, "jsonPointer": f"/{name}"}]
    return {"kind": kind, "bindings": bindings, **more, **dict.fromkeys(capabilities, True)}


SEARCH = {
    "primaryTimestampField": "at",
    "fields": {
        "at": field("date", "at", "exact", "column", "sortable"),
        "id": field("keyword", "id", "exact", "sortable", "contains"),
        "note": field("text", "note", "exists", "contains", analyzer="unicode_word_v1"),
    },
}
NOTES = ["card declined by the issuer", "Cardinal sin", "paid", "a discarded note"]


@pytest.fixture
def notes(api: Api) -> Stream:
    stream = api.with_schema(schema={"type": "object"}, search=SEARCH)
    records = [{"id": f"n-{at}", "at": at, "note": note} for at, note in enumerate(NOTES)]
    expect(stream.append(records), 204)
    return stream


def found(stream: Stream, **asked: Any) -> list[Any]:
    hits: list[Any] = expect(stream.search({"sort": ["offset:asc"], **asked}), 200).json()["hits"]
    return hits


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        ("contains:card", [0, 1, 3]),
        ('contains:"ARD DEC"', [0]),
        ("contains:n-2", [2]),
        ("contains:card -contains:sin", [0, 3]),
    ],
)
def test_contains_finds_a_piece_of_a_text(notes: Stream, q: str, expected: list[int]) -> None:
    assert [hit["source"]["at"] for hit in found(notes, q=q)] == expected


def test_snippets_show_what_was_found(notes: Stream) -> None:
    (hit,) = found(notes, q="note:declined", snippet=True)
    assert hit["snippet"] == {"note": [NOTES[0]]}
    (hit,) = found(notes, q="note:declined", snippet={"fields": ["note"], "fragment_size": 20})
    (piece,) = hit["snippet"]["note"]
    assert "declined" in piece and len(piece) <= 22
    assert "snippet" not in found(notes, q="note:declined")[0]
    refused(notes.search({"q": "note:declined", "snippet": {"size": 5}}), 400)


def test_several_streams_are_searched_at_once(api: Api) -> None:
    family = f"family-{api.unused().name}"
    for number in range(3):
        stream = Stream(api, f"{family}/{number}")
        expect(stream.put(), 201)
        expect(stream.define(schema={"type": "object"}, search=SEARCH), 200)
        expect(stream.append([{"id": "x", "at": 10 - number}, {"id": "y", "at": 0}]), 204)
    asked = {"streams": f"{family}/*", "q": "id:x"}
    answer = expect(api.request("POST", "/v1/search", JSON, asked), 200).json()
    assert [hit["stream"] for hit in answer["hits"]] == [f"{family}/{number}" for number in range(3)]
    assert answer["total"] == {"value": 3, "relation": "eq"}
    refused(api.request("POST", "/v1/search", JSON, {**asked, "q": "unknown:1"}), 400)
    refused(api.request("POST", "/v1/search", JSON, {**asked, "streams": f"{family}/none"}), 404)
