"""The commands of topics and queues against the emulator, which forgets everything after each request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.main import main
from tests.support.emulated_cloud import dev_server

Headrace = Callable[..., Result]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with dev_server("--cold") as server:
        yield server.url


@pytest.fixture
def headrace(url: str) -> Headrace:
    """Runs a command, which must end with the exit code `code`."""

    def run(*args: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, ["--url", url, *args])
        assert result.exit_code == code, result.output
        return result

    return run


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_life_of_a_topic(headrace: Headrace) -> None:
    headrace("topic", "create", "t", "--ttl", "1h", "--cap-records", "5", "--priority", "3")
    assert "ttl=1h" in headrace("topic", "create", "t", "--ttl", "2h", code=1).stderr
    headrace("topic", "configure", "t", "--ttl", "3h")
    config = json.loads(headrace("topic", "show", "t", "--json").stdout)["config"]
    assert (config["ttl_ms"], config["cap_records"], config["priority"]) == (10_800_000, 5, 3)

    numbers = json.dumps(list(range(1, 13)))
    append = (
        "topic",
        "append",
        "t",
        "--data",
        numbers,
        "--tag",
        "a:1",
        "--node",
        "n1",
        "--idempotency-key",
        "k",
        "--json",
    )
    assert json.loads(headrace(*append).stdout)["deduped_records"] == 0
    assert json.loads(headrace(*append).stdout)["deduped_records"] == 12
    headrace("topic", "append", "t", "--records", "--data", '{"data": {"x":  1.0}, "tag": "b", "meta": {"m": 1}}')
    result = headrace("topic", "read", "t", "--format", "records", "--tags")
    assert "records are gone: seqs 1 to 8 (over the cap)" in result.stderr
    assert [(record["$seq"], record["$tag"]) for record in lines(result.stdout)] == [
        *((seq, "a:1") for seq in range(9, 13)),
        (13, "b"),
    ]
    assert headrace("topic", "read", "t", "--node", "n1", "--format", "lines").stdout == '{"x":  1.0}\n'

    headrace("topic", "erase", "t", "--tag", "b", "--yes")
    assert json.loads(headrace("topic", "erase", "t", "--before", "11", "--yes", "--json").stdout)["deleted"] == 2
    assert headrace("topic", "read", "t", "--from", "8", "--format", "lines").stdout == "11\n12\n"
    headrace("topic", "configure", "t", "--discard", "reject", "--cap-records", "2")
    assert "is full" in headrace("topic", "append", "t", "--data", "1", code=1).stderr
    assert [row["topic"] for row in json.loads(headrace("topic", "list", "--prefix", "t", "--json").stdout)] == ["t"]
    assert "not empty" in headrace("topic", "delete", "t", "--if-empty", "--yes", code=1).stderr
    assert headrace("topic", "delete", "t", "--yes").stdout == "deleted t\n"
    assert headrace("topic", "delete", "t", "--yes").stdout == "there is no topic t\n"


def test_the_life_of_a_job(headrace: Headrace) -> None:
    headrace("queue", "create", "q", "--lease", "1m", "--max-deliveries", "1", "--dead-letter", "q.dead")
    headrace("queue", "push", "q", "--data", '[{"n":  1}, 2, 3]', "--tag", "k")
    assert "does not exist" in headrace("queue", "push", "typo", "--data", "1", code=1).stderr
    jobs = lines(headrace("queue", "claim", "q", "--node", "me", "--max", "2").stdout)
    assert [(job["$seq"], job["deliveries"]) for job in jobs] == [(1, 1), (2, 1)]
    assert (
        json.loads(headrace("queue", "extend", "q", "1", "--node", "me", "--lease", "5m", "--json").stdout)[
            "extended"
        ]
        == 1
    )
    assert (
        headrace("queue", "ack", "q", "2", "--node", "me", "--lease-id", jobs[1]["lease_id"]).stdout
        == "acked 1 job\n"
    )
    assert (
        "skipped 2"
        in headrace("queue", "ack", "q", "2", "--node", "me", "--lease-id", jobs[1]["lease_id"], code=1).stderr
    )
    assert headrace("queue", "nack", "q", "1", "--node", "me").stdout == "nacked 1 job\n"

    assert [job["$seq"] for job in lines(headrace("queue", "claim", "q", "--node", "me").stdout)] == [3]
    assert json.loads(headrace("queue", "list", "--prefix", "q", "--json").stdout) == [
        {"topic": "q", "ready": 0, "in_flight": 1, "dead_lettered": 1}
    ]
    (letter,) = lines(headrace("queue", "dead-letters", "list", "q", "--json").stdout)
    assert (letter["data"], letter["$tag"]) == ({"n": 1}, "k")
    assert headrace("queue", "dead-letters", "retry", "q", "--yes").stdout == "pushed 1 job into q again\n"
    again = headrace("queue", "claim", "q", "--node", "me").stdout
    assert '"data":{"n":  1}' in again and "dead_letter" not in again
    assert headrace("queue", "dead-letters", "list", "q").stdout == ""
