"""`headrace queue …` against a server of queues; the worker has tests of its own."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.cli.conftest import Shell
from tests.cli.fake_server import status
from tests.cli.fake_topics import FakeTopics


@pytest.fixture
def topics() -> FakeTopics:
    """A server whose clock shows 1000 ms until a test moves it."""
    return FakeTopics(now_ms=lambda: 1000)


@pytest.fixture
def jobs(headrace: Shell, topics: FakeTopics) -> FakeTopics:
    """A queue of four jobs."""
    headrace("queue", "create", "jobs", "--lease", "10s", "--max-deliveries", "2", "--dead-letter", "dead")
    headrace("queue", "push", "jobs", "--data", '[{"n":  1}, 2, 3, "four"]', "--tag", "t")
    return topics


def claim(headrace: Shell, count: int) -> list[dict[str, object]]:
    result = headrace("queue", "claim", "jobs", "--node", "me", "--max", str(count))
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_create_takes_the_settings_of_a_queue(headrace: Shell, topics: FakeTopics) -> None:
    headrace("queue", "create", "q", "--lease", "1m", "--claim-jitter", "50ms", "--max-deliveries", "3",
             "--dead-letter", "d", "--leases-durable", "--cap-records", "9")  # fmt: skip
    config = topics.topics["q"].config
    assert (config["type"], config["lease_ms"], config["claim_jitter_ms"]) == ("queue", 60_000, 50)
    assert (config["max_deliveries"], config["dead_letter"], config["leases_durable"]) == (3, "d", True)
    assert config["cap_records"] == 9
    headrace("topic", "configure", "q", "--dead-letter", "")
    assert topics.topics["q"].config["dead_letter"] is None
    assert topics.topics["q"].config["type"] == "queue"


def test_a_push_never_makes_a_log_where_a_queue_should_be(headrace: Shell, topics: FakeTopics) -> None:
    result = headrace("queue", "push", "typo", "--data", "1")
    assert result.exit_code == 1 and "typo" not in topics.topics


def test_the_life_of_a_job(headrace: Shell, jobs: FakeTopics) -> None:
    result = headrace("queue", "claim", "jobs", "--node", "me", "--max", "2", "--lease", "1m")
    assert '"data":{"n":  1}' in result.stdout, "the text of data is kept"
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert (first["deadline"], first["deliveries"], first["$tag"]) == (61_000, 1, "t")
    extended = headrace("queue", "extend", "jobs", "1", "--node", "me", "--lease", "5m", "--json")
    assert json.loads(extended.stdout)["deadlines"] == {"1": 301_000}
    acked = headrace("queue", "ack", "jobs", "1", "--node", "me", "--lease-id", first["lease_id"])
    assert (acked.exit_code, acked.stdout) == (0, "acked 1 job\n")
    nacked = headrace("queue", "nack", "jobs", "2", "--node", "me", "--delay", "5s")
    assert (nacked.exit_code, nacked.stdout) == (0, "nacked 1 job\n")
    assert jobs.nacked == [(second["$seq"], 5000)]
    assert json.loads(headrace("queue", "show", "jobs", "--json").stdout)["queue"]["ready"] == 2


def test_what_is_not_held_is_named(headrace: Shell, jobs: FakeTopics) -> None:
    claim(headrace, 2)
    wrong = headrace("queue", "ack", "jobs", "1", "2", "--node", "me", "--lease-id", "old", "--lease-id", "older")
    assert wrong.exit_code == 1 and "skipped 1, 2: me does not hold it" in wrong.stderr
    assert headrace("queue", "ack", "jobs", "1", "2", "--node", "me", "--lease-id", "x").exit_code == 2
    assert jobs.acked == []


def test_an_empty_claim_prints_nothing(headrace: Shell, jobs: FakeTopics) -> None:
    assert len(claim(headrace, 9)) == 4
    empty = headrace("queue", "claim", "jobs", "--node", "me")
    assert (empty.exit_code, empty.stdout) == (0, "") and "claimed 0 jobs" in empty.stderr


def test_a_log_is_no_queue(headrace: Shell, topics: FakeTopics) -> None:
    headrace("topic", "create", "log")
    result = headrace("queue", "claim", "log", "--node", "me")
    assert result.exit_code == 1 and "headrace queue list" in result.stderr


def test_list_shows_queues_alone(headrace: Shell, jobs: FakeTopics) -> None:
    headrace("topic", "create", "log")
    claim(headrace, 1)
    assert json.loads(headrace("queue", "list", "--json").stdout) == [
        {"topic": "jobs", "ready": 3, "in_flight": 1, "dead_lettered": 0}
    ]
    assert "jobs" in headrace("queue", "list").stdout
    assert "in flight               1" in headrace("queue", "show", "jobs").stdout


@pytest.fixture
def dead(headrace: Shell, jobs: FakeTopics) -> FakeTopics:
    """A queue whose first two jobs were delivered twice, and then moved."""
    for _ in range(2):
        claim(headrace, 2)
        headrace("queue", "nack", "jobs", "1", "2", "--node", "me")
    claim(headrace, 2)
    assert list(jobs.topics["dead"].records) == [1, 2]
    return jobs


def test_dead_letters_are_listed(headrace: Shell, dead: FakeTopics) -> None:
    shown = headrace("queue", "dead-letters", "list", "jobs").stdout
    assert '{"n":  1}' in shown and "deliveries" in shown
    records = [
        json.loads(line) for line in headrace("queue", "dead-letters", "list", "jobs", "--json").stdout.splitlines()
    ]
    assert [record["meta"]["$dead_letter_src_seq"] for record in records] == ["1", "2"]
    assert len(headrace("queue", "dead-letters", "list", "jobs", "--limit", "1", "--json").stdout.splitlines()) == 1


def test_a_retry_moves_dead_letters_back(headrace: Shell, dead: FakeTopics) -> None:
    assert headrace("queue", "dead-letters", "retry", "jobs").exit_code == 2, "nobody was asked"
    result = headrace("queue", "dead-letters", "retry", "jobs", "--yes")
    assert result.stdout == "pushed 2 jobs into jobs again\n"
    assert not dead.topics["dead"].records
    pushed = [record for seq, record in dead.topics["jobs"].records.items() if seq > 4]
    assert [bytes(record.sent.data) for record in pushed] == [b'{"n":  1}', b"2"]
    assert {(record.sent.tag, record.sent.meta and tuple(record.sent.meta)) for record in pushed} == {("t", None)}


def test_a_retry_that_was_cut_off_pushes_nothing_twice(headrace: Shell, dead: FakeTopics) -> None:
    dead.faulty, dead.faults = "/delete", [status(403)]
    assert headrace("queue", "dead-letters", "retry", "jobs", "--yes").exit_code == 1
    assert headrace("queue", "dead-letters", "retry", "jobs", "--yes").exit_code == 0
    assert dead.topics["jobs"].head_seq == 6


def test_a_retry_that_the_queue_refuses_keeps_no_letter_that_was_pushed(headrace: Shell, dead: FakeTopics) -> None:
    dead.faulty, dead.faults = "/jobs", [lambda _, apply: apply()] * 2 + [status(422)]  # a look, and two pushes
    result = headrace("queue", "dead-letters", "retry", "jobs", "--yes")
    assert result.exit_code == 1 and "422" in result.stderr
    assert (dead.topics["jobs"].head_seq, list(dead.topics["dead"].records)) == (5, [2])


def test_a_retry_loses_no_job_of_a_dead_letter_topic_with_a_long_name(headrace: Shell, topics: FakeTopics) -> None:
    name = "d" * 255
    headrace("queue", "create", "jobs", "--max-deliveries", "1", "--dead-letter", name)
    meta = {"$dead_letter_from": "jobs", "$dead_letter_deliveries": 1, "$dead_letter_src_seq": 1}
    for numbers in ((1, 2), (3, 4)):  # the same topic name, created again, has the same seqs
        for number in numbers:
            line = json.dumps({"data": number, "meta": meta})
            headrace("topic", "append", name, "--records", "--data", line)
        assert headrace("queue", "dead-letters", "retry", "jobs", "--yes").stdout == "pushed 2 jobs into jobs again\n"
        headrace("topic", "delete", name, "--yes")
    assert [bytes(record.sent.data) for record in topics.topics["jobs"].records.values()] == [b"1", b"2", b"3", b"4"]


def test_a_retry_leaves_what_is_not_its_own(headrace: Shell, dead: FakeTopics) -> None:
    headrace("topic", "append", "dead", "--data", '"kept"')
    for _ in range(2):
        claim(headrace, 1)
        headrace("queue", "nack", "jobs", "3", "--node", "me")
    claim(headrace, 1)
    assert list(dead.topics["dead"].records) == [1, 2, 3, 4]
    assert headrace("queue", "dead-letters", "retry", "jobs", "--yes").stdout == "pushed 3 jobs into jobs again\n"
    assert list(dead.topics["dead"].records) == [3]


def test_a_queue_without_dead_letters_says_so(headrace: Shell, topics: FakeTopics) -> None:
    headrace("queue", "create", "jobs")
    assert "no dead-letter topic" in headrace("queue", "dead-letters", "list", "jobs").stderr
    headrace("topic", "configure", "jobs", "--dead-letter", "dead")
    none = headrace("queue", "dead-letters", "list", "jobs")
    assert none.exit_code == 0 and "no dead letters" in none.stderr


@pytest.mark.parametrize("claimed", ["1", "[1]", '[{"data": 1}]', "{}"])
def test_a_claim_of_nonsense_is_told(headrace: Shell, jobs: FakeTopics, claimed: str) -> None:
    jobs.faults = [lambda request, apply: httpx.Response(200, text=f'{{"claimed": {claimed}}}')]
    assert headrace("queue", "claim", "jobs", "--node", "me").exit_code in (0, 1)


def test_timings_are_a_table_by_interval(headrace: Shell, jobs: FakeTopics) -> None:
    times = {"count": 1, "sum": 1500, "min": 1500, "max": 1500, "avg": 1500.4, "p95": 1024}
    idle = {"count": 0, "sum": None, "min": None, "max": None, "avg": None, "p95": None}
    counts = dict.fromkeys(("claimed", "acked", "redelivered", "nacked", "released", "expired", "dead"), 0)
    answer = {
        "buckets": [
            {"start": "2030-01-01T00:00:00.000Z", **counts, "claimed": 1200, "wait_ms": times, "run_ms": idle},
            {"start": "2030-01-01T02:00:00.000Z", **counts, "nacked": 2, "wait_ms": idle, "run_ms": times},
        ],
        "coverage": {"complete": False, "possible_missing_events_upper_bound": 7},
    }
    jobs.faulty, jobs.faults = "/timings", [lambda *_: httpx.Response(200, json=answer)] * 3
    shown = headrace("queue", "timings", "jobs", "--last", "2h", "--interval", "5m")
    head, first, second = [line.split() for line in shown.stdout.splitlines()]
    assert " ".join(head) == "start claimed acked nacked wait avg wait p95 wait max run avg run p95 run max"
    assert first == ["2030-01-01T00:00:00.000Z", "1,200", "0", "0", "1s", "1s", "1s"]
    assert second == ["2030-01-01T02:00:00.000Z", "0", "0", "2", "1s", "1s", "1s"]
    assert "up to 7 records left out" in shown.stderr
    asked = json.loads(jobs.requests[-1].content)
    assert (asked["interval"], asked["to"] - asked["from"]) == ("5m", 2 * 3_600_000)
    assert json.loads(headrace("queue", "timings", "jobs", "--json").stdout) == answer
    asked = json.loads(jobs.requests[-1].content)
    assert (asked["interval"], asked["to"] - asked["from"]) == ("1h", 24 * 3_600_000)
    headrace("queue", "timings", "jobs", "--from", "2030-01-01T00:00:00Z", "--to", "2030-01-02T00:00:00Z")
    asked = json.loads(jobs.requests[-1].content)
    assert asked == {"from": "2030-01-01T00:00:00Z", "to": "2030-01-02T00:00:00Z", "interval": "1h"}


def test_timings_of_nothing(headrace: Shell, jobs: FakeTopics) -> None:
    jobs.faulty, jobs.faults = "/timings", [lambda *_: httpx.Response(200, json={"buckets": [], "coverage": {}})]
    empty = headrace("queue", "timings", "jobs")
    assert (empty.exit_code, empty.stdout, empty.stderr) == (0, "", "nothing happened in this range\n")
    assert headrace("queue", "timings", "jobs", "--from", "2030-01-01T00:00:00Z").exit_code == 2
    assert headrace("queue", "timings", "missing").exit_code == 1
