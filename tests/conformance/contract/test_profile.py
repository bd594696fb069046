"""`_profile`: which semantics a stream has."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.contract.client import JSON, Api, Stream, expect, refused

API_VERSION = "durable.streams/profile/v1"
KINDS = ("generic", "evlog", "metrics", "otel-traces", "state-protocol")


def test_without_a_declaration_the_profile_is_generic(stream: Stream, text: Stream) -> None:
    for subject in (stream, text):
        assert expect(subject.profile(), 200).json() == {"apiVersion": API_VERSION, "profile": {"kind": "generic"}}


@pytest.mark.parametrize("kind", KINDS)
def test_every_built_in_profile_can_be_installed(stream: Stream, kind: str) -> None:
    answer = expect(stream.set_profile(kind), 200).json()
    assert answer == stream.profile().json() == {"apiVersion": API_VERSION, "profile": {"kind": kind}}


def test_the_api_version_may_be_left_out(stream: Stream) -> None:
    answer = stream.at("POST", "/_profile", JSON, {"profile": {"kind": "metrics"}})
    assert expect(answer, 200).json() == {"apiVersion": API_VERSION, "profile": {"kind": "metrics"}}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        [],
        {},
        {"profile": None},
        {"profile": "generic"},
        {"profile": {}},
        {"profile": {"kind": "unknown"}},
        {"profile": {"kind": 1}},
        {"profile": {"kind": "generic", "extra": 1}},
        {"profile": {"kind": "metrics", "interval": "10s"}},
        {"profile": {"kind": "evlog", "redact": []}},
        {"profile": {"kind": "state-protocol", "live": True}},
        {"profile": {"kind": "generic"}, "extra": 1},
        {"apiVersion": "durable.streams/profile/v2", "profile": {"kind": "generic"}},
        {"kind": "generic"},
    ],
)
def test_other_shapes_are_refused(stream: Stream, body: Any) -> None:
    refused(stream.at("POST", "/_profile", JSON, body), 400)
    assert stream.profile().json()["profile"] == {"kind": "generic"}


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_profile_of_json_needs_a_json_stream(text: Stream, kind: str) -> None:
    refused(text.set_profile(kind), 400)
    assert text.profile().json()["profile"] == {"kind": "generic"}


def test_a_text_stream_may_be_generic(text: Stream) -> None:
    expect(text.set_profile("generic"), 200)
    expect(text.append_bytes(b"x"), 204)


def test_an_unknown_stream_is_404(api: Api) -> None:
    refused(api.unused().profile(), 404)
    refused(api.unused().set_profile("generic"), 404)


@pytest.mark.sensitive("each process caches the definition")
def test_generic_is_the_baseline_again(stream: Stream) -> None:
    expect(stream.set_profile("state-protocol", touch={"enabled": True}), 200)
    refused(stream.append([{"n": 1}]), 400)
    expect(stream.set_profile("generic"), 200)
    expect(stream.append([{"n": 1}]), 204)
    refused(stream.touch_meta(), 404)
    assert stream.records() == [{"n": 1}]


@pytest.mark.parametrize("kind", ["evlog", "metrics", "otel-traces"])
def test_generic_keeps_the_schema_that_a_profile_installed(stream: Stream, kind: str) -> None:
    expect(stream.set_profile(kind), 200)
    before = stream.registry().json()
    expect(stream.set_profile("generic"), 200)
    assert stream.registry().json() == before
    refused(stream.append([{"n": 1}]), 400)


def test_the_profile_is_that_of_one_stream(api: Api) -> None:
    one, other = api.stream(), api.stream()
    expect(one.set_profile("metrics"), 200)
    assert other.profile().json()["profile"] == {"kind": "generic"}
    expect(other.append([{"n": 1}]), 204)


@pytest.mark.sensitive("each process caches the definition")
def test_the_profile_is_shown_in_listing_and_details(stream: Stream) -> None:
    expect(stream.set_profile("evlog", redactKeys=["Session"]), 200)
    listed = expect(stream.api.get("/v1/streams", prefix=stream.name), 200).json()
    assert [row["profile"] for row in listed] == ["evlog"]
    details = expect(stream.details(), 200).json()
    assert details["stream"]["profile"] == "evlog"
    assert details["profile"] == stream.profile().json()


def test_a_profile_has_no_schema_of_its_own_in_generic(stream: Stream) -> None:
    expect(stream.set_profile("generic"), 200)
    assert stream.registry().json()["currentVersion"] == 0
    expect(stream.set_profile("state-protocol"), 200)
    assert stream.registry().json()["currentVersion"] == 0
