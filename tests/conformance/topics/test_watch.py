"""POST /v0/watch and GET /v0/watch/:wid: many topics over one stream of server-sent events (§ 7)."""

from __future__ import annotations

import re
import time

import pytest

from tests.conformance.topics.client import SSE, Server, Topic, answered, eventually, expect, prepared, refused
from tests.conformance.topics.configurations import LIMITS
from tests.conformance.topics.events import Event, Events, create_watch, data_of, opened, watching

MANY = 12  # topics: more than a stream reads one by one


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


# Sessions.


def test_a_session_says_where_it_begins(server: Server) -> None:
    jobs, events, empty = (
        server.topic().filled(*range(5)),
        server.topic(cap_records=3).filled(*range(5)),
        server.topic(),
    )
    topics = {jobs.name: {"from_seq": 2}, events.name: {"tail": True, "from_seq": 1}, empty.name: {}}
    body = answered(server.send("POST", "/v0/watch", {"topics": topics}))
    assert set(body) == {"wid", "stream_url", "session_ttl_ms", "topics", "performance"}
    assert re.fullmatch(r"wid_[A-Za-z0-9_-]{22,}", body["wid"])
    assert body["stream_url"] == f"/v0/watch/{body['wid']}"
    assert body["session_ttl_ms"] == 300_000
    assert body["topics"] == {
        jobs.name: {"from_seq": 2, "head_seq": 5, "earliest_seq": 1},
        events.name: {"from_seq": 5, "head_seq": 5, "earliest_seq": 3},
        empty.name: {"from_seq": 0, "head_seq": 0, "earliest_seq": 1},
    }


def test_ids_of_sessions_can_not_be_guessed(topic: Topic) -> None:
    paths = {create_watch(topic.server, {topic.name: {}}) for _ in range(20)}
    assert len(paths) == 20
    assert len({path[-22:-18] for path in paths}) > 10


def test_an_unknown_topic_is_refused_or_left_out(topic: Topic) -> None:
    absent = topic.server.unused()
    body = {"topics": {topic.name: {}, absent.name: {}}}
    refused(topic.server.send("POST", "/v0/watch", body), 404, "topic_not_found")
    assert not absent.exists()
    watched = answered(topic.server.send("POST", "/v0/watch", body, None, {"lenient": True}))
    assert set(watched["topics"]) == {topic.name}
    assert not absent.exists()
    with opened(topic.server, watched["stream_url"]) as events:
        assert events.next("caught-up").data["topic"] == topic.name


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topics": {}},
        {"topics": []},
        {"topics": None},
        {"topics": {"a/b": {}}},
        {"topics": {"t": {"from_seq": -1}}},
        {"topics": {"t": {"from_seq": "1"}}},
        {"topics": {"t": {"tail": 1}}},
        {"topics": {"t": None}},
        {"topics": {f"t{number}": {} for number in range(257)}},
        {"topics": {"t": {}}, "node": 1},
        {"topics": {"t": {}}, "node": "n" * 129},
        {"topics": {"t": {}}, "limit": -1},
        {"topics": {"t": {}}, "consistency": "weak"},
    ],
)
def test_a_bad_session_is_refused(server: Server, body: object) -> None:
    refused(server.send("POST", "/v0/watch", body), 400, "invalid_request")


def test_an_unknown_session_is_not_found(server: Server) -> None:
    for wid in ("wid_AAAAAAAAAAAAAAAAAAAAAA", "x", "wid_%2F"):
        refused(server.send("GET", f"/v0/watch/{wid}", None, SSE), 404, "not_found")


def test_a_client_that_takes_no_events_is_refused(topic: Topic) -> None:
    path = create_watch(topic.server, {topic.name: {}})
    refused(topic.server.send("GET", path, None, {"Accept": "application/json"}), 406, "not_acceptable")
    with opened(topic.server, path) as events:
        events.next("caught-up")


def test_a_session_is_created_by_post_and_opened_by_get(topic: Topic) -> None:
    path = create_watch(topic.server, {topic.name: {}})
    expect(topic.server.get("/v0/watch"), 405)
    expect(topic.server.send("POST", path, {}), 405)
    expect(topic.server.send("DELETE", path), 405)


