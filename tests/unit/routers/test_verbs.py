"""What clients ask of routers: creating, changing, listing and deleting them, and deleting their topics."""

from __future__ import annotations

import pytest
from msgspec import structs

from headrace.errors import InvalidRequest, LimitReached, OutcomeUnknown
from headrace.routers.errors import FanIn, Repointed, RouterCycle, RouterNotFound
from headrace.routers.remove import MOST
from headrace.routers.values import ROUTER, ROUTERS
from headrace.tables.counters import SHARDS
from headrace.tables.follows import Follow
from headrace.topics.errors import NotEmpty, Routed, TopicNotFound
from headrace.topics.feeds import MAX_FEEDS
from headrace.topics.values import TOPICS, Match, topic_of
from tests.unit.routers.world import Process, World


@pytest.fixture
def process() -> Process:
    return World().process()


def counted(process: Process, what: str = ROUTERS) -> int:
    return sum(process.stores.sessions.counts(what))


def followers(process: Process, name: str) -> int:
    return process.topics.head(name).state.followers


def names(process: Process, **asked: object) -> list[str]:
    return [one.name for one in process.routers.routers(limit=100, **asked)[0]]  # type: ignore[arg-type]


def test_a_router_is_created_with_its_topics_and_changed(process: Process) -> None:
    assert process.route()
    assert not process.route()
    assert (process.topics.view("a").head_seq, process.topics.view("b").head_seq) == (0, 0)
    assert (counted(process), counted(process, TOPICS), followers(process, "a")) == (1, 2, 1)
    assert not process.route(preserve_tag=False, filter=Match("x"))
    assert process.view().routing.filter == Match("x")
    assert (counted(process), followers(process, "a")) == (1, 1)


def test_a_change_keeps_the_cursor_and_what_was_passed_over(process: Process) -> None:
    process.route(filter=Match("x"))
    process.write("a", b"1", key="y")
    process.write("a", b"2", key="x")
    process.write("a", b"3", key="y")
    process.settle()
    process.route()
    process.write("a", b"4", key="y")
    process.settle()
    assert process.data("b") == [b"2", b"4"]


def test_a_filter_that_changes_during_a_step_holds(process: Process) -> None:
    """A step that has read the old filter notes nothing after the change."""
    process.route(filter=Match("x"))
    process.write("a", b"1", key="y")
    changer = Process(process.stores)
    process.follows.on("put", lambda: changer.route())
    assert process.step() == 0.0
    process.settle()
    assert process.data("b") == [b"1"]


def test_a_copy_under_an_old_filter_is_not_made_after_the_change(process: Process) -> None:
    process.route()
    process.write("a", b"1", key="y")
    changer = Process(process.stores)
    process.wal.on("commit", lambda: changer.route(filter=Match("x")))
    process.settle()
    assert process.data("b") == []
    assert process.view().lag == 0


@pytest.mark.parametrize(
    ("name", "source", "dest"),
    [("r", "a", "a"), ("r", "", "b"), ("r", "a", "b>"), ("r r", "a", "b"), (">", "a", "b")],
)
def test_names_are_checked(process: Process, name: str, source: str, dest: str) -> None:
    with pytest.raises(InvalidRequest):
        process.route(source, dest, name)
    assert counted(process) == 0


def test_an_absent_destination_is_created_only_if_asked(process: Process) -> None:
    with pytest.raises(TopicNotFound):
        process.route(create_dest=False)
    with pytest.raises(TopicNotFound):
        process.topics.view("a")
    process.put("b")
    assert process.route(create_dest=False)


def test_another_source_is_refused_and_another_filter_is_not(process: Process) -> None:
    process.route()
    with pytest.raises(FanIn) as refused:
        process.route("x", "b")
    assert refused.value.detail["reason"] == "router_dest_fan_in"
    assert process.route(name="second", filter=Match("x"))
    process.write("a", b"1", key="x")
    process.settle()
    process.settle(name="second")
    assert process.data("b") == [b"1", b"1"]


def test_so_many_routers_lead_into_a_topic(process: Process) -> None:
    for number in range(MAX_FEEDS):
        process.route(name=f"r{number}")
    with pytest.raises(LimitReached):
        process.route(name="more")
    assert (followers(process, "a"), counted(process)) == (MAX_FEEDS, MAX_FEEDS)


@pytest.mark.parametrize(("source", "dest"), [("a", "c"), ("c", "b")])
def test_a_router_is_not_repointed(process: Process, source: str, dest: str) -> None:
    process.route()
    with pytest.raises(Repointed):
        process.route(source, dest, "a->b")


