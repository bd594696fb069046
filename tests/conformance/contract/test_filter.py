"""`filter=`: a predicate on the fields of the search configuration, exact in the tail and in segments."""

from __future__ import annotations

import pytest

from tests.conformance.contract.client import Api, Stream, expect, given, refused
from tests.conformance.contract.shop import SCHEMA, SEARCH, field, found, shop

MIB = 1024 * 1024
CAP = 100 * MIB


@pytest.fixture(scope="session")
def orders(api: Api) -> Stream:
    """Orders in segments and in the tail."""
    return shop(api)


def ids(numbers: str) -> list[str]:
    """`013` as r0, r1, r3."""
    return [f"r{number}" for number in numbers]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("service:billing", "01"),
        ("service:BILLING", "01"),
        ("service:été", "7"),
        ("svc:billing", "01"),
        ('service:"search api"', "3"),
        ("code:A1", "0"),
        ("code:a1", "1"),
        ('code:"x:y"', "3"),
        ('code:"quo\\"te\\\\back"', "7"),
        ("tag:red", "01"),
        ("tag:blue", "0"),
        ("sku:s1", "5"),
        ("sku:s2", "5"),
        ("sku:s3", "5"),
        ("status:200", "0"),
        ("status:503", "3"),
        ("status:9007199254740993", "7"),
        ("status:9007199254740992", ""),
        ("cost:1.5", "0"),
        ('cost:"-3"', "1"),
        ("cost:12.5", "5"),
        ("paid:true", "024"),
        ("paid:false", "1"),
        ('at:"2026-01-01T00:00:01Z"', "1"),
        ('at:"2026-01-03T00:00:00.000Z"', "4"),
        ('when:"2026-01-02T00:00:00.000Z"', "3"),
        ("code:nothing", ""),
    ],
)
def test_an_exact_clause(orders: Stream, text: str, expected: str) -> None:
    assert found(orders, text) == ids(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("status:>=404", "1237"),
        ("status:>404", "237"),
        ("status:<=404", "01"),
        ("status:<404", "0"),
        ("status:=404", "1"),
        ("cost:>0.25", "05"),
        ("cost:>=0.25", "025"),
        ('cost:<"0"', "1"),
        ('cost:>="-3"', "0125"),
        ('at:>"2026-01-01T00:00:01.000Z"', "234"),
        ('at:>="2026-01-01T01:00:01.000+01:00"', "1234"),
        ('at:<"2026-01-01T00:00:01.000Z"', "0"),
        ('at:<="2026-01-01T00:00:02.500Z"', "012"),
    ],
)
def test_a_comparison(orders: Stream, text: str, expected: str) -> None:
    assert found(orders, text) == ids(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("has:service", "01237"),
        ("has:status", "01237"),
        ("has:cost", "0125"),
        ("has:paid", "0124"),
        ("has:at", "01234"),
        ("has:tag", "01"),
        ("has:sku", "5"),
        ("has:seen", "5"),
        ("has:note", "016"),
        ("has:code AND has:cost", "0125"),
    ],
)
def test_has_finds_what_has_a_value_and_null_is_none(orders: Stream, text: str, expected: str) -> None:
    assert found(orders, text) == ids(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("service:billing AND status:404", "1"),
        ("service:billing status:404", "1"),
        ("service:billing and status:404", "1"),
        ("code:A1 OR code:B2", "02"),
        ("code:A1 or code:B2 OR code:a1", "012"),
        ("code:A1 OR service:billing AND status:404", "01"),
        ("(code:A1 OR service:billing) AND status:404", "1"),
        ("service:billing NOT status:404", "0"),
        ("service:billing -status:404", "0"),
        ("service:billing AND NOT (status:404 OR paid:true)", ""),
        ("NOT has:service AND has:id", "456"),
        ("NOT NOT code:A1", "0"),
        ("-(-code:A1)", "0"),
        ("((code:A1))", "0"),
    ],
)
def test_clauses_are_joined(orders: Stream, text: str, expected: str) -> None:
    assert found(orders, text) == ids(expected)


def test_a_negation_is_true_of_what_has_no_value(orders: Stream) -> None:
    assert found(orders, "NOT service:billing") == ids("234567")
    assert found(orders, "-status:>=0") == ids("456")


def test_the_star_of_a_prefix_is_a_character(orders: Stream) -> None:
    assert found(orders, 'code:"star*"') == ids("5")
    assert found(orders, 'service:"bill*"') == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "unknown:1",
        "has:unknown",
        "billing",
        "service:",
        ":billing",
        "service:billing AND",
        "OR service:billing",
        "(service:billing",
        "service:billing)",
        'service:"billing',
        "NOT",
        "()",
        "status:many",
        "status:>=many",
        "paid:perhaps",
        'at:"yesterday"',
        "cost:one",
    ],
)
def test_a_malformed_filter_is_refused(orders: Stream, text: str) -> None:
    refused(orders.read(filter=text), 400)


@pytest.mark.parametrize(
    "text",
    [
        "note:card",
        'note:"card declined"',
        "seen:yes",
        "count:>0",
        "service:>a",
        "code:<=z",
        "contains:card",
        "note:>a",
    ],
)
def test_a_clause_that_the_field_does_not_allow_is_refused(orders: Stream, text: str) -> None:
    refused(orders.read(filter=text), 400)


def test_only_fields_of_the_configuration_can_be_named(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA)
    expect(stream.append([{"status": 1}]), 204)
    refused(stream.read(filter="status:1"), 400)