# Frames.


def test_the_backlog_comes_in_order_and_then_what_is_live(server: Server) -> None:
    one, two = server.topic().filled("a", "b"), server.topic().filled("c")
    with watching(one, two) as events:
        found = events.until("caught-up", 2)
        assert sorted(kinds(found)) == ["caught-up", "caught-up", "record", "record"]
        for topic, seqs in ((one, [1, 2]), (two, [1])):
            record, caught_up = (event for event in found if event.data["topic"] == topic.name)
            assert set(record.data) == {"topic", "records", "from_seq", "to_seq", "head_seq"}
            assert record.seqs == seqs
            assert (record.data["from_seq"], record.data["to_seq"], record.data["head_seq"]) == (
                0,
                seqs[-1],
                seqs[-1],
            )
            assert caught_up.data == {"topic": topic.name, "head_seq": seqs[-1]}
        assert found[-1].cursors == {one.name: 2, two.name: 1}
        began = time.monotonic()
        two.filled("d")
        live = events.next("record")
        assert time.monotonic() - began < 5
        assert (live.data["topic"], live.seqs, live.data["from_seq"]) == (two.name, [2], 1)
        assert live.cursors == {one.name: 2, two.name: 2}
        one.filled("e")
        assert data_of([events.next("record")], one) == ["e"], "it is live already: nothing tells that again"


def test_every_process_is_heard(server: Server) -> None:
    topic = server.topic()
    with watching(topic) as events:
        events.next("caught-up")
        for number in range(12):  # each goes to any of the processes
            topic.filled(number)
            assert data_of([events.next("record")], topic) == [number]


def test_records_look_as_asked(server: Server) -> None:
    topic = server.topic()
    topic.filled({"n": 1.50}, tag="t", node="n", meta={"m": 1})
    topic.filled("plain")
    with watching(topic) as events:
        first, second = events.next("record").data["records"]
    assert set(first) == {"$seq", "$ts", "$node", "data", "meta"}
    assert (first["$seq"], first["$node"], first["data"], first["meta"]) == (1, "n", {"n": 1.5}, {"m": 1})
    assert set(second) == {"$seq", "$ts", "data"}
    with watching(topic, include_tags=True, include_meta=False) as events:
        first, second = events.next("record").data["records"]
    assert set(first) == {"$seq", "$ts", "$node", "$tag", "data"}
    assert set(second) == {"$seq", "$ts", "data"}
    with watching(topic, include_data=False, include_tags=True, include_meta=False) as events:
        first, second = events.next("record").data["records"]
    assert set(first) == {"$seq", "$ts", "$node", "$tag"}
    assert set(second) == {"$seq", "$ts"}


def test_line_breaks_and_every_character_arrive(server: Server) -> None:
    topic = server.topic()
    text = b'"a\\r\\nb\\u2028 \\ud83d\\ude00 : id: 1"'
    body = b'{"records":[{"data":{"text":\n %s,\r\n "x": 1}}]}' % text
    prepared(topic.server.send("POST", topic.path, body), 200)
    with watching(topic) as events:
        assert data_of([events.next("record")], topic) == [{"text": "a\r\nb\u2028 \U0001f600 : id: 1", "x": 1}]


def test_a_node_does_not_get_its_own_records(server: Server) -> None:
    one, two = server.topic(), server.topic()
    for topic in (one, two):
        topic.filled("mine", node="n").filled("other", node="m")
    with watching(one, two, node="n") as events:
        found = events.until("caught-up", 2)
        assert data_of(found, one) == data_of(found, two) == ["other"]
        one.filled("mine again", node="n")
        one.filled("for all")
        assert data_of([event := events.next("record")], one) == ["for all"]
        assert event.data["to_seq"] == 4


