"""HEAD describes, DELETE ends."""

from __future__ import annotations

import pytest

from tests.conformance.contract.client import JSON, Api, Stream, expect, refused

pytestmark = pytest.mark.sensitive("a process must not answer from memory about a stream that another deleted")


def test_head_says_what_the_stream_is(api: Api) -> None:
    stream = api.unused()
    stream.put({**JSON, "Stream-TTL": "1h"})
    stream.append([1, 2])
    answer = expect(stream.head(), 200)
    assert answer.content == b""
    assert answer.headers["content-type"].split(";")[0] == "application/json"
    assert answer.headers["stream-end-offset"] == answer.headers["stream-next-offset"] == stream.end
    assert answer.headers["stream-ttl"]
    assert answer.headers["stream-expires-at"].endswith("Z")
    assert "no-store" in answer.headers["cache-control"]


def test_head_of_a_stream_without_an_end_names_none(stream: Stream) -> None:
    answer = expect(stream.head(), 200)
    assert "stream-expires-at" not in answer.headers
    assert "stream-ttl" not in answer.headers


def test_head_of_an_unknown_stream_is_404(api: Api) -> None:
    expect(api.unused().head(), 404)


def test_a_deleted_stream_is_gone(stream: Stream) -> None:
    stream.append([1])
    expect(stream.delete(), 204)
    expect(stream.head(), 404)
    for answer in (
        stream.read(),
        stream.append([2]),
        stream.registry(),
        stream.profile(),
        stream.details(),
        stream.index_status(),
        stream.read(key="k"),
        stream.define(schema={}),
        stream.set_profile("generic"),
    ):
        refused(answer, 404)


def test_delete_can_be_repeated(stream: Stream) -> None:
    expect(stream.delete(), 204)
    expect(stream.delete(), 204)


def test_a_stream_that_never_was_cannot_be_deleted(api: Api) -> None:
    refused(api.unused().delete(), 404)


def test_a_recreated_stream_has_nothing_of_the_deleted_one(api: Api) -> None:
    stream = api.with_schema(schema={"type": "integer"}, routingKey={"jsonPointer": "", "required": False})
    expect(stream.set_profile("state-protocol", touch={"enabled": True}), 200)
    expect(stream.delete(), 204)
    expect(stream.put(), 201)
    assert stream.records() == []
    assert stream.registry().json()["currentVersion"] == 0
    assert "routingKey" not in stream.registry().json()
    assert stream.profile().json()["profile"] == {"kind": "generic"}
    expect(stream.append(["no integer"], {"Stream-Key": "k"}), 204)
    refused(stream.touch_meta(), 404)


def test_a_deleted_stream_is_not_listed(api: Api) -> None:
    stream = api.stream(prefix="gone")
    expect(stream.delete(), 204)
    listed = expect(api.get("/v1/streams", prefix=stream.name), 200).json()
    assert listed == []
