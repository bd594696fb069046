"""Times, headers, names and bodies: parsed once, strictly."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import orjson
import pytest
import simdjson
from hypothesis import given
from hypothesis import strategies as st

from functions.api.door import requests
from functions.api.streams import live, records
from functions.api.streams.records import StreamHeaders
from headrace import instants
from headrace.batch import Batch
from headrace.errors import InvalidRequest
from headrace.streams.values import ForkRequest
from headrace.wal.state import Producer


def headers(**values: str | bytes) -> StreamHeaders:
    raw = [(n.replace("_", "-").encode(), v if isinstance(v, bytes) else v.encode()) for n, v in values.items()]
    return StreamHeaders({"headers": raw})


@given(
    st.datetimes(min_value=datetime(1970, 1, 3), max_value=datetime(9999, 12, 29)),
    st.integers(-23 * 60 - 59, 23 * 60 + 59),
)
def test_rfc3339_agrees_with_the_standard_library(moment: datetime, zone_minutes: int) -> None:
    zoned = moment.replace(tzinfo=timezone(timedelta(minutes=zone_minutes)))
    expected = (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert instants.rfc3339_ms(zoned.isoformat(), "t") == expected
    assert instants.rfc3339_ms(instants.text_of(expected), "t") == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2024-01-01",
        "2024-01-01T00:00:00",
        "2024-01-01 00:00:00Z",
        "2024-13-01T00:00:00Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:00:00.1234567890Z",
        "2024-01-01T00:00:00+24:00",
        "2024-01-01T00:00:00+0100",
        "0001-01-01T00:00:00+01:00",
        "٢٠٢٤-01-01T00:00:00Z",
    ],
)
def test_what_is_not_rfc3339_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        instants.rfc3339_ms(text, "t")


def test_nanoseconds_are_rounded_down() -> None:
    assert instants.rfc3339_ms("1970-01-01T00:00:01.001999999Z", "t") == 1001
    assert instants.timestamp_ms("1001999999", "t") == 1001
    with pytest.raises(InvalidRequest):
        instants.timestamp_ms("9" * 21, "t")


@pytest.mark.parametrize(
    ("text", "millis"),
    [("0", 0), ("3600", 3_600_000), ("24h", 86_400_000), ("1h30m", 5_400_000), ("15s", 15_000), ("1500ms", None),
     ("2000ms", 2000), ("1s500ms", None), ("00060", None), ("+60", None), ("-1", None), ("60.5", None), ("1e3", None),
     ("", None), ("h", None), ("1m1h", None), ("9" * 15, None), ("9" * 16, None), ("6٠", None)],
)  # fmt: skip
def test_ttl_is_whole_seconds_or_a_duration(text: str, millis: int | None) -> None:
    if millis is None:
        with pytest.raises(InvalidRequest):
            instants.ttl_ms(text, "Stream-TTL")
    else:
        assert instants.ttl_ms(text, "Stream-TTL") == millis


@pytest.mark.parametrize(("text", "millis"), [("0", 0), ("250", 250), ("500ms", 500), ("5s", 5000), ("2m", 120_000)])
def test_timeouts_are_milliseconds_or_a_duration(text: str, millis: int) -> None:
    assert instants.timeout_ms(text, "timeout") == millis


def test_a_content_type_is_its_base_in_lower_case() -> None:
    assert headers(content_type="Application/JSON; charset=utf-8").content_type == "application/json"
    assert headers(content_type=" ").content_type is None
    for bad in ("json", "a/b c", "a/", "/b", "a/b\u00e9"):
        with pytest.raises(InvalidRequest):
            _ = headers(content_type=bad).content_type


def test_a_key_is_utf8_or_latin1() -> None:
    assert headers(stream_key="clé").key == "clé"
    assert headers(stream_key="clé".encode("latin-1")).key == "clé"
    assert headers(stream_key="").key is None
    with pytest.raises(InvalidRequest):
        _ = headers(stream_key="k" * 4097).key


def test_stream_closed_counts_only_if_true() -> None:
    assert headers(stream_closed="TRUE").closes
    for other in ("false", "1", "yes", ""):
        assert not headers(stream_closed=other).closes


def producer(**values: str) -> Producer | None:
    return headers(**{f"producer_{name}": value for name, value in values.items()}).producer


def test_producer_headers_come_together_and_are_canonical() -> None:
    assert producer() is None
    assert producer(id="p", epoch="0", seq="9007199254740991") == Producer("p", 0, 2**53 - 1)
    bad: list[dict[str, str]] = [{"id": "p"}, {"epoch": "1", "seq": "1"}, {"id": "", "epoch": "0", "seq": "0"}]
    bad += [
        {"id": "p", "epoch": "0", "seq": seq} for seq in ("1a", "", "01", "+1", "-1", "1.0", "9007199254740992", "１")
    ]
    bad += [{"id": "p" * 257, "epoch": "0", "seq": "0"}]
    for values in bad:
        with pytest.raises(InvalidRequest):
            producer(**values)


def test_a_fork_names_its_source_by_path() -> None:
    assert headers().fork() is None
    assert headers(stream_forked_from="/v1/stream/a%2Fb/c").fork() == ForkRequest(source="a/b/c")
    assert headers(stream_forked_from="bare").fork() == ForkRequest(source="bare")


@pytest.mark.parametrize(
    "values",
    [
        {"stream_fork_offset": "-1"},
        {"stream_fork_sub_offset": "0"},
        {"stream_forked_from": "/v1/stream/a", "stream_fork_sub_offset": "1"},
        {"stream_forked_from": "/v1/stream/a", "stream_fork_offset": "-1", "stream_fork_sub_offset": "-1"},
        {"stream_forked_from": "/v1/stream/a", "stream_fork_offset": "now"},
        {"stream_forked_from": "http://elsewhere/v1/stream/a"},
        {"stream_forked_from": "/elsewhere/a"},
        {"stream_forked_from": "/v1/stream/%ff"},
        {"stream_forked_from": ""},
    ],
)
def test_a_malformed_fork_is_refused(values: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        headers(**values).fork()


def test_both_expiries_exclude_each_other() -> None:
    with pytest.raises(InvalidRequest):
        headers(stream_ttl="1", stream_expires_at="2030-01-01T00:00:00Z").expiry()
    assert headers(stream_expires_at="1960-01-01T00:00:00Z").expiry() == (None, 0)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.lists(json_values, min_size=1), st.sampled_from([None, 1]))
def test_the_text_of_each_element_survives(values: list[Any], indent: int | None) -> None:
    texts = [json.dumps(value, indent=indent, ensure_ascii=False).encode() for value in values]
    body = b" [\n " + b" ,\t".join(texts) + b"\r\n] "
    assert requests.records(body, "application/json", None).slices() == texts


def test_a_single_value_is_one_record_and_arrays_open_one_level() -> None:
    def cut(body: bytes) -> list[bytes]:
        return requests.records(body, "application/json", "k").slices()

    assert cut(b' {"a": 1.0} ') == [b'{"a": 1.0}']
    assert cut(b"[[1, 2],[ ]]") == [b"[1, 2]", b"[ ]"]
    assert cut(b"[]") == cut(b"") == []
    assert requests.records(b"[1]", "text/plain", "k") == Batch.of([b"[1]"], key="k")


@pytest.mark.parametrize(
    "body",
    [
        b" ",
        b"{",
        b"[1,]",
        b"NaN",
        b"[1] 2",
        b'"\xff"',
        b'"\\ud800"',
        b"\xef\xbb\xbf[]",
        b"[" * 100_000,
        b"01",
        b"'a'",
        b"[NaN]",
        b"[1] 2",
        b"[01]",
        b"[1e400]",
        b"[" + b"9" * 400 + b"]",
        b'["\xff"]',
        b'["\xed\xa0\x80"]',
        b'["\\ud800"]',
        b'["\\udc00\\ud800"]',
        b"[1]\0",
        b"[" * 1025 + b"]" * 1025,
    ],
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        requests.records(body, "application/json", None)


@pytest.mark.parametrize("element", [b"-0", b"1e308", b'"\\ud83d\\ude00"', b'"\\u0000"', b"[" * 200 + b"]" * 200])
def test_most_arrays_are_checked_without_building_objects(element: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orjson, "loads", lambda _: pytest.fail("simdjson refused it"))
    body = b"\n [" + element + b",1]"
    assert requests.records(body, "application/json", None).slices() == [element, b"1"]


@pytest.mark.parametrize("element", [b"18446744073709551616", b"-9223372036854775809"])
def test_an_integer_above_64_bits_is_a_record(element: bytes) -> None:
    with pytest.raises((ValueError, RuntimeError)):  # else the second parser were for nothing
        simdjson.Parser().parse(element)
    assert requests.records(b"[" + element + b"]", "application/json", None).slices() == [element]


LARGE = b"[]," * 99_000
LONG = [b"18446744073709551616", b"-9223372036854775809", b"9" * 308, b'"\\u12345678901234567890123"']


@pytest.mark.parametrize("element", [b"{}", *LONG])
def test_of_a_large_body_nothing_is_built(element: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orjson, "loads", lambda _: pytest.fail("it builds what is there"))
    assert requests.records(b"[" + LARGE + element + b"]", "application/json", None).slices()[-1] == element
    document = b'{"a":[' + LARGE + element + b"]}"
    assert requests.records(document, "application/json", None).slices() == [document]
    for end in (b"", b"1", b",]", b"]]", b",1e400]", b",12345678901234567890e300]", b",1e12345678901234567890]",
                b",012345678901234567890]", b',"\\ud8001234567890123456789"]', b"," + b"9" * 309 + b"]"):  # fmt: skip
        with pytest.raises(InvalidRequest):
            requests.records(b"[" + LARGE + element + end, "application/json", None)


@pytest.mark.parametrize(
    ("raw", "name"),
    [(b"a%2Fb", "a/b"), (b"a/b", "a/b"), (b"100%25", "100%"), (b"%252F", "%2F"), (b"%E2%82%AC", "€"), (b"a+b", "a+b"),
     (b"a%3Fb", "a?b"), (b"a%20b", "a b")],
)  # fmt: skip
def test_a_name_is_decoded_once(raw: bytes, name: str) -> None:
    assert records.STREAMS.name_in({"raw_path": b"/v1/stream/" + raw, "path": "unused"}) == name


NOT_NAMES = [b"", b"%", b"%zz", b"%2", b"%ff", b"%E2%82", b"a%00b", b"a%0Ab", b"a/_schema", b"__ds/x", b"n" * 1025]


@pytest.mark.parametrize("raw", NOT_NAMES)
def test_what_is_not_a_name_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidRequest):
        records.STREAMS.name_in({"raw_path": b"/v1/stream/" + raw, "path": "unused"})


@given(st.integers(0, 2**40), st.none() | st.integers(0, 2**30), st.integers(0, 3599))
def test_stream_cursors_never_stand_still(now_ms: int, client: int | None, jitter: int) -> None:
    cursor = live.next_cursor(client, 1_728_432_000_000 + now_ms, lambda below: jitter)
    assert cursor >= now_ms // 20_000
    assert client is None or cursor > client
