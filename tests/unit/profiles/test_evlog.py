"""Events to the canonical envelope. The expected envelopes are what the Prisma Streams server (0.1.11) stored."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given

from headrace.errors import InvalidRequest
from headrace.json import jsontext
from headrace.streams.profiles import evlog as envelope
from headrace.streams.profiles.cleaning import MAX_PATH_CHARS, MAX_PATHS, REDACTED
from headrace.streams.profiles.evlog import FIELDS, MAX_DEPTH, Evlog, registry
from tests.unit.profiles.json_values import VALUES, objects

NOW = 1_774_432_800_000  # 2026-03-25T10:00:00Z
PLAIN = Evlog.parse({"kind": "evlog"})
TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID.upper()}-{SPAN_ID}-01"
CANONICAL = jsonschema_rs.validator_for(registry()["schema"])


def event(**fields: Any) -> dict[str, Any]:
    return PLAIN.normalize(fields, NOW)[0]


def test_the_whole_envelope() -> None:
    given_event = {
        "timestamp": "2026-03-25T09:00:00.000Z",
        "status": 402,
        "requestId": " req_1 ",
        "Token": "x",
        "nested": [{"Cookie": "c", "a": 1}],
        "message": "card declined",
        "service": "",
    }
    before = copy.deepcopy(given_event)
    normal, key = PLAIN.normalize(given_event, NOW)
    assert normal == {
        "timestamp": "2026-03-25T09:00:00.000Z",
        "level": "warn",
        "service": None,
        "environment": None,
        "version": None,
        "region": None,
        "requestId": "req_1",
        "traceId": None,
        "spanId": None,
        "method": None,
        "path": None,
        "status": 402,
        "duration": None,
        "message": "card declined",
        "why": None,
        "fix": None,
        "link": None,
        "sampling": None,
        "redaction": {"keys": ["Token", "nested.0.Cookie"]},
        "context": {"Token": REDACTED, "nested": [{"Cookie": REDACTED, "a": 1}]},
    }
    assert list(normal) == list(FIELDS)
    assert key == "req_1"
    assert given_event == before


def test_an_event_without_a_time_gets_the_servers() -> None:
    assert event()["timestamp"] == "2026-03-25T10:00:00.000Z"
    assert event(timestamp=5)["timestamp"] == "2026-03-25T10:00:00.000Z"
    assert event(timestamp=" any text ")["timestamp"] == "any text"


@pytest.mark.parametrize(
    ("fields", "level"),
    [
        ({"level": " WARN "}, "warn"),
        ({"level": "fatal"}, "info"),
        ({"level": "debug", "status": 500}, "debug"),
        ({"why": "w"}, "error"),
        ({"fix": "f", "status": 200}, "error"),
        ({"link": "l"}, "error"),
        ({"why": "  "}, "info"),
        ({"status": 500}, "error"),
        ({"status": "499"}, "warn"),
        ({"status": 400}, "warn"),
        ({"status": 399}, "info"),
        ({}, "info"),
    ],
    ids=str,
)
def test_the_level_is_given_or_follows_from_what_is_said(fields: dict[str, Any], level: str) -> None:
    assert event(**fields)["level"] == level


@pytest.mark.parametrize(
    ("value", "status", "duration"),
    [
        (200, 200, 200),
        (200.0, 200, 200.0),
        ("404", 404, 404),
        ("12.5", None, 12.5),
        (400.5, None, 400.5),
        ("1e3", 1000, 1000.0),
        (9007199254740993, 9007199254740993, 9007199254740993),
        ("0x10", None, None),
        ("1_0", None, None),
        ("", None, None),
        (True, None, None),
        (10**400, None, None),
        ("1e400", None, None),
    ],
    ids=str,
)
def test_numbers_may_be_text_and_must_be_finite(value: Any, status: Any, duration: Any) -> None:
    normal = event(status=value, duration=value)
    assert (normal["status"], normal["duration"]) == (status, duration)


def test_ids_come_from_the_first_place_that_has_them() -> None:
    assert event(requestId=7, context={"requestId": "c"})["requestId"] == "c"
    assert event(traceContext={"traceId": "t", "spanId": "s"})["traceId"] == "t"
    parent = event(headers={"traceparent": TRACEPARENT})
    assert (parent["traceId"], parent["spanId"]) == (TRACE_ID, SPAN_ID)
    mixed = event(traceId="mine", traceparent=TRACEPARENT)
    assert (mixed["traceId"], mixed["spanId"]) == ("mine", SPAN_ID)


@pytest.mark.parametrize(
    "text",
    [f"00-{'0' * 32}-{SPAN_ID}-01", f"00-{TRACE_ID}-{'0' * 16}-01", f"00-{TRACE_ID}-{SPAN_ID}", f"{TRACE_ID}"],
)
def test_a_traceparent_that_is_none_gives_nothing(text: str) -> None:
    assert event(traceparent=text)["traceId"] is None


def test_correlation_options_name_other_places() -> None:
    profile = Evlog.parse(
        {
            "kind": "evlog",
            "correlation": {
                "requestIdFields": ["rid", "ids.request"],
                "traceContextFields": ["ids.traceId"],
                "parseTraceparent": False,
            },
        }
    )
    document = {"requestId": "not asked", "ids": {"request": "r", "traceId": "t"}, "traceparent": TRACEPARENT}
    normal, key = profile.normalize(document, NOW)
    assert (normal["requestId"], normal["traceId"], normal["spanId"], key) == ("r", "t", None, "r")


def test_the_key_is_the_request_or_else_the_trace() -> None:
    assert PLAIN.normalize({"requestId": "r", "traceId": "t"}, NOW)[1] == "r"
    assert PLAIN.normalize({"traceId": "t"}, NOW)[1] == "t"
    assert PLAIN.normalize({}, NOW)[1] is None


def test_other_fields_move_into_the_context_and_win_there() -> None:
    assert event(context={"a": 1, "b": 2}, b=3)["context"] == {"a": 1, "b": 3}
    assert event(context=[1])["context"] == {"context": [1]}
    assert event(redaction={"keys": ["made up"]})["redaction"] == {"keys": []}


def test_configured_keys_are_redacted_at_any_depth_and_in_any_case() -> None:
    profile = Evlog.parse({"kind": "evlog", "redactKeys": ["sessionToken"]})
    document = {"context": {"password": {"whole": "subtree"}, "deep": [[{"SESSIONTOKEN": 1}]], "apiKey": None}}
    normal = profile.normalize(document, NOW)[0]
    assert normal["context"] == {"password": REDACTED, "deep": [[{"SESSIONTOKEN": REDACTED}]], "apiKey": REDACTED}
    assert normal["redaction"]["keys"] == ["password", "deep.0.0.SESSIONTOKEN", "apiKey"]


def test_a_long_key_above_many_secrets_is_not_repeated_for_each() -> None:
    normal = event(context={"k" * 10_000: [{"token": 1}] * (MAX_PATHS + 5)})
    assert normal["context"] == {"k" * 10_000: [{"token": REDACTED}] * (MAX_PATHS + 5)}
    assert [len(path) for path in normal["redaction"]["keys"]] == [MAX_PATH_CHARS] * MAX_PATHS
    assert PLAIN.normalize(normal, NOW)[0] == normal


def test_an_event_is_an_object_and_not_too_deep() -> None:
    wrong: Any
    for wrong in (None, 5, "text", [{}]):
        with pytest.raises(InvalidRequest, match="evlog record must be an object"):
            PLAIN.normalize(wrong, NOW)
    deep: Any = {}
    for _ in range(MAX_DEPTH):
        deep = {"a": deep}
    normal = PLAIN.normalize(deep, NOW)[0]
    assert jsontext.loads(jsontext.dumps(normal)) == normal
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        PLAIN.normalize({"a": deep}, NOW)


EVENTS = objects(*FIELDS, "traceContext", "headers", "traceparent", "token", "password")


@given(EVENTS)
def test_every_event_fits_the_canonical_schema_and_stays_as_it_is(document: dict[str, Any]) -> None:
    normal, key = PLAIN.normalize(document, NOW)
    if isinstance(normal["sampling"], dict | None):
        assert CANONICAL.is_valid(normal)
    assert PLAIN.normalize(normal, NOW + 1) == (normal, key)


@given(EVENTS)
def test_nothing_under_a_secret_key_is_stored(document: dict[str, Any]) -> None:
    def secrets(value: Any) -> list[Any]:
        if isinstance(value, list):
            return [found for item in value for found in secrets(item)]
        if not isinstance(value, dict):
            return []
        inside = [found for item in value.values() for found in secrets(item)]
        return inside + [item for key, item in value.items() if key.lower() in envelope.REDACT_KEYS]

    normal = PLAIN.normalize(document, NOW)[0]
    found = secrets(normal["context"])
    assert all(item == REDACTED for item in found)
    assert len(found) == len(normal["redaction"]["keys"])


@given(VALUES)
def test_whatever_comes_it_is_normalised_or_refused(document: Any) -> None:
    try:
        PLAIN.normalize(document, NOW)
    except InvalidRequest:
        assert not isinstance(document, dict)


def test_the_search_registry() -> None:
    search = registry()["search"]
    assert search["profile"] == "evlog"
    assert search["primaryTimestampField"] == "timestamp"
    assert search["aliases"] == {
        "env": "environment",
        "msg": "message",
        "req": "requestId",
        "span": "spanId",
        "time": "timestamp",
        "trace": "traceId",
        "ts": "timestamp",
    }
    kinds = {name: field["kind"] for name, field in search["fields"].items()}
    keywords = {"level", "service", "environment", "method", "requestId", "traceId", "spanId", "path"}
    assert {name for name, kind in kinds.items() if kind == "keyword"} == keywords
    assert {name for name, kind in kinds.items() if kind == "text"} == {"message", "why", "fix", "error.message"}
    assert (kinds["timestamp"], kinds["status"], kinds["duration"]) == ("date", "integer", "float")
    assert search["fields"]["error.message"]["bindings"] == [{"version": 1, "jsonPointer": "/context/error/message"}]
    lowercase = {name for name, field in search["fields"].items() if "normalizer" in field}
    assert lowercase == {"level", "service", "environment", "method"}
    assert "rollups" not in search
    assert len(registry()["schema"]["required"]) == 20
