"""`headrace topic …` against a server of topics."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import Shell
from tests.cli.fake_server import answer_lost, status
from tests.cli.fake_topics import DEFAULTS, FakeTopics

ODD_TEXT = [b'{"b": 1.0,  "a":12345678901234567890123 }', b'"\\u00e9"', b"1e5"]


def sent(topics: FakeTopics, method: str) -> list[httpx.Request]:
    return [request for request in topics.requests if request.method == method]


def data(topics: FakeTopics, name: str) -> list[bytes]:
    return [bytes(record.sent.data) for record in topics.topics[name].records.values()]


def test_create_sends_every_setting_in_the_units_of_the_api(headrace: Shell, topics: FakeTopics) -> None:
    result = headrace(
        "topic", "create", "t:1", "--ttl", "1h", "--cap-records", "10", "--cap-bytes", "1MiB", "--discard", "reject",
        "--durability", "fsync", "--priority", "-5", "--no-auto-priority", "--no-auto-create",
        "--idempotency-window", "5m", "--no-dedupe-node",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert json.loads(sent(topics, "PUT")[0].content) == {
        "type": "log", "ttl_ms": 3_600_000, "cap_records": 10, "cap_bytes": 1 << 20, "discard": "reject",
        "durability": "fsync", "priority": -5, "auto_priority": False, "auto_create": False,
        "idempotency_window_ms": 300_000, "dedupe_node": False,
    }  # fmt: skip
    assert result.stdout.startswith("created t:1 ")


def test_create_again_changes_nothing(headrace: Shell, topics: FakeTopics) -> None:
    headrace("topic", "create", "t", "--ttl", "1h")
    assert headrace("topic", "create", "t").stdout.startswith("exists already: t ")
    assert headrace("topic", "create", "t", "--ttl", "60m").exit_code == 0
    other = headrace("topic", "create", "t", "--ttl", "2h")
    assert other.exit_code == 1 and "it exists with ttl=1h" in other.stderr
    assert topics.topics["t"].config["ttl_ms"] == 3_600_000
    assert headrace("queue", "create", "t").exit_code == 1


def test_create_without_the_right_to_look_leaves_the_decision_to_the_server(
    headrace: Shell, topics: FakeTopics
) -> None:
    topics.faults = [status(403)]
    assert headrace("topic", "create", "t", "--json").exit_code == 0
    assert "t" in topics.topics


def test_configure_keeps_what_it_does_not_name(headrace: Shell, topics: FakeTopics) -> None:
    headrace("topic", "create", "t", "--ttl", "1h", "--priority", "7")
    result = headrace("topic", "configure", "t", "--cap-records", "5", "--priority", "auto")
    assert result.exit_code == 0, result.stderr
    assert topics.topics["t"].config == {**DEFAULTS, "ttl_ms": 3_600_000, "cap_records": 5}
    assert "ttl                     1h" in result.stdout
    assert headrace("topic", "configure", "t").exit_code == 2
    missing = headrace("topic", "configure", "no", "--ttl", "1s")
    assert missing.exit_code == 1 and "headrace topic list" in missing.stderr


@pytest.mark.parametrize("text", ["5", "1 week", "-1s"])
def test_a_duration_needs_a_unit(headrace: Shell, text: str) -> None:
    assert headrace("topic", "create", "t", f"--ttl={text}").exit_code == 2


def test_data_arrives_unchanged_with_its_tag_and_node(headrace: Shell, topics: FakeTopics, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"[" + b" , ".join(ODD_TEXT) + b"]")
    result = headrace(
        "topic", "append", "t", "--file", str(tmp_path / "f"), "--tag", 'a"é', "--node", "n-1", "--json"
    )
    assert data(topics, "t") == ODD_TEXT
    records = topics.topics["t"].records.values()
    assert {(record.sent.tag, record.node) for record in records} == {('a"é', "n-1")}
    summary = json.loads(result.stdout)
    assert (summary["records"], summary["requests"], summary["last_seq"]) == (3, 1, 3)


def test_whole_records_keep_their_members(headrace: Shell, topics: FakeTopics) -> None:
    record = '{"data":  1.0, "tag": "a", "node": "n", "meta": {"m": 1}}'
    assert headrace("topic", "append", "t", "--records", "--data", record).exit_code == 0
    kept = topics.topics["t"].records[1]
    assert (bytes(kept.sent.data), kept.sent.tag, kept.node, kept.sent.meta) == (b"1.0", "a", "n", {"m": 1})
    assert headrace("topic", "append", "t", "--records", "--tag", "x", "--data", record).exit_code == 2


@pytest.mark.parametrize("fault", [answer_lost, status(503), status(429)])
def test_an_append_that_is_sent_again_is_applied_once(
    headrace: Shell, topics: FakeTopics, fault: Callable[..., httpx.Response]
) -> None:
    topics.faults = [None, fault, fault]  # the first request finds that the server is there
    headrace("topic", "list")
    result = headrace("topic", "append", "t", "--data", "[1,2]", "--json")
    assert data(topics, "t") == [b"1", b"2"]
    assert json.loads(result.stdout)["retries"] == 2


def test_a_rerun_with_the_same_key_appends_only_what_is_missing(
    headrace: Shell, topics: FakeTopics, tmp_path: Path
) -> None:
    (tmp_path / "f").write_text("\n".join(map(str, range(30))))
    args = (
        "topic",
        "append",
        "t",
        "--file",
        str(tmp_path / "f"),
        "--batch-records",
        "10",
        "--idempotency-key",
        "import-7",
    )
    topics.faults = [None, status(400)]
    cut_off = headrace(*args)
    assert cut_off.exit_code == 1 and "appended before that: 10 records" in cut_off.stderr
    again = headrace(*args, "--json")
    assert data(topics, "t") == [str(number).encode() for number in range(30)]
    assert json.loads(again.stdout)["deduped_records"] == 10
    headrace("topic", "append", "t", "--data", "1")
    headrace("topic", "append", "t", "--data", "1")
    assert len(data(topics, "t")) == 32


def test_no_create_refuses_a_missing_topic(headrace: Shell, topics: FakeTopics) -> None:
    assert headrace("topic", "append", "t", "--data", "1", "--no-create").exit_code == 1
    assert "t" not in topics.topics


@pytest.fixture
def filled(headrace: Shell, topics: FakeTopics) -> FakeTopics:
    """A topic of eight records, of two nodes."""
    for number in range(8):
        headrace(
            "topic",
            "append",
            "t",
            "--data",
            f'{{"n": {number} }}',
            "--tag",
            f"k-{number}",
            "--node",
            f"n{number % 2}",
        )
    return topics


def test_read_prints_the_text_of_all_pages(headrace: Shell, filled: FakeTopics, tmp_path: Path) -> None:
    assert headrace("topic", "read", "t", "--format", "lines").stdout == "".join(f'{{"n": {n} }}\n' for n in range(8))
    assert len(json.loads(headrace("topic", "read", "t").stdout)) == 8
    few = headrace("topic", "read", "t", "--from", "2", "--max-records", "4", "--format", "lines", "--json")
    assert few.stdout == "".join(f'{{"n": {n} }}\n' for n in range(2, 6))
    assert json.loads(few.stderr) == {"topic": "t", "records": 4, "next_from_seq": 6, "gaps": 0}
    to_file = headrace("topic", "read", "t", "--output", str(tmp_path / "out"), "--json")
    assert json.loads(to_file.stdout)["records"] == len(json.loads((tmp_path / "out").read_text())) == 8


def test_read_leaves_out_records_of_its_node(headrace: Shell, filled: FakeTopics) -> None:
    result = headrace("topic", "read", "t", "--node", "n1", "--node", "other", "--format", "records", "--tags")
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(record["$seq"], record["$tag"], record["$node"]) for record in records] == [
        (seq, f"k-{seq - 1}", "n0") for seq in (1, 3, 5, 7)
    ]
    assert "$tag" not in headrace("topic", "read", "t", "--format", "records").stdout


def test_a_gap_is_a_warning(headrace: Shell, filled: FakeTopics) -> None:
    for seq in (1, 2, 3):
        del filled.topics["t"].records[seq]
    filled.topics["t"].evict_floor = 4
    result = headrace("topic", "read", "t", "--format", "lines")
    assert result.exit_code == 0
    assert "warning: records are gone: seqs 1 to 3 (over the cap)" in result.stderr
    assert "warning" not in headrace("topic", "read", "t", "--from", "3").stderr


def test_tail_follows_from_the_end_until_it_is_interrupted(headrace: Shell, filled: FakeTopics) -> None:
    def append_then_answer(request: httpx.Request, apply: Callable[[], httpx.Response]) -> httpx.Response:
        headrace("topic", "append", "t", "--data", '{"late": true}')
        return apply()

    def interrupt(request: httpx.Request, apply: Callable[[], httpx.Response]) -> httpx.Response:
        raise KeyboardInterrupt

    filled.faulty = "/diff"
    filled.faults = [None, answer_lost, append_then_answer, interrupt]
    result = headrace("topic", "tail", "t")
    assert result.exit_code == 130
    assert result.stdout == '{"late": true}\n'
    assert "--from 9 goes on from here" in result.stderr
    filled.faults = [None, None, None, interrupt]
    pages = [json.loads(line) for line in headrace("topic", "tail", "t", "--from", "0", "--json").stdout.splitlines()]
    assert [page["from_seq"] for page in pages] == [0, 3, 6]
    assert sum(len(page["records"]) for page in pages) == 9


def test_list_and_show(headrace: Shell, filled: FakeTopics) -> None:
    for number in range(3):
        headrace("topic", "create", f"u{number}")
    assert [row["topic"] for row in json.loads(headrace("topic", "list", "--all", "--json").stdout)] == [
        "t", "u0", "u1", "u2",
    ]  # fmt: skip
    few = headrace("topic", "list", "--prefix", "u", "--limit", "2")
    assert "u1" in few.stdout and "u2" not in few.stdout and "there may be more" in few.stderr
    shown = headrace("topic", "show", "t").stdout
    assert "last write              1970-01-01T00:00:01.000Z" in shown
    assert "head seq                8" in shown and "idempotency_window" in shown.replace(" ", "_")
    assert "lease" not in shown
    assert json.loads(headrace("topic", "show", "t", "--json").stdout)["count"] == 8
    assert all(
        request.url.params["touch"] == "false" for request in sent(filled, "GET") if request.url.path[-2:] == "/t"
    )


def test_erase_says_what_to_match(headrace: Shell, filled: FakeTopics) -> None:
    result = headrace("topic", "erase", "t", "--tag-prefix", "k-", "--before", "4", "--yes")
    assert result.stdout.startswith("deleted 3 records; 5 records left")
    assert headrace("topic", "erase", "t", "--tag", "k-5", "--yes", "--json").exit_code == 0
    assert sorted(filled.topics["t"].records) == [4, 5, 7, 8]
    assert headrace("topic", "erase", "t", "--yes").exit_code == 2
    assert headrace("topic", "erase", "t", "--tag", "a", "--tag-prefix", "b", "--yes").exit_code == 2
    assert headrace("topic", "erase", "t", "--before", "9").exit_code == 2, "nobody was asked"


def test_delete_is_confirmed_or_refused(headrace: Shell, filled: FakeTopics) -> None:
    assert headrace("topic", "delete", "t").exit_code == 2
    assert headrace("topic", "delete", "t", "--yes").stdout == "deleted t\n"
    assert headrace("topic", "delete", "t", "--yes").stdout == "there is no topic t\n"
    headrace("topic", "delete", "t", "--yes", "--if-empty")
    assert sent(filled, "DELETE")[-1].url.params["if_empty"] == "true"


def test_no_text_of_a_server_steers_the_terminal(headrace: Shell, topics: FakeTopics) -> None:
    evil = "\x1b[2Jnasty"
    body = {"topic": evil, "type": evil, "head_seq": evil, "config": {"type": "log", "dead_letter": evil, evil: evil}}
    topics.faults = [lambda request, apply: httpx.Response(200, json=body)]
    assert "\x1b" not in headrace("topic", "show", "t").stdout
    topics.faults = [lambda request, apply: httpx.Response(200, json={"topics": [{"topic": evil, "type": evil}]})]
    assert "\x1b" not in headrace("topic", "list").stdout
    gap = {"gap_from": evil, "gap_to": evil, "reason": evil}
    page = {"records": [], "next_from_seq": 0, "head_seq": 0, "caught_up": True, "tombstone": gap}
    topics.faults = [lambda request, apply: httpx.Response(200, json=page)]
    result = headrace("topic", "read", "t")
    assert "\x1b" not in result.stderr and "nasty" in result.stderr


@pytest.mark.parametrize("body", [b"[]", b"<html>", b"{}", b'{"records": 1}', b'{"topics": {}}', b"\xff"])
def test_answers_that_make_no_sense_are_told(headrace: Shell, topics: FakeTopics, body: bytes) -> None:
    for args in (("read", "t"), ("list",), ("tail", "t", "--from", "0")):
        topics.faults = [lambda request, apply: httpx.Response(200, content=body)]
        assert headrace("topic", *args).exit_code == 1
