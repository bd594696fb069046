from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from cli.producers import LAST_NUMBER
from tests.cli.conftest import Shell
from tests.cli.fake_server import FakeServer, Stream, answer_lost, status

ODD_TEXT = [b'{"b": 1.0,  "a":12345678901234567890123 }', b'{"b":2,\n "a": [ ]}', b'"\\u00e9"', b"1e5"]


@pytest.fixture
def stream(server: FakeServer) -> Stream:
    server.streams["s"] = Stream("application/json")
    return server.streams["s"]


def posts(server: FakeServer) -> list[httpx.Request]:
    """Returns the requests that append, without those that only ask what is there."""
    sent = [request for request in server.requests if request.method == "POST"]
    return [request for request in sent if request.headers.get("producer-seq") != str(LAST_NUMBER)]


def test_the_text_of_every_record_arrives_unchanged(headrace: Shell, stream: Stream, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b" [ " + b" ,\n".join(ODD_TEXT) + b"]\n")
    result = headrace("append", "s", "--file", str(file), "--json")
    assert stream.records == ODD_TEXT
    summary = json.loads(result.stdout)
    assert (summary["records"], summary["requests"], summary["next_offset"]) == (4, 1, "4")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("[1,2]", 2),
        ("[1,2]\n", 2),
        ("[1,2]\n[3]\n", 2),
        ('{"a":1}\n{"a":2}\n', 2),
        ('{"a":1}', 1),
        ('{\n"a":1}\n{"a":2}', 2),
        ("[\n1\n,2,3]", 3),
        ("1\n2\n3\n", 3),
        ("[]", 0),
    ],
)
def test_the_format_of_a_file_is_seen(headrace: Shell, stream: Stream, tmp_path: Path, text: str, count: int) -> None:
    (tmp_path / "f").write_text(text)
    assert headrace("append", "s", "--file", str(tmp_path / "f")).exit_code == 0
    assert len(stream.records) == count


