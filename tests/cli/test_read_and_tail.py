from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import Shell
from tests.cli.fake_server import FakeServer, Stream, answer_lost, status

RECORDS = [b'{"n": 1.0 }', b"[2,\n 3]", b'"x\\ny"', b"4", b"5e3", b"{ }", b"7"]


@pytest.fixture
def stream(server: FakeServer) -> Stream:
    server.streams["s"] = Stream("application/json", records=list(RECORDS))
    return server.streams["s"]


def test_json_is_one_array_of_the_exact_texts(headrace: Shell, stream: Stream) -> None:
    assert headrace("read", "s").stdout_bytes == b"[" + b",\n".join(RECORDS) + b"]\n"


def test_lines_keep_the_texts_but_for_line_breaks(headrace: Shell, stream: Stream) -> None:
    lines = headrace("read", "s", "--format", "lines").stdout_bytes.splitlines()
    assert lines == [record.replace(b"\n", b" ") for record in RECORDS]


def test_raw_puts_nothing_between(headrace: Shell, stream: Stream) -> None:
    assert headrace("read", "s", "--format", "raw").stdout_bytes == b"".join(RECORDS)


def test_an_empty_stream_reads_as_an_empty_array(headrace: Shell, server: FakeServer) -> None:
    server.streams["e"] = Stream("application/json")
    assert headrace("read", "e").stdout == "[]\n"


def test_a_page_that_is_lost_is_read_again(headrace: Shell, stream: Stream, server: FakeServer) -> None:
    server.faults = [None, None, answer_lost, status(503), None, answer_lost]
    assert headrace("read", "s", "--format", "raw").stdout_bytes == b"".join(RECORDS)


def test_reading_starts_and_stops_where_asked(headrace: Shell, stream: Stream, tmp_path: Path) -> None:
    def texts(*args: str) -> list[bytes]:
        return headrace("read", "s", "--format", "lines", *args).stdout_bytes.splitlines()

    assert texts("--from", "5") == [b"{ }", b"7"]
    assert texts("--from", "now") == []
    assert texts("--max-records", "4") == [b'{"n": 1.0 }', b"[2,  3]", b'"x\\ny"', b"4"]
    out = tmp_path / "o"
    result = headrace("read", "s", "--max-records", "4", "--output", str(out), "--json")
    assert json.loads(result.stdout)["next_offset"] is None
    result = headrace("read", "s", "--max-records", "3", "--output", str(out), "--json")
    assert json.loads(result.stdout)["next_offset"] == "3"
    assert len(json.loads(out.read_bytes())) == 3


def test_since_is_for_the_first_page_only(headrace: Shell, stream: Stream, server: FakeServer) -> None:
    headrace("read", "s", "--since", "2030-01-01T00:00:00Z")
    params = [dict(request.url.params) for request in server.requests if request.method == "GET"]
    assert params == [{"since": "2030-01-01T00:00:00Z"}, {"offset": "3"}, {"offset": "6"}]
    assert headrace("read", "s", "--since", "0", "--from", "-1").exit_code == 2


def test_bytes_read_as_bytes(headrace: Shell, server: FakeServer) -> None:
    server.streams["b"] = Stream("image/png", records=[b"\x00\xff", b"\n", b"\r", b"end"])
    assert headrace("read", "b").stdout_bytes == b"\x00\xff\n\rend"
    assert headrace("read", "b", "--format", "lines").exit_code == 2


def growing(server: FakeServer, stream: Stream) -> None:
    """Each wait finds one more record; the third finds the stream closed."""
    waits = iter([b"8", b"9"])

    def grow(waited: Stream) -> None:
        record = next(waits, None)
        if record is None:
            waited.closed = True
        else:
            waited.records.append(record)

    server.on_long_poll = grow


@pytest.mark.parametrize("mode", [(), ("--sse",)])
def test_tail_follows_to_the_close(
    headrace: Shell, stream: Stream, server: FakeServer, mode: tuple[str, ...]
) -> None:
    growing(server, stream)
    result = headrace("tail", "s", *mode)
    assert (result.exit_code, result.stdout.split()) == (0, ["8", "9"])


@pytest.mark.parametrize("mode", [(), ("--sse",)])
def test_tail_neither_repeats_nor_skips_over_lost_connections(
    headrace: Shell, stream: Stream, server: FakeServer, mode: tuple[str, ...]
) -> None:
    growing(server, stream)
    server.faults = [None, status(429), None, answer_lost, status(502), None]
    result = headrace("tail", "s", "--from", "-1", "--json", *mode)
    assert result.exit_code == 0
    pages = [json.loads(line) for line in result.stdout.splitlines()]
    assert [record for page in pages for record in page["records"]] == [json.loads(r) for r in stream.records]
    assert [page["offset"] for page in pages[1:]] == [page["next_offset"] for page in pages[:-1]]
    assert pages[-1]["closed"] and not pages[0]["closed"]


def test_tail_from_now_is_fixed_before_the_first_wait(headrace: Shell, stream: Stream, server: FakeServer) -> None:
    growing(server, stream)

    def appended_while_refused(request: httpx.Request, apply: object) -> httpx.Response:
        stream.records.append(b'"meanwhile"')
        return httpx.Response(503)

    server.faults = [None, appended_while_refused]
    assert headrace("tail", "s").stdout.split() == ['"meanwhile"', "8", "9"]


def test_tail_of_a_deleted_stream_ends_with_an_error(headrace: Shell, stream: Stream, server: FakeServer) -> None:
    server.faults = [None, status(404)]
    assert headrace("tail", "s").exit_code == 1
