"""PUT /v0/topics/:topic: the configuration, its defaults, and what may change (§ 0.10, § 1.1)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.topics.client import Server, Topic, answered, at_once, refused

DEFAULTS: dict[str, Any] = {
    "type": "log",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durable": False,
    "durability": "disk",
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "idempotency_window_ms": 120_000,
    "dedupe_node": True,
    "lease_ms": 30_000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
}
OTHERS: dict[str, Any] = {
    "ttl_ms": 60_000,
    "cap_records": 1_000_000,
    "cap_bytes": 1_000_000,
    "discard": "reject",
    "durability": "fsync",
    "durable": True,
    "priority": 10,
    "auto_priority": False,
    "auto_create": False,
    "idempotency_window_ms": 1000,
    "dedupe_node": False,
    "lease_ms": 1000,
    "claim_jitter_ms": 10,
    "max_deliveries": 5,
    "dead_letter": "jobs.dlq",
    "leases_durable": True,
}


def test_an_empty_configuration_is_all_defaults(server: Server) -> None:
    topic = server.unused()
    answer = answered(topic.put(), 201)
    assert set(answer) == {"topic", "created", "config", "performance"}
    assert (answer["topic"], answer["created"], answer["config"]) == (topic.name, True, DEFAULTS)
    assert topic.now()["config"] == DEFAULTS


def test_what_is_given_is_merged_over_the_defaults(server: Server) -> None:
    topic = server.unused()
    given = {"ttl_ms": 60_000, "cap_records": 1_000_000, "discard": "old", "durable": True, "priority": 10}
    expected = {**DEFAULTS, **given, "durability": "fsync"}
    assert answered(topic.put(**given), 201)["config"] == expected
    assert topic.now()["config"] == expected


def test_every_field_is_kept_on_a_log_and_on_a_queue(server: Server) -> None:
    for kind in ("log", "queue"):
        topic = server.unused()
        expected = {**DEFAULTS, **OTHERS, "type": kind}
        assert answered(topic.put(type=kind, **OTHERS), 201)["config"] == expected
        assert topic.now()["config"] == expected


@pytest.mark.parametrize(
    ("given", "durability"),
    [
        ({}, "disk"),
        ({"durable": False}, "disk"),
        ({"durable": True}, "fsync"),
        ({"durability": "ephemeral"}, "ephemeral"),
        ({"durability": "memory", "durable": True}, "memory"),
        ({"durability": "disk", "durable": True}, "disk"),
        ({"durability": "fsync", "durable": False}, "fsync"),
    ],
)
def test_the_durability_class_wins_over_its_shorthand(server: Server, given: dict[str, Any], durability: str) -> None:
    topic = server.unused()
    for config in (answered(topic.put(**given), 201)["config"], topic.now()["config"]):
        assert (config["durability"], config["durable"]) == (durability, durability == "fsync")


def test_every_class_can_be_changed_and_its_records_stay(topic: Topic) -> None:
    topic.filled("a")
    for durability in ("ephemeral", "memory", "fsync", "disk"):
        config = answered(topic.put(durability=durability))["config"]
        assert (config["durability"], config["durable"]) == (durability, durability == "fsync")
        topic.filled(durability)
    assert topic.data() == ["a", "ephemeral", "memory", "fsync", "disk"]


def test_the_same_put_again_changes_nothing(server: Server) -> None:
    topic = server.topic(ttl_ms=60_000)
    topic.filled("a")
    before = topic.now()
    answer = answered(topic.put(ttl_ms=60_000))
    assert (answer["created"], answer["config"]) == (False, {**DEFAULTS, "ttl_ms": 60_000})
    assert {**topic.now(), "performance": 0} == {**before, "performance": 0}


def test_one_of_many_puts_at_once_creates(server: Server) -> None:
    topic = server.unused()
    answers = at_once([topic.put] * 6)
    assert sorted(answer.status_code for answer in answers) == [200] * 5 + [201]
    assert sum(answer.json()["created"] for answer in answers) == 1


def test_another_put_updates(topic: Topic) -> None:
    answer = answered(topic.put(cap_records=5))
    assert (answer["created"], answer["config"]) == (False, {**DEFAULTS, "cap_records": 5})
    assert topic.now()["config"] == {**DEFAULTS, "cap_records": 5}


def test_every_field_but_the_type_can_be_changed(server: Server) -> None:
    topic = server.topic(type="queue")
    for field, value in OTHERS.items():
        changed = answered(topic.put(type="queue", **{field: value}))["config"]
        assert changed[field] == value, field
        assert topic.now()["config"][field] == value, field


@pytest.mark.parametrize(("first", "second"), [("log", "queue"), ("queue", "log")])
def test_the_type_never_changes(server: Server, first: str, second: str) -> None:
    topic = server.topic(type=first)
    refused(topic.put(type=second, ttl_ms=1000), 409, "topic_exists_incompatible")
    state = topic.now()
    assert (state["config"]["type"], state["config"]["ttl_ms"]) == (first, 0)


def test_numbers_beyond_their_range_are_clamped(server: Server) -> None:
    topic = server.unused()
    low = answered(topic.put(lease_ms=1, priority=-5000), 201)["config"]
    assert (low["lease_ms"], low["priority"]) == (100, -1000)
    high = answered(topic.put(lease_ms=10**12, claim_jitter_ms=9999, priority=5000))["config"]
    assert (high["lease_ms"], high["claim_jitter_ms"], high["priority"]) == (86_400_000, 5000, 1000)


@pytest.mark.parametrize(
    "config",
    [
        {"type": "stack"},
        {"type": None},
        {"ttl_ms": -1},
        {"ttl_ms": 1.5},
        {"ttl_ms": "60000"},
        {"ttl_ms": True},
        {"ttl_ms": 2**64},
        {"cap_records": -1},
        {"cap_bytes": "1MiB"},
        {"discard": "new"},
        {"durable": "yes"},
        {"durability": "tape"},
        {"priority": "high"},
        {"priority": 1.5},
        {"auto_priority": 1},
        {"auto_create": None},
        {"idempotency_window_ms": -1},
        {"dedupe_node": "no"},
        {"lease_ms": -1},
        {"claim_jitter_ms": -1},
        {"max_deliveries": -1},
        {"dead_letter": 7},
        {"dead_letter": "not a name"},
        {"dead_letter": ""},
        {"leases_durable": 0},
    ],
    ids=repr,
)
def test_a_bad_value_is_refused_and_nothing_is_created(server: Server, config: dict[str, Any]) -> None:
    topic = server.unused()
    refused(topic.put(**config), 400, "invalid_request")
    assert not topic.exists()


def test_a_bad_value_changes_nothing(topic: Topic) -> None:
    refused(topic.put(ttl_ms=1000, discard="new"), 400, "invalid_request")
    assert topic.now()["config"] == DEFAULTS


def test_a_queue_is_not_its_own_dead_letter_topic(server: Server) -> None:
    queue = server.unused()
    refused(queue.put(type="queue", dead_letter=queue.name), 400, "invalid_request")
    assert not queue.exists()
    assert answered(queue.put(type="queue", dead_letter="another"), 201)["config"]["dead_letter"] == "another"


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"7", b"null", b"{", b'{"ttl_ms":}', b"\xff"])
def test_a_configuration_is_a_json_object(server: Server, body: bytes) -> None:
    topic = server.unused()
    refused(topic.send("PUT", "", body, {"Content-Type": "application/json"}), 400, "invalid_request")
    assert not topic.exists()


def test_no_body_means_an_empty_object(server: Server) -> None:
    topic = server.unused()
    assert answered(topic.send("PUT", "", b"", {"Content-Type": "application/json"}), 201)["config"] == DEFAULTS
    assert answered(topic.send("POST", "/diff", b"", {}))["records"] == []


def test_unknown_fields_are_ignored(server: Server) -> None:
    topic = server.unused()
    assert answered(topic.put(colour="red"), 201)["config"] == DEFAULTS


@pytest.mark.parametrize("name", ["a", "9", "A.b_c:d-e", "render-queue:tenantA", "x" * 255, "0._:-"])
def test_names_have_a_charset(server: Server, name: str) -> None:
    topic = Topic(server, name)
    topic.remove()
    assert answered(topic.put(), 201)["topic"] == name
    assert topic.now()["topic"] == name
    assert answered(topic.append(1))["topic"] == name
    assert answered(topic.remove())["deleted"] is True


@pytest.mark.parametrize("name", ["-a", ".a", "_a", ":a", "a b", "é", "a\n", "x" * 256, "a>b", "a*", "a\x00"])
def test_other_names_are_refused(server: Server, name: str) -> None:
    topic = Topic(server, name)
    refused(topic.put(), 400, "invalid_request")
    refused(topic.append(1), 400, "invalid_request")


def test_names_differ_by_case(server: Server) -> None:
    lower = server.topic("case-")
    lower.filled(1)
    upper = Topic(server, lower.name.upper())
    assert not upper.exists()
    answered(upper.put(), 201)
    assert (upper.data(), lower.data()) == ([], [1])


def test_a_change_rewrites_no_record(topic: Topic) -> None:
    topic.filled({"a": 1}, tag="x", node="n", meta={"m": 1})
    before = topic.page(include_tags=True)["records"]
    answered(topic.put(ttl_ms=3_600_000, cap_records=10, durability="fsync", dedupe_node=False))
    assert topic.page(include_tags=True)["records"] == before
