"""An input that is appended again, after a run that died somewhere, or when it has changed: nothing is there twice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import Shell
from tests.cli.fake_server import FakeServer, Stream, answer_lost, status

RECORDS = [str(number).encode() for number in range(25)]
BATCHES = ("--batch-records", "10")


@pytest.fixture
def stream(server: FakeServer) -> Stream:
    server.streams["s"] = Stream("application/json")
    return server.streams["s"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "f.jsonl", RECORDS)


def write(path: Path, records: list[bytes]) -> Path:
    path.write_bytes(b"\n".join(records) + b"\n")
    return path


def killed(request: httpx.Request, apply: Callable[[], httpx.Response]) -> httpx.Response:
    """Interrupts the command before the server has the request."""
    raise KeyboardInterrupt


def killed_after(request: httpx.Request, apply: Callable[[], httpx.Response]) -> httpx.Response:
    """Interrupts the command when the server has committed, and before it has answered."""
    apply()
    raise KeyboardInterrupt


def interrupt_at(server: FakeServer, number: int, death: Callable[..., httpx.Response]) -> None:
    server.faults = [None] * number + [death]


@pytest.mark.parametrize("death", [killed, killed_after])
@pytest.mark.parametrize("named", [(), ("--producer-id", "import-7")])
def test_a_rerun_goes_on_wherever_the_run_before_died(
    headrace: Shell,
    stream: Stream,
    server: FakeServer,
    file: Path,
    death: Callable[..., httpx.Response],
    named: tuple[str],
) -> None:
    args = ("append", "s", "--file", str(file), *BATCHES, *named)
    for number in count():
        stream.records.clear()
        stream.producers.clear()
        interrupt_at(server, number, death)
        died = headrace(*args)
        if died.exit_code == 0:
            break
        assert died.exit_code == 130
        assert headrace(*args).exit_code == 0
        assert stream.records == RECORDS
        assert "already appended: 25 records" in headrace(*args).stderr
        assert stream.records == RECORDS
    assert number == 6  # HEAD, two questions, three batches: the run died at each


def test_bytes_go_on_wherever_the_run_before_died(headrace: Shell, server: FakeServer, tmp_path: Path) -> None:
    data = bytes(range(256)) * 3
    (tmp_path / "f").write_bytes(data)
    args = ("append", "b", "--file", str(tmp_path / "f"), "--batch-bytes", "256")
    for number in range(6):
        server.streams["b"] = Stream("image/png")
        interrupt_at(server, number, killed_after)
        assert headrace(*args).exit_code == 130
        assert headrace(*args, "--batch-records", "7").exit_code == 0
        assert "already appended: 768 bytes" in headrace(*args).stderr
        assert b"".join(server.streams["b"].records) == data
    (tmp_path / "f").write_bytes(data + b"more")
    headrace(*args)
    assert b"".join(server.streams["b"].records) == data + b"more"
    (tmp_path / "f").write_bytes(b"other" * 200)
    assert "the input has changed" in headrace(*args).stderr


def test_an_interrupted_run_says_what_is_there_and_what_goes_on(
    headrace: Shell, stream: Stream, server: FakeServer, file: Path
) -> None:
    interrupt_at(server, 4, killed_after)
    died = headrace("--key", "secret", "append", "s", "--file", str(file), *BATCHES)
    assert (
        "stopped: appended 10 records, 21 bytes in 1 request; 10 records under way, which may be there" in died.stderr
    )
    assert f"the same command goes on: headrace --key … append s --file {file} --batch-records 10" in died.stderr
    assert "secret" not in died.stderr
    again = headrace("append", "s", "--file", str(file), *BATCHES, "--json")
    shown = json.loads(again.stdout)
    assert (shown["records"], shown["already_there"], shown["next_offset"]) == (5, 20, "25")


def test_data_of_the_command_line_goes_on_under_the_id_that_is_printed(
    headrace: Shell, stream: Stream, server: FakeServer
) -> None:
    interrupt_at(server, 1, killed_after)
    args = ("append", "s", "--data", "[1,2]")
    died = headrace(*args)
    more = died.stderr.partition("this goes on: headrace append s --data '[1,2]' ")[2].split()
    assert more[0] == "--producer-id" and headrace(*args, *more).exit_code == 0
    assert stream.records == [b"1", b"2"]


def test_sigterm_is_an_interrupt(headrace: Shell, stream: Stream, server: FakeServer, file: Path) -> None:
    def terminated(request: httpx.Request, apply: Callable[[], httpx.Response]) -> httpx.Response:
        os.kill(os.getpid(), signal.SIGTERM)
        return apply()

    interrupt_at(server, 4, terminated)
    before = signal.getsignal(signal.SIGTERM)
    died = headrace("append", "s", "--file", str(file), *BATCHES)
    assert died.exit_code == 130 and "stopped: appended 10 records" in died.stderr
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_failed_run_says_what_goes_on(headrace: Shell, stream: Stream, server: FakeServer, file: Path) -> None:
    server.faults = [None, None, None, None, status(400)]
    failed = headrace("append", "s", "--file", str(file), *BATCHES)
    assert failed.exit_code == 1
    assert "before that: appended 10 records, 21 bytes in 1 request\n" in failed.stderr
    assert "the same command goes on: headrace append" in failed.stderr
    server.faults = [None] * 4 + [answer_lost] * 10
    assert "10 records under way" in headrace("append", "s", "--file", str(file), *BATCHES).stderr


@pytest.mark.parametrize("died_at", [None, 3, 4])
def test_other_batches_are_refused_only_where_they_matter(
    headrace: Shell, stream: Stream, server: FakeServer, file: Path, died_at: int | None
) -> None:
    args = ("append", "s", "--file", str(file))
    if died_at is not None:
        interrupt_at(server, died_at, killed_after)
    headrace(*args, *BATCHES)
    there = list(stream.records)
    for other in [("--batch-records", "9"), ("--batch-records", "1000"), (*BATCHES, "--batch-bytes", "20")]:
        again = headrace(*args, *other)
        assert stream.records == there
        if died_at is None:
            assert "already appended" in again.stderr  # all of it is there, however it was sent
        else:
            assert again.exit_code == 2
            assert "go on with the same: --batch-records 10 --batch-bytes 1048576" in again.stderr


def test_a_file_that_has_grown_goes_on_with_what_is_new(
    headrace: Shell, stream: Stream, server: FakeServer, file: Path
) -> None:
    args = ("append", "s", "--file", str(file))
    headrace(*args, *BATCHES)
    for length, batches in ((26, BATCHES), (60, ("--batch-records", "7")), (61, ())):
        records = [str(number).encode() for number in range(length)]
        write(file, records)
        interrupt_at(server, 4, killed_after)
        headrace(*args, *batches)
        headrace(*args, *batches)
        assert stream.records == records
    file.write_bytes(b"[" + b",".join([*records, b"61"]) + b"]")  # as an array, these are the same records
    headrace(*args)
    assert stream.records == [*records, b"61"]


def test_a_file_that_grew_after_a_run_that_died_goes_on(
    headrace: Shell, stream: Stream, server: FakeServer, file: Path
) -> None:
    for number in range(3, 6):
        stream.records.clear()
        stream.producers.clear()
        write(file, RECORDS)
        interrupt_at(server, number, killed_after)
        headrace("append", "s", "--file", str(file), *BATCHES)
        write(file, [*RECORDS, *RECORDS])
        headrace("append", "s", "--file", str(file), *BATCHES)
        assert stream.records == [*RECORDS, *RECORDS]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (RECORDS[:24], "appended 25 records; now it has 24 records"),
        ([*RECORDS[:10], b"0", *RECORDS[11:]], "appended 25 records; these are different now"),
        ([*RECORDS[:24], b"245"], "appended 25 records; these are different now"),
    ],
)
def test_a_file_that_has_changed_is_refused(
    headrace: Shell, stream: Stream, file: Path, changed: list[bytes], message: str
) -> None:
    headrace("append", "s", "--file", str(file), *BATCHES)
    refused = headrace("append", "s", "--file", str(write(file, changed)), *BATCHES)
    assert refused.exit_code == 2 and stream.records == RECORDS
    assert message in refused.stderr and "--producer-id NAME" in refused.stderr
    assert headrace("append", "s", "--file", str(file), *BATCHES, "--producer-id", "new").exit_code == 0
    assert stream.records == [*RECORDS, *changed]


def test_a_file_that_has_changed_in_the_middle_of_a_run_is_refused(
    headrace: Shell, stream: Stream, server: FakeServer, file: Path
) -> None:
    interrupt_at(server, 4, killed_after)
    headrace("append", "s", "--file", str(file), *BATCHES)
    shorter = headrace("append", "s", "--file", str(write(file, RECORDS[:15])), *BATCHES)
    assert shorter.exit_code == 2 and "it ends before that now" in shorter.stderr
    other = headrace("append", "s", "--file", str(write(file, [b"0", *RECORDS])), *BATCHES)
    assert other.exit_code == 2 and "its beginning is different now" in other.stderr
    assert stream.records == RECORDS[:20]


def test_other_data_is_not_taken_for_the_data_before(
    headrace: Shell, stream: Stream, file: Path, tmp_path: Path
) -> None:
    headrace("append", "s", "--file", str(file))
    headrace("append", "s", "--file", str(write(file, [b"7", b"8"])))
    assert stream.records == [*RECORDS, b"7", b"8"]
    headrace("append", "s", "--file", str(file), "--stream-key", "k")  # with a key they are other records
    headrace("append", "s", "--file", str(write(tmp_path / "copy", [b"7", b"8"])))
    assert stream.records == [*RECORDS, *[b"7", b"8"] * 3]


def test_several_files_are_one_input(headrace: Shell, stream: Stream, file: Path, tmp_path: Path) -> None:
    args = ("append", "s", "--file", str(file), "--file", str(write(tmp_path / "g", [b"7"])), "--data", "8")
    headrace(*args)
    assert "already appended: 27 records" in headrace(*args).stderr


def test_a_closed_stream_has_all_of_it(headrace: Shell, stream: Stream, file: Path) -> None:
    for args in (("--file", str(file)), ("--data", "1", "--producer-id", "p")):
        stream.closed = False
        headrace("append", "s", *args, "--close")
        there = len(stream.records)
        again = headrace("append", "s", *args, "--close")
        assert again.exit_code == 0 and "already appended" in again.stderr
        assert len(stream.records) == there
    interrupted = headrace("append", "s", "--data", "2")
    assert interrupted.exit_code == 1 and "closed" in interrupted.stderr


def test_a_new_stream_of_the_same_name_gets_all_of_it(headrace: Shell, server: FakeServer, file: Path) -> None:
    for _ in range(2):
        server.streams["s"] = Stream("application/json")
        headrace("append", "s", "--file", str(file))
        assert server.streams["s"].records == RECORDS


def test_a_server_that_takes_numbers_in_any_order_is_told_of(
    headrace: Shell, stream: Stream, server: FakeServer, file: Path
) -> None:
    server.faults = [None, status(200)]
    result = headrace("append", "s", "--file", str(file))
    assert result.exit_code == 1 and "in any order" in result.stderr
    assert headrace("append", "s", "--file", str(file), "--producer-id", "p", "--producer-epoch", "0").exit_code == 0
