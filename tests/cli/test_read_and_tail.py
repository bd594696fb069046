from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import httpx
import pytest
from click.testing import Result

from cli import offsets, selection
from cli.main import main
from headrace.wal.state import encode_cursor
from tests.cli.conftest import Shell
from tests.cli.fake_server import FakeServer, Stream, answer_lost, status
from tests.cli.test_terminal import on_terminal

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


@pytest.fixture
def counted(server: FakeServer) -> Stream:
    """Twenty records; every fourth is of ann."""
    server.counts = True
    records = [f'{{"n":{number},"s":"{"ab"[number % 2]}"}}'.encode() for number in range(20)]
    server.streams["c"] = Stream("application/json", records, keys=dict.fromkeys(range(0, 20, 4), "ann"))
    return server.streams["c"]


def numbers(result: Result) -> list[int]:
    assert result.exit_code == 0, result.output
    return [json.loads(line)["n"] for line in result.stdout.splitlines()]


def gets(server: FakeServer) -> int:
    return sum(request.method == "GET" for request in server.requests)


@pytest.mark.parametrize("command", ["read", "tail"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("-n", "3"), [17, 18, 19]),
        (("-n", "50"), list(range(20))),
        (("-n", "3", "--filter", '"a"'), [14, 16, 18]),
        (("-n", "2", "--routing-key", "ann"), [12, 16]),
        (("-n", "9", "--routing-key", "ann"), [0, 4, 8, 12, 16]),
        (("--from", "-1", "--routing-key", "ann", "--filter", '"n":1'), [12, 16]),
    ],
)
def test_the_last_records_and_the_selected_ones(
    headrace: Shell, counted: Stream, command: str, options: tuple[str, ...], expected: list[int]
) -> None:
    counted.closed = True
    format_ = ("--format", "lines") if command == "read" else ()
    assert numbers(headrace(command, "c", *format_, *options)) == expected


def test_the_last_records_are_not_looked_for_from_the_start(
    headrace: Shell, counted: Stream, server: FakeServer
) -> None:
    headrace("read", "c", "-n", "2")
    assert gets(server) == 1
    headrace("read", "c", "-n", "2", "--max-records", "1")
    assert gets(server) == 2


def test_the_last_selected_records_are_looked_for_further_and_further_back(
    headrace: Shell, counted: Stream, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "_FIRST_LOOK_RECORDS", 2)
    monkeypatch.setattr(selection, "_GROWTH", 2)
    assert numbers(headrace("read", "c", "--format", "lines", "-n", "1", "--filter", '"n":14')) == [14]
    assert gets(server) == 1 + 2 + 3  # of 2, 4 and 8 records
    monkeypatch.setattr(selection, "LOOK_BACK_RECORDS", 8)
    result = headrace("read", "c", "--format", "lines", "-n", "2", "--filter", '"n":1')
    assert numbers(result) == [18, 19] and not result.stderr
    result = headrace("read", "c", "--format", "lines", "-n", "2", "--routing-key", "ann")
    assert numbers(result) == [12, 16] and not result.stderr
    result = headrace("read", "c", "--format", "lines", "-n", "3", "--routing-key", "ann")
    assert numbers(result) == [12, 16] and "only the last 8 records were looked at" in result.stderr


def test_tail_follows_what_is_selected_behind_the_last_records(
    headrace: Shell, counted: Stream, server: FakeServer
) -> None:
    waits = iter([b'{"n":20,"s":"b"}', b'{"n":21,"s":"a"}'])

    def grow(waited: Stream) -> None:
        record = next(waits, None)
        waited.closed = record is None
        waited.records += [record] if record else []

    server.on_long_poll = grow
    assert numbers(headrace("tail", "c", "-n", "1", "--filter", '"a"')) == [18, 21]


