"""`headrace tail --as` and `headrace work --as`, as processes, against a fake server; tests wait for what they print."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.errors import BadInput
from cli.subscriptions import consumer_id, is_covered, literal_prefix
from tests.cli.conftest import Shell
from tests.cli.fake_server import FakeServer, Stream, answer_lost, status
from tests.cli.fake_subscriptions import FakeSubscriptions, refusal
from tests.cli.fake_topics import serve

ROOT = Path(__file__).parents[2]
NUMBERS = [b"%d" % number for number in range(1, 8)]


@pytest.fixture
def streams() -> FakeSubscriptions:
    """A server with the stream `orders/eu`, which has seven records: three pages."""
    fake = FakeSubscriptions()
    fake.append("orders/eu", *NUMBERS)
    return fake


@pytest.fixture
def url(streams: FakeSubscriptions) -> Iterator[str]:
    with serve(streams) as url:
        yield url


@contextmanager
def started(url: str, *args: str, home: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """Runs `headrace` in a process; kills it in the end."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **({"HOME": str(home)} if home else {})}
    argv = [sys.executable, "-m", "cli.main", "--url", url, *args]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    """Reads so many lines of a process. Fails if it ends before."""
    assert process.stdout is not None
    found = [process.stdout.readline().strip() for _ in range(count)]
    assert "" not in found, (found, process.stderr and process.stderr.read())
    return found


def events_until(process: subprocess.Popen[str], name: str, count: int = 1) -> list[dict[str, Any]]:
    """Reads a worker's events up to the `count`-th of a name. Fails if it ends before."""
    assert process.stdout is not None
    found = list[dict[str, Any]]()
    for line in process.stdout:
        found.append(json.loads(line))
        if sum(event["event"] == name for event in found) == count:
            return found
    raise AssertionError(f"no {name}: {found} {process.stderr and process.stderr.read()}")


def acked(streams: FakeSubscriptions, id_: str) -> int:
    with streams.changed:
        (offset,) = streams.subscriptions[id_].acked.values()
        return offset


def wait_until_acked(streams: FakeSubscriptions, id_: str, offset: int) -> None:
    with streams.changed:
        assert streams.changed.wait_for(
            lambda: id_ in streams.subscriptions and list(streams.subscriptions[id_].acked.values()) == [offset], 30
        )


def test_a_name_goes_on_where_it_stopped_on_another_machine(
    streams: FakeSubscriptions, url: str, tmp_path: Path
) -> None:
    command = ("tail", "orders/eu", "--as", "me", "--from", "-1")
    with started(url, *command, home=tmp_path / "one") as here:
        assert lines(here, 7) == [number.decode() for number in NUMBERS]
        wait_until_acked(streams, "me/orders/eu", 7)
        here.send_signal(signal.SIGINT)
        assert here.wait() == 130
        assert here.stderr is not None and "--as me goes on from here" in here.stderr.read()
    streams.append("orders/eu", b"8")
    with started(url, *command, home=tmp_path / "two") as there:
        assert lines(there, 1) == ["8"]
        streams.append("orders/eu", b"9")
        assert lines(there, 1) == ["9"]
        streams.close("orders/eu")
        assert there.wait() == 0
    assert acked(streams, "me/orders/eu") == 9


def test_a_new_name_begins_at_the_end(streams: FakeSubscriptions, url: str) -> None:
    with started(url, "tail", "orders/eu", "--as", "me", "--json") as tail:
        with streams.changed:
            assert streams.changed.wait_for(lambda: "me/orders/eu" in streams.subscriptions, 30)
        streams.append("orders/eu", b"8")
        (page,) = lines(tail, 1)
        assert json.loads(page) == {"offset": "7", "next_offset": "8", "closed": False, "records": [8]}
        streams.close("orders/eu")
        assert tail.wait() == 0
    assert "__wakes/me" in streams.server.streams


def test_a_reader_takes_over_from_one_that_is_killed(streams: FakeSubscriptions, url: str) -> None:
    command = ("tail", "orders/eu", "--as", "me", "--from", "-1", "--lease", "1s")
    with started(url, *command) as first:
        assert lines(first, 7)[-1] == "7"
        wait_until_acked(streams, "me/orders/eu", 7)
        with started(url, *command) as second:
            streams.append("orders/eu", b"8")
            assert lines(first, 1) == ["8"]
            wait_until_acked(streams, "me/orders/eu", 8)
            assert second.stderr is not None
            streams.append("orders/eu", b"9")
            assert lines(first, 1) == ["9"]
            wait_until_acked(streams, "me/orders/eu", 9)
            first.send_signal(signal.SIGKILL)
            first.wait()
            streams.append("orders/eu", b"10")
            assert lines(second, 1) == ["10"]
    assert len({worker for _, worker in streams.claims}) == 2


def test_a_lost_answer_repeats_nothing(streams: FakeSubscriptions, url: str) -> None:
    streams.faulty, streams.faults = "/ack", [answer_lost, None, status(503)]
    streams.close("orders/eu")
    with started(url, "tail", "orders/eu", "--as", "me", "--from", "-1") as tail:
        assert tail.wait() == 0
        assert tail.stdout is not None and tail.stdout.read().split() == [number.decode() for number in NUMBERS]


