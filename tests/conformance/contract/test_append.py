"""POST: a batch of JSON values or one record of bytes, committed whole or not at all."""

from __future__ import annotations

import pytest

from tests.conformance.contract.client import JSON, TEXT, Api, Stream, expect, refused


def test_each_element_of_an_array_is_a_record(stream: Stream) -> None:
    expect(stream.append([{"n": 1}, {"n": 2}, [3, 4], "five", None]), 204)
    assert stream.records() == [{"n": 1}, {"n": 2}, [3, 4], "five", None]
    assert expect(stream.details(), 200).json()["stream"]["next_offset"] == "5"


def test_a_single_value_is_a_record(stream: Stream) -> None:
    for value in ({"n": 1}, "text", 7, True, None):
        expect(stream.append(value), 204)
    assert stream.records() == [{"n": 1}, "text", 7, True, None]


def test_an_empty_array_is_refused(stream: Stream) -> None:
    refused(stream.append([]), 400)


@pytest.mark.parametrize("body", [b"", b"{", b"[1,]", b"[NaN]", b"1 2", b'["\xff"]', b"[1] x"])
def test_what_is_not_json_is_refused_and_nothing_is_appended(stream: Stream, body: bytes) -> None:
    refused(stream.append(body), 400)
    assert stream.records() == []


def test_a_body_of_another_type_is_one_record_of_bytes(text: Stream) -> None:
    expect(text.append_bytes(b"[1, 2]\x00\xff"), 204)
    expect(text.append_bytes(b"second"), 204)
    assert text.read().content == b"[1, 2]\x00\xffsecond"
    assert expect(text.details(), 200).json()["stream"]["next_offset"] == "2"


def test_the_type_of_an_append_is_that_of_the_stream(stream: Stream, text: Stream) -> None:
    refused(stream.append_bytes(b"x"), 409)
    refused(text.append([1]), 409)
    refused(stream.at("POST", "", {}, b"[1]"), 400)


def test_parameters_of_the_content_type_do_not_matter(stream: Stream) -> None:
    expect(stream.at("POST", "", {"Content-Type": "Application/JSON; charset=utf-8"}, b"[1]"), 204)
    assert stream.records() == [1]


def test_stream_key_is_the_key_of_every_record(stream: Stream, text: Stream) -> None:
    expect(stream.append([1, 2], {"Stream-Key": "a"}), 204)
    expect(stream.append([3], {"Stream-Key": "b"}), 204)
    expect(stream.append([4]), 204)
    assert stream.records(key="a") == [1, 2]
    expect(text.append_bytes(b"one", {"Stream-Key": "a"}), 204)
    expect(text.append_bytes(b"two"), 204)
    assert text.read(key="a").content == b"one"


@pytest.mark.sensitive("the tail is in memory, in another process or only in the store")
def test_the_answer_says_where_the_append_ended(stream: Stream) -> None:
    first = expect(stream.append([1, 2]), 204).headers["stream-next-offset"]
    assert stream.records(offset=first) == []
    second = expect(stream.append([3]), 204).headers["stream-next-offset"]
    assert stream.records(offset=first) == [3]
    assert second == stream.end


def test_a_batch_is_appended_whole_or_not_at_all(api: Api) -> None:
    stream = api.with_schema(schema={"type": "integer"})
    refused(stream.append([1, 2, "three"]), 400)
    assert stream.records() == []


def test_an_append_never_creates_a_stream(api: Api) -> None:
    stream = api.unused()
    refused(stream.append([1]), 404)
    refused(stream.read(), 404)


def test_the_body_of_a_create_is_appended(api: Api) -> None:
    stream = api.unused()
    expect(stream.put({**JSON, "Stream-Key": "a"}, [1, 2]), 201)
    assert stream.records(key="a") == [1, 2]


@pytest.mark.sensitive("a repeat may meet a process that has not seen the first try")
def test_a_producer_that_appends_gets_200_and_its_repeat_204(stream: Stream) -> None:
    producer = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    expect(stream.append([1], producer), 200)
    expect(stream.append([1], producer), 204)
    assert stream.records() == [1]


@pytest.mark.parametrize(
    "element",
    [
        "9007199254740993",
        "-12345678901234567890123",
        "1.0",
        "1E40",
        "0.1000",
        "-0",
        '{"z": 1,  "a": 2}',
        '{"a":1,"a":2}',
        '"\\u00e9\\/é"',
        "[ 1 ,\n\t2 ]",
    ],
)
def test_the_text_of_a_record_survives_byte_for_byte(stream: Stream, element: str) -> None:
    expect(stream.append(f"[{element}, 0]".encode()), 204)
    assert stream.read(format="raw").content == element.encode() + b"0"
    assert stream.read().content == f"[{element},0]".encode()


def test_the_text_of_keyed_records_survives_byte_for_byte(stream: Stream) -> None:
    expect(stream.append(b'[{"n":  9007199254740993, "a":1.0}]', {"Stream-Key": "k"}), 204)
    assert stream.read(key="k").content == b'[{"n":  9007199254740993, "a":1.0}]'
    assert stream.api.get(stream.path + "/pk/k").content == b'[{"n":  9007199254740993, "a":1.0}]'


def test_an_empty_body_is_refused(stream: Stream, text: Stream) -> None:
    refused(stream.at("POST", "", JSON, b""), 400)
    refused(text.at("POST", "", TEXT, b""), 400)
