"""GET: a bounded page, where to go on, and how long it may be kept."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest

from tests.conformance.contract.client import JSON, ZERO, Api, Stream, expect, refused

ETAG = re.compile(
    r'W/"slice:(?P<start>\w{26}):(?P<next>\w{26}):key=(?P<key>.*):fmt=(?P<fmt>\w+):filter=(?P<filter>[^:]*)'
)
IMMUTABLE = "immutable, max-age=31536000"


# Pages are bounded by bytes: 4 MiB of records of 3,002 bytes, the one that reaches them included.
RECORDS = [f"{number:04}" + "x" * 2996 for number in range(1800)]
PAGE = -(-4 * 1024 * 1024 // 3002)


@pytest.fixture
def long(api: Api) -> Stream:
    """More than one page."""
    stream = api.stream()
    expect(stream.append(RECORDS[:900]), 204)
    expect(stream.append(RECORDS[900:]), 204)
    return stream


@pytest.mark.sensitive("records are in the tail or in segments")
def test_a_page_is_bounded_and_says_where_to_go_on(long: Stream) -> None:
    first = expect(long.read(offset="-1"), 200)
    assert first.json() == RECORDS[:PAGE]
    assert "stream-up-to-date" not in first.headers
    second = expect(long.read(offset=first.headers["stream-next-offset"]), 200)
    assert second.json() == RECORDS[PAGE:]
    assert second.headers["stream-up-to-date"] == "true"
    assert second.headers["stream-next-offset"] == second.headers["stream-end-offset"]


@pytest.mark.sensitive("records are in the tail or in segments")
def test_a_page_is_bounded_in_bytes(stream: Stream) -> None:
    record = "x" * 300_000
    for _ in range(3):
        expect(stream.append([record] * 10), 204)
    page = expect(stream.read(), 200)
    assert len(page.json()) == 14
    assert stream.records() == [record] * 30


@pytest.mark.sensitive("records are in the tail or in segments")
def test_a_page_holds_thousands_of_small_records(stream: Stream) -> None:
    expect(stream.append(list(range(20_000))), 204)
    assert expect(stream.read(), 200).json() == list(range(20_000))


@pytest.mark.sensitive("the end is in memory, in another process or only in the store")
def test_an_answer_names_the_current_end(long: Stream) -> None:
    first = expect(long.read(), 200)
    assert first.headers["stream-end-offset"] == long.end
    expect(long.append([1]), 204)
    assert expect(long.read(), 200).headers["stream-end-offset"] == long.end != first.headers["stream-end-offset"]


def test_a_read_of_nothing_new_stays_where_it_is(stream: Stream) -> None:
    expect(stream.append([1]), 204)
    end = stream.end
    answer = expect(stream.read(offset=end), 200)
    assert answer.json() == []
    assert answer.headers["stream-next-offset"] == end


@pytest.mark.sensitive("records are in the tail or in segments")
def test_records_are_read_in_order_from_segments_and_tail(api: Api) -> None:
    stream = api.stream()
    for start in range(0, 75, 25):
        expect(stream.append(list(range(start, start + 25))), 204)
    stream.settle()
    expect(stream.append([75, 76]), 204)
    assert stream.records() == list(range(77))
    middle = stream.append([77]).headers["stream-next-offset"]
    expect(stream.append([78]), 204)
    assert stream.records(offset=middle) == [78]


def test_a_json_stream_reads_as_an_array(stream: Stream) -> None:
    expect(stream.append([{"a": 1}, 2]), 204)
    for answer in (stream.read(), stream.read(format="json")):
        assert answer.headers["content-type"].split(";")[0] == "application/json"
        assert answer.json() == [{"a": 1}, 2]


def test_raw_is_the_concatenation(stream: Stream, text: Stream) -> None:
    expect(stream.append([{"a": 1}, 2]), 204)
    assert stream.read(format="raw").content == b'{"a": 1}2'
    expect(text.append_bytes(b"ab"), 204)
    expect(text.append_bytes(b"cd"), 204)
    for answer in (text.read(), text.read(format="raw")):
        assert answer.content == b"abcd"


def test_bytes_cannot_be_read_as_json(text: Stream) -> None:
    expect(text.append_bytes(b"ab"), 204)
    refused(text.read(format="json"), 400)
    refused(text.read(format="xml"), 400)


@pytest.mark.sensitive("entity tags must not depend on the process")
def test_the_entity_tag_names_what_was_read(long: Stream) -> None:
    answer = expect(long.read(offset="-1"), 200)
    found = ETAG.match(answer.headers["etag"])
    assert found, answer.headers["etag"]
    assert found["start"] == ZERO
    assert found["next"] == answer.headers["stream-next-offset"]
    assert (found["key"], found["fmt"], found["filter"]) == ("", "json", "")
    assert ETAG.match(long.read(format="raw").headers["etag"])["fmt"] == "raw"  # type: ignore[index]


def test_the_entity_tag_names_key_and_filter_in_ascii(api: Api) -> None:
    search = {
        "primaryTimestampField": "at",
        "fields": {
            "at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}], "column": True},
            "s": {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "/s"}], "exact": True},
        },
    }
    stream = api.with_schema(schema={"type": "object"}, search=search)
    expect(stream.append([{"s": "é: 1"}], {"Stream-Key": 'ключ:é"'}), 204)
    answer = expect(stream.read(key='ключ:é"', filter='s:"é: 1"'), 200)
    assert answer.json() == [{"s": "é: 1"}]
    tag = answer.headers["etag"]
    assert tag.isascii()
    found = ETAG.match(tag)
    assert found, tag
    assert unquote(found["key"]) == 'ключ:é"'
    assert unquote(found["filter"]) == 's:"é: 1"'


@pytest.mark.sensitive("entity tags must not depend on the process")
def test_a_matching_entity_tag_answers_304(stream: Stream) -> None:
    expect(stream.append([1]), 204)
    first = expect(stream.read(offset="-1"), 200)
    again = expect(stream.read({"If-None-Match": first.headers["etag"]}, offset="-1"), 304)
    assert again.content == b""
    assert again.headers["etag"] == first.headers["etag"]
    assert again.headers["stream-next-offset"] == first.headers["stream-next-offset"]
    expect(stream.append([2]), 204)
    assert expect(stream.read({"If-None-Match": first.headers["etag"]}, offset="-1"), 200).json() == [1, 2]


@pytest.mark.sensitive("each process caches the definition")
def test_the_entity_tag_changes_with_the_schema(api: Api) -> None:
    stream = api.with_schema(
        schema={
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "required": ["a"],
            "additionalProperties": False,
        }
    )
    expect(stream.append([{"a": 1}]), 204)
    before = expect(stream.read(offset="-1"), 200).headers["etag"]
    lens = {"apiVersion": "durable.lens/v1", "schema": stream.name, "from": 1, "to": 2}
    ops = [{"op": "rename", "from": "/a", "to": "/b"}]
    target = {
        "type": "object",
        "properties": {"b": {"type": "integer"}},
        "required": ["b"],
        "additionalProperties": False,
    }
    expect(stream.define(schema=target, lens={**lens, "ops": ops}), 200)
    answer = expect(stream.read({"If-None-Match": before}, offset="-1"), 200)
    assert answer.json() == [{"b": 1}]
    assert answer.headers["etag"] != before


@pytest.mark.sensitive("the end is in memory, in another process or only in the store")
def test_a_page_before_the_end_may_be_kept_for_ever(long: Stream) -> None:
    first = long.read(offset="-1").headers["stream-next-offset"]
    expect(long.append(RECORDS[:900]), 204)
    expect(long.append(RECORDS[900:]), 204)
    answer = expect(long.read(offset=first), 200)
    assert len(answer.json()) == PAGE
    assert answer.headers["cache-control"] == IMMUTABLE


@pytest.mark.sensitive("the end is in memory, in another process or only in the store")
def test_a_page_that_can_still_grow_may_not(stream: Stream) -> None:
    expect(stream.append([1]), 204)
    assert "immutable" not in stream.read(offset="-1").headers["cache-control"]
    assert "immutable" not in stream.read(offset=stream.end).headers["cache-control"]


@pytest.mark.sensitive("another process may have closed it")
def test_the_end_of_a_closed_stream_may_be_kept_for_ever(stream: Stream) -> None:
    cursor = expect(stream.append([1]), 204).headers["stream-next-offset"]
    expect(stream.append([2], {"Stream-Closed": "true"}), 204)
    answer = expect(stream.read(offset=cursor), 200)
    assert answer.json() == [2]
    assert answer.headers["cache-control"] == IMMUTABLE


def test_pages_of_a_stream_with_a_schema_may_change(api: Api) -> None:
    stream = api.with_schema(schema={"type": "integer"})
    expect(stream.append(list(range(2500))), 204)
    cursor = stream.read(offset="-1").headers["stream-next-offset"]
    assert "immutable" not in expect(stream.read(offset=cursor), 200).headers["cache-control"]


@pytest.mark.parametrize(
    "parameters", [{"since": "never"}, {"live": "maybe"}, {"timeout": "soon", "live": "true", "offset": "-1"}]
)
def test_malformed_parameters_are_refused(stream: Stream, parameters: dict[str, str]) -> None:
    refused(stream.read(**parameters), 400)


def test_an_unknown_stream_is_404(api: Api) -> None:
    refused(api.unused().read(), 404)


def test_every_success_names_the_next_offset(api: Api) -> None:
    stream = api.unused()
    answers = [
        stream.put(),
        stream.put(),
        stream.append([1]),
        stream.head(),
        stream.read(),
        stream.read(key="k"),
        stream.read(offset="now"),
        stream.read(offset="now", live="true", timeout="1ms"),
        stream.at("POST", "", {**JSON, "Stream-Closed": "true"}, b"[2]"),
    ]
    for answer in answers:
        assert answer.status_code in (200, 201, 204)
        assert len(answer.headers["stream-next-offset"]) == 26
    for answer in answers[3:8]:
        assert len(answer.headers["stream-end-offset"]) == 26