def test_work_runs_the_command_for_every_record_once(streams: FakeSubscriptions, url: str, tmp_path: Path) -> None:
    streams.append("orders/us", b'{"a":\n 1}')
    streams.append("payments", b"0")
    streams.server.streams["orders/raw"] = Stream("text/plain", records=[b"a\n", b"b"])
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "--url", url, "work", "orders/*", "--as", "bill", "--drain",
         "--exec", f"sh -c 'cat >> {tmp_path}/data; env | grep HEADRACE_ | sort >> {tmp_path}/variables'"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.splitlines()[-1] == "5 done"
    data = (tmp_path / "data").read_text()
    assert sorted(data.replace("a\nb", "").split("\n")) == sorted(["", *"1234567", '{"a":  1}'])
    assert "a\nb" in data
    assert {id_: subscription.acked for id_, subscription in streams.subscriptions.items()} == {
        "bill/orders/eu": {"orders/eu": 7},
        "bill/orders/us": {"orders/us": 1},
        "bill/orders/raw": {"orders/raw": 2},
    }
    runs = (tmp_path / "variables").read_text()
    for line in ("HEADRACE_CONSUMER=bill", "HEADRACE_STREAM=orders/us", "HEADRACE_OFFSET=3", "HEADRACE_NEXT_OFFSET=6",
                 "HEADRACE_RECORDS=3", "HEADRACE_CONTENT_TYPE=text/plain", "HEADRACE_INDEX=0"):  # fmt: skip
        assert line in runs.splitlines()