def test_a_cycle_is_refused_with_its_path(process: Process) -> None:
    process.route("a", "b")
    process.route("b", "c")
    with pytest.raises(RouterCycle) as refused:
        process.route("c", "a")
    assert refused.value.detail["cycle"] == ["c", "a", "b", "c"]
    assert process.route("c", "a", allow_cycle=True)
    with pytest.raises(RouterCycle):
        process.route("c", "a")
    assert process.route("a", "d")


def test_a_cycle_upstream_ends_the_search(process: Process) -> None:
    process.route("a", "b", allow_cycle=True)
    process.route("b", "a", allow_cycle=True)
    assert process.route("b", "c")


def test_two_routers_that_close_a_cycle_together_are_not_both_made(process: Process) -> None:
    other = Process(process.stores)
    process.wal.on("commit", lambda: other.route("b", "a"))
    with pytest.raises(RouterCycle):
        process.route("a", "b")
    assert names(process) == ["b->a"]


def test_two_sources_of_one_topic_are_not_both_made(process: Process) -> None:
    """Fan-in is decided on the destination's state, which the commit checks."""
    other = Process(process.stores)
    process.put("b")
    process.wal.on("commit", lambda: other.route("x", "b"))
    with pytest.raises(FanIn):
        process.route("a", "b")
    assert names(process) == ["x->b"]


def test_limits_are_held_and_leave_no_topics(process: Process) -> None:
    process.route(limit=1)
    with pytest.raises(LimitReached):
        process.route("c", "d", limit=1)
    with pytest.raises(TopicNotFound):
        process.topics.view("c")
    assert not process.route(limit=1, preserve_node=False)
    process.routers.remove("a->b")
    assert process.route("c", "d", limit=1)


@pytest.mark.parametrize("most", [1, 2, 3, SHARDS, 2 * SHARDS])
def test_the_limit_of_topics_holds_for_both(process: Process, most: int) -> None:
    made = 0
    with pytest.raises(LimitReached):
        for made in range(most + 1):
            process.route(f"s{made}", f"d{made}", most_topics=most)
    assert (made, counted(process, TOPICS)) == (most // 2, most // 2 * 2)


def test_a_deleted_router_copies_nothing_more(process: Process) -> None:
    process.route()
    process.write("a", b"1")
    process.settle()
    follow = process.follow()
    assert process.routers.remove("a->b")
    assert not process.routers.remove("a->b")
    process.write("a", b"2")
    assert process.stepper.visit(follow) is None
    assert process.data("b") == [b"1"]
    assert (counted(process), followers(process, "a")) == (0, 0)
    with pytest.raises(RouterNotFound):
        process.view()


def test_a_router_that_is_made_again_begins_anew(process: Process) -> None:
    process.route(filter=Match("x"))
    process.write("a", b"1", key="y")
    process.settle()
    process.routers.remove("a->b")
    process.write("a", b"2", key="x")
    assert process.route()
    assert process.settle() is None
    assert process.data("b") == []
    process.write("a", b"3")
    process.settle()
    assert process.data("b") == [b"3"]
    assert process.view().forwarded == 1


def test_a_delete_of_a_topic_removes_its_routers(process: Process) -> None:
    process.route("a", "b")
    process.route("b", "c")
    process.route("b", "d")
    process.route("x", "y")
    with pytest.raises(Routed):
        process.topics.remove("b")
    assert process.routers.remove_topic("b") == (True, ["a->b", "b->c", "b->d"])
    assert process.routers.remove_topic("b") == (False, [])
    assert names(process) == ["x->y"]
    assert (followers(process, "a"), topic_of(process.topics.head("c").state).fed_by) == (0, ())
    assert counted(process) == 1


def test_a_topic_with_many_routers_is_deleted(process: Process) -> None:
    for number in range(2 * MOST + 1):
        process.route("a", f"d{number:02}")
    deleted, removed = process.routers.remove_topic("a")
    assert (deleted, len(removed)) == (True, 2 * MOST + 1)
    assert not any(process.stores.sessions.counts(ROUTERS)), (
        "a shard with less than none has room for more than its part"
    )


def test_a_topic_that_has_records_keeps_its_routers_if_asked(process: Process) -> None:
    process.route()
    process.write("a", b"1")
    with pytest.raises(NotEmpty):
        process.routers.remove_topic("a", if_empty=True)
    assert names(process) == ["a->b"]


def test_a_topic_that_got_a_record_after_its_routers_went_is_not_said_to_be_as_it_was(process: Process) -> None:
    process.route()
    other = Process(process.stores)
    detach = process.routers._detach

    def and_write(name: str) -> list[str]:
        removed = detach(name)
        other.write("b", b"1")
        return removed

    process.routers._detach = and_write  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown):
        process.routers.remove_topic("b", if_empty=True)
    assert names(process) == []
    with pytest.raises(NotEmpty):
        process.routers.remove_topic("b", if_empty=True)


