"""Steps of routers: what is copied, once and in order, and what makes a router wait."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from headrace.routers.steps import MOST_PAUSE_S
from headrace.routers.values import ROUTER, decode_trail
from headrace.topics.feeds import STEP_RECORDS
from headrace.topics.retention import MAX_VOIDS
from headrace.topics.values import LEASES, MAX_HOPS, Gap, Match, TopicConfig, topic_of
from tests.unit.routers.world import Process, World


@pytest.fixture
def process() -> Process:
    return World().process()


def test_what_is_appended_after_the_put_is_copied_in_order(process: Process) -> None:
    process.write("a", b"0")
    assert process.route()
    process.write("a", b"1", b"2", node="n", key="t", meta=b'{"m":1}')
    process.write("a", b"3")
    assert process.settle() is None
    page = process.page("b")
    assert [(one.data, one.node, one.key, one.meta, one.hops) for one in page.records] == [
        (b"1", "n", "t", b'{"m":1}', 1),
        (b"2", "n", "t", b'{"m":1}', 1),
        (b"3", None, None, None, 1),
    ]
    assert process.view()._asdict() | {"routing": None} == {
        "name": "a->b", "source": "a", "dest": "b", "routing": None, "forwarded": 3, "lag": 0, "blocked_ms": None,
    }  # fmt: skip


def test_a_step_that_is_repeated_copies_nothing(process: Process) -> None:
    process.route()
    process.write("a", b"1")
    follow = process.follow()
    process.settle()
    assert process.stepper.visit(follow) is None
    assert process.data("b") == [b"1"]


def test_node_and_tag_are_kept_only_if_asked(process: Process) -> None:
    process.route(preserve_node=False, preserve_tag=False)
    process.write("a", b"1", node="n", key="t")
    process.settle()
    (record,) = process.page("b").records
    assert (record.node, record.key) == (None, None)


def test_a_filter_passes_over_records_without_an_entry(process: Process) -> None:
    process.route(filter=Match("x:", is_prefix=True))
    before = process.topics.head("b").state
    process.write("a", b"1", key="y:1")
    process.write("a", b"2")
    assert process.settle() is None
    assert process.topics.head("b").state == before
    assert process.view().lag == 0
    process.write("a", b"3", key="x:1")
    process.write("a", b"4", key="y:2")
    process.write("a", b"5", key="x:2")
    assert process.settle() is None
    assert process.data("b") == [b"3", b"5"]
    assert process.view().lag == 0


def test_a_row_about_another_stretch_does_not_count(process: Process) -> None:
    """The destination may know less than the row, after a disaster, or more."""
    process.route(filter=Match("x"))
    process.write("a", b"1", key="y")
    process.settle()
    trail = decode_trail(process.follow().data)
    feed = process.feed()
    assert (trail.first, trail.end) == (0, 1)
    assert trail.position(feed) == (0, 1)
    for offset in (2, 7):
        moved = type(feed)(*(getattr(feed, name) for name in ("router", "id", "source", "source_id")), 0, offset)
        assert trail.position(moved) == (0, offset)
    later = type(trail)("b", "", "", 0, 3, 5)
    assert later.position(feed) == (0, 0)


def test_a_step_takes_so_many_records_and_the_rest_follows(process: Process) -> None:
    process.route()
    process.write("a", *(b"%d" % number for number in range(STEP_RECORDS + 5)))
    assert process.step() == 0.0
    assert process.feed().total == STEP_RECORDS
    assert process.settle() is None
    assert process.feed().total == STEP_RECORDS + 5
    assert [one.offset for one in process.page("b", STEP_RECORDS).records] == list(
        range(STEP_RECORDS, STEP_RECORDS + 5)
    )


def test_a_stamp_says_where_a_copy_is_from(process: Process) -> None:
    process.route(exactly_once=True)
    process.write("a", b"1", meta=b'{"m":1}')
    process.write("a", b"2")
    process.settle()
    first, second = (json.loads(record.meta or b"") for record in process.page("b").records)
    stamp = first.pop("_topics_router")
    assert first == {"m": 1}
    assert (stamp["router"], stamp["source_topic"], stamp["source_seq"], stamp["source_epoch"]) == ("a->b", "a", 1, 0)
    assert stamp["idempotency_key"] != second["_topics_router"]["idempotency_key"]


def test_a_cycle_ends_after_so_many_copies(process: Process) -> None:
    process.route("a", "b", allow_cycle=True)
    process.route("b", "a", allow_cycle=True)
    process.write("a", b"1")
    for _ in range(20):
        process.settle("a", "b")
        process.settle("b", "a")
    copies = [*process.page("a").records, *process.page("b").records]
    assert sorted(record.hops for record in copies) == list(range(MAX_HOPS + 1))
    assert (process.view("a->b").lag, process.view("b->a").lag) == (0, 0)


def test_a_full_destination_gets_the_longest_prefix_that_fits(process: Process) -> None:
    process.put("b", discard="reject", cap_records=3)
    process.route()
    process.write("a", b"1", b"2", b"3", b"4", b"5")
    pause = process.settle()
    assert process.data("b") == [b"1", b"2", b"3"]
    assert pause is not None and 0 < pause <= MOST_PAUSE_S
    view = process.view()
    assert (view.forwarded, view.lag) == (3, 2)
    assert view.blocked_ms == process.clock.now_ms()
    pauses = [process.step() for _ in range(8)]
    assert pauses == sorted(pauses, key=float)
    assert pauses[-1] == MOST_PAUSE_S


def test_a_delete_in_the_destination_wakes_a_router_that_waits(process: Process) -> None:
    process.put("b", discard="reject", cap_records=1)
    process.route()
    process.write("a", b"1", b"2")
    process.settle()
    head = process.topics.head("b")
    assert head.state.is_followed(process.clock.now_ms())
    (waiting,) = process.stores.follows.of(head.log_id, ROUTER)
    process.topics.erase("b", 2, None)
    assert process.stepper.visit(waiting) is None
    assert process.kicked == [process.follow()]
    assert process.settle() is None
    assert process.data("b") == [b"2"]
    assert process.view().blocked_ms is None
    assert process.stepper.visit(waiting) is None
    assert process.kicked[1:] == []
    assert process.stores.follows.of(head.log_id, ROUTER) == []


def test_bytes_count_for_room(process: Process) -> None:
    process.put("b", discard="reject", cap_bytes=10)
    process.route()
    process.write("a", b'"aaaa"', b'"b"', b'"c"')
    process.settle()
    assert process.data("b") == [b'"aaaa"', b'"b"']


def test_a_full_queue_is_freed_by_an_ack(process: Process) -> None:
    process.put("b", type="queue", discard="reject", cap_records=1)
    process.route()
    process.write("a", b"1", b"2")
    process.settle()
    leases = process.topics.head(("b", LEASES))
    (waiting,) = process.stores.follows.of(leases.log_id, ROUTER)
    from headrace.queues.values import ClaimRequest, SettleRequest

    process.topics.claim("b", ClaimRequest("n", 1))
    process.topics.ack("b", SettleRequest("n", [1]))
    process.stepper.visit(waiting)
    assert process.kicked == [process.follow()]
    process.settle()
    assert process.data("b") == [b"2"]


def test_what_the_source_lost_is_a_gap_of_the_destination(process: Process) -> None:
    process.put("a", cap_records=2)
    process.route()
    process.write("a", b"1", b"2", b"3", b"4", b"5")
    process.settle()
    first = process.page("b")
    assert first.gap == Gap(1, 1, "source_trim", 1)
    assert [record.data for record in first.records] == [b"4", b"5"]
    process.write("a", b"6", b"7", b"8")
    process.settle()
    page = process.page("b", 1)
    assert (page.gap, [record.data for record in page.records], page.next_seq) == (None, [b"4", b"5"], 3)
    page = process.page("b", 3)
    assert page.gap == Gap(4, 4, "source_trim", 1)
    assert [record.data for record in page.records] == [b"7", b"8"]
    view = process.topics.view("b")
    assert (view.live, view.head_seq) == (4, 6)


def test_a_gap_is_told_even_if_nothing_follows(process: Process) -> None:
    process.put("a", ttl_ms=1000)
    process.route()
    process.write("a", b"1")
    process.clock.advance(2)
    assert process.settle() is None
    page = process.page("b")
    assert (page.gap, page.records, page.caught_up) == (Gap(1, 1, "source_trim", 1), [], True)
    assert process.page("b", 1).gap is None


def test_a_delete_before_a_gap_does_not_hide_it(process: Process) -> None:
    process.write("b", b"x", b"y")
    process.put("a", cap_records=1)
    process.route()
    process.write("a", b"1", b"2")
    process.settle()
    process.topics.erase("b", 3, None)
    page = process.page("b")
    assert page.gap == Gap(1, 3, "source_trim", 3)
    assert [record.data for record in page.records] == [b"2"]


def test_many_gaps_become_fewer_and_every_reader_still_learns_of_one(process: Process) -> None:
    process.put("a", cap_records=1)
    process.route()
    for number in range(MAX_VOIDS + 5):
        process.write("a", b"%d" % number, b"%d" % number)
        process.settle()
    topic = topic_of(process.topics.head("b").state)
    assert len(topic.voids) <= MAX_VOIDS
    seq, gaps, read = 0, 0, []
    while True:
        page = process.page("b", seq)
        gaps += page.gap is not None
        read += page.records
        if page.caught_up:
            break
        seq = page.next_seq
    assert len(read) == MAX_VOIDS + 5
    assert 0 < gaps <= MAX_VOIDS + 1


def test_a_lost_answer_copies_once(process: Process) -> None:
    process.route()
    process.write("a", b"1", b"2")
    process.wal.fail("commit", after=True)
    process.settle()
    process.settle()
    assert process.data("b") == [b"1", b"2"]


def test_what_was_deleted_in_the_source_is_not_copied(process: Process) -> None:
    process.route()
    process.write("a", b"1", b"2", b"3")
    process.topics.erase("a", 3, None)
    process.settle()
    page = process.page("b")
    assert ([record.data for record in page.records], page.gap) == ([b"3"], None)


@pytest.mark.parametrize("expired", [9, 10, 11])
def test_what_has_expired_makes_room(process: Process, expired: int) -> None:
    process.put("b", discard="reject", cap_records=40, ttl_ms=100_000)
    for _ in range(40):
        process.write("b", b"old")
        process.clock.advance(1)
    process.route()
    process.clock.advance(60.5 + expired - 1)
    process.write("a", *[b"new"] * expired)
    assert process.settle() is None
    assert process.topics.view("b").live == 40


def test_a_queue_gets_no_gap(process: Process) -> None:
    process.put("a", cap_records=1)
    process.put("b", type="queue")
    process.route()
    process.write("a", b"1", b"2")
    process.settle()
    process.write("a", b"3", b"4", key="x")
    process.route(filter=Match("y"))
    assert process.settle() is None
    view = process.topics.view("b")
    assert (view.head_seq, view.live, process.page("b").gap) == (1, 1, None)
    assert process.view().lag == 0


def test_a_note_of_an_earlier_incarnation_does_not_count(process: Process) -> None:
    process.route(filter=Match("x"))
    process.write("a", b"1", key="y")
    process.settle()
    trail, feed = decode_trail(process.follow().data), process.feed()
    recovered = structs.replace(feed, incarnation=1)
    assert (trail.position(feed), trail.position(recovered)) == ((0, 1), (1, 0))


def test_a_row_of_another_source_copies_nothing(process: Process) -> None:
    process.route()
    process.write("a", b"1")
    stray = structs.replace(process.follow(), log_id=f"{1:032x}")
    assert process.stepper.visit(stray) is None
    assert process.data("b") == []


def test_room_that_is_made_before_it_is_waited_for_is_seen(process: Process) -> None:
    """What came before the destination was followed told nobody: the router looks once more."""
    process.put("b", discard="reject", cap_records=1)
    process.route()
    process.write("b", b"x")
    process.write("a", b"1")
    other = Process(process.stores)
    process.follows.on("put", lambda: other.topics.erase("b", 2, None))
    assert process.step() == 0.0
    assert process.settle() is None
    assert process.data("b") == [b"1"]


def test_a_router_that_waits_reads_few_records_each_time(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """A destination that is freed record by record asks for a step each time."""
    process.put("b", discard="reject", cap_records=1)
    process.route(filter=Match("x"))
    process.write("a", b"0", b"1", key="x")
    process.write("a", *(b"other" for _ in range(50)), key="y")
    process.write("a", *(b"2" for _ in range(500)), key="x")
    process.settle()
    read = list[int]()
    diff = process.topics.diff
    monkeypatch.setattr(
        process.topics, "diff", lambda *args, **more: read.append(len((page := diff(*args, **more)).records)) or page
    )
    for seq in range(2, 6):
        process.topics.erase("b", seq, None)
        process.settle()
        assert process.view().blocked_ms is not None
    assert process.feed().total == 5
    assert sum(read) < 1000, read
    process.topics.put("b", TopicConfig(discard="reject", cap_records=1000))
    assert process.settle() is None
    assert (process.feed().total, process.view().blocked_ms) == (502, None)
    assert max(read) > 400


def test_a_router_that_is_free_again_says_so(process: Process) -> None:
    """Also if its row changed while it was told: the next visit tells it."""
    process.put("b", discard="reject", cap_records=1)
    process.route()
    process.write("a", b"1", b"2")
    process.settle()
    process.topics.erase("b", 2, None)
    other = process.stores.follows
    row = process.follow()
    process.follows.on("put", lambda: other.target.put(structs.replace(row, due_ms=1), row))
    assert process.step() == 0.0
    assert process.view().blocked_ms is not None
    assert process.settle() is None
    assert process.view().blocked_ms is None
    assert process.data("b") == [b"2"]
