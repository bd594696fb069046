"""`_search`: what it takes, what it answers, and in which order. What a query means is in `test_search_oracle.py`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.contract.client import JSON, ZERO, Api, Stream, expect, refused
from tests.conformance.contract.shop import SCHEMA, SEARCH, field, shop

ANSWER = {
    "stream",
    "snapshot_end_offset",
    "took_ms",
    "timed_out",
    "timeout_ms",
    "coverage",
    "total",
    "hits",
    "next_search_after",
}
COUNTERS = (
    "indexed_segments",
    "indexed_segment_time_ms",
    "fts_section_get_ms",
    "fts_decode_ms",
    "fts_clause_estimate_ms",
    "scanned_segments",
    "scanned_segment_time_ms",
    "scanned_tail_docs",
    "scanned_tail_time_ms",
    "exact_candidate_time_ms",
)
COVERAGE = {
    "mode",
    "complete",
    "stream_head_offset",
    "visible_through_offset",
    "visible_through_primary_timestamp_max",
    "oldest_omitted_append_at",
    "possible_missing_events_upper_bound",
    "possible_missing_uploaded_segments",
    "possible_missing_sealed_rows",
    "possible_missing_wal_rows",
    "index_families_used",
    *COUNTERS,
}


@pytest.fixture(scope="session")
def orders(api: Api) -> Stream:
    """Orders in segments and in the tail."""
    return shop(api)


def ids(stream: Stream, q: str, **more: Any) -> list[str]:
    """Ids of the orders that a search finds, as they come."""
    hits = expect(stream.search(q=q, **more), 200).json()["hits"]
    return [hit["source"]["id"] for hit in hits if not hit["source"]["id"].startswith("filler")]


def r(numbers: str) -> list[str]:
    """`013` as r0, r1, r3."""
    return [f"r{number}" for number in numbers]


def test_the_answer_has_every_part(orders: Stream) -> None:
    found = expect(orders.search(q="service:billing"), 200).json()
    assert set(found) >= ANSWER
    assert found["stream"] == orders.name
    assert found["snapshot_end_offset"] == orders.end
    assert found["timed_out"] is False
    assert isinstance(found["took_ms"], int)
    assert found["timeout_ms"] is None or 0 < found["timeout_ms"] <= 3000
    assert set(found["total"]) == {"value", "relation"}
    assert found["total"]["relation"] in ("eq", "gte")
    assert found["next_search_after"] is None
    for hit in found["hits"]:
        assert set(hit) == {"offset", "score", "sort", "fields", "source"}


def test_coverage_has_every_part(orders: Stream) -> None:
    coverage = expect(orders.search(q="service:billing"), 200).json()["coverage"]
    assert set(coverage) >= COVERAGE
    assert coverage["mode"] in ("complete", "published")
    assert coverage["complete"] is True
    assert coverage["stream_head_offset"] == coverage["visible_through_offset"] == orders.end
    assert [coverage[name] for name in coverage if name.startswith("possible_missing_")] == [0, 0, 0, 0]
    assert isinstance(coverage["index_families_used"], list)
    for name in COUNTERS:
        assert isinstance(coverage[name], int), name


def test_every_header_says_what_the_body_says(orders: Stream) -> None:
    answer = expect(orders.search(q="service:billing AND note:card", timeout_ms=2500), 200)
    found, headers = answer.json(), answer.headers
    coverage = found["coverage"]
    assert headers["search-timed-out"] == "false"
    assert headers["search-timeout-ms"] == "2500" == str(found["timeout_ms"])
    assert headers["search-took-ms"] == str(found["took_ms"])
    assert headers["search-total-relation"] == found["total"]["relation"]
    assert headers["search-coverage-complete"] == str(coverage["complete"]).lower()
    assert headers["search-index-families-used"] == ",".join(coverage["index_families_used"])
    for name in COUNTERS:
        assert headers[f"search-{name.replace('_', '-')}"] == str(coverage[name]), name


def test_a_hit_shows_the_record_and_its_fields(orders: Stream) -> None:
    (hit,) = expect(orders.search(q="id:r0"), 200).json()["hits"]
    assert hit["source"] == orders.records(filter="id:r0")[0]
    assert hit["score"] == 0
    assert hit["sort"] == [hit["offset"]]
    shown = {"service": "Billing", "code": "A1", "status": 200, "cost": 1.5, "paid": True, "tag": ["red", "blue"]}
    assert hit["fields"] == {
        "at": "2026-01-01T00:00:00.000Z",
        "id": "r0",
        "count": 1,
        "note": "card accepted",
        **shown,
    }


def test_the_offset_of_a_hit_is_that_of_its_record(orders: Stream) -> None:
    hits = expect(orders.search(q="has:id", size=500, sort=["offset:asc"]), 200).json()["hits"]
    following = expect(orders.read(offset=hits[1]["offset"]), 200).json()
    assert following[0] == hits[2]["source"]
    assert orders.read(offset=hits[-1]["offset"]).json() == []
    assert ZERO < hits[0]["offset"] < hits[1]["offset"]


def test_it_may_be_asked_with_get(orders: Stream) -> None:
    by_url = expect(
        orders.search_by_url(q="has:status", sort="status:asc,offset:asc", size="3", timeout_ms="2000"), 200
    ).json()
    by_body = expect(orders.search(q="has:status", sort=["status:asc", "offset:asc"], size=3), 200).json()
    assert by_url["hits"] == by_body["hits"]
    assert by_url["timeout_ms"] == 2000
    after = by_url["next_search_after"]
    assert after == by_body["next_search_after"] == by_url["hits"][-1]["sort"]
    path = f"{orders.path}/_search?q=has:status&sort=status:asc&sort=offset:asc&size=3&search_after="
    following = expect(orders.api.request("GET", path + str(after).replace("'", '"').replace(" ", "")), 200).json()
    assert following["hits"] == orders.search(
        q="has:status", sort=["status:asc", "offset:asc"], search_after=after, size=3
    ).json()["hits"]  # fmt: skip


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        ("service:BILLING", "10"),
        ("code:A1", "0"),
        ('service:"search api"', "3"),
        ("status:503", "3"),
        ("paid:true", "420"),
        ('at:"2026-01-02T00:00:00.000Z"', "3"),
    ],
)
def test_fielded_exact_queries(orders: Stream, q: str, expected: str) -> None:
    assert ids(orders, q) == r(expected)


@pytest.mark.parametrize(
    ("q", "expected"),
    [("service:bill*", "10"), ("service:BILL*", "10"), ("service:search*", "32"), ('service:"search a*"', "3")],
)
def test_keyword_prefix_queries(orders: Stream, q: str, expected: str) -> None:
    assert ids(orders, q) == r(expected)


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        ("status:>=404", "7321"),
        ("status:<=404", "10"),
        ('cost:>="-3"', "5210"),
        ('at:>"2026-01-01T00:00:01Z"', "432"),
    ],
)
def test_typed_range_queries(orders: Stream, q: str, expected: str) -> None:
    assert ids(orders, q) == r(expected)


@pytest.mark.parametrize(("q", "expected"), [("has:service", "73210"), ("has:note", "610"), ("has:seen", "5")])
def test_has_queries(orders: Stream, q: str, expected: str) -> None:
    assert ids(orders, q) == r(expected)


def test_bare_words_look_in_the_default_fields(orders: Stream) -> None:
    assert ids(orders, "card", sort=["offset:asc"]) == r("01")
    assert ids(orders, "card declined") == r("1")
    assert ids(orders, "DEEP") == r("6")
    assert ids(orders, "billing") == []
    assert ids(orders, '"card accepted"') == r("0")


@pytest.mark.parametrize(
    ("q", "expected"), [("note:card", "01"), ("note:Card", "01"), ("note:decl*", "1"), ("note:card-accepted", "0")]
)
def test_fielded_text_queries(orders: Stream, q: str, expected: str) -> None:
    assert ids(orders, q, sort=["offset:asc"]) == r(expected)


def test_phrases_need_positions(orders: Stream, api: Api) -> None:
    assert ids(orders, 'note:"card declined"') == r("1")
    assert ids(orders, 'note:"declined card"') == []
    text = field("text", "/note", "exists", analyzer="unicode_word_v1")
    without = api.with_schema(schema=SCHEMA, search={**SEARCH, "fields": {**SEARCH["fields"], "note": text}})
    expect(without.search(q="note:card"), 200)
    refused(without.search(q='note:"card declined"'), 400)


def test_aliases_stand_for_their_fields(orders: Stream) -> None:
    assert ids(orders, "svc:billing") == ids(orders, "service:billing") == r("10")
    assert ids(orders, "has:when", sort=["when:asc"]) == ids(orders, "has:at", sort=["at:asc"]) == r("01234")


@pytest.mark.parametrize(
    "q",
    ["note:contains:card", "contains:card", "unknown:1", "", " ", "service:>a", "count:>0", "id:r*", "seen:yes", "("],
)
def test_a_query_that_the_fields_do_not_allow_is_refused(orders: Stream, q: str) -> None:
    refused(orders.search(q=q), 400)


WRONG: dict[str, Any] = {
    "no query": {},
    "query of another type": {"q": 5},
    "size of 0": {"size": 0},
    "size beyond 500": {"size": 501},
    "negative size": {"size": -1},
    "fractional size": {"size": 1.5},
    "size of another type": {"size": []},
    "sort as an object": {"sort": {}},
    "sort of a number": {"sort": [1]},
    "sort by an unknown field": {"sort": ["unknown:asc"]},
    "sort by a field that is not sortable": {"sort": ["service:asc"]},
    "sort in no direction": {"sort": ["status:up"]},
    "empty sort": {"sort": [""]},
    "search_after as a text": {"search_after": "x"},
    "search_after of another length": {"search_after": []},
    "search_after of a wrong offset": {"search_after": ["x"]},
    "negative timeout": {"timeout_ms": -1},
    "timeout as a text": {"timeout_ms": "soon"},
    "track_total_hits": {"track_total_hits": True},
}


@pytest.mark.parametrize("case", WRONG)
def test_a_malformed_request_is_refused(orders: Stream, case: str) -> None:
    refused(orders.search({} if case == "no query" else {"q": "has:id", **WRONG[case]}), 400)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"has:id"', b"null"])
def test_a_body_that_is_no_object_is_refused(orders: Stream, body: bytes) -> None:
    refused(orders.at("POST", "/_search", JSON, body), 400)


@pytest.mark.parametrize("name", ["size", "sort", "search_after", "timeout_ms", "track_total_hits"])
def test_a_malformed_parameter_is_refused(orders: Stream, name: str) -> None:
    refused(orders.search_by_url(q="has:id", **{name: "wrong value"}), 400)


def test_unknown_members_are_ignored(orders: Stream) -> None:
    assert ids(orders, "service:billing", other=1) == r("10")


@pytest.mark.parametrize("name", ["highlight", "snippets", "streams", "track_total_hits"])
def test_what_is_not_supported_is_refused(orders: Stream, name: str) -> None:
    assert "not supported" in refused(orders.search({"q": "has:id", name: True}), 400)


def test_a_stream_without_search_refuses(stream: Stream, text: Stream, api: Api) -> None:
    refused(stream.search(q="a:b"), 400)
    refused(text.search(q="a:b"), 400)
    refused(api.unused().search(q="a:b"), 404)


def test_a_page_has_50_hits_unless_asked_otherwise(roomy: Api) -> None:
    stream = roomy.with_schema(schema=SCHEMA, search=SEARCH)
    expect(stream.append([{"id": f"r{n}", "status": n} for n in range(600)]), 204)
    found = expect(stream.search(q="has:id"), 200).json()
    assert [hit["fields"]["status"] for hit in found["hits"]] == list(range(599, 549, -1))
    most = expect(stream.search(q="has:id", size=500), 200).json()
    assert len(most["hits"]) == 500
    rest = expect(stream.search(q="has:id", size=500, search_after=most["next_search_after"]), 200).json()
    assert [hit["fields"]["status"] for hit in rest["hits"]] == list(range(99, -1, -1))
    assert rest["next_search_after"] is None


def test_the_newest_come_first_without_text(orders: Stream) -> None:
    assert ids(orders, "has:service") == r("73210")


def test_the_best_come_first_with_text_and_then_the_latest(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA, search=SEARCH)
    day = "2026-01-0{}T00:00:00Z".format
    notes = ["word", "word word", "word", "other"]
    expect(stream.append([{"id": f"r{n}", "note": note, "at": day(9 - n)} for n, note in enumerate(notes)]), 204)
    expect(stream.append([{"id": "r4", "note": "word"}, {"id": "r5", "note": "word", "at": day(9)}]), 204)
    found = expect(stream.search(q="word"), 200).json()["hits"]
    assert [hit["source"]["id"] for hit in found] == r("14502"), "no time sorts first when descending"
    assert [hit["score"] for hit in found] == [4, 2, 2, 2, 2], "a match counts as much as its field's boost"
    assert found[0]["sort"] == [4, 1_767_830_400_000, found[0]["offset"]]
    assert [hit["score"] for hit in expect(stream.search(q="note:word"), 200).json()["hits"]] == [2, 1, 1, 1, 1]


def test_a_phrase_scores_more_than_its_words(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA, search=SEARCH)
    expect(stream.append([{"id": "r0", "note": "one two"}, {"id": "r1", "note": "two one"}]), 204)
    scores = {
        q: [hit["score"] for hit in expect(stream.search(q=q), 200).json()["hits"]]
        for q in ('note:"one two"', "note:one note:two", '"one two"')
    }
    assert scores == {'note:"one two"': [6], "note:one note:two": [2, 2], '"one two"': [12]}


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        (["status:asc"], "01237654"),
        (["status:desc"], "65473210"),
        (["status"], "65473210"),
        (["offset:asc"], "01234567"),
        (["code:asc", "offset:asc"], "02175346"),
        (["at:desc", "offset:asc"], "56743210"),
    ],
)
def test_an_order_may_be_asked_for_and_nothing_is_the_greatest(
    orders: Stream, sort: list[str], expected: str
) -> None:
    assert ids(orders, " OR ".join(f"id:r{n}" for n in range(8)), sort=sort) == r(expected)


@pytest.mark.sensitive("another process may answer the next page")
def test_sort_values_lead_to_the_next_page(orders: Stream) -> None:
    found, after = [], None
    for _ in range(20):
        more = {} if after is None else {"search_after": after}
        answer = expect(orders.search(q="has:id", sort=["status:asc"], size=5, **more), 200).json()
        found += [hit["source"]["id"] for hit in answer["hits"]]
        after = answer["next_search_after"]
        assert after == (answer["hits"][-1]["sort"] if len(answer["hits"]) == 5 else None)
        if after is None:
            break
    whole = expect(orders.search(q="has:id", sort=["status:asc"], size=500), 200).json()["hits"]
    assert found == [hit["source"]["id"] for hit in whole]
    assert len(found) == len(set(found)) == len(orders.records())


@pytest.mark.sensitive("the tail is in memory, in another process or only in the store")
def test_what_was_appended_is_found_at_once(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA, search=SEARCH)
    for number in range(5):
        expect(stream.append([{"id": f"r{number}", "status": 1}]), 204)
        answer = expect(stream.search(q="status:1", size=500), 200).json()
        assert [hit["source"]["id"] for hit in answer["hits"]] == [f"r{n}" for n in range(number, -1, -1)]
        assert answer["coverage"]["complete"] is True
        assert answer["total"] == {"value": number + 1, "relation": "eq"}
        assert answer["snapshot_end_offset"] == stream.end


def test_the_total_is_a_lower_bound_where_a_page_ends_before_the_hits(orders: Stream) -> None:
    found = expect(orders.search(q="has:id", size=2), 200).json()
    total, number = found["total"], len(orders.records())
    assert total["value"] == number if total["relation"] == "eq" else 2 <= total["value"] <= number


@pytest.mark.sensitive("the tail is in memory, in another process or only in the store")
def test_coverage_says_how_far_it_sees_in_time(orders: Stream) -> None:
    coverage = expect(orders.search(q="has:id"), 200).json()["coverage"]
    assert coverage["visible_through_primary_timestamp_max"] == "2026-01-03T00:00:00.000Z"
    assert coverage["oldest_omitted_append_at"] is None


def test_an_empty_stream_has_no_hits(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA, search=SEARCH)
    found = expect(stream.search(q="has:id"), 200).json()
    assert found["hits"] == []
    assert found["total"] == {"value": 0, "relation": "eq"}
    assert found["next_search_after"] is None
    assert found["snapshot_end_offset"] == ZERO


def test_it_is_not_kept_by_caches_and_can_only_be_asked(orders: Stream) -> None:
    assert expect(orders.search(q="id:r0"), 200).headers["cache-control"] == "no-store"
    for method in ("PUT", "DELETE"):
        refused(orders.at(method, "/_search", JSON, b"{}"), 405)


def test_explain_adds_what_was_done(orders: Stream) -> None:
    assert "explain" not in expect(orders.search(q="service:billing"), 200).json()
    explained = expect(orders.search(q="service:billing", explain=True), 200).json()
    assert isinstance(explained["explain"], dict)
    assert explained["explain"]
    assert [hit["source"]["id"] for hit in explained["hits"]] == r("10")
    assert expect(orders.search_by_url(q="service:billing", explain="true"), 200).json()["explain"]