def test_frames_are_bounded(server: Server) -> None:
    topic = server.topic().filled(*(str(number) * 100 for number in range(9)))
    with watching(topic, limit=4) as events:
        found = events.until("caught-up")
    assert [event.seqs for event in found[:-1]] == [[1, 2, 3, 4], [5, 6, 7, 8], [9]]
    assert [event.data["head_seq"] for event in found] == [9] * 4
    with watching(topic, max_batch_bytes=250) as events:
        found = events.until("caught-up")
    assert [len(event.seqs) for event in found[:-1]] == [3, 3, 3]
    with watching(topic, max_batch_bytes=1) as events:
        assert [event.seqs for event in events.until("caught-up")[:-1]] == [[seq] for seq in range(1, 10)]


def test_a_topic_that_falls_behind_says_when_it_has_caught_up_again(server: Server) -> None:
    topic = server.topic().filled("a")
    with watching(topic, limit=2) as events:
        assert kinds(events.take(2)) == ["record", "caught-up"]
        topic.filled(*range(5))
        assert kinds(events.take(4)) == ["record", "record", "record", "caught-up"]


def test_a_queue_is_watched_and_nothing_is_claimed(server: Server) -> None:
    queue = server.queue("a", "b")
    with watching(queue) as events:
        assert data_of([events.next("record")], queue) == ["a", "b"]
        events.next("caught-up")
        queue.filled("c")
        assert data_of([events.next("record")], queue) == ["c"]
    assert queue.counters() == {"ready": 3, "in_flight": 0, "dead_lettered": 0}
    assert queue.seqs(max=5) == [1, 2, 3]


def test_tail_begins_after_what_is_there(server: Server) -> None:
    topic = server.topic().filled("old")
    with opened(server, create_watch(server, {topic.name: {"tail": True}})) as events:
        assert events.next("caught-up").data["head_seq"] == 1
        topic.filled("new")
        assert data_of([events.next("record")], topic) == ["new"]


def test_silence_is_filled_with_heartbeats_without_ids(topic: Topic) -> None:
    with watching(topic, heartbeat_ms=1) as events:  # clamped to a second
        last = events.next("caught-up")
        beats = [event for event, _ in zip(events, range(2), strict=False)]
        for beat in beats:
            assert (beat.kind, beat.id) == ("", "")
            kind, _, at = beat.data["comment"].partition(" ")
            assert kind == "hb"
            assert abs(int(at) - time.time() * 1000) < 60_000
        first, second = (int(beat.data["comment"].partition(" ")[2]) for beat in beats)
        assert second - first > 900  # by the server's clock: this process may have read late
        topic.filled("a")
        assert events.next("record").cursors == {**last.cursors, topic.name: 1}


# Gaps, and topics that go.


def test_a_cursor_before_the_first_record_gets_a_tombstone_at_once(server: Server) -> None:
    topic = server.topic(cap_records=2).filled(*range(5))
    with opened(server, create_watch(server, {topic.name: {"from_seq": 1}})) as events:
        tombstone, record, caught_up = events.take(3)
    assert kinds([tombstone, record, caught_up]) == ["tombstone", "record", "caught-up"]
    assert tombstone.data == {
        "topic": topic.name,
        "reason": "from_seq_too_old",
        "gap_from": 2,
        "gap_to": 3,
        "earliest_seq": 4,
        "head_seq": 5,
    }
    assert tombstone.cursors == {topic.name: 3}
    assert record.seqs == [4, 5]


def test_a_client_that_comes_back_to_a_tombstone_is_behind_the_gap(server: Server) -> None:
    topic = server.topic(cap_records=2).filled(*range(5))
    path = create_watch(server, {topic.name: {}})
    with opened(server, path) as events:
        tombstone = events.next("tombstone")
    with opened(server, path, tombstone.id) as events:
        assert events.next("record").seqs == [4, 5]


def test_deleted_records_leave_no_tombstone(server: Server) -> None:
    topic = server.topic().filled(*range(5))
    answered(topic.erase(before_seq=4))
    with watching(topic) as events:
        record, caught_up = events.take(2)
    assert (record.kind, record.seqs, caught_up.kind) == ("record", [4, 5], "caught-up")


