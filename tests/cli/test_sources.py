from __future__ import annotations

import os

import pytest

from cli.client import RetryPolicy, retry_after_s
from cli.commands.tail import pages
from cli.elements import PAUSE
from cli.sources import PAUSE_S, byte_batches, detect, json_batches, literal, pipe_chunks, records
from cli.sse import events


def test_a_pipe_that_pauses_says_so_once() -> None:
    reader, writer = os.pipe()
    chunks = pipe_chunks(reader, report_pauses=True)
    os.write(writer, b"a")
    assert [next(chunks), next(chunks)] == [b"a", PAUSE]
    os.write(writer, b"b")
    os.close(writer)
    assert list(chunks) == [b"b"]
    os.close(reader)
    assert PAUSE_S < 1


def test_a_pause_sends_what_is_in_hand() -> None:
    assert [b.body for b in json_batches([b"1", b"2", PAUSE, PAUSE, b"3"], 10, 100)] == [b"[1,2]", b"[3]"]
    assert [b.body for b in byte_batches([b"ab", PAUSE, PAUSE, b"c"], 10)] == [b"ab", b"c"]


@pytest.mark.parametrize(
    ("head", "whole", "expected"),
    [
        (b'{"a":1}\n{"a":', False, "lines"),
        (b'{"a":1}\n', False, "lines"),
        (b'[{"a":1}\n,{"a":2}]', True, "json"),
        (b'[{"a":"' + b"x" * 70_000, False, "json"),
        (b'{"a":"' + b"x" * 70_000, False, "lines"),
        (b'{\n "a": 1\n}', True, "json"),
        (b"[1]\n[2]\n", True, "lines"),
        (b"[1]\n\n", True, "json"),
        (b"", True, "json"),
    ],
)
def test_formats_are_told_apart(head: bytes, whole: bool, expected: str) -> None:
    assert detect(head, is_whole=whole) == expected


def test_bytes_read_are_counted() -> None:
    counts: list[int] = []
    assert list(records(literal("[1, 2]"), "auto", counts.append)) == [b"1", b"2"]
    assert sum(counts) == 6


def test_waits_double_up_to_a_bound_and_honour_retry_after() -> None:
    policy = RetryPolicy(first_wait_s=1, longest_wait_s=8, longest_retry_after_s=30)
    assert [policy.wait_s(n, None, lambda: 1.0) for n in (1, 2, 3, 4, 5, 99)] == [1, 2, 4, 8, 8, 8]
    assert policy.wait_s(1, None, lambda: 0.0) == 0.5
    assert policy.wait_s(1, 12, lambda: 0.0) == 12
    assert policy.wait_s(1, 999, lambda: 0.0) == 30


def test_retry_after_is_seconds_or_a_date() -> None:
    assert retry_after_s("3", 0) == 3
    assert retry_after_s("Thu, 01 Jan 1970 00:01:40 GMT", 90) == 10
    assert retry_after_s("soon", 0) is None
    assert retry_after_s(None, 0) is None


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_survive_any_cut_and_line_end(size: int, end: bytes) -> None:
    control = b'data: {"streamNextOffset":"7","streamClosed":true}'
    whole = [b": comment", b"event: data", b"data: a", b"data:b\xe2\x80\xa8c", b"data", b"", b"event: control"]
    text = end.join([*whole, control, b"", b"event: data", b"data: cut off"])
    chunks = [text[i : i + size] for i in range(0, len(text), size)]
    assert [event.type for event in events(chunks)] == ["data", "control"]
    (page,) = pages(chunks, "3", is_base64=False)
    assert (page.body.decode(), page.next_offset, page.closed) == ("a\nb\u2028c\n", "7", True)


def test_base64_events_may_span_lines() -> None:
    text = b'event: data\ndata: AQID\ndata: BAU=\n\nevent: control\ndata: {"streamNextOffset":"5"}\n\n'
    (page,) = pages([text], "0", is_base64=True)
    assert page.body == b"\x01\x02\x03\x04\x05"


def test_only_the_last_of_several_pages_moves_the_offset() -> None:
    text = b"event: data\ndata: [1]\n\nevent: data\ndata: [2]\n\nevent: control\n"
    first, last = pages([text, b'data: {"streamNextOffset":"5","upToDate":true}\n\n'], "0", is_base64=False)
    assert (first.next_offset, first.up_to_date, last.next_offset, last.up_to_date) == ("0", False, "5", True)
