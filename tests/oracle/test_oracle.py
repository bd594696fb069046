"""The oracle answers what a person would: small cases worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle import keys
from tests.oracle.aggregates import Request, buckets
from tests.oracle.queries import All, Bare, Begins, Compares, Either, Has, Is, Not, Query, Text
from tests.oracle.records import SEARCH, record, records, renamed, search_of
from tests.oracle.search import fields, search
from tests.oracle.values import values, words

HOUR_MS = 3_600_000
DOCUMENTS: list[dict[str, Any]] = [
    {
        "ref": "Ab",
        "service": "Billing",
        "status": 200,
        "note": "card card",
        "title": "",
        "at": "1970-01-01T00:00:01Z",
    },
    {
        "ref": "ab",
        "service": None,
        "status": "404",
        "note": "a card",
        "title": "Card",
        "at": 2000,
        "tags": ["x", ["y"]],
    },
    {"ref": "AB", "status": [500, 3], "note": None, "cost": 2.5, "size": 7, "at": HOUR_MS + 5, "paid": "true"},
    {"ref": "b", "service": "search", "cost": 5, "size": 1, "at": "1970-01-01T01:59:59.999Z"},
]


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        (Is("service", "BILLING"), "service:BILLING", [0]),
        (Is("svc", "search"), "svc:search", [3]),
        (Is("ref", "ab"), "ref:ab", [1]),
        (Begins("ref", "A"), "ref:A*", [0, 2]),
        (Is("code", "star*"), 'code:"star\\*"', []),
        (Is("code", 'a"b\\'), 'code:"a\\"b\\\\"', []),
        (Is("status", "404"), "status:404", [1]),
        (Compares("status", "<", "200"), "status:<200", [2]),
        (Compares("status", ">=", "-1"), "status:>=-1", [0, 1, 2]),
        (Has("service"), "has:service", [0, 3]),
        (Not(Has("service")), "NOT has:service", [1, 2]),
        (Is("tag", "y"), "tag:y", [1]),
        (Text("note", "card"), "note:card", [0, 1]),
        (Text("note", "a card", phrase=True), 'note:"a card"', [1]),
        (Text("note", "card a", phrase=True), 'note:"card a"', []),
        (Text("note", "car", prefix=True), "note:car*", [0, 1]),
        (Bare("bill", prefix=True), "bill*", [0]),
        (Bare("card"), "card", [0, 1]),
        (All((Has("status"), Either((Is("ref", "b"), Is("ref", "AB"))))), "has:status AND (ref:b OR ref:AB)", [2]),
        (Not(All((Has("cost"), Has("paid")))), "NOT (has:cost AND has:paid)", [0, 1, 3]),
    ],
    ids=str,
)
def test_a_query_finds(query: Query, text: str, expected: list[int]) -> None:
    assert query.text() == text
    assert sorted(hit.position for hit in search(SEARCH, DOCUMENTS, query)) == expected


def test_scores() -> None:
    def scores(query: Query) -> dict[int, float]:
        return {hit.position: hit.score for hit in search(SEARCH, DOCUMENTS, query)}

    assert scores(Text("note", "card")) == {0: 2, 1: 1}
    assert scores(Text("note", "a card", phrase=True)) == {1: 6}
    assert scores(Bare("card")) == {0: 4, 1: 2}, "note counts twice"
    assert scores(Either((Bare("card"), Bare("billing")))) == {0: 7, 1: 2}
    assert scores(Not(Bare("card"))) == {2: 0, 3: 0}


EVERYTHING = Has("ref")


def test_orders() -> None:
    def order(*sort: str, query: Query = EVERYTHING) -> list[int]:
        return [hit.position for hit in search(SEARCH, DOCUMENTS, query, sort)]

    assert order() == [3, 2, 1, 0]
    assert order(query=Bare("card")) == [0, 1]
    assert order("ref:asc") == [2, 0, 1, 3]
    assert order("service:asc") == [0, 3, 2, 1]
    assert order("service:desc") == [2, 1, 3, 0]
    assert order("status:desc", "offset:asc") == [3, 2, 1, 0]
    assert order("when:asc") == [0, 1, 2, 3]
    assert order("status:asc", "offset:asc") == [2, 0, 1, 3], "by the least of several"


def test_values_and_fields() -> None:
    assert words("Über-Été 2x_y") == ["über", "été", "2x", "y"]
    assert values(SEARCH, "tag", DOCUMENTS[1]) == ["x", "y"]
    shown = {"ref": "ab", "status": "404", "note": "a card", "title": "Card", "at": 2000, "tag": ["x", "y"]}
    assert fields(SEARCH, DOCUMENTS[1]) == shown


def test_buckets_and_groups() -> None:
    request = Request("requests", 0, 3 * HOUR_MS, "1h", group_by=("service",))
    includes: dict[str, Query] = {"cost:>4": Compares("cost", ">", "4")}
    (_, _, first), (start, end, groups) = buckets(SEARCH, DOCUMENTS, request, includes)
    assert [group["key"] for group in first] == [{"service": "billing"}, {"service": None}]
    assert [group["measures"]["requests"] for group in first] == [{"count": 1}, {"count": 1}]
    nothing = dict.fromkeys(("sum", "min", "max", "avg", "p50", "p95", "p99"))
    assert first[0]["measures"]["cost"] == {"count": 0, **nothing}
    assert (start, end) == (HOUR_MS, 2 * HOUR_MS)
    cost = {"count": 1, "sum": 5, "min": 5, "max": 5, "avg": 5, "p50": 4, "p95": 4, "p99": 4, "histogram": {"4": 1}}
    assert [group["key"] for group in groups] == [{"service": "search"}, {"service": None}]
    assert groups[0]["measures"]["cost"] == cost
    assert [group["measures"]["dear"] for group in groups] == [{"count": 1}, {"count": 0}]
    everything = Request("all", 0, HOUR_MS, "10m")
    assert buckets(SEARCH, DOCUMENTS, everything, {})[0][2][0]["measures"] == {"records": {"count": 2}}


def test_pages_of_keys() -> None:
    assert keys.page(["b", None, "B", "é", "b"], None, 2) == (["B", "b"], "b")
    assert keys.page(["b", "B", "é"], "b", 2) == (["é"], None)


def test_records_are_the_same_whenever_asked_and_keep_their_values_when_renamed() -> None:
    assert records(5, 20)[3] == record(8)
    assert values(search_of(2), "ref", renamed(record(8))) == values(SEARCH, "ref", record(8)) == ["R00008"]