def test_a_topic_that_began_anew_is_told_apart(server: Server) -> None:
    topic = server.topic().filled("old", "old", "old")
    path = create_watch(server, {topic.name: {}})
    with opened(server, path) as events:
        events.until("caught-up")
    answered(topic.remove())
    answered(topic.append("a", "b", "c", "d"), 201)
    with opened(server, path) as events:
        tombstone, record, caught_up = events.take(3)
    assert (tombstone.kind, tombstone.data["reason"]) == ("tombstone", "recreated")
    assert (tombstone.data["gap_from"], tombstone.data["head_seq"]) == (1, 4)
    assert (record.seqs, caught_up.data["head_seq"]) == ([1, 2, 3, 4], 4)


def test_a_deleted_topic_ends_and_the_others_go_on(server: Server) -> None:
    going, staying = server.topic().filled("a", "b"), server.topic()
    with watching(going, staying) as events:
        events.until("caught-up", 2)
        answered(going.remove())
        gone = events.next("topic-deleted")
        assert gone.data == {"topic": going.name, "head_seq": 2, "reason": "deleted"}
        assert gone.cursors[going.name] == 2
        staying.filled("c")
        assert data_of([events.next("record")], staying) == ["c"]
        answered(staying.remove())
        assert kinds(events.rest()) == ["topic-deleted"], "and the stream has ended"


# Coming back.


def test_a_session_goes_on_where_it_was(server: Server) -> None:
    one, two = server.topic().filled("a"), server.topic()
    path = create_watch(server, {one.name: {}, two.name: {}})
    with opened(server, path) as events:
        events.until("caught-up", 2)
    one.filled("b")
    two.filled("c")

    def found() -> list[Event]:
        with opened(server, path) as events:
            return events.until("caught-up", 2)

    after = found()
    assert (data_of(after, one), data_of(after, two)) == (["b"], ["c"])
    assert eventually(lambda: kinds(found()), lambda seen: seen == ["caught-up"] * 2) == ["caught-up"] * 2


def test_an_event_id_goes_back_but_never_ahead(server: Server) -> None:
    topic = server.topic().filled(*range(6))
    path = create_watch(server, {topic.name: {}}, limit=2)
    with opened(server, path) as events:
        first, second, third, _ = events.take(4)
    with opened(server, path, first.id) as events:
        assert [event.seqs for event in events.until("caught-up")[:-1]] == [[3, 4], [5, 6]]
    with opened(server, path, second.id) as events:
        assert events.next("record").seqs == [5, 6]
        events.next("caught-up")
    fresh = create_watch(server, {topic.name: {"from_seq": 2}}, limit=2)
    with opened(server, fresh, third.id) as events:
        assert events.next("record").seqs == [3, 4]


@pytest.mark.parametrize("last", ["x", "!!!", "e30", "eyJhIjoxfQ", "W10", "eyJhIjoteH0", "MTI", "A" * 3000])
def test_a_foreign_event_id_is_ignored(server: Server, last: str) -> None:
    topic = server.topic().filled("a")
    with opened(server, create_watch(server, {topic.name: {}}), last) as events:
        assert events.next("record").seqs == [1]


def test_a_newer_stream_of_a_session_ends_the_one_before(server: Server) -> None:
    topic = server.topic().filled("a")
    path = create_watch(server, {topic.name: {}})
    with opened(server, path) as before:
        before.until("caught-up")
        with opened(server, path) as after:
            after.until("caught-up")
            end = before.rest()
            assert kinds(end) == ["error"]
            assert end[0].data["code"] == 409
            topic.filled("b")
            assert data_of([after.next("record")], topic) == ["b"]


# Many topics.


def spread(server: Server, count: int) -> list[Topic]:
    return [server.topic().filled(number) for number in range(count)]


def read_backlog(events: Events, topics: list[Topic]) -> dict[str, list[object]]:
    found = events.until("caught-up", len(topics))
    return {topic.name: data_of(found, topic) for topic in topics}


