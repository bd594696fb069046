"""Errors: one envelope, one code for each status."""

from __future__ import annotations

import pytest

from tests.conformance.contract.client import JSON, Api, Stream, expect, refused


def test_every_kind_of_refusal_has_the_envelope(api: Api, stream: Stream) -> None:
    expect(stream.append([1], {"Stream-Seq": "5"}), 204)
    refused(stream.append(b"{"), 400)
    refused(stream.read(offset="x"), 400)
    refused(stream.define(lens={}), 400)
    refused(stream.set_profile("nothing"), 400)
    refused(api.unused().read(), 404)
    refused(api.get("/v1/nothing"), 404)
    refused(stream.append([2], {"Stream-Seq": "5"}), 409)
    refused(stream.at("PATCH", "", JSON, b"[1]"), 405)


def test_an_error_is_json_and_is_not_stored(api: Api) -> None:
    answer = api.unused().read()
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"


SUBS = (
    "/_schema",
    "/_profile",
    "/_index_status",
    "/_details",
    "/pk/a",
    "/touch/meta",
    "/touch/wait",
    "/touch/templates/activate",
)


@pytest.mark.parametrize("sub", SUBS)
def test_other_methods_are_refused_with_those_allowed(stream: Stream, sub: str) -> None:
    answer = stream.at("PATCH", sub, JSON, b"{}")
    refused(answer, 405)
    assert answer.headers["allow"]


@pytest.mark.parametrize(
    "sub", ["_schema", "_profile", "_search", "_aggregate", "_routing_keys", "_index_status", "_details"]
)
def test_a_name_does_not_end_like_a_part_of_a_stream(api: Api, sub: str) -> None:
    answer = api.request("PUT", f"{api.unused().path}%2F{sub}", JSON)
    assert answer.status_code in (400, 405)


@pytest.mark.sensitive("another process may have closed it")
def test_a_closed_stream_refuses_appends(stream: Stream) -> None:
    expect(stream.at("POST", "", {"Stream-Closed": "true"}), 204)
    answer = expect(stream.append([1]), 409)
    assert answer.headers["stream-closed"] == "true"


@pytest.mark.sensitive("another process may have made the fork")
def test_a_source_that_is_kept_for_its_forks_is_gone(api: Api, stream: Stream) -> None:
    expect(stream.append([1]), 204)
    expect(api.unused().put({"Stream-Forked-From": stream.path}), 201)
    expect(stream.delete(), 204)
    refused(stream.read(), 410)
    refused(stream.append([2]), 410)
