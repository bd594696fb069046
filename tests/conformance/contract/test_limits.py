"""Limits on what one request may bring."""

from __future__ import annotations

from tests.conformance.contract.client import JSON, Api, Stream, expect, refused

MIB = 1024 * 1024


def test_a_body_of_ten_mebibytes_is_accepted(text: Stream) -> None:
    expect(text.append_bytes(b"x" * (10 * MIB)), 204)
    assert len(text.read().content) == 10 * MIB


def test_a_larger_body_is_refused(text: Stream, stream: Stream) -> None:
    refused(text.append_bytes(b"x" * (10 * MIB + 1)), 413)
    refused(stream.append(b'["' + b"x" * (10 * MIB) + b'"]'), 413)
    refused(stream.at("PUT", "", JSON, b'["' + b"x" * (10 * MIB) + b'"]'), 413)
    assert text.read().content == b""


def test_a_larger_schema_is_refused(stream: Stream) -> None:
    huge = {"type": "object", "description": "x" * (10 * MIB)}
    assert stream.define(schema=huge).status_code in (400, 413)
    assert stream.registry().json()["currentVersion"] == 0


def test_a_deep_value_is_refused_or_kept_but_never_breaks(api: Api) -> None:
    deep = b"[" * 2000 + b"]" * 2000
    for stream in (api.stream(), api.with_schema(schema={})):
        answer = stream.append(b"[" + deep + b"]")
        assert answer.status_code in (204, 400)
        expect(stream.read(), 200)


def test_a_key_is_bounded(stream: Stream) -> None:
    expect(stream.append([1], {"Stream-Key": "k" * 4096}), 204)
    refused(stream.append([2], {"Stream-Key": "k" * 4097}), 400)
    expect(stream.define(routingKey={"jsonPointer": "/k", "required": True}), 200)
    refused(stream.append([{"k": "k" * 4097}]), 400)
    assert stream.records() == [1]
