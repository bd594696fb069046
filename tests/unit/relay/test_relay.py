"""Laws of the relay: each follower hears of each append, a poisoned one delays no other, and nothing that failed is
forgotten.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from functions.queue import Message, NotQueued
from functions.relay import handler, visits
from functions.relay.followers import Hint
from headrace.errors import Damaged, StoreThrottled, StoreTimeout
from headrace.streams.values import CreateRequest
from headrace.streams.verbs import Streams
from headrace.tables.follows import Follow
from tests.unit.relay.world import LOG, World

OTHER = f"{2:032x}"


@pytest.fixture(params=[False, True], ids=["clock runs", "clock stands still"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    if request.param:
        monkeypatch.setattr(world.clock, "advance", lambda seconds: None)
        receive = world.queue.target.receive  # the queue's clock runs
        monkeypatch.setattr(world.queue.target, "receive", lambda now_ms: receive(now_ms + 10**9))
    return world


def test_an_append_visits_each_follower_once_and_bells_first() -> None:
    world = World()
    world.follow("r1", "r2")
    world.follow("s", kind="socket")
    world.follow("b", kind="bell")
    world.follow("elsewhere", log_id=OTHER)
    world.hear(world.append(slot=5 * 10**9, count=2), world.append(slot=7 * 10**9, count=3))
    assert world.dummy.order[0] == "bell#b"
    assert world.dummy.visits == {"b": 1, "r1": 1, "r2": 1, "s": 1}
    assert world.dummy.hints["r1"] == Hint("append", 10)
    assert world.queue.target.waiting == []
    assert world.follows.calls == {"of": 1}  # nothing else is read, and nothing written


def test_a_create_is_told_and_a_log_without_followers_costs_no_read() -> None:
    world = World()
    world.hear(world.append(kind="create", relay=False), world.append(log_id=OTHER, relay=False))
    assert world.created == [LOG]
    assert world.follows.calls == {}


def test_the_end_of_a_log_is_a_hint() -> None:
    world = World()
    world.follow("r")
    world.hear(world.append(kind="append"), world.append(slot=10**9, count=0, kind="delete"))
    assert world.dummy.hints["r"] == Hint("delete", 1)


def test_the_lag_is_the_age_of_the_oldest_entry() -> None:
    world = World()
    world.follow("r")
    old = world.append()
    world.clock.advance(3)
    world.hear(old, world.append())
    assert (world.metric("RelayLagMs"), world.metric("StreamEvents"), world.metric("Visits")) == (3000, 2, 1)


def test_unfinished_work_goes_on_by_messages_until_it_is_done(world: World) -> None:
    world.follow("r")
    world.dummy.scripts["r"] = [0.0] * 5
    world.hear(world.append())
    assert world.row("r").due_ms
    world.drain()
    assert world.dummy.visits["r"] == 7  # each step, and once more since the row says that it is up to date
    assert world.row("r").due_ms == 0
    assert world.metric("VisitsContinued") == 5


def test_appends_do_not_visit_a_follower_that_waits_and_are_not_missed() -> None:
    world = World()
    world.follow("r", "free")
    world.dummy.scripts["r"] = [20.0]
    for _ in range(10):
        world.hear(world.append())
    assert world.dummy.visits == {"r": 1, "free": 10}
    assert len(world.queue.target.waiting) == 1
    world.drain()
    assert world.dummy.visits["r"] == 3
    world.hear(world.append())
    assert world.dummy.visits["r"] == 4
    assert world.metric("VisitsBlocked") == 1


def test_an_append_between_the_last_look_and_the_row_is_found() -> None:
    """The visitor sees the end of the log; then comes an append, whose batch leaves it to the message that waits."""
    world = World()
    world.follow("r")
    log, told = [1], [0]

    def look(*_: object) -> None:
        told[0] = log[0]
        if log[0] == 1:
            log[0] = 2
            world.hear(world.append())

    world.dummy.scripts["r"] = [5.0, look, look]
    world.hear(world.append())
    world.drain()
    assert told == log == [2]


def test_a_visit_that_found_more_to_do_is_not_undone_by_one_that_looked_earlier() -> None:
    world = World()
    world.follow("r")

    def look(*_: object) -> float | None:
        world.dummy.scripts["r"].insert(0, 7.0)
        world.deliver(Message("visit", LOG, followers=("router#r",), force=True))  # another process, meanwhile
        return None

    world.dummy.scripts["r"] = [2.0, look]
    world.hear(world.append())
    world.clock.advance(2)
    (first,) = world.receive()
    assert world.deliver(first) == []
    due_ms = world.row("r").due_ms
    assert due_ms == world.clock.now_ms() + 7000
    assert [message.due_ms for message in world.queue.target.waiting] == [due_ms]


def test_a_poisoned_follower_delays_no_other_and_comes_back_later_each_time() -> None:
    world = World()
    world.follow("bad", "good")
    world.dummy.scripts["bad"] = [Damaged("row")] * 9
    world.hear(world.append())
    assert world.dummy.visits == {"bad": 1, "good": 1}
    pauses = []
    for _ in range(8):
        (waiting,) = world.queue.target.waiting
        pauses.append((waiting.not_before_ms - world.clock.now_ms()) // 1000)
        world.clock.advance(pauses[-1])
        assert world.deliver(*world.receive()) == []
        world.hear(world.append())  # the good one hears each
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert world.dummy.visits == {"bad": 9, "good": 9}
    world.drain()
    assert (world.metric("VisitFailures"), world.metric("PoisonedLogs")) == (9, 9)
    assert world.row("bad").due_ms == 0


def test_a_poisoned_message_does_not_fail_its_neighbours() -> None:
    world = World()
    world.follow("good")
    unknown = Message("seal", LOG)  # a verb of another function
    assert world.deliver(Message("visit", LOG), unknown) == ["1"]
    assert world.dummy.visits["good"] == 1


def test_a_log_whose_followers_cannot_be_read_is_visited_later() -> None:
    world = World()
    world.follow("r")
    world.follows.fail("of", StoreThrottled)
    world.hear(world.append())
    assert world.dummy.visits["r"] == 0
    world.drain()
    assert world.dummy.visits["r"] == 1


def test_a_new_log_that_could_not_be_told_of_is_told_of_later() -> None:
    world = World()

    def fails(*_: object) -> None:
        tells.pop()
        raise StoreTimeout("lost")

    def tells_it(_: object, message: Message) -> None:
        world.created.append(message.log_id)

    tells: list[Any] = [fails]
    world.relay._created = [lambda *what: tells[-1](*what) if tells else tells_it(*what)]
    world.hear(world.append(kind="create", relay=False))
    assert world.created == []
    world.drain()
    assert world.created == [LOG]


def test_a_row_that_does_not_take_the_note_leaves_it_to_the_message() -> None:
    world = World()
    world.follow("r")
    world.dummy.scripts["r"] = [0.0]
    world.follows.fail("put", StoreThrottled)
    world.hear(world.append())
    assert world.row("r").due_ms == 0
    world.drain()
    assert world.dummy.visits["r"] == 2


def test_a_batch_is_repeated_only_if_the_queue_takes_no_message() -> None:
    world = World()
    world.follow("r")
    world.dummy.scripts["r"] = [0.0]
    world.queue.fail("send", NotQueued)
    with pytest.raises(NotQueued):
        world.hear(world.append())
    world.hear(world.append())  # the row says that it waits: the sweep takes over
    assert world.dummy.visits["r"] == 1
    world.clock.advance(31)
    world.sweep()
    world.drain()
    assert world.dummy.visits["r"] == 3 and world.row("r").due_ms == 0
    assert world.metric("VisitsMissed") == 1


def test_the_sweep_finds_a_lost_message_and_doubles_none() -> None:
    world = World()
    world.follow("lost", "late")
    for name in ("lost", "late"):
        world.dummy.scripts[name] = [10.0, 0.0]
    world.hear(world.append())
    late = next(one for one in world.receive_all() if one.followers == ("router#late",))
    world.sweep()
    world.clock.advance(10 + 29)
    world.sweep()
    assert world.metric("VisitsMissed") == 0  # a message may be a little late
    world.clock.advance(2)
    world.sweep()
    assert world.metric("VisitsMissed") == 2
    world.deliver(late)
    world.drain()
    assert world.dummy.visits == {"lost": 4, "late": 4}
    assert world.deliver(late) == []
    assert world.row("lost").due_ms == world.row("late").due_ms == 0


def test_repeated_messages_do_not_multiply(world: World) -> None:
    world.follow("r")
    world.dummy.scripts["r"] = [0.0] * 50
    world.hear(world.append())
    for _ in range(20):
        for message in world.receive():
            assert world.deliver(message) == []
            assert world.deliver(message) == []  # at least once
        world.clock.advance(1)
    assert len(world.queue.target.waiting) <= 2
    assert world.dummy.visits["r"] <= 42


def test_a_kick_visits_a_follower_that_waits() -> None:
    world = World()
    world.follow("r")
    world.dummy.scripts["r"] = [60.0]
    world.hear(world.append())
    world.parts.kick(world.row("r"))
    assert world.deliver(*world.receive()) == []
    assert world.dummy.visits["r"] == 3 and world.row("r").due_ms == 0
    world.hear(world.append())
    assert world.dummy.visits["r"] == 4
    world.clock.advance(60)
    world.drain()  # the message of the wait: a last look, and that is all
    assert world.row("r").due_ms == 0


def test_what_a_batch_has_no_time_for_is_left_to_messages_of_25_followers(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(visits, "AT_ONCE", 40)
    world.follow(*(f"r{number:03}" for number in range(100)))
    world.hear(world.append())
    assert world.dummy.visits.total() == 40
    assert [len(message.followers) for message in world.queue.target.waiting] == [25, 25, 10]
    assert world.metric("VisitsPutOff") == 60
    world.drain()
    assert set(world.dummy.visits.values()) == {1} and len(world.dummy.visits) == 100


def test_a_second_of_slow_followers_is_the_end_of_a_batch() -> None:
    world = World()
    world.follow(*(f"r{number:03}" for number in range(100)))

    def slow(*_: object) -> None:
        world.clock.advance(0.5)

    for number in range(100):
        world.dummy.scripts[f"r{number:03}"] = [slow]
    world.hear(world.append())
    assert 1 <= world.dummy.visits.total() <= 2 + 16  # those that other threads had begun
    world.drain()
    assert set(world.dummy.visits.values()) == {1} and len(world.dummy.visits) == 100


def test_many_followers_are_read_by_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(handler, "PAGE", 10)
    world.follow(*(f"r{number:03}" for number in range(35)))
    world.hear(world.append())
    assert world.dummy.visits.total() == 10
    world.drain()
    assert set(world.dummy.visits.values()) == {1} and len(world.dummy.visits) == 35


def test_a_follower_whose_time_is_over_is_removed_unvisited() -> None:
    world = World()
    world.follow("gone", kind="bell", until_ms=world.clock.now_ms() + 1000)
    world.follow("here", kind="bell", until_ms=world.clock.now_ms() + 2000)
    world.clock.advance(1)
    world.hear(world.append())
    assert world.dummy.visits == {"here": 1}
    assert [row.id for row in world.wal.follows.of(LOG)] == ["here"]


def test_a_follower_that_removes_itself_is_not_noted() -> None:
    world = World()
    world.follow("s", kind="socket", until_ms=world.clock.now_ms() + 10**6)

    def leave(follow: Any, hint: Hint) -> float:
        assert world.wal.follows.remove(follow)
        return 1.0

    world.dummy.scripts["s"] = [leave]
    world.hear(world.append())
    assert world.queue.target.waiting == []


def test_a_follower_that_writes_its_row_is_noted_all_the_same() -> None:
    world = World()
    world.follow("r")

    def write(follow: Any, hint: Hint) -> float:
        assert world.wal.follows.put(msgspec.structs.replace(follow, data=b"{}"), follow)
        return 0.0

    world.dummy.scripts["r"] = [write]
    world.hear(world.append())
    assert world.row("r").data == b"{}" and world.row("r").due_ms
    world.drain()
    assert world.row("r").data == b"{}" and world.row("r").due_ms == 0


def test_an_unknown_kind_is_tried_again() -> None:
    """A newer release wrote it, and was rolled back."""
    world = World()
    world.follow("x", kind="newer")
    world.hear(world.append())
    assert world.metric("VisitFailures") == 1 and len(world.queue.target.waiting) == 1


def test_a_crash_at_any_call_loses_no_append() -> None:
    """Two followers, one of which needs three steps; a process dies at call n, and Lambda repeats the event."""

    class Dead(BaseException):
        pass

    def run(at: int, after: bool) -> bool:
        world = World()
        world.follow("a", "b")
        log, told = [0], {"a": 0, "b": 0}

        def step(name: str) -> Any:
            def visit(*_: object) -> float | None:
                told[name] = min(told[name] + (5 if name == "a" else 2), log[0])
                return None if told[name] == log[0] else 0.0

            return visit

        for name in told:
            world.dummy.scripts[name] = [step(name)] * 100
        calls, died = [0], [False]

        def die() -> None:
            calls[0] += 1
            if calls[0] == at:
                died[0] = True
                raise Dead

        for port, methods in ((world.follows, ("of", "get", "put")), (world.queue, ("send",))):
            for method in methods:
                port.on(method, die, times=10**6, after=after)

        def survive(call: Any) -> None:
            for _ in range(3):
                try:
                    call()
                    return
                except Dead:
                    pass

        for _ in range(3):
            log[0] += 5
            event = world.append()
            survive(lambda event=event: world.hear(event))
            for _ in range(20):
                for message in world.receive():
                    survive(lambda message=message: world.deliver(message))
                world.clock.advance(5)
                survive(world.sweep)
        assert told == {"a": 15, "b": 15}, (at, after)
        assert world.row("a").due_ms == world.row("b").due_ms == 0
        return died[0]

    for after in (False, True):
        at = 1
        while run(at, after):
            at += 1
        assert at > 15


def test_the_audit_visits_the_followers_of_every_followed_log() -> None:
    """In case the stream lost an event."""
    world = World()
    streams = Streams(world.parts.stores)
    followed, other = (streams.create(name, CreateRequest()).head.log_id for name in ("a", "b"))
    streams.follow("a", Follow(followed, "router", "r"))
    world.follow("unseen", log_id=other)  # its log's state says that nobody follows
    assert world.deliver(Message("audit")) == []
    world.drain()
    assert world.dummy.visits == {"r": 1}
