"""Routers, a watch, subscriptions and named consumers of the command line against the emulator: a name goes on where it
stopped on another machine, and workers that are killed lose nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from cli.main import main
from tests.support.emulated_cloud import dev_server

ROOT = Path(__file__).parents[2]
STREAMS = ("orders/eu", "orders/us", "orders/asia")
RECORDS = 30
# Writes down what it gets, and says so; then it does not end before the test does.
COMMAND = """
cat > {out}/$$
echo done
read go < {gate}
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with dev_server() as server:
        yield server.url


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


def lines(process: subprocess.Popen[str], count: int) -> list[Any]:
    """Reads so many lines of JSON of a process. Fails if it ends before."""
    assert process.stdout is not None
    found = [process.stdout.readline() for _ in range(count)]
    assert "" not in found, (found, process.stderr and process.stderr.read())
    return [json.loads(line) for line in found]


def events_until(process: subprocess.Popen[str], is_last: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """Reads a worker's events up to the first that a condition holds for. Fails if it ends before."""
    assert process.stdout is not None
    found = list[dict[str, Any]]()
    for line in process.stdout:
        found.append(json.loads(line))
        if is_last(found[-1]):
            return found
    raise AssertionError(f"{found} {process.stderr and process.stderr.read()}")


def append(url: str, stream: str, *records: object) -> None:
    name = stream.replace("/", "%2F")
    httpx.post(f"{url}/v1/stream/{name}", json=list(records)).raise_for_status()


def create(url: str, stream: str) -> None:
    headers = {"content-type": "application/json"}
    httpx.put(f"{url}/v1/stream/{stream.replace('/', '%2F')}", headers=headers).raise_for_status()


def test_a_name_goes_on_where_it_stopped_on_another_machine(url: str, tmp_path: Path) -> None:
    create(url, "log")
    append(url, "log", *range(5))
    command = ("tail", "log", "--as", "me", "--from", "-1", "--lease", "2s")
    with started(url, *command, home=tmp_path / "one") as here:
        assert lines(here, 5) == list(range(5))
        append(url, "log", 5)
        assert lines(here, 1) == [5]
        here.send_signal(signal.SIGINT)
        assert here.wait() == 130
    append(url, "log", 6, 7)
    with started(url, *command, home=tmp_path / "two") as there:
        assert lines(there, 2) == [6, 7]
        there.send_signal(signal.SIGKILL)
        there.wait()
    append(url, "log", 8)
    with started(url, *command, home=tmp_path / "one") as here:
        shown = lines(here, 1)
        while shown[-1] != 8:
            shown += lines(here, 1)
        assert shown in ([8], [6, 7, 8], [7, 8]), "what it had not acknowledged comes again, and nothing is left out"
        httpx.post(f"{url}/v1/stream/log", headers={"Stream-Closed": "true"}).raise_for_status()
        assert here.wait() == 0


def test_workers_that_are_killed_lose_nothing(url: str, tmp_path: Path) -> None:
    for stream in STREAMS:
        create(url, stream)
        for first in range(0, RECORDS, 10):
            append(url, stream, *({"stream": stream, "n": number} for number in range(first, first + 10)))
    out, gate, script = tmp_path / "out", tmp_path / "gate", tmp_path / "command.sh"
    out.mkdir()
    os.mkfifo(gate)
    script.write_text(COMMAND.format(out=out, gate=gate))
    command = ("work", "orders/*", "--as", "bill", "--lease", "1s", "--json", "--batch-records", "10")
    try:
        for _ in range(2):  # all workers of the name are killed, with work done that is not acknowledged
            execute = ("--exec", f"sh {script}")
            with started(url, *command, *execute) as one, started(url, *command, *execute) as two:
                for worker in (one, two):
                    assert worker.stderr is not None and worker.stderr.readline() == "done\n"
        at_kill = written(out)
        assert at_kill and set(at_kill) != everything()
        done = dict[tuple[str, str, int], int]()  # by what names the same data at each try: a lease may end meanwhile
        with started(url, *command, "--exec", f"sh -c 'cat > {out}/$$'") as last:
            while min(map(worked(done).__getitem__, STREAMS)) < RECORDS:
                event = events_until(last, lambda event: event["event"] == "done")[-1]
                done[event["stream"], event["offset"], event["index"]] = event["records"]
            last.send_signal(signal.SIGTERM)
            events_until(last, lambda event: event["event"] == "ended")
            assert last.wait() == 0
    finally:
        os.close(os.open(gate, os.O_RDWR))  # ends the commands that were left behind
    assert set(written(out)) == everything()
    assert worked(done) == dict.fromkeys(STREAMS, RECORDS), "nothing was acknowledged by those that were killed"
    with started(url, *command, "--exec", "cat", "--drain") as idle:
        events = events_until(idle, lambda event: event["event"] == "ended")
        assert not {"begun", "claimed"} & {event["event"] for event in events}, "all is acknowledged"


def everything() -> set[tuple[str, int]]:
    return {(stream, number) for stream in STREAMS for number in range(RECORDS)}


def worked(done: dict[tuple[str, str, int], int]) -> Counter[str]:
    """Returns how many records of each stream were worked on."""
    found = Counter[str]()
    for (stream, _, _), records in done.items():
        found[stream] += records
    return found


def written(out: Path) -> Counter[tuple[str, int]]:
    """Returns what commands have got, and how often."""
    texts = [path.read_text().splitlines() for path in out.iterdir()]
    return Counter((record["stream"], record["n"]) for text in texts for record in map(json.loads, text))


def test_a_router_and_a_watch(url: str) -> None:
    def headrace(*args: str) -> Any:
        result = CliRunner().invoke(main, ["--url", url, *args, "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    headrace("topic", "create", "chat")
    assert headrace("router", "put", "chat", "public", "--tag-prefix", "public:")["created"]
    with started(url, "watch", "chat", "public") as watch:
        for number, tag in enumerate(("public:a", "private", "public:b"), start=1):
            headrace("topic", "append", "chat", "--data", str(number), "--tag", tag)
        seen = lines(watch, 5)
    by_topic = {
        topic: [record["data"] for record in seen if record["topic"] == topic] for topic in ("chat", "public")
    }
    assert by_topic == {"chat": [1, 2, 3], "public": [1, 3]}
    assert headrace("router", "show", "chat->public")["forwarded_total"] == 2
    assert [row["router"] for row in headrace("router", "list", "--source", "chat")] == ["chat->public"]
    assert headrace("router", "delete", "chat->public", "--yes")["deleted"]


def test_the_life_of_a_subscription(url: str) -> None:
    def headrace(*args: str, code: int = 0) -> Any:
        result = CliRunner().invoke(main, ["--url", url, "subscription", *args, "--json"])
        assert result.exit_code == code, result.output
        return json.loads(result.stdout) if code == 0 else result.stderr

    create(url, "audit/eu")
    made = headrace("create", "me/audit", "--pattern", "audit/*", "--wake-stream", "pool", "--lease", "5s")
    assert (made["id"], made["lease_ttl_ms"], made["wake_stream"]) == ("me/audit", 5000, "pool")
    headrace("add-streams", "me/audit", "other/a", "other/b")
    headrace("remove-stream", "me/audit", "other/a")
    links = {link["path"]: link["link_type"] for link in headrace("show", "me/audit")["streams"]}
    assert links == {"audit/eu": "glob", "other/b": "explicit"}
    assert "to change it" in headrace("create", "me/audit", "--pattern", "x", "--wake-stream", "pool", code=1)
    assert "public address" in headrace("create", "h", "--pattern", "x", "--webhook", "http://10.0.0.1/", code=1)
    hook = headrace("create", "h", "--pattern", "x", "--webhook", "https://hooks.example.com/ds")
    assert hook["webhook"]["signing"]["alg"] == "ed25519"
    for id_ in ("me/audit", "h"):
        headrace("delete", id_, "--yes")
        assert "not found" in headrace("show", id_, code=1)