def test_many_topics_are_watched_alike(server: Server) -> None:
    topics = spread(server, MANY)
    path = create_watch(server, {topic.name: {} for topic in topics})
    with opened(server, path) as events:
        assert read_backlog(events, topics) == {topic.name: [number] for number, topic in enumerate(topics)}
        for number in (3, 11, 0, 3):
            for text in ("a", "b"):
                topics[number].filled(text)
                live = events.next("record")
                assert data_of([live], topics[number]) == [text]
                assert live.cursors[topics[number].name] == live.seqs[-1]
        answered(topics[5].remove())
        assert events.next("topic-deleted").data["topic"] == topics[5].name
    topics[7].filled("later")
    with opened(server, path) as events:
        found = events.until("caught-up", MANY - 1)
        assert data_of(found, topics[7]) == ["later"]
        topics[8].filled("live")
        assert data_of(events.until("record"), topics[8]) == ["live"]


def test_an_opaque_id_brings_every_topic_back(server: Server) -> None:
    topics = spread(server, 70)
    path = create_watch(server, {topic.name: {} for topic in topics}, limit=1)
    for topic in topics[:10]:
        topic.filled("second")
    with opened(server, path) as events:
        found = events.until("caught-up", 70)
        assert max(len(event.id) for event in found) <= 2048
        assert len({event.id for event in found if event.kind == "record"}) == 80
    # The client has only the first twenty events, and the server believes that it has all.
    got = found[:20]
    had = {topic.name: data_of(got, topic) for topic in topics}
    with opened(server, path, got[-1].id) as events:
        rest = events.until("caught-up", 70)
    for number, topic in enumerate(topics):
        expected = [number, "second"] if number < 10 else [number]
        assert had[topic.name] + data_of(rest, topic) == expected


# Keys and limits.


def test_a_watch_needs_the_key_that_created_it(guarded: Server) -> None:
    topic = guarded.topic("mine.").filled("a")
    bare = guarded.with_key(None)
    refused(bare.send("POST", "/v0/watch", {"topics": {topic.name: {}}}), 401, "unauthorized")
    path = create_watch(guarded.with_key("reader"), {topic.name: {}})
    for key in ("all", "worker", "unknown", None):
        refused(guarded.with_key(key).send("GET", path, None, SSE), 401, "unauthorized")
    refused(bare.send("GET", path, None, SSE, {"token": "all"}), 401, "unauthorized")
    refused(
        bare.send("POST", "/v0/watch", {"topics": {topic.name: {}}}, None, {"token": "reader"}), 401, "unauthorized"
    )
    with opened(guarded.with_key("reader"), path) as events:
        assert events.next("record").seqs == [1]
    with opened(bare, path + "?token=re%61der&token=unknown") as events:
        assert kinds(events.until("caught-up"))[-1] == "caught-up"


def test_a_watch_is_bound_to_what_its_key_may_read(guarded: Server) -> None:
    mine, other = guarded.topic("mine."), guarded.topic("other.")
    for key in ("writer", "deleter", "admin", "writer-bound"):
        answer = guarded.with_key(key).send("POST", "/v0/watch", {"topics": {mine.name: {}}})
        refused(answer, 403, "forbidden")
    bound = guarded.with_key("reader-bound")
    refused(bound.send("POST", "/v0/watch", {"topics": {mine.name: {}, other.name: {}}}), 403, "forbidden")
    refused(bound.send("POST", "/v0/watch", {"topics": {"absent": {}}}), 403, "forbidden")
    with opened(bound, create_watch(bound, {mine.name: {}})) as events:
        events.next("caught-up")


def test_a_server_has_so_many_sessions(guarded: Server) -> None:
    """It is the last that watches there: sessions make room by themselves after minutes, not when a test ends."""
    topic, most = guarded.topic(), LIMITS["max_watch_sessions"]
    body, paths = {"topics": {topic.name: {}}}, list[str]()
    while (answer := guarded.send("POST", "/v0/watch", body)).status_code == 200:
        paths.append(answer.json()["stream_url"])
        assert len(paths) <= most
    assert refused(answer, 429, "throttled")["detail"] == {"limit": "max_watch_sessions", "max": most}
    with opened(guarded, paths[-1]) as events:
        events.next("caught-up")
