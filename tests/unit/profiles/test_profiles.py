"""The kinds of profiles, and what installing one takes and changes."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given

from headrace.errors import InvalidRequest
from headrace.streams import profiles
from headrace.streams.profiles import Profile
from tests.unit.profiles.json_values import VALUES, objects

EVERY = [profiles.parse({"kind": kind}) for kind in profiles.KINDS]
WITH_OPTIONS: list[dict[str, Any]] = [
    {"kind": "generic"},
    {"kind": "metrics"},
    {"kind": "state-protocol"},
    {"kind": "state-protocol", "touch": {"enabled": False}},
    {"kind": "state-protocol", "touch": {"enabled": True, "coarseIntervalMs": 75, "memory": {"k": 2}}},
    {"kind": "evlog"},
    {"kind": "evlog", "redactKeys": [" sessionToken ", "SESSIONTOKEN"], "correlation": {"requestIdFields": []}},
    {"kind": "evlog", "correlation": {"parseTraceparent": False, "traceContextFields": ["a.traceId"]}},
    {"kind": "evlog", "observability": {"request": {"tracesStream": " traces "}}},
    {"kind": "otel-traces"},
    {"kind": "otel-traces", "redactKeys": [" Pin ", "PIN"], "requestIdAttributes": ["rid"], "dbStatementMode": "raw"},
    {"kind": "otel-traces", "attributeLimits": {"maxLinksPerSpan": 1}, "store": {"rawEvents": False}},
    {"kind": "otel-traces", "urlMode": "raw", "observability": {"request": {"eventsStream": " events "}}},
]


def test_the_five_kinds() -> None:
    assert profiles.KINDS == ("evlog", "generic", "metrics", "otel-traces", "state-protocol")
    assert profiles.resource(profiles.DEFAULT) == {
        "apiVersion": "durable.streams/profile/v1",
        "profile": {"kind": "generic"},
    }


@pytest.mark.parametrize("document", WITH_OPTIONS, ids=str)
def test_a_document_comes_back_as_the_same_profile(document: dict[str, Any]) -> None:
    profile = profiles.parse(document)
    assert profiles.parse(profile.document()) == profile
    assert profiles.parse(profile.document()).document() == profile.document()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ([], "profile update must be an object"),
        ({"apiVersion": "durable.streams/profile/v1"}, "missing profile"),
        ({"apiVersion": "v2", "profile": {"kind": "generic"}}, "apiVersion"),
        ({"profile": {"kind": "generic"}, "kind": "generic"}, "profileUpdate.kind is not supported"),
        ({"profile": None}, "profile must be an object"),
        ({"profile": {}}, "profile.kind"),
        ({"profile": {"kind": "topics"}}, "evlog|generic|metrics|otel-traces|state-protocol"),
        ({"profile": {"kind": "generic", "extra": True}}, "profile.extra"),
        ({"profile": {"kind": "metrics", "extra": True}}, "profile.extra"),
        ({"profile": {"kind": "evlog", "redactKeys": "a"}}, "profile.redactKeys must be an array"),
        ({"profile": {"kind": "evlog", "redactKeys": [" "]}}, "profile.redactKeys must not contain empty"),
        ({"profile": {"kind": "evlog", "redactKeys": ["k"] * 65}}, "profile.redactKeys too large (max 64)"),
        ({"profile": {"kind": "evlog", "correlation": {"x": 1}}}, "profile.correlation.x"),
        ({"profile": {"kind": "evlog", "correlation": {"parseTraceparent": 1}}}, "parseTraceparent must be boolean"),
        (
            {"profile": {"kind": "evlog", "observability": {"request": {"tracesStream": ""}}}},
            "profile.observability.request.tracesStream",
        ),
        (
            {"profile": {"kind": "otel-traces", "dbStatementMode": "keep"}},
            "profile.dbStatementMode must be drop or raw",
        ),
        ({"profile": {"kind": "otel-traces", "urlMode": None}}, "profile.urlMode must be drop_query or raw"),
        ({"profile": {"kind": "otel-traces", "otlpLimits": {}}}, "profile.otlpLimits is not supported"),
        ({"profile": {"kind": "otel-traces", "store": {"rawEvents": 1}}}, "profile.store.rawEvents must be boolean"),
        (
            {"profile": {"kind": "otel-traces", "attributeLimits": {"maxLinksPerSpan": True}}},
            "profile.attributeLimits.maxLinksPerSpan must be a positive integer",
        ),
        (
            {"profile": {"kind": "otel-traces", "attributeLimits": {"maxSpans": 1}}},
            "profile.attributeLimits.maxSpans",
        ),
        ({"profile": {"kind": "otel-traces", "observability": {"request": {"tracesStream": "t"}}}}, "tracesStream"),
        ({"profile": {"kind": "state-protocol", "touch": {"storage": "sqlite"}}}, "profile.touch.storage"),
        ({"profile": {"kind": "state-protocol", "touch": {"enabled": 1}}}, "profile.touch.enabled"),
    ],
    ids=str,
)
def test_a_wrong_update_is_refused_with_its_place(body: Any, says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        profiles.parse_update(body)
    assert says in str(refused.value)


@given(VALUES | objects("apiVersion", "profile", "kind"))
def test_whatever_comes_an_update_is_read_or_refused(body: Any) -> None:
    with contextlib.suppress(InvalidRequest):
        assert isinstance(profiles.parse_update(body), Profile)


@pytest.mark.parametrize("profile", EVERY, ids=lambda profile: profile.kind)
def test_all_but_generic_need_a_json_stream(profile: Profile) -> None:
    def install(content_type: str) -> None:
        profiles.install(profiles.DEFAULT, profile, content_type=content_type, is_empty=True)

    install("application/json")
    install("Application/JSON; charset=utf-8")
    if profile.kind == "generic":
        install("text/plain")
    else:
        with pytest.raises(InvalidRequest, match="application/json"):
            install("text/plain")


@pytest.mark.parametrize("kind", ["evlog", "metrics", "otel-traces"])
def test_a_profile_that_rewrites_records_must_precede_them(kind: str) -> None:
    wanted = profiles.parse({"kind": kind})
    with pytest.raises(InvalidRequest, match="before appending data"):
        profiles.install(profiles.DEFAULT, wanted, content_type="application/json", is_empty=False)


def test_options_change_with_data_and_leave_the_schema_alone() -> None:
    before, after = profiles.parse({"kind": "evlog"}), profiles.parse({"kind": "evlog", "redactKeys": ["pin"]})
    assert profiles.install(before, after, content_type="application/json", is_empty=False) is None


def test_what_installing_puts_into_the_registry() -> None:
    updates = {
        profile.kind: profiles.install(profiles.DEFAULT, profile, content_type="application/json", is_empty=True)
        for profile in EVERY
    }
    assert updates["generic"] is None
    assert updates["state-protocol"] is None
    assert set(updates["evlog"] or ()) == set(updates["otel-traces"] or ()) == {"schema", "search"}
    assert set(updates["metrics"] or ()) == {"schema", "search", "routingKey"}
    assert profiles.install(EVERY[0], profiles.DEFAULT, content_type="application/json", is_empty=False) is None


def test_the_system_stream_has_the_schema_alone() -> None:
    profile = profiles.of_system_stream("__stream_metrics__")
    assert profile is not None
    assert profile.document() == {"kind": "metrics"}
    assert set(profile.registry() or ()) == {"schema"}
    assert profiles.of_system_stream("orders") is None


@pytest.mark.parametrize("profile", EVERY, ids=lambda profile: profile.kind)
def test_a_profile_that_reads_no_records_leaves_them_alone(profile: Profile) -> None:
    document = {"a": 1}
    if not profile.reads_records:
        assert profile.normalize(document, 0) == (document, None)
    assert profile.reads_records == (profile.kind != "generic")


def test_only_enabled_touch_is_a_capability() -> None:
    assert [profile.touch for profile in EVERY] == [None] * len(EVERY)
    assert profiles.parse({"kind": "state-protocol", "touch": {"enabled": False}}).touch is None
    assert profiles.parse({"kind": "state-protocol", "touch": {"enabled": True}}).touch is not None


def test_a_pair_of_streams_is_described() -> None:
    paired = profiles.parse({"kind": "evlog", "observability": {"request": {"tracesStream": "app-traces"}}})
    assert paired.observability("app") == {"request": {"events_stream": "app", "traces_stream": "app-traces"}}
    paired = profiles.parse({"kind": "otel-traces", "observability": {"request": {"eventsStream": "app"}}})
    assert paired.observability("app-traces") == {"request": {"events_stream": "app", "traces_stream": "app-traces"}}
    assert profiles.DEFAULT.observability("app") is None
