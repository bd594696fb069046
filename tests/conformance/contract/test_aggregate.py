"""`_aggregate`: what it takes and what it answers. What is added up is in `test_aggregate_oracle.py`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.contract import test_search
from tests.conformance.contract.client import JSON, Api, Stream, expect, refused
from tests.conformance.contract.shop import SCHEMA, SEARCH
from tests.conformance.contract.test_search_config import ROLLUPS

DAY_MS = 1_767_225_600_000  # 2026-01-01
ANSWER = {"stream", "rollup", "from", "to", "interval", "coverage", "buckets"}
COVERAGE = (test_search.COVERAGE - {*test_search.COUNTERS}) | {
    "used_rollups",
    "indexed_segments",
    "scanned_segments",
    "scanned_tail_docs",
}
ASKED: dict[str, Any] = {"rollup": "requests", "start": DAY_MS, "to": DAY_MS + 60_000, "interval": "10s"}
MORE = {"requests": {**ROLLUPS["requests"], "dimensions": ["service", "paid"]}}


def event(seconds: float, **members: Any) -> dict[str, Any]:
    return {"at": DAY_MS + round(seconds * 1000), "service": "Billing", "cost": 1, **members}


@pytest.fixture(scope="session")
def events(api: Api) -> Stream:
    """Events of one minute, in segments and in the tail."""
    stream = api.with_schema(schema=SCHEMA, search={**SEARCH, "rollups": MORE})
    expect(
        stream.append(
            [
                event(0, cost=3, paid=True),
                event(1, cost=5.5, paid=False),
                event(9.999, service="search", cost=900),
                event(10, service=None),
                event(31, service="billing", cost=-2),
            ]
        ),
        204,
    )
    expect(stream.append([{"id": f"filler{n}"} for n in range(20)]), 204)
    stream.settle()
    expect(stream.append([event(32, service="été"), event(59.999), event(60), event(61)]), 204)
    return stream


def groups(stream: Stream, **members: Any) -> dict[str, list[Any]]:
    """Groups by the second in which their bucket begins."""
    buckets = expect(stream.aggregate(**{**ASKED, **members}), 200).json()["buckets"]
    return {bucket["start"][17:19]: bucket["groups"] for bucket in buckets}


def counts(stream: Stream, **members: Any) -> dict[str, list[int]]:
    """Returns how many records each group has, by the start of its bucket."""
    found = groups(stream, measures=["requests"], **members)
    return {start: [group["measures"]["requests"]["count"] for group in of] for start, of in found.items()}


def test_the_answer_has_every_part(events: Stream) -> None:
    found = expect(events.aggregate(**ASKED), 200).json()
    assert set(found) >= ANSWER
    assert (found["stream"], found["rollup"], found["interval"]) == (events.name, "requests", "10s")
    assert (found["from"], found["to"]) == ("2026-01-01T00:00:00.000Z", "2026-01-01T00:01:00.000Z")
    for bucket in found["buckets"]:
        assert set(bucket) == {"start", "end", "groups"}
        for group in bucket["groups"]:
            assert set(group) == {"key", "measures"}


def test_coverage_has_every_part(events: Stream) -> None:
    coverage = expect(events.aggregate(**ASKED), 200).json()["coverage"]
    assert set(coverage) >= COVERAGE
    assert coverage["complete"] is True
    assert coverage["stream_head_offset"] == coverage["visible_through_offset"] == events.end
    assert isinstance(coverage["used_rollups"], bool)
    assert isinstance(coverage["index_families_used"], list)
    assert [coverage[name] for name in coverage if name.startswith("possible_missing_")] == [0, 0, 0, 0]


def test_buckets_are_aligned_to_the_epoch_and_empty_ones_are_left_out(events: Stream) -> None:
    found = expect(events.aggregate(**{**ASKED, "start": DAY_MS + 500, "to": DAY_MS + 59_000}), 200).json()["buckets"]
    assert [(bucket["start"], bucket["end"]) for bucket in found] == [
        ("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:10.000Z"),
        ("2026-01-01T00:00:10.000Z", "2026-01-01T00:00:20.000Z"),
        ("2026-01-01T00:00:30.000Z", "2026-01-01T00:00:40.000Z"),
    ]


def test_a_range_begins_at_from_and_ends_before_to(events: Stream) -> None:
    assert counts(events) == {"00": [3], "10": [1], "30": [2], "50": [1]}
    assert counts(events, start=DAY_MS + 1, to=DAY_MS + 10_000) == {"00": [2]}
    assert counts(events, start=DAY_MS, to=DAY_MS + 9_999) == {"00": [2]}
    assert counts(events, start=DAY_MS + 60_000, to=DAY_MS + 61_001) == {"00": [2]}


@pytest.mark.parametrize(
    ("start", "to"),
    [
        (DAY_MS, DAY_MS + 60_000),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:01:00.000Z"),
        ("2026-01-01T01:00:00+01:00", "2026-01-01T01:01:00+01:00"),
        (str(DAY_MS * 1_000_000), str((DAY_MS + 60_000) * 1_000_000)),
    ],
    ids=["milliseconds", "ISO text", "zone", "nanoseconds in text"],
)
def test_times_are_given_in_any_form(events: Stream, start: object, to: object) -> None:
    assert counts(events, start=start, to=to) == {"00": [3], "10": [1], "30": [2], "50": [1]}


def test_a_summary_has_count_sum_extremes_mean_percentiles_and_histogram(events: Stream) -> None:
    (group,) = groups(events)["00"]
    assert group["key"] == {}
    assert list(group["measures"]) == ["cost", "requests"], "measures are sorted by name"
    summed = {"count": 3, "sum": 908.5, "min": 3, "max": 900, "avg": 908.5 / 3, "p50": 4, "p95": 512, "p99": 512}
    assert group["measures"]["cost"] == {**summed, "histogram": {"2": 1, "4": 1, "512": 1}}
    assert group["measures"]["requests"] == {"count": 3}


def test_a_percentile_without_a_histogram_is_null(api: Api) -> None:
    cost = {"kind": "summary", "field": "cost"}
    rollups = {"requests": {**ROLLUPS["requests"], "measures": {"cost": cost}}}
    stream = api.with_schema(schema=SCHEMA, search={**SEARCH, "rollups": rollups})
    expect(stream.append([event(1)]), 204)
    found = groups(stream)["00"][0]["measures"]["cost"]
    assert found == {"count": 1, "sum": 1, "min": 1, "max": 1, "avg": 1, "p50": None, "p95": None, "p99": None}


def test_groups_have_canonical_keys_or_null_and_are_sorted(events: Stream) -> None:
    found = groups(events, group_by=["service"])
    keys = {start: [group["key"] for group in of] for start, of in found.items()}
    assert keys == {
        "00": [{"service": "billing"}, {"service": "search"}],
        "10": [{"service": None}],
        "30": [{"service": "billing"}, {"service": "été"}],
        "50": [{"service": "billing"}],
    }
    two = groups(events, group_by=["service", "paid"])["00"]
    billing = [{"paid": "false", "service": "billing"}, {"paid": "true", "service": "billing"}]
    assert [group["key"] for group in two] == [*billing, {"paid": None, "service": "search"}]


def test_measures_may_be_chosen(events: Stream) -> None:
    assert groups(events, measures=["requests"])["00"] == [{"key": {}, "measures": {"requests": {"count": 3}}}]
    assert list(groups(events, measures=["cost", "cost"])["00"][0]["measures"]) == ["cost"]


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        ("service:BILLING", {"00": [2], "30": [1], "50": [1]}),
        ("svc:billing AND paid:true", {"00": [1]}),
        ("cost:>1", {"00": [3]}),
        ("NOT has:service", {"10": [1]}),
        ("service:nothing", {}),
    ],
)
def test_a_query_says_what_counts(events: Stream, q: str, expected: dict[str, list[int]]) -> None:
    assert counts(events, q=q) == expected


@pytest.mark.parametrize(
    "broken",
    [
        {"at": None},
        {"at": "not a time"},
        {"at": [DAY_MS, DAY_MS + 1]},
        {"service": ["a", "b"]},
    ],
    ids=str,
)
def test_a_record_without_the_rollups_fields_counts_for_nothing(api: Api, broken: dict[str, Any]) -> None:
    stream = api.with_schema(schema=SCHEMA, search={**SEARCH, "rollups": MORE})
    expect(stream.append([event(1), {**event(2), **broken}]), 204)
    assert counts(stream) == {"00": [1]}


@pytest.mark.parametrize("cost", [None, "many", [1, 2]], ids=str)
def test_a_count_counts_every_record_of_its_group(api: Api, cost: Any) -> None:
    stream = api.with_schema(schema=SCHEMA, search={**SEARCH, "rollups": MORE})
    expect(stream.append([event(1), {**event(2), "cost": cost}]), 204)
    (group,) = groups(stream)["00"]
    assert group["measures"]["requests"] == {"count": 2}
    assert group["measures"]["cost"]["count"] == 1


@pytest.mark.sensitive("the tail is in memory, in another process or only in the store")
def test_what_was_appended_counts_at_once(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA, search={**SEARCH, "rollups": MORE})
    assert counts(stream) == {}
    for number in range(1, 4):
        expect(stream.append([event(number)]), 204)
        assert counts(stream) == {"00": [number]}


WRONG: dict[str, dict[str, Any]] = {
    "no rollup": {"rollup": None},
    "unknown rollup": {"rollup": "other"},
    "from of another type": {"start": {}},
    "from that is no time": {"start": "soon"},
    "to that is no time": {"to": True},
    "to before from": {"to": DAY_MS - 1},
    "to at from": {"to": DAY_MS},
    "interval that is not configured": {"interval": "5m"},
    "interval of another type": {"interval": 10},
    "malformed query": {"q": "("},
    "query of an unknown field": {"q": "other:1"},
    "query of another type": {"q": 1},
    "group_by as a text": {"group_by": "service"},
    "group_by that is no dimension": {"group_by": ["status"]},
    "measures as a text": {"measures": "cost"},
    "no measures": {"measures": []},
    "unknown measure": {"measures": ["other"]},
}


@pytest.mark.parametrize("case", WRONG)
def test_a_malformed_request_is_refused(events: Stream, case: str) -> None:
    refused(events.aggregate(**{**ASKED, **WRONG[case]}), 400)


@pytest.mark.parametrize("name", ["rollup", "start", "to", "interval"])
def test_what_is_required_must_be_there(events: Stream, name: str) -> None:
    refused(events.aggregate(**{other: value for other, value in ASKED.items() if other != name}), 400)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null"])
def test_a_body_that_is_no_object_is_refused(events: Stream, body: bytes) -> None:
    refused(events.at("POST", "/_aggregate", JSON, body), 400)


def test_it_can_only_be_posted(events: Stream) -> None:
    for method in ("GET", "PUT", "DELETE"):
        refused(events.at(method, "/_aggregate", JSON), 405)


def test_a_stream_without_rollups_refuses(api: Api, stream: Stream) -> None:
    refused(stream.aggregate(**ASKED), 400)
    refused(api.with_schema(schema=SCHEMA, search=SEARCH).aggregate(**ASKED), 400)
    refused(api.unused().aggregate(**ASKED), 404)


def test_explain_adds_what_was_done(events: Stream) -> None:
    assert "explain" not in expect(events.aggregate(**ASKED), 200).json()
    assert expect(events.aggregate(**ASKED, explain=True), 200).json()["explain"]


def test_a_large_answer_is_whole(roomy: Api) -> None:
    rollups = {"requests": {**ROLLUPS["requests"], "dimensions": ["id"]}}
    stream = roomy.with_schema(schema=SCHEMA, search={**SEARCH, "rollups": rollups})
    names = [f"{n:04d}{'x' * 6000}" for n in range(1100)]
    for first in (0, 550):
        expect(stream.append([event(1, id=name) for name in names[first : first + 550]]), 204)
    answer = stream.aggregate(**ASKED, group_by=["id"])
    if answer.status_code != 413:  # of a door that takes no such answer
        (bucket,) = expect(answer, 200).json()["buckets"]
        assert [group["key"] for group in bucket["groups"]] == [{"id": name} for name in names]
    assert counts(stream) == {"00": [1100]}
