"""Health, readiness and metrics (§ 8)."""

from __future__ import annotations

import re

import pytest

from tests.conformance.topics.client import Server, expect, shown

GAUGES = {
    *("topics_topics", "topics_records_live", "topics_bytes_live", "topics_queue_topics", "topics_ready"),
    *("topics_queue_leases_in_flight", "topics_sse_connections", "topics_recovery_progress", "topics_uptime_ms"),
    *("topics_routers", "topics_watch_sessions"),
}
SAMPLE = re.compile(r"(?P<name>[a-z_]+)(\{(?P<labels>[^}]*)\})? (?P<value>[-+.0-9eInfNa]+)")


@pytest.mark.parametrize("path", ["/v0/health", "/healthz"])
def test_it_is_healthy(server: Server, path: str) -> None:
    body = expect(server.get(path), 200).json()
    assert body["status"] == "ok"
    assert body["version"]
    assert body["uptime_ms"] >= 0


@pytest.mark.parametrize("path", ["/v0/ready", "/readyz"])
def test_it_is_ready(server: Server, path: str) -> None:
    server.topic()
    body = expect(server.get(path), 200).json()
    assert (body["status"], body["wal_replay_complete"]) == ("ready", True)
    assert isinstance(body["topics"], int)


def metrics_of(text: str) -> dict[str, float]:
    """Returns the samples of a text exposition by name and labels. Fails on a line of another form."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.match("# (HELP|TYPE) topics_", line), line
        elif line:
            sample = SAMPLE.fullmatch(line)
            assert sample, line
            found[line.rpartition(" ")[0]] = float(sample["value"])
    return found


def test_metrics_are_a_text_exposition(server: Server) -> None:
    answer = expect(server.get("/v0/metrics"), 200)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    names = {name.partition("{")[0] for name in metrics_of(answer.text)}
    assert names >= GAUGES, names
    assert {"topics_wal_frames_total", "topics_wal_batches_total", "topics_wal_bytes_written_total"} <= names
    assert {f"topics_wal_fsync_latency_us_{end}" for end in ("bucket", "sum", "count")} <= names
    assert "topics_topics_by_class" in names


def test_metrics_are_json_if_asked(server: Server) -> None:
    answer = expect(server.get("/v0/metrics", {"Accept": "application/json"}), 200)
    assert answer.headers["content-type"].startswith("application/json"), shown(answer)
    assert isinstance(answer.json(), dict)


def test_metrics_have_a_bounded_block_of_topics(server: Server) -> None:
    queue = server.queue("a", "b")
    queue.jobs()
    found = metrics_of(expect(server.get("/v0/metrics"), 200).text)
    if f'topics_topic_head_seq{{topic="{queue.name}"}}' in found:
        state = queue.now()
        label = f'{{topic="{queue.name}"}}'
        assert found["topics_topic_head_seq" + label] == state["head_seq"]
        assert found["topics_topic_earliest_seq" + label] == state["earliest_seq"]
        assert found["topics_topic_records_live" + label] == state["count"]
        assert found["topics_topic_bytes_live" + label] == state["bytes"]
        assert found["topics_topic_queue_ready" + label] == 1
        assert found["topics_topic_queue_in_flight" + label] == 1
    else:
        assert found["topics_topic_metrics_truncated"] == 1