def test_a_router_that_appears_during_a_delete_of_its_topic_goes_too(process: Process) -> None:
    process.put("a")
    other = Process(process.stores)
    process.wal.on("commit", lambda: other.route())
    assert process.routers.remove_topic("a") == (True, ["a->b"])
    assert counted(process) == 0


def test_what_a_disaster_left_does_not_hold_a_topic(process: Process) -> None:
    process.route()
    row = process.stores.catalog.get(ROUTERS, "a->b")
    assert row is not None
    process.stores.catalog.mark_ended(row)
    with pytest.raises(RouterNotFound):
        process.view()
    assert process.routers.remove_topic("a") == (True, [])
    assert process.routers.remove_topic("b") == (True, [])


def test_beside_many_that_a_disaster_left_the_routers_that_live_are_removed_with_a_topic(process: Process) -> None:
    for number in range(MOST + 2):
        process.route("a", f"d{number:02}", name=f"r{number:02}")
        row = process.stores.catalog.get(ROUTERS, f"r{number:02}")
        assert row is not None
        if number <= MOST:
            process.stores.catalog.mark_ended(row)
    assert process.routers._detach("a") == []
    assert followers(process, "a") == len(process.stores.follows.of(row_id(process, "a"))) == 2
    assert process.routers.remove_topic("a") == (True, [f"r{MOST + 1:02}"])


def test_a_row_that_a_disaster_left_is_counted_once_if_the_router_is_made_again(process: Process) -> None:
    process.route("a", "b", name="r")
    row = process.stores.catalog.get(ROUTERS, "r")
    assert row is not None
    process.stores.catalog.mark_ended(row)
    assert process.route("a", "c", name="r")
    assert (followers(process, "a"), len(process.stores.follows.of(row_id(process, "a")))) == (1, 1)


def row_id(process: Process, name: str) -> str:
    return process.topics.head(name).log_id


def test_listings(process: Process) -> None:
    for source, dest in (("a", "b"), ("a", "c"), ("x", "d")):
        process.route(source, dest)
    assert names(process) == ["a->b", "a->c", "x->d"]
    assert names(process, source="a") == ["a->b", "a->c"]
    assert names(process, dest="c") == ["a->c"]
    assert names(process, source="x", dest="c") == []
    assert names(process, source="nobody") == []
    assert names(process, prefixes=["a->c", "x"]) == ["a->c", "x->d"]
    assert names(process, source="a", prefixes=["a->c", "x"]) == ["a->c"]
    for asked in ({}, {"source": "a"}):
        page, more = process.routers.routers(limit=1, **asked)
        assert ([one.name for one in page], more) == (["a->b"], "a->b")
        page, more = process.routers.routers(limit=1, after="a->b", **asked)
        assert [one.name for one in page] == ["a->c"]
        assert more == (None if asked else "a->c")
    (view,) = process.routers.routers(dest="d", limit=1)[0]
    assert (view.source, view.dest, view.forwarded, view.lag) == ("x", "d", 0, None)


def test_rows_of_those_that_wait_are_no_routers(process: Process) -> None:
    process.route("a", "b")
    head = process.topics.head("b")
    process.topics.follow(
        "b", Follow(head.log_id, ROUTER, "!x", b'{"dest":"b"}', until_ms=process.clock.now_ms() + 1)
    )
    assert names(process, source="b") == []
    assert process.routers.remove_topic("b") == (True, ["a->b"])


def test_a_delete_that_fails_halfway_may_be_repeated(process: Process) -> None:
    for number in range(MOST + 1):
        process.route("a", f"d{number:02}")
    process.wal.fail("commit", call=2, times=float("inf"))
    with pytest.raises(OutcomeUnknown):
        process.routers.remove_topic("a")
    process.wal.heal()
    assert process.routers.remove_topic("a") == (True, [f"a->d{MOST}"])


def test_routers_without_a_topic_in_common_do_not_close_a_cycle_together(process: Process) -> None:
    process.route("a", "b")
    process.route("c", "d")
    other = Process(process.stores)
    process.wal.on("commit", lambda: other.route("d", "a"))
    with pytest.raises(RouterCycle):
        process.route("b", "c")
    assert names(process) == ["a->b", "c->d", "d->a"]


def test_a_changed_filter_is_about_what_was_not_passed_over(process: Process) -> None:
    process.route(filter=Match("x"))
    process.write("a", b"1", key="y")
    process.settle()
    process.route()
    process.settle()
    assert process.data("b") == []


def test_a_feed_of_an_earlier_router_is_none(process: Process) -> None:
    process.route()
    rows = process.stores.catalog.rows  # type: ignore[attr-defined]
    row = rows[ROUTERS, "a->b"]
    rows[ROUTERS, "a->b"] = structs.replace(row, log_id="other")
    with pytest.raises(RouterNotFound):
        process.view()
    assert names(process) == []