def test_records_are_shown_with_their_offsets_times_and_keys(
    headrace: Shell, counted: Stream, server: FakeServer
) -> None:
    counted.records[16] = b'{"n":16,\n "s":"\\t"}'
    counted.keys[16] = "a\tb"
    result = headrace("read", "c", "-n", "4", "--fields", "offset,time,key,value")
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    offset = rows[0][0]
    assert rows[0][1:] == ["2030-01-01T00:00:16.000Z", "a b", '{"n":16,  "s":"\\t"}']
    assert rows[1][2] == ""
    assert numbers(headrace("read", "c", "--format", "lines", "--from", offset)) == [17, 18, 19]
    as_json = headrace("read", "c", "--max-records", "1", "--fields", "key,value", "--format", "json")
    assert as_json.stdout == '[{"key":"ann","value":{"n":0,"s":"a"}}]\n'
    counted.closed = True
    assert headrace("tail", "c", "-n", "4", "--fields", "offset,time,key,value").stdout == result.stdout
    page = json.loads(headrace("tail", "c", "-n", "1", "--fields", "offset,value", "--json").stdout.splitlines()[0])
    assert page["records"] == [{"offset": page["next_offset"], "value": {"n": 19, "s": "b"}}]


def test_bytes_are_shown_record_by_record(headrace: Shell, server: FakeServer) -> None:
    server.streams["b"] = Stream("text/plain", records=[b"one\ntwo", b"\xff"])
    assert headrace("read", "b", "--fields", "offset,value").stdout_bytes == b"1\tone two\n2\t\xff\n"
    as_json = headrace("read", "b", "--fields", "value", "--format", "json")
    assert json.loads(as_json.stdout) == [{"base64": "b25lCnR3bw=="}, {"base64": "/w=="}]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("read", "c", "-n", "1", "--from", "now"), "exclude each other"),
        (("tail", "c", "-n", "1", "--from", "now"), "exclude each other"),
        (("read", "c", "--fields", "offset,size"), "no field 'size'"),
        (("read", "c", "--fields", "offset", "--format", "raw"), "lines or json"),
        (("tail", "c", "--sse", "--filter", "a"), "--sse goes without"),
        (("tail", "c", "--as", "me", "--routing-key", "a"), "--as goes without"),
        (("read", "b", "-n", "1", "--routing-key", "a"), "leave -n out"),
        (("tail", "b", "-n", "1", "--routing-key", "a"), "needs a JSON stream"),
    ],
)
def test_what_can_not_be_selected_is_told(
    headrace: Shell, counted: Stream, server: FakeServer, args: tuple[str, ...], message: str
) -> None:
    server.streams["b"] = Stream("text/plain")
    result = headrace(*args)
    assert result.exit_code == 2 and message in result.stderr


def test_offsets_that_count_nothing_have_no_last_records(headrace: Shell, stream: Stream) -> None:
    result = headrace("read", "s", "-n", "2")
    assert result.exit_code == 1 and "do not count records" in result.stderr


def test_a_terminal_shows_lines_and_how_far_a_read_is(headrace: Shell, counted: Stream) -> None:
    with on_terminal() as terminal:
        main.main(["read", "c"], standalone_mode=False)
    assert terminal.shown.splitlines()[:20] == [record.decode() for record in counted.records]


def test_a_tail_that_is_terminated_says_where_to_go_on(headrace: Shell, counted: Stream, server: FakeServer) -> None:
    def terminated(_stream: Stream) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    server.on_long_poll = terminated
    result = headrace("tail", "c", "-n", "1", "--filter", "18")
    assert result.exit_code == 130
    assert f"--from {server.offset(20)} goes on from here" in result.stderr


@pytest.mark.parametrize("number", [0, 1, 31, 2**40])
def test_positions_are_those_of_the_server(number: int) -> None:
    offset = encode_cursor(3, number)
    assert offsets.position(offset) == number
    assert offsets.back(offset, 1) == encode_cursor(3, max(0, number - 1))
    assert offsets.back(offset, 2**70, encode_cursor(3, number // 2)) == encode_cursor(3, number // 2)
    assert offsets.position("7") is None and offsets.back("now", 1) is None