def test_batches_keep_both_limits(headrace: Shell, stream: Stream, server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("\n".join(["1"] * 25 + ['"' + "x" * 200 + '"'] + ["2"] * 3))
    headrace("append", "s", "--file", str(tmp_path / "f"), "--batch-records", "10", "--batch-bytes", "100")
    assert [len(json.loads(request.content)) for request in posts(server)] == [10, 10, 5, 1, 3]
    assert [request.headers["producer-seq"] for request in posts(server)] == ["0", "1", "2", "3", "0"]


@pytest.mark.parametrize("fault", [answer_lost, status(503), status(408), status(429), status(500)])
def test_a_request_that_is_sent_again_is_applied_once(
    headrace: Shell, stream: Stream, server: FakeServer, fault: object
) -> None:
    server.faults = [None, fault, fault]  # type: ignore[list-item]
    result = headrace("append", "s", "--data", "[1,2]", "--json")
    assert stream.records == [b"1", b"2"]
    assert json.loads(result.stdout)["retries"] == 2


def test_retry_after_is_honoured(headrace: Shell, stream: Stream, server: FakeServer) -> None:
    server.faults = [None, status(429, retry_after="7")]
    assert headrace("append", "s", "--data", "1").exit_code == 0
    assert headrace.slept == [7.0]


def test_runs_without_a_producer_id_do_not_know_each_other(headrace: Shell, stream: Stream) -> None:
    headrace("append", "s", "--data", "1")
    headrace("append", "s", "--data", "1")
    assert stream.records == [b"1", b"1"]


def test_a_locked_out_producer_is_told_the_epoch(headrace: Shell, stream: Stream) -> None:
    headrace("append", "s", "--data", "1", "--producer-id", "p", "--producer-epoch", "3")
    result = headrace("append", "s", "--data", "2", "--producer-id", "p", "--producer-epoch", "2")
    assert result.exit_code == 1
    assert "--producer-epoch 3" in result.stderr
    other = headrace("append", "s", "--data", "2", "--producer-id", "p")
    assert other.exit_code == 2
    assert "not used by this command" in other.stderr and "--producer-epoch 3" in other.stderr


def test_hints_travel_as_headers_and_stream_seq_grows(headrace: Shell, stream: Stream, server: FakeServer) -> None:
    headrace("append", "s", "--data", "[1,2,3]", "--batch-records", "1", "--seq", "v1", "--stream-key", "ключ",
             "--timestamp", "2030-01-01T00:00:00Z")  # fmt: skip
    seqs = [request.headers["stream-seq"] for request in posts(server)]
    assert seqs == sorted(set(seqs)) and seqs[0] == "v1"
    keys = [dict(request.headers.raw)[b"stream-key"] for request in posts(server)]
    assert keys == ["ключ".encode()] * 3
    assert posts(server)[0].headers["stream-timestamp"] == "2030-01-01T00:00:00Z"


def test_close_closes_after_the_data(headrace: Shell, stream: Stream) -> None:
    headrace("append", "s", "--data", "1", "--close")
    assert stream.closed and stream.records == [b"1"]
    refused = headrace("append", "s", "--data", "2")
    assert refused.exit_code == 1 and "closed (its end is 1)" in refused.stderr


def test_create_makes_a_missing_stream(headrace: Shell, server: FakeServer) -> None:
    missing = headrace("append", "new", "--data", "1")
    assert missing.exit_code == 1 and "--create makes it" in missing.stderr
    assert headrace("append", "new", "--data", "1", "--create").exit_code == 0
    assert server.streams["new"].records == [b"1"]


def test_bytes_go_in_chunks(headrace: Shell, server: FakeServer, tmp_path: Path) -> None:
    data = bytes(range(256)) * 4
    (tmp_path / "f").write_bytes(data)
    headrace("append", "b", "--create", "--content-type", "image/png", "--file", str(tmp_path / "f"),
             "--batch-bytes", "1000")  # fmt: skip
    assert [len(record) for record in server.streams["b"].records] == [1000, 24]
    assert b"".join(server.streams["b"].records) == data


def test_formats_that_do_not_fit_the_stream_are_refused(headrace: Shell, stream: Stream, server: FakeServer) -> None:
    server.streams["b"] = Stream("text/plain")
    assert headrace("append", "s", "--data", "1", "--format", "bytes").exit_code == 2
    assert headrace("append", "b", "--data", "1", "--format", "lines").exit_code == 2


def test_bad_json_says_where(headrace: Shell, stream: Stream, tmp_path: Path) -> None:
    (tmp_path / "f").write_text('[1, {"a" 2}]')
    result = headrace("append", "s", "--file", str(tmp_path / "f"))
    assert result.exit_code == 2 and "record 2" in result.stderr
    assert headrace("append", "s", "--data", "1", "--stream-key", "a\nb").exit_code == 2


def test_empty_data_does_not_end_the_input(headrace: Shell, server: FakeServer, tmp_path: Path) -> None:
    server.streams["b"] = Stream("text/plain")
    (tmp_path / "f").write_bytes(b"more")
    headrace("append", "b", "--data", "", "--file", str(tmp_path / "f"))
    assert server.streams["b"].records == [b"more"]


def test_an_empty_input_is_told(headrace: Shell, stream: Stream, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    empty = headrace("append", "s", "--file", str(tmp_path / "f"))
    assert (empty.exit_code, empty.stderr) == (0, "nothing to append: the input is empty\n")
    assert headrace("append", "s", "--file", str(tmp_path / "f"), "--close").stderr == "appended nothing; closed\n"


@pytest.mark.parametrize("args", [("s", "--data", '"\udcff"'), ("\udcff", "--data", "1")])
def test_text_that_is_not_utf8_is_refused(headrace: Shell, stream: Stream, args: tuple[str, ...]) -> None:
    refused = headrace("append", *args)
    assert refused.exit_code == 2 and "is not UTF-8" in refused.stderr
    assert stream.records == []


def test_a_key_is_not_shown_when_it_is_refused(headrace: Shell, stream: Stream) -> None:
    refused = headrace("append", "s", "--data", "1", "--key", "sec\nret")
    assert refused.exit_code == 2 and "control characters" in refused.stderr and "sec" not in refused.stderr


def test_a_full_disk_is_an_error_without_a_trace(headrace: Shell, stream: Stream) -> None:
    stream.records.append(b"1")
    full = headrace("read", "s", "--output", "/dev/full")
    assert full.exit_code == 1 and full.stderr.endswith("error: No space left on device\n")
