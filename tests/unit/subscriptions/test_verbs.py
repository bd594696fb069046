"""Subscriptions as clients and the relay use them, on stores in memory."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from functions.queue import MemoryQueue
from functions.sealer.context import assemble
from functions.sealer.seal import seal
from functions.sealer.trim import trim
from headrace.errors import Damaged, HeadraceError
from headrace.streams.values import AppendRequest, CreateRequest, ForkRequest
from headrace.subscriptions.errors import (
    AlreadyClaimed,
    Fenced,
    InvalidOffset,
    InvalidSubscription,
    NoPendingWork,
    NoSubscription,
    SubscriptionExists,
)
from headrace.subscriptions.rows import LinkRow, Row
from headrace.subscriptions.rows import Rows as LinkRows
from headrace.subscriptions.rules import Outcome
from headrace.subscriptions.values import KIND, MAX_LINKS, Config, Link, Seen, Subscription
from headrace.subscriptions.verbs import Ack
from headrace.tables.items import Guard
from headrace.tables.parts import Part, PutPart
from tests.unit.subscriptions.world import HOOK, PULL, World, everyone


@pytest.fixture
def world() -> World:
    made = World()
    made.create("pool")
    made.hear()
    return made


def test_existing_streams_are_linked_at_their_tails_and_nothing_is_pending(world: World) -> None:
    world.create("orders/1", {"n": 1})
    world.create("other")
    world.put()
    world.hear()
    (link,) = world.links().values()
    assert (link.path, link.link_type, link.acked_offset) == (
        "orders/1",
        "glob",
        world.streams.head("orders/1").next_offset,
    )
    assert world.wakes() == []
    with pytest.raises(NoPendingWork):
        world.claim()


@pytest.mark.parametrize("is_appended", [False, True], ids=["only followed", "appended to"])
@pytest.mark.parametrize("is_named", [False, True], ids=["by the pattern", "by name"])
def test_what_the_relay_hears_while_a_stream_is_linked_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_named: bool, is_appended: bool
) -> None:
    name = "named" if is_named else "orders/1"
    world.create(name, {"n": 1})
    tail = world.streams.head(name).next_offset
    if is_named:
        world.put()
    new_link, heard = LinkRows.new_link, []

    def hear_first(self: LinkRows, id_: str, link: Link) -> PutPart:
        if not heard:
            heard.append(link)
            if is_appended:
                world.append(name)
            world.hear()
        return new_link(self, id_, link)

    monkeypatch.setattr(LinkRows, "new_link", hear_first)
    if is_named:
        world.subs.add("s", [name], everyone)
    else:
        world.put()
    assert heard and world.links()[name].acked_offset == tail, "what was there is no news"
    world.append(name)
    world.hear()
    assert len(world.wakes()) == 1, "it is followed"


def test_a_new_subscription_may_begin_at_the_beginning(world: World) -> None:
    world.create("orders/1", {"n": 1})
    world.create("named", {"n": 1})
    config = replace(PULL, streams=("absent", "named"))
    assert world.subs.put("s", config, everyone, from_start=True).is_new
    assert {path: link.acked_offset for path, link in world.links().items()} == {
        "absent": "-1", "named": "-1", "orders/1": "-1",
    }  # fmt: skip
    assert len(world.wakes()) == 1, "it is woken without a further append"
    claimed = world.claim()
    tails = {view.path: view.tail_offset for view in claimed.streams if view.has_pending}
    assert set(tails) == {"named", "orders/1"}
    world.ack(claimed, *tails.items(), done=True)
    assert not world.subs.put("s", config, everyone, from_start=True).is_new
    assert world.links()["named"].acked_offset == tails["named"], "what exists keeps its cursor"
    world.create("later", {"n": 1})
    world.subs.add("s", ["later"], everyone)
    assert world.links()["later"].acked_offset == world.streams.head("later").next_offset


def test_an_append_is_announced_once_until_the_wake_is_over(world: World) -> None:
    world.create("orders/1")
    world.put()
    tail = world.append("orders/1")
    world.hear()
    world.append("orders/1")
    world.hear()
    (record,) = world.wakes()
    assert {name: record[name] for name in ("type", "subscription_id", "stream", "generation")} == {
        "type": "wake",
        "subscription_id": "s",
        "stream": "orders/1",
        "generation": 1,
    }
    claimed = world.claim()
    assert claimed.streams[0].has_pending and claimed.streams[0].tail_offset > tail
    assert world.ack(claimed, ("orders/1", tail), done=True), "the second append is pending still"
    assert [record["generation"] for record in world.wakes()] == [1, 2]


def test_a_later_match_is_linked_by_its_first_append_with_all_its_data(world: World) -> None:
    world.put()
    world.create("orders/1")
    world.hear()
    assert world.links() == {}
    world.append("orders/1")
    world.hear()
    assert world.links()["orders/1"].acked_offset == "-1"
    assert len(world.wakes()) == 1
    world.create("orders/2", {"n": 1})
    world.hear()
    assert world.links()["orders/2"].acked_offset == "-1"
    assert {view.path for view in world.claim().streams if view.has_pending} == {"orders/1", "orders/2"}


def test_a_claim_needs_no_record_and_writes_it_first(world: World) -> None:
    world.create("orders/1")
    world.put()
    world.append("orders/1")
    claimed = world.claim()
    assert claimed.subscription.generation == 1
    assert [record["generation"] for record in world.wakes()] == [1]
    world.hear()
    assert len(world.wakes()) == 1


def test_one_of_two_claims_wins(world: World) -> None:
    world.create("orders/1")
    world.put()
    world.append("orders/1")
    world.hear()
    claimed = world.claim("one")
    with pytest.raises(AlreadyClaimed) as refused:
        world.another().claim("s", "two", everyone)
    assert refused.value.holder == "one"
    assert not world.ack(claimed, ("orders/1", claimed.streams[0].tail_offset), done=True)


def test_a_claim_with_nothing_left_closes_the_wake(world: World) -> None:
    world.create("orders/1")
    world.put()
    world.append("orders/1")
    world.hear()
    world.streams.delete("orders/1")
    world.hear()
    with pytest.raises(NoPendingWork):
        world.claim()
    assert world.sub().wake is None
    world.create("orders/1", {})
    world.hear()
    assert [record["generation"] for record in world.wakes()] == [1, 2]


def test_a_refused_ack_changes_nothing(world: World) -> None:
    world.create("orders/1")
    world.create("orders/2")
    world.put()
    good = world.append("orders/1")
    world.hear()
    claimed, before = world.claim(), world.sub()
    for bad in [("orders/2", good + "0"), ("unknown", good), ("orders/1", "-1"), ("orders/1", "nonsense")]:
        with pytest.raises(InvalidOffset):
            world.ack(claimed, ("orders/1", good), bad, done=True)
    assert world.sub() == before
    assert world.links()["orders/1"].acked_offset != good


def test_an_ack_that_dies_between_its_parts_moves_no_cursor_past_it_and_can_be_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put(Config("pull-wake", streams=tuple(f"s{n}" for n in range(100)), wake_stream="pool"))
    for n in range(100):
        world.create(f"s{n}", {}, {})
    world.hear()
    claimed = world.claim()
    acks = tuple((view.path, view.tail_offset) for view in claimed.streams)
    assert len(acks) == 100
    before, put, parts = world.links(), LinkRows.put, []

    def dying(self: LinkRows, row: Row | None, sub: Subscription, *others: Guard, **more: int) -> bool:
        if parts:
            raise KeyboardInterrupt
        parts.append(others)
        return put(self, row, sub, *others, **more)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(LinkRows, "put", dying)
        world.ack(claimed, *acks, done=True)
    links = world.links()
    moved = {path for path, link in links.items() if link != before[path]}
    assert len(moved) == 90
    assert all(links[path].acked_offset == offset for path, offset in acks if path in moved)
    wake = world.sub().wake
    assert wake is not None and wake.stage == "leased", "the worker is at work"
    assert not world.ack(claimed, *acks, done=True)
    assert {path: link.acked_offset for path, link in world.links().items()} == dict(acks)
    assert world.sub().wake is None


def test_a_lease_that_ends_fences_its_worker_and_the_work_is_announced_again(world: World) -> None:
    world.create("orders/1")
    world.put()
    tail = world.append("orders/1")
    world.hear()
    claimed = world.claim()
    world.advance(4)
    assert not world.ack(claimed)
    world.advance(4)
    world.tick()
    assert world.sub().wake is not None, "the heartbeat renewed it"
    world.advance(1)
    world.tick()
    assert [record["generation"] for record in world.wakes()] == [1, 2]
    with pytest.raises(Fenced):
        world.ack(claimed, ("orders/1", tail), done=True)
    assert world.claim("other").subscription.generation == 2
    with pytest.raises(Fenced):
        world.ack(claimed, done=True)
    with pytest.raises(Fenced):
        world.subs.release("s", claimed.token, claimed.wake_id, 1)


def test_a_release_keeps_earlier_acks_and_announces_the_rest(world: World) -> None:
    world.create("orders/1")
    world.put()
    first = world.append("orders/1")
    world.append("orders/1")
    world.hear()
    claimed = world.claim()
    world.ack(claimed, ("orders/1", first))
    world.subs.release("s", claimed.token, claimed.wake_id, 1)
    assert [record["generation"] for record in world.wakes()] == [1, 2]
    assert world.claim().streams[0].acked_offset == first


def test_an_unclaimed_wake_is_announced_again(world: World) -> None:
    world.create("orders/1")
    world.put()
    world.append("orders/1")
    world.hear()
    world.advance(31)
    world.tick()
    world.advance(31)
    world.tick()
    assert [record["generation"] for record in world.wakes()] == [1, 1]
    world.advance(31)
    world.tick()
    assert len(world.wakes()) == 3


def test_without_its_wake_stream_a_subscription_can_still_be_claimed(world: World) -> None:
    world.create("orders/1")
    world.put(replace(PULL, wake_stream="absent"))
    world.append("orders/1")
    world.hear()
    assert world.sub().generation == 1
    world.create("absent")
    world.advance(31)
    world.tick()
    assert [record["generation"] for record in world.wakes("absent")] == [1], "repeated, once it is there"
    assert world.claim().subscription.generation == 1


def test_a_closed_wake_stream_takes_no_record(world: World) -> None:
    world.create("orders/1")
    world.put()
    world.streams.append("pool", AppendRequest(close=True))
    world.append("orders/1")
    world.hear()
    assert world.wakes() == []
    assert world.claim().subscription.generation == 1


def test_a_wake_stream_wakes_other_subscriptions_and_never_its_own(world: World) -> None:
    world.create("orders/1")
    world.create("pool2")
    world.put(replace(PULL, pattern="**"))
    world.put(Config("pull-wake", "pool", wake_stream="pool2"), "t")
    world.append("orders/1")
    world.hear()
    assert [record["stream"] for record in world.wakes("pool2")] == ["pool"]
    assert "pool" not in world.links()


def test_a_worker_that_is_late_is_heard_as_long_as_no_other_has_its_work(world: World) -> None:
    world.create("orders/1")
    world.put()
    tail = world.append("orders/1")
    world.hear()
    late = world.claim("late")
    world.advance(6)
    other = world.claim("other")
    assert other.subscription.generation == 2
    with pytest.raises(Fenced):
        world.ack(late, ("orders/1", tail), done=True)
    world.advance(6)
    assert not world.ack(other, ("orders/1", tail), done=True), "its lease is over, but nobody has noted that"
    assert world.links()["orders/1"].acked_offset == tail


# Webhooks.


def test_done_acknowledges_what_was_sent_and_nothing_newer(world: World) -> None:
    world.create("orders/1")
    world.put(HOOK)
    sent = world.append("orders/1")
    world.hear()
    newer: list[str] = []
    world.meanwhile = lambda: newer or newer.append(world.append("orders/1"))
    world.tick()
    world.hear()
    assert [call.streams[0].tail_offset for call in world.calls] == [sent, newer[0]]
    assert [call.generation for call in world.calls] == [1, 2]
    assert world.links()["orders/1"].acked_offset == newer[0]
    assert world.sub().wake is None


def test_a_failing_webhook_is_called_again_with_the_same_wake_and_body(world: World) -> None:
    world.create("orders/1")
    world.put(HOOK)
    sent = world.append("orders/1")
    world.hear()
    world.answers = [Outcome.FAILED] * 3
    pauses = []
    for _ in range(3):
        pauses.append(world.tick())
        assert world.sub().status == "failed"
        world.append("orders/1")
        world.hear()
        world.advance(pauses[-1] or 0)
    assert pauses == [1.0, 2.0, 4.0]
    world.tick()
    assert {(call.wake_id, call.generation) for call in world.calls[:4]} == {(world.calls[0].wake_id, 1)}
    assert {call.streams for call in world.calls[:4]} == {world.calls[0].streams}
    assert len({call.token for call in world.calls[:4]}) == 4
    assert world.calls[0].streams[0].tail_offset == sent
    assert world.calls[4].generation == 2, "what came meanwhile"


def test_an_accepted_wake_without_a_callback_is_the_next_generation_without_a_pause(world: World) -> None:
    world.create("orders/1")
    world.put(HOOK)
    world.append("orders/1")
    world.hear()
    world.answers = [Outcome.ACCEPTED]
    assert world.tick() == 5.0
    world.advance(5)
    world.tick()
    assert [call.generation for call in world.calls] == [1, 2]


def test_a_callback_ends_the_wake_even_while_a_retry_waits(world: World) -> None:
    world.create("orders/1")
    world.put(HOOK)
    tail = world.append("orders/1")
    world.hear()
    world.answers = [Outcome.FAILED]
    world.tick()
    call = world.calls[0]
    ack = Ack(call.wake_id, 1, [("orders/1", tail)], done=True)
    assert not world.subs.ack("s", "webhook", call.token, ack)
    with pytest.raises(Fenced):
        world.subs.ack("s", "webhook", call.token, ack)
    world.advance(10)
    world.tick()
    assert len(world.calls) == 1


def test_a_subscription_that_is_deleted_during_a_call_is_not_called_again(world: World) -> None:
    world.create("orders/1")
    world.put(HOOK)
    world.append("orders/1")
    world.hear()
    world.answers = [Outcome.FAILED]
    world.meanwhile = lambda: world.subs.delete("s", everyone)
    world.tick()
    world.advance(3600)
    assert world.timer() is None or world.tick() is None
    assert len(world.calls) == 1
    with pytest.raises(NoSubscription):
        world.sub()


# Links.


def test_links_by_name_wait_for_their_streams_and_survive_them(world: World) -> None:
    world.put(Config("pull-wake", streams=("audit/eu",), wake_stream="pool"))
    assert world.links()["audit/eu"].acked_offset == "-1"
    world.create("audit/eu", {"n": 1})
    world.hear()
    claimed = world.claim()
    tail = claimed.streams[0].tail_offset
    world.ack(claimed, ("audit/eu", tail), done=True)
    assert world.links()["audit/eu"].acked_offset == tail
    world.streams.delete("audit/eu")
    world.hear()
    assert world.links()["audit/eu"].acked_offset == "-1"
    world.create("audit/eu")
    world.hear()
    world.append("audit/eu")
    world.hear()
    assert [view.acked_offset for view in world.claim().streams] == ["-1"]


def test_removing_a_name_leaves_what_the_pattern_matches(world: World) -> None:
    world.create("orders/1")
    world.create("audit")
    world.put(replace(PULL, streams=("audit", "orders/1")))
    cursor = world.links()["orders/1"].acked_offset
    for path in ("orders/1", "audit", "unknown"):
        world.subs.remove("s", path, everyone)
    assert {path: (link.link_type, link.acked_offset) for path, link in world.links().items()} == {
        "orders/1": ("glob", cursor)
    }
    assert world.stores.follows.of(world.streams.head("audit").log_id, KIND) == []
    assert world.streams.head("audit").state.followers == 0
    world.subs.remove("s", "orders/1", everyone)
    assert set(world.links()) == {"orders/1"}, "a link of the pattern stays"


def test_a_link_that_is_added_again_keeps_its_cursor(world: World) -> None:
    world.create("orders/1")
    world.put()
    cursor = world.links()["orders/1"].acked_offset
    world.append("orders/1")
    world.hear()
    world.subs.add("s", ["orders/1"], everyone)
    link = world.links()["orders/1"]
    assert (link.link_type, link.acked_offset) == ("explicit", cursor)


def test_a_stream_that_is_created_again_begins_anew(world: World) -> None:
    world.create("orders/1", *range(5))
    world.put()
    world.streams.delete("orders/1")
    world.hear()
    assert world.links() == {}
    world.create("orders/1", 1)
    world.hear()
    assert world.links()["orders/1"].acked_offset == "-1"
    assert len(world.wakes()) == 1


def test_a_pattern_that_matches_too_much_is_refused(world: World) -> None:
    for number in range(MAX_LINKS + 1):
        world.create(f"orders/{number}")
    with pytest.raises(InvalidSubscription):
        world.put()
    with pytest.raises(NoSubscription):
        world.sub()


def test_a_subscription_has_at_most_a_thousand_links(world: World) -> None:
    names = tuple(f"audit/{n}" for n in range(MAX_LINKS))
    world.put(Config("pull-wake", streams=names, wake_stream="pool"))
    assert len(world.links()) == MAX_LINKS
    with pytest.raises(InvalidSubscription):
        world.subs.add("s", ["one-more"], everyone)
    assert len(world.links()) == MAX_LINKS


def test_a_new_stream_is_looked_up_by_its_beginnings_alone(world: World) -> None:
    patterns = {"*": "*/1", "**": "**", "one": "orders/**", "two": "orders/eu/*", "deep": "orders/eu/a/b/*"}
    others = {"us": "orders/us/*", "longer": "orders/eu/1/*", "other": "other/**"}
    for id_, pattern in (patterns | others).items():
        world.put(replace(PULL, pattern=pattern), id_)
    world.put(Config("pull-wake", streams=("orders/eu/a/b/c",), wake_stream="pool"), "named")
    rows = LinkRows(world.stores.sessions)
    assert {id_ for _, id_ in rows.interested("orders/eu/a/b/c")} == {*patterns, "named"}
    assert {id_ for _, id_ in rows.interested("orders")} == {"*", "**", "one"}
    paged: list[str] = []
    after = ""
    while page := rows.interested("orders/eu/a/b/c", after, 2):
        assert len(page) <= 2
        paged += [id_ for _, id_ in page]
        after = page[-1][0]
    assert len(paged) == len({*paged}) == len(patterns) + 1


def test_patterns_that_begin_alike_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.subscriptions.rows.MAX_ALIKE", 2)
    for id_ in ("a", "b"):
        world.put(replace(PULL, pattern="**"), id_)
    with pytest.raises(InvalidSubscription, match="begin alike"):
        world.put(replace(PULL, pattern="*/1"), "c")
    assert not world.subs.put("a", replace(PULL, pattern="**"), everyone).is_new
    world.put(replace(PULL, pattern="orders/**"), "d")
    world.subs.delete("a", everyone)
    world.put(replace(PULL, pattern="*/1"), "c")


# Configuration, deletion.


def test_the_same_configuration_is_the_same_subscription(world: World) -> None:
    first = world.subs.put("s", PULL, everyone)
    again = world.subs.put("s", PULL, everyone)
    assert (first.is_new, again.is_new) == (True, False)
    assert replace(first.subscription, linked=1) == again.subscription
    with pytest.raises(SubscriptionExists):
        world.put(replace(PULL, lease_ttl_ms=6_000))


def test_a_repeated_put_restores_no_link_that_was_removed(world: World) -> None:
    config = replace(PULL, streams=("audit",))
    world.put(config)
    world.subs.remove("s", "audit", everyone)
    world.put(config)
    assert world.links() == {}


def test_after_a_deletion_nothing_is_left_but_the_generation(world: World) -> None:
    world.create("orders/1")
    world.put(replace(PULL, streams=("audit",)))
    world.append("orders/1")
    world.hear()
    claimed = world.claim()
    world.subs.delete("s", everyone)
    world.subs.delete("s", everyone)
    for call in (world.sub, world.claim, lambda: world.ack(claimed)):
        with pytest.raises(NoSubscription):
            call()
    assert world.streams.head("orders/1").state.followers == 0
    left = [key for key in world.stores.sessions.rows if key[0] in (KIND, "interest")]
    assert left == [(KIND, "s", "-")]
    world.append("orders/1")
    world.hear()
    assert len(world.wakes()) == 1
    fresh = world.put()
    assert (fresh.generation, fresh.wake) == (1, None)
    with pytest.raises(HeadraceError):
        world.ack(claimed)
    world.append("orders/1")
    world.hear()
    assert [record["generation"] for record in world.wakes()] == [1, 2]


def test_a_put_that_broke_off_is_finished_by_the_next_one_or_by_time(world: World) -> None:
    world.create("orders/1")
    world.subs._create("s", PULL, everyone, "", False)
    assert world.links() == {}
    world.put()
    assert set(world.links()) == {"orders/1"}
    world.subs._create("t", PULL, everyone, "", False)
    world.advance(61)
    world.tick("t")
    assert set(world.links("t")) == {"orders/1"}


def test_a_stream_that_the_listing_showed_late_is_linked_with_its_data(world: World) -> None:
    world.put()
    world.create("orders/1", 1)
    world.wal.unheard.clear()  # the relay asked for patterns before there was one
    world.advance(61)
    world.tick()
    assert world.links()["orders/1"].acked_offset == "-1"
    assert len(world.wakes()) == 1
    assert world.sub().linked == 2


def test_what_a_fork_inherits_is_no_news(world: World) -> None:
    world.create("origin", 1, 2, 3)
    world.put()
    fork = CreateRequest(fork=ForkRequest("origin"))
    branch = world.streams.create("orders/fork", fork).head.next_offset
    world.hear()
    assert world.links() == {}
    world.append("orders/fork")
    world.hear()
    assert world.links()["orders/fork"].acked_offset == branch
    assert len(world.wakes()) == 1


def test_of_two_processes_that_open_a_wake_one_does(world: World) -> None:
    world.create("orders/1")
    world.put()
    world.append("orders/1")
    mine, theirs = world.subs.wakes, world.another().wakes
    look = mine._links.look

    def slow_look(rows: Iterable[LinkRow]) -> list[Seen]:
        seen = look(rows)
        mine._links.look = look  # type: ignore[method-assign]
        assert theirs.open_next("s")
        return seen

    mine._links.look = slow_look  # type: ignore[method-assign]
    assert mine.open_next("s")
    assert [record["generation"] for record in world.wakes()] == [1]
    assert world.sub().generation == 1


def test_who_dies_after_the_end_of_a_wake_is_followed_by_the_timer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create("orders/1")
    world.put()
    first = world.append("orders/1")
    world.append("orders/1")
    world.hear()
    claimed = world.claim()
    with monkeypatch.context() as dying, pytest.raises(KeyboardInterrupt):
        dying.setattr(world.subs.wakes, "open_next", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        world.ack(claimed, ("orders/1", first), done=True)
    assert world.sub().wake is None
    world.advance(31)
    world.tick()
    assert [record["generation"] for record in world.wakes()] == [1, 2]


def test_a_wake_that_opens_while_its_timer_is_visited_has_a_visit_of_its_own(world: World) -> None:
    world.create("orders/1")
    world.put(HOOK)
    world.append("orders/1")
    world.hear()
    world.answers = [Outcome.ACCEPTED]
    seen = world.timer()
    assert seen is not None
    assert world.subs.wakes.drive("s", world.post) == 5.0, "the visit will write that the next one is in five seconds"
    world.append("orders/1")
    world.hear()
    (call,) = world.calls
    assert world.subs.ack("s", "webhook", call.token, Ack(call.wake_id, call.generation, done=True))
    row = world.timer()
    assert row is not None and row.due_ms not in (0, seen.due_ms), "so the visit leaves the row alone"
    assert row.due_ms <= world.clock.now_ms() + 1


@pytest.mark.parametrize("is_relay", [False, True])
def test_who_cleans_up_late_leaves_the_next_subscription_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, is_relay: bool
) -> None:
    world.create("orders/1")
    config = replace(PULL, streams=("audit",))
    world.put(config)
    late = world.subs.links.clean

    def overtaken(row: Row) -> bool:
        world.another().put("s", config, everyone)
        return late(row)

    if is_relay:
        with monkeypatch.context() as dying, pytest.raises(KeyboardInterrupt):
            dying.setattr(world.subs.links, "clean", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
            world.subs.delete("s", everyone)
    with monkeypatch.context() as slow:
        slow.setattr(world.subs.links, "clean", overtaken)
        if is_relay:
            world.tick()
        else:
            world.subs.delete("s", everyone)
    assert set(world.links()) == {"audit", "orders/1"}
    assert world.timer() is not None
    for name in ("audit", "orders/2"):
        world.create(name, {})
    world.append("orders/1")
    world.hear()
    assert {view.path for view in world.claim().streams if view.has_pending} == {"audit", "orders/1", "orders/2"}


def test_a_stream_of_which_the_relay_hears_after_its_first_entries_were_trimmed_is_linked(world: World) -> None:
    world.put()
    world.create("orders/1", 1)
    log_id, parts = world.streams.head("orders/1").log_id, assemble(world.stores, MemoryQueue())
    world.append("orders/1")
    seal(parts, log_id, force=True)
    world.advance(3600)
    trim(parts, log_id)
    assert world.wal.read(log_id, limit=1).entries[0].config is None
    world.hear()
    assert world.links()["orders/1"].acked_offset == "-1"
    assert world.claim().streams[0].has_pending


def test_without_a_key_that_allows_it_a_wake_is_not_announced_and_a_put_of_another_key_has_it_announced(
    world: World,
) -> None:
    world.create("orders/1")
    assert world.subs.put("s", PULL, everyone, "old").subscription.key_id == "old"
    world.refused = ("unauthorized", "the key was revoked")
    world.append("orders/1")
    world.hear()
    world.advance(40)
    world.tick()
    assert world.wakes() == []
    sub = world.sub()
    assert sub.status == "failed" and sub.wake is not None and sub.wake.refused == world.refused
    world.refused = None
    adopted = world.subs.put("s", PULL, everyone, "new")
    assert (adopted.subscription.key_id, adopted.subscription.status, adopted.is_new) == ("new", "active", False)
    world.tick()
    assert [record["generation"] for record in world.wakes()] == [1], "without a further pause"
    claimed = world.claim()
    world.refused = ("unauthorized", "the key was revoked")
    world.ack(claimed)
    assert world.sub().status == "active", "the worker that holds the wake has a key of its own"


def test_a_refused_wake_can_be_claimed_and_is_refused_no_more(world: World) -> None:
    world.create("orders/1")
    world.put()
    world.refused = ("forbidden", "no")
    world.append("orders/1")
    world.hear()
    assert world.sub().status == "failed"
    world.claim()
    assert world.sub().status == "active"


def test_who_may_not_read_each_named_stream_adopts_no_subscription(world: World) -> None:
    world.put()
    world.subs.add("s", ["secret"], everyone)

    def allow(_: Config, paths: Iterable[str]) -> None:
        if "secret" in paths:
            raise PermissionError

    with pytest.raises(PermissionError):
        world.subs.put("s", PULL, allow, "other")
    assert world.sub().key_id == ""


@pytest.mark.parametrize("damaged", [b"1", b'{"id": "\xed"}', b'{"id":' + b"[" * 5000])
def test_a_row_that_holds_no_subscription_is_damage(world: World, damaged: bytes) -> None:
    sessions = world.stores.sessions
    assert sessions.put_part(Part(KIND, "s", data=damaged), None)
    with pytest.raises(Damaged, match="id=s"):
        LinkRows(sessions).get("s")
