"""Spans to their canonical form. The names of its fields are those that the Prisma Streams server (0.1.11) stores."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.json import jsontext
from headrace.streams.profiles.cleaning import (
    MAX_DEPTH,
    MAX_PATH_CHARS,
    MAX_PATHS,
    REDACTED,
    Cleaner,
    Limits,
    Policy,
    is_secret,
    secrets,
)
from headrace.streams.profiles.otel_traces import OtelTraces
from tests.unit.profiles.json_values import VALUES, objects

NOW = 1_774_432_800_000  # 2026-03-25T10:00:00Z
TRACE, SPAN = "5b8efff798038103d269b633813fc60c", "086e83747d0e381e"
PLAIN = OtelTraces()
CANONICAL = jsonschema_rs.validator_for(PLAIN.registry()["schema"])


def normal(profile: OtelTraces = PLAIN, **fields: Any) -> dict[str, Any]:
    span, key = profile.normalize({"traceId": TRACE, "spanId": SPAN, **fields}, NOW)
    assert key == TRACE
    CANONICAL.validate(span)
    return span


def configured(**options: Any) -> OtelTraces:
    return OtelTraces.parse({"kind": "otel-traces", **options})


def test_a_whole_span() -> None:
    given_span = {
        "parentSpanId": "0000000000000001",
        "traceState": "a=b",
        "traceFlags": {"raw": 257},
        "name": " GET /checkout ",
        "kind": "SPAN_KIND_SERVER",
        "startUnixNano": "1772020800000000001",
        "endUnixNano": 1772020800123000001,
        "status": {"code": 2, "message": "boom"},
        "resource": {
            "schemaUrl": "u",
            "attributes": {
                "service.name": "checkout",
                "service.version": "1.2",
                "deployment.environment": "prod",
                "cloud.region": "eu",
            },
        },
        "instrumentationScope": {"name": "lib", "version": "3", "attributes": {"k": 1}},
        "attributes": {
            "request.id": "req_1",
            "http.request.method": "GET",
            "http.route": "/checkout",
            "http.status_code": "503",
            "db.system": "postgresql",
        },
        "events": [{"name": "retry", "timeUnixNano": "1772020800100000000", "attributes": {"n": 1}}],
        "links": [{"traceId": TRACE.upper(), "spanId": SPAN}, {"traceId": "none", "spanId": SPAN}],
        "dropped": {"attributes": 2, "links": 1},
    }
    before = copy.deepcopy(given_span)
    found = normal(**given_span)
    assert given_span == before
    assert found["timestamp"] == "2026-02-25T12:00:00.000Z"
    assert found["endTimestamp"] == "2026-02-25T12:00:00.123Z"
    assert (found["startUnixNano"], found["endUnixNano"]) == ("1772020800000000001", "1772020800123000001")
    assert found["duration"] == 123.0
    assert (found["name"], found["kind"], found["parentSpanId"]) == ("GET /checkout", "server", "0000000000000001")
    assert found["traceFlags"] == {"sampled": True, "raw": 257}
    assert found["status"] == {"code": "error", "message": "boom"}
    assert (found["service"], found["version"], found["environment"]) == ("checkout", "1.2", "prod")
    assert (found["region"], found["requestId"]) == ("eu", "req_1")
    assert found["http"] == {
        **dict.fromkeys(("path", "target", "url", "userAgent")),
        "method": "GET",
        "route": "/checkout",
        "statusCode": 503,
    }
    assert found["error"] == {"isError": True, "type": None, "message": "boom", "stacktrace": None}
    assert found["events"] == [
        {
            "timestamp": "2026-02-25T12:00:00.100Z",
            "timeUnixNano": "1772020800100000000",
            "name": "retry",
            "attributes": {"n": 1},
            "droppedAttributesCount": 0,
        }
    ]
    assert found["eventNames"] == ["retry"]
    assert [link["traceId"] for link in found["links"]] == [TRACE]
    assert found["dropped"] == {"attributes": 2, "events": 0, "links": 2}
    assert found["identity"]["spanKey"] == f"{TRACE}:{SPAN}"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"traceId": "5b8e"}, "traceId must be 32"),
        ({"traceId": None}, "traceId must be 32"),
        ({"traceId": "0" * 32}, "traceId must not be all zeroes"),
        ({"spanId": "g" * 16}, "spanId must be 16"),
        ({"parentSpanId": "xyz"}, "parentSpanId must be 16"),
        ({"startUnixNano": "2", "endUnixNano": "1"}, "endUnixNano is before startUnixNano"),
    ],
    ids=str,
)
def test_what_is_no_span_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        PLAIN.normalize({"traceId": TRACE, "spanId": SPAN, **fields}, NOW)


def test_a_span_without_times_has_the_servers_and_no_duration() -> None:
    assert normal()["timestamp"] == "2026-03-25T10:00:00.000Z"
    assert normal(timestamp=" 2026-01-01T00:00:00Z ")["timestamp"] == "2026-01-01T00:00:00Z"
    assert normal(startUnixNano="-1", endUnixNano=2**64)["duration"] is None
    assert normal(startUnixNano=True)["startUnixNano"] is None


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "Authorization",
        "http.request.header.authorization",
        "rpc.request.metadata.x-api-key",
        "user.api_key",
    ],
)
def test_keys_that_end_like_a_secret_are_redacted(key: str) -> None:
    found = normal(attributes={"deep": {"a": [{key: "s"}]}, key: "s"}, resource={"attributes": {key: "s"}})
    assert found["attributes"] == {"deep": {"a": [{key: REDACTED}]}, key: REDACTED}
    assert found["resource"]["attributes"] == {key: REDACTED}
    assert found["redaction"]["keys"] == sorted(
        [f"attributes.{key}", f"attributes.deep.a.0.{key}", f"resource.attributes.{key}"]
    )


def test_a_long_key_above_many_secrets_is_not_repeated_for_each() -> None:
    many = {"k" * 10_000: [{"token": 1}] * (MAX_PATHS + 5)}
    found = normal(attributes=many)
    assert found["attributes"] == {"k" * 10_000: [{"token": REDACTED}] * (MAX_PATHS + 5)}
    assert sum(map(len, found["redaction"]["keys"])) <= MAX_PATHS * MAX_PATH_CHARS
    assert normal(**{key: found[key] for key in ("attributes", "redaction")})["redaction"] == found["redaction"]
    short = normal(attributes={"k": [{"token": 1}] * (MAX_PATHS + 5)})
    assert len(short["redaction"]["keys"]) == MAX_PATHS


def test_attributes_above_the_limit_cost_nothing() -> None:
    seen: list[str] = []

    class Attributes(dict[str, Any]):
        def items(self) -> Any:
            for key, value in super().items():
                seen.append(key)
                yield key, value

    cleaner = Cleaner(Policy(secrets(), limits=Limits(max_attributes_per_span=3)))
    kept, left_out = cleaner.attributes(Attributes(zip(map(str, range(100)), range(100), strict=True)), "attributes")
    assert (kept, left_out, len(seen)) == ({"0": 0, "1": 1, "2": 2}, 97, 3)


@pytest.mark.parametrize(
    ("field", "keys"),
    [
        ("http.method", ["http.request.method", "http.method"]),
        ("http.route", ["http.route"]),
        ("http.path", ["url.path", "http.target"]),
        ("http.target", ["http.target"]),
        ("http.url", ["url.full", "http.url"]),
        ("http.userAgent", ["user_agent.original", "http.user_agent"]),
        ("db.system", ["db.system.name", "db.system"]),
        ("db.name", ["db.namespace", "db.name"]),
        ("db.operation", ["db.operation.name", "db.operation"]),
        ("db.statement", ["db.statement", "db.query.text"]),
        ("rpc.system", ["rpc.system"]),
        ("rpc.service", ["rpc.service"]),
        ("rpc.method", ["rpc.method"]),
        ("messaging.system", ["messaging.system"]),
        ("messaging.destination", ["messaging.destination.name", "messaging.destination"]),
        ("messaging.operation", ["messaging.operation.name", "messaging.operation"]),
        ("error.type", ["exception.type", "error.type"]),
        ("error.message", ["exception.message", "error.message"]),
        ("error.stacktrace", ["exception.stacktrace", "error.stacktrace"]),
    ],
    ids=str,
)
def test_a_field_is_the_first_of_its_attributes_that_is_there(field: str, keys: list[str]) -> None:
    group, member = field.split(".")
    profile = configured(dbStatementMode="raw", urlMode="raw")
    given_attributes = {key: f"value {number}" for number, key in enumerate(keys)}
    for number, key in enumerate(keys):
        assert normal(profile, attributes=given_attributes)[group][member] == f"value {number}"
        del given_attributes[key]
    assert normal(profile)[group][member] is None


@pytest.mark.parametrize(
    ("field", "keys"),
    [
        ("service", ["service.name"]),
        ("serviceNamespace", ["service.namespace"]),
        ("serviceInstanceId", ["service.instance.id"]),
        ("environment", ["deployment.environment.name", "deployment.environment"]),
        ("version", ["service.version"]),
        ("region", ["cloud.region"]),
    ],
    ids=str,
)
def test_a_resource_says_where_a_span_was_made(field: str, keys: list[str]) -> None:
    for key in keys:
        assert normal(resource={"attributes": {key: "x", "other": "y"}})[field] == "x"
        assert normal(attributes={key: "x"})[field] is None


def test_what_only_resembles_a_secret_stays() -> None:
    keys = secrets("tenant-id")
    assert is_secret("app.tenant_id", keys)
    assert not any(
        is_secret(key, keys) for key in ("tokens", "passwordless", "cookie.count", "tenant", "id", "", ".")
    )


def test_statements_and_queries_are_dropped_unless_they_are_wanted() -> None:
    attributes = {
        "db.query.text": "select 1",
        "url.full": "https://a/b?token=1#c",
        "http.target": "/b?x",
        "url.query": "token=1",
    }
    found = normal(attributes=attributes)
    assert found["db"]["statement"] is None
    assert (found["http"]["url"], found["http"]["target"], found["http"]["path"]) == ("https://a/b", "/b", "/b")
    assert found["attributes"] == {
        "db.query.text": REDACTED,
        "url.full": "https://a/b",
        "http.target": "/b",
        "url.query": REDACTED,
    }
    kept = normal(configured(dbStatementMode="raw", urlMode="raw"), attributes=attributes)
    assert kept["db"]["statement"] == "select 1"
    assert kept["http"]["url"] == "https://a/b?token=1#c"
    assert kept["attributes"] == attributes


def test_limits_cut_and_count() -> None:
    profile = configured(
        attributeLimits={
            "maxAttributeValueBytes": 3,
            "maxAttributesPerSpan": 2,
            "maxEventsPerSpan": 1,
            "maxLinksPerSpan": 1,
            "maxStatementBytes": 2,
        },
        dbStatementMode="raw",
    )
    link = {"traceId": TRACE, "spanId": SPAN}
    found = normal(
        profile,
        attributes={"a": "éé", "db.statement": "select", "c": 1},
        events=[{"name": "e"}, {"name": "f"}],
        links=[link, link],
    )
    assert found["attributes"] == {"a": "é", "db.statement": "sel"}
    assert found["db"]["statement"] == "se"
    assert found["dropped"] == {"attributes": 1, "events": 1, "links": 1}


def test_an_exception_says_what_went_wrong() -> None:
    exception = {"exception.type": "E", "exception.message": "m", "exception.stacktrace": "s"}
    found = normal(events=[{"name": "x"}, {"name": "Exception", "attributes": exception}])
    assert found["error"] == {"isError": True, "type": "E", "message": "m", "stacktrace": "s"}
    assert normal(attributes={"http.response.status_code": 499})["error"]["isError"] is False
    assert normal(attributes={"http.response.status_code": 500})["error"]["isError"] is True


def test_what_is_derived_survives_although_nothing_raw_is_stored() -> None:
    none = dict.fromkeys(("rawResourceAttributes", "rawSpanAttributes", "rawEvents", "rawLinks"), False)
    profile = configured(store=none, requestIdAttributes=["rid"])
    first = normal(
        profile,
        attributes={"rid": "r", "http.method": "GET", "password": "p"},
        resource={"attributes": {"service.name": "s"}},
        events=[{"name": "exception", "attributes": {"exception.type": "E"}}],
    )
    assert (first["attributes"], first["events"], first["resource"]["attributes"]) == ({}, [], {})
    assert profile.normalize(first, NOW + 5) == (first, TRACE)
    assert (first["requestId"], first["service"], first["eventNames"]) == ("r", "s", ["exception"])


def test_a_value_may_be_as_deep_as_it_can_be_read_again() -> None:
    def nested(depth: int) -> Any:
        return [nested(depth - 1)] if depth else 1

    stored = normal(events=[{"attributes": {"a": nested(MAX_DEPTH - 1)}}])
    assert jsontext.loads(jsontext.dumps(stored)) == stored
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        normal(attributes={"a": nested(MAX_DEPTH)})


@given(
    objects(
        "attributes", "events", "links", "resource", "status", "name", "kind", "startUnixNano", "traceFlags", "http"
    )
    | st.fixed_dictionaries(
        {"attributes": objects("http.url", "db.statement", "exception.type"), "events": st.lists(objects("name"))}
    ),
    VALUES,
)
def test_whatever_comes_normalising_twice_changes_nothing(record: dict[str, Any], name: Any) -> None:
    document = {**record, "traceId": TRACE, "spanId": SPAN, "name": name}
    before = jsontext.dumps(document)
    try:
        first, _ = PLAIN.normalize(document, NOW)
    except InvalidRequest:
        return
    assert jsontext.dumps(document) == before
    CANONICAL.validate(first)
    assert PLAIN.normalize(first, NOW + 1)[0] == first
