"""`format=records`, an extension of the contract: each record with its offset, time and key."""

from __future__ import annotations

import base64

import pytest

from tests.conformance.contract.client import JSON, Api, Stream, expect, refused

AT = {**JSON, "Stream-Timestamp": "2026-02-25T12:00:00.5Z"}
SEARCH = {
    "primaryTimestampField": "at",
    "fields": {
        "at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}], "column": True},
        "n": {"kind": "integer", "bindings": [{"version": 1, "jsonPointer": "/n"}], "column": True},
    },
}


@pytest.mark.sensitive("records are in the tail or in segments")
def test_a_record_says_where_and_when_it_is(stream: Stream) -> None:
    expect(stream.append_bytes(b'[{"a": 1.0}, 12345678901234567890]', {**AT, "Stream-Key": "k\u00e9"}), 204)
    middle = stream.end
    stream.settle()
    expect(stream.append(["x"], {"Stream-Timestamp": "2026-02-26T00:00:00Z"}), 204)
    answer = expect(stream.read(format="records"), 200)
    assert answer.headers["content-type"] == "application/json"
    first, second, third = answer.json()
    assert b'"value":{"a": 1.0}}' in answer.content and b'"value":12345678901234567890}' in answer.content
    assert (first["time"], first["key"]) == (second["time"], second["key"]) == ("2026-02-25T12:00:00.500Z", "k\u00e9")
    assert third == {"offset": stream.end, "time": "2026-02-26T00:00:00.000Z", "key": None, "value": "x"}
    assert second["offset"] == middle
    assert stream.records(offset=first["offset"]) == [12345678901234567890, "x"]
    assert expect(stream.read(format="records", offset=middle), 200).json() == [third]


@pytest.mark.sensitive("records are in the tail or in segments")
def test_selected_records_keep_their_offsets(api: Api) -> None:
    stream = api.with_schema(schema={"type": "object"}, search=SEARCH)
    for key in ("a", "b"):
        records = [{"at": "2026-02-25T12:00:00Z", "n": number} for number in range(4)]
        expect(stream.append(records, {"Stream-Key": key}), 204)
        if key == "a":
            stream.settle()
    whole = expect(stream.read(format="records"), 200).json()
    assert [(one["key"], one["value"]["n"]) for one in whole] == [(key, n) for key in "ab" for n in range(4)]
    selections: list[tuple[dict[str, str], list[int]]] = [
        ({"filter": "n:>1"}, [2, 3, 6, 7]),
        ({"key": "a"}, [0, 1, 2, 3]),
        ({"key": "b"}, [4, 5, 6, 7]),
        ({"filter": "n:<2", "key": "b"}, [4, 5]),
    ]
    for selection, numbers in selections:
        answer = expect(stream.read(format="records", **selection), 200)
        assert answer.json() == [whole[number] for number in numbers]
        assert answer.headers["stream-next-offset"] == stream.end


def test_a_record_is_shown_in_the_schema_in_force(api: Api) -> None:
    def schema(name: str) -> dict[str, object]:
        return {"type": "object", "properties": {name: {}}, "required": [name], "additionalProperties": False}

    stream = api.with_schema(schema=schema("a"))
    expect(stream.append([{"a": 1}]), 204)
    ops = [{"op": "rename", "from": "/a", "to": "/b"}]
    lens = {"apiVersion": "durable.lens/v1", "schema": stream.name, "from": 1, "to": 2, "ops": ops}
    expect(stream.define(schema=schema("b"), lens=lens), 200)
    (shown,) = expect(stream.read(format="records"), 200).json()
    assert shown["value"] == {"b": 1}


@pytest.mark.sensitive("records are in the tail or in segments")
def test_bytes_come_record_by_record(api: Api) -> None:
    stream = api.stream({"Content-Type": "image/png"})
    for data in (b"\x00\xff", b"end"):
        expect(stream.append_bytes(data, {"Content-Type": "image/png"}), 204)
    records = expect(stream.read(format="records"), 200).json()
    assert [base64.b64decode(record["base64"]) for record in records] == [b"\x00\xff", b"end"]
    assert "value" not in records[0] and records[-1]["offset"] == stream.end


def test_a_long_poll_has_it_and_server_sent_events_have_not(stream: Stream) -> None:
    expect(stream.append([1]), 204)
    page = expect(stream.read(format="records", offset="-1", live="long-poll"), 200)
    assert [record["value"] for record in page.json()] == [1]
    assert "format=records" in refused(stream.read(format="records", offset="-1", live="sse"), 400)


def test_its_entity_tag_is_its_own(stream: Stream) -> None:
    expect(stream.append([1], JSON), 204)
    tags = {expect(stream.read(offset="-1", format=each), 200).headers["etag"] for each in ("json", "raw", "records")}
    assert len(tags) == 3