def test_a_filter_needs_a_json_stream(text: Stream) -> None:
    refused(text.read(filter="status:1"), 400)


def test_a_filter_cannot_be_followed_by_server_sent_events(orders: Stream) -> None:
    refused(orders.read(filter="status:200", offset="-1", live="sse"), 400)


@pytest.mark.sensitive("the tail is in memory, in another process or only in the store")
def test_a_filter_applies_to_what_was_just_appended(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA, search=SEARCH)
    for number in range(5):
        expect(stream.append([{"id": f"r{number}", "status": number % 2}]), 204)
        assert found(stream, "status:0") == [f"r{n}" for n in range(0, number + 1, 2)]


@pytest.mark.sensitive("records are in the tail or in segments")
def test_a_filtered_read_goes_on_past_what_does_not_match(orders: Stream) -> None:
    answer = expect(orders.read(filter="code:nothing", offset="-1"), 200)
    assert answer.json() == []
    assert answer.headers["stream-next-offset"] == orders.end
    after = expect(orders.read(filter="code:A1", offset="-1"), 200).headers["stream-next-offset"]
    assert found(orders, "code:A1") == ["r0"]
    assert orders.records(filter="code:A1", offset=after) == []


def test_a_filtered_read_begins_after_its_offset(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA, search=SEARCH)
    after = [
        expect(stream.append([{"id": f"r{n}", "status": n % 2}]), 204).headers["stream-next-offset"] for n in range(6)
    ]
    for number, offset in enumerate(after):
        ids_found = [record["id"] for record in stream.records(filter="status:1", offset=offset)]
        assert ids_found == [f"r{n}" for n in range(number + 1, 6) if n % 2]


def test_filter_and_key_apply_together(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA, search=SEARCH)
    for number in range(8):
        expect(stream.append([{"id": f"r{number}", "status": number}], {"Stream-Key": "ab"[number % 2]}), 204)
    assert [record["id"] for record in stream.records(filter="status:>=4", key="a")] == ["r4", "r6"]


@pytest.mark.sensitive("records are in the tail or in segments")
def test_filtered_pages_are_whole(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA, search=SEARCH)
    expect(stream.append([{"id": f"r{n}", "status": n % 3} for n in range(4000)]), 204)
    assert [record["id"] for record in stream.records(filter="status:0")] == [f"r{n}" for n in range(0, 4000, 3)]


@pytest.mark.sensitive("the wait must see what another process appended")
def test_a_long_poll_waits_for_what_matches(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA, search=SEARCH)
    expect(stream.append([{"id": "r0", "status": 1}]), 204)
    answer = expect(stream.read(filter="status:1", offset="-1", live="true", timeout="1s"), 200)
    assert answer.json() == [{"id": "r0", "status": 1}]
    nothing = stream.read(filter="status:2", offset="-1", live="true", timeout="100ms")
    expect(nothing, 204)


@pytest.mark.sensitive("records are in the tail or in segments")
def test_a_filter_finds_old_records_under_their_new_name(api: Api) -> None:
    v1 = {
        "type": "object",
        "properties": {"old": {"type": "string"}},
        "required": ["old"],
        "additionalProperties": False,
    }
    v2 = {
        "type": "object",
        "properties": {"new": {"type": "string"}},
        "required": ["new"],
        "additionalProperties": False,
    }
    name = field("keyword", "/old", "exact", "exists")
    at = field("date", "/at", "column")
    stream = api.with_schema(schema=v1, search={"primaryTimestampField": "at", "fields": {"at": at, "name": name}})
    expect(stream.append([{"old": f"n{n % 3}"} for n in range(30)]), 204)
    stream.settle()
    name = {**name, "bindings": [*name["bindings"], {"version": 2, "jsonPointer": "/new"}]}
    lens = {
        "apiVersion": "durable.lens/v1",
        "schema": stream.name,
        "from": 1,
        "to": 2,
        "ops": [{"op": "rename", "from": "/old", "to": "/new"}],
    }
    search = {"primaryTimestampField": "at", "fields": {"at": at, "name": name}}
    given(stream.define(schema=v2, lens=lens, search=search))
    expect(stream.append([{"new": "n1"}]), 204)
    assert stream.records(filter="name:n1") == [{"new": "n1"}] * 11
    assert len(stream.records(filter="has:name")) == 31


@pytest.mark.sensitive("records are in the tail or in segments")
def test_a_filtered_read_stops_at_the_scan_cap_and_says_so(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA, search=SEARCH)
    big = {"note": "x" * (MIB - 64)}
    for _ in range(12):
        expect(stream.append([big] * 9), 204)
    expect(stream.append([{"id": "r0"}]), 204)
    answer = expect(stream.read(filter="id:r0", offset="-1"), 200)
    assert answer.json() == []
    assert answer.headers["stream-filter-scan-limit-reached"] == "true"
    assert answer.headers["stream-filter-scan-limit-bytes"] == str(CAP)
    assert CAP <= int(answer.headers["stream-filter-scanned-bytes"]) < CAP + 10 * MIB
    reached = answer.headers["stream-next-offset"]
    assert "0" * 26 < reached < stream.end
    last = expect(stream.read(filter="id:r0", offset=reached), 200)
    assert last.json() == [{"id": "r0"}]
    assert "stream-filter-scan-limit-reached" not in last.headers


def test_a_read_below_the_cap_does_not_speak_of_it(orders: Stream) -> None:
    answer = expect(orders.read(filter="code:A1"), 200)
    assert not [name for name in answer.headers if name.startswith("stream-filter-")]