def test_a_worker_that_is_killed_loses_nothing(streams: FakeSubscriptions, url: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    command = ("work", "orders/*", "--as", "bill", "--lease", "1s", "--json", "--batch-records", "2")
    done = f"read x; echo $x >> {tmp_path}/done"
    try:
        with started(url, *command, "--exec", f"sh -c 'read x < {tmp_path}/go'") as first:
            events_until(first, "begun")
            first.send_signal(signal.SIGKILL)
            first.wait()
        assert acked(streams, "bill/orders/eu") == 0
        with started(url, *command, "--exec", f'sh -c "{done}; {done}"') as second:
            events_until(second, "done", 5)
            wait_until_acked(streams, "bill/orders/eu", 7)
            streams.append("orders/eu", b"8", b"9")
            events_until(second, "done")
            second.send_signal(signal.SIGTERM)
            events_until(second, "ended")
            assert second.wait() == 0
    finally:
        os.close(os.open(tmp_path / "go", os.O_RDWR))  # ends the command that was left behind
    numbers = [line for line in (tmp_path / "done").read_text().split("\n") if line]
    assert numbers == [str(number) for number in range(1, 10)]


def test_a_claim_whose_answer_is_lost_is_waited_for(streams: FakeSubscriptions, url: str) -> None:
    streams.faulty, streams.faults = "/claim", [answer_lost]
    with started(
        url, "work", "orders/*", "--as", "bill", "--exec", "cat", "--drain", "--lease", "1s", "--json"
    ) as worker:
        found = events_until(worker, "ended")
        assert worker.wait() == 0
    assert (found[-1]["done"], acked(streams, "bill/orders/eu")) == (3, 7)
    assert len({holder for _, holder in streams.claims}) == 1 and len(streams.claims) == 2


def test_workers_of_a_name_share_its_streams(streams: FakeSubscriptions, url: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    for name in "abc":
        streams.append(f"orders/{name}", b"1")
    command = ("work", "orders/*", "--as", "bill", "--json", "--exec", f"sh -c 'read x < {tmp_path}/go'")
    try:
        with started(url, *command) as first, started(url, *command) as second:
            (one,) = [event for event in events_until(first, "begun") if event["event"] == "begun"]
            (other,) = [event for event in events_until(second, "begun") if event["event"] == "begun"]
            assert one["stream"] != other["stream"]
            for worker in (first, second):
                worker.send_signal(signal.SIGTERM)
                events_until(worker, "stopping")
                worker.send_signal(signal.SIGTERM)
            ends = [events_until(worker, "ended")[-1] for worker in (first, second)]
            assert [first.wait(), second.wait()] == [0, 0]
    finally:
        os.close(os.open(tmp_path / "go", os.O_RDWR))
    assert [end["done"] for end in ends] == [0, 0]
    assert all(
        subscription.wake is None or not subscription.wake.holder for subscription in streams.subscriptions.values()
    )


def test_a_command_that_fails_is_tried_again_and_keeps_its_stream(
    streams: FakeSubscriptions, url: str, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    command = ("work", "orders/eu", "--as", "bill", "--drain", "--json", "--backoff", "1500ms", "--lease", "1s")
    with started(url, *command, "--exec", f"sh -c 'test -e {flag} || {{ touch {flag}; exit 3; }}'") as worker:
        found = events_until(worker, "ended")
        assert worker.wait() == 0
    failed = [event for event in found if event["event"] == "failed"]
    assert [(event["exit_code"], event["tries"], event["offset"]) for event in failed] == [(3, 1, "0")]
    assert [event["offset"] for event in found if event["event"] == "done"] == ["0", "3", "6"]
    assert "lost" not in {event["event"] for event in found}
    assert acked(streams, "bill/orders/eu") == 7


def test_new_streams_are_found_and_begin_at_their_beginning(streams: FakeSubscriptions, url: str) -> None:
    command = ("work", "orders/*", "--as", "bill", "--json", "--exec", "cat", "--from", "now", "--discover", "50ms")
    with started(url, *command) as worker:
        events_until(worker, "found")
        streams.append("orders/new")
        events_until(worker, "found")
        streams.append("orders/new", b"1")
        (done,) = [event for event in events_until(worker, "done") if event["event"] == "done"]
        assert (done["stream"], done["records"]) == ("orders/new", 1)


def test_a_claim_that_is_lost_stops_the_command(streams: FakeSubscriptions, url: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    streams.faulty, streams.faults = "/ack", [lambda *_: refusal(409, "FENCED")]
    command = (
        "work",
        "orders/*",
        "--as",
        "bill",
        "--json",
        "--lease",
        "1s",
        "--exec",
        f"sh -c 'read x < {tmp_path}/go'",
    )
    with started(url, *command) as worker:
        found = [event["event"] for event in events_until(worker, "lost")]
        assert found.index("begun") < found.index("stopped") < found.index("lost")
        events_until(worker, "begun")  # again, with a claim of its own
        worker.send_signal(signal.SIGTERM)
        events_until(worker, "stopping")
        worker.send_signal(signal.SIGTERM)  # stops its command, too
        events_until(worker, "ended")
        assert worker.wait() == 0


def test_a_subscription_that_is_something_else_is_told(streams: FakeSubscriptions, url: str) -> None:
    body = {"type": "pull-wake", "streams": ["orders/us", "x"], "wake_stream": "w"}
    httpx.put(f"{url}/v1/stream/__ds/subscriptions/me%2Forders%2Feu", json=body)
    with started(url, "tail", "orders/eu", "--as", "me") as tail:
        assert tail.wait() == 1
        assert tail.stderr is not None and "choose another name" in tail.stderr.read()


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("tail", "orders", "--as", "a/b"), 2),
        (("tail", "orders", "--as", "a", "--sse"), 2),
        (("tail", "orders", "--as", "a", "--from", "17"), 2),
        (("tail", "orders", "--as", "a", "--lease", "1ms"), 2),
        (("tail", "none", "--as", "a"), 1),
        (("work", "orders", "--as", "", "--exec", "true"), 2),
        (("work", "orders", "--as", "a", "--exec", "no-such-command"), 2),
        (("work", "orders", "--as", "a", "--exec", "true", "--lease", "11m"), 2),
        (("work", "orders", "--as", "a", "--exec", "true", "--discover", "0s"), 2),
    ],
)
def test_what_can_not_work_is_told_before(
    headrace: Shell, server: FakeServer, args: tuple[str, ...], code: int
) -> None:
    server.streams["orders"] = Stream("application/json")
    result = headrace(*args)
    assert result.exit_code == code and result.stderr.startswith("error: ")


def test_an_id_holds_the_name_of_any_stream_that_can_be_named() -> None:
    assert consumer_id("me", "orders/eu") == "me/orders/eu"
    long = [consumer_id("n" * 128, "x" * length) for length in (127, 128, 1024)] + [consumer_id("me", "a\nb")]
    assert [len(id_) for id_ in long] == [256, 200, 200, 74] and len(set(long)) == 4
    for name, stream in (("", "a"), ("a/b", "c"), ("n" * 129, "a"), ("a\n", "b"), ("a", "/b"), ("a", "b/")):
        with pytest.raises(BadInput):
            consumer_id(name, stream)


@pytest.mark.parametrize(
    ("pattern", "covered", "others"),
    [
        ("orders", ["orders"], ["orders/eu", "order"]),
        ("orders/*", ["orders/eu", "orders/*"], ["orders", "orders/eu/1", "payments/eu"]),
        ("orders/%2A", ["orders/*"], ["orders/eu"]),
        ("a/**", ["a", "a/b", "a/b/c"], ["ab", "b/a"]),
        ("**/log", ["log", "a/log", "a/b/log"], ["a/log/b"]),
        ("a/**/z/*", ["a/z/1", "a/b/z/1", "a/z/z/1"], ["a/z", "a/b/c"]),
        ("**", ["a", "a/b"], ["__wakes/me", "/a", "a/"]),
        ("a/b*", ["a/b*"], ["a/bc"]),
    ],
)
def test_patterns_match_by_whole_segments(pattern: str, covered: list[str], others: list[str]) -> None:
    assert [name for name in covered + others if is_covered(pattern, name)] == covered
    assert all(name.startswith(literal_prefix(pattern)) for name in covered)
