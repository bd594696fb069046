"""The queue of group commit: who leads, who waits, and that nobody waits for ever."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from headrace.clock import SystemClock
from headrace.errors import HeadraceError, LimitReached, Overloaded
from headrace.limits import GROUP_REQUESTS
from headrace.log.context import Groups, Ticket
from headrace.streams.values import Appended, AppendRequest, CreateRequest
from headrace.streams.verbs import Streams
from headrace.wal import MAX_GUARDS
from tests.support.builders import BYTES, appending, closing, producing
from tests.unit.log.world import Process, World

ANSWER = Appended("", False, False, None)


def ticket(size: int = 1) -> Ticket:
    return Ticket(appending(b"x" * size), "id", 0.0)


def run(count: int, work: Callable[[int], None]) -> None:
    """`work(n)` in `count` threads at once; fails if one does not end."""
    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads), "somebody waits for ever"


def real_time(process: Process) -> Streams:
    """Returns a process's verbs with the machine's clock, as threads need."""
    return Streams(replace(process.stores, clock=SystemClock()))


def test_a_batch_takes_in_order_of_arrival_up_to_its_bounds() -> None:
    with Groups().of("s") as group:
        tickets = [ticket() for _ in range(GROUP_REQUESTS + 3)]
        assert group.enter(tickets[0])
        group._waiting.extend(tickets[1:])
        assert group.batch() == tickets[:GROUP_REQUESTS]
        assert group.batch() == tickets[GROUP_REQUESTS:]
        assert group.batch() == []


def test_one_request_over_the_bound_still_makes_a_batch() -> None:
    with Groups().of("s") as group:
        tickets = [ticket(9 << 20), ticket(5 << 20), ticket(4 << 20)]
        assert group.enter(tickets[0])
        group._waiting.extend(tickets[1:])
        assert [group.batch() for _ in range(3)] == [[one] for one in tickets]


def test_the_guards_of_a_full_batch_fit_one_commit() -> None:
    assert GROUP_REQUESTS <= MAX_GUARDS
    process = World().process()
    process.create()
    logs, gate = real_time(process), threading.Event()
    process.wal.on("commit", lambda: gate.wait(5), after=True)
    answers: list[Appended] = []

    def work(number: int) -> None:
        answers.append(logs.append("s", producing(f"p{number}", 0, b"x")))

    threading.Timer(0.3, gate.set).start()
    run(2 * GROUP_REQUESTS, work)
    assert len({answer.next_offset for answer in answers}) == 2 * GROUP_REQUESTS


def test_the_first_answer_stands() -> None:
    one = ticket()
    one.settle(ANSWER)
    one.settle(error=Overloaded("x"))
    assert one.result() is ANSWER


def test_what_a_refused_append_held_is_freed_at_once() -> None:
    process = World().process()
    process.create()
    process.wal.fail("commit", Overloaded, times=1)
    logs = process.logs
    gc.collect()
    gc.disable()
    try:
        for name in ("s", "missing"):
            refused = False
            try:
                logs.append(name, appending(b"x"))
            except HeadraceError:
                refused = True
            assert refused
        assert gc.collect() == 0, "a cycle holds the request"
    finally:
        gc.enable()


def test_groups_are_forgotten_when_nobody_uses_them() -> None:
    groups = Groups()
    with groups.of("s") as one, groups.of("s") as other, groups.of("t"):
        assert one is other
    assert groups._groups == {}


def test_the_lead_is_handed_over_whatever_becomes_of_a_batch() -> None:
    process = World().process()
    process.create()
    logs = real_time(process)
    process.wal.fail("commit", ValueError, call=2, times=1)
    process.wal.fail("commit", Overloaded, call=4, times=1)
    # A commit takes long enough for other appends to gather behind it.
    process.wal.on("commit", lambda: time.sleep(0.002), times=float("inf"))
    ends: list[str] = []

    def work(number: int) -> None:
        for _ in range(5):
            try:
                logs.append("s", appending(b"%d" % number))
                ends.append("done")
            except (ValueError, HeadraceError) as exc:
                ends.append(type(exc).__name__)

    run(8, work)
    assert len(ends) == 40
    assert {"done", "ValueError", "Overloaded"} == set(ends)
    assert len(process.read()) == ends.count("done")


def test_a_group_over_a_limit_leaves_nobody_waiting_though_a_part_of_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    appender, tickets = World().process().logs.appender, [ticket(size) for size in (4, 1, 3, 2)]

    def commit(_: object, some: Sequence[Ticket]) -> None:
        if len(some) > 2:
            raise LimitReached("max_total_bytes", 1)
        if tickets[1] in some:
            raise MemoryError
        for one in some:
            one.settle(ANSWER)

    monkeypatch.setattr(appender, "_commit", commit)
    with pytest.raises(MemoryError):
        appender._commit_batch("s", tickets)
    assert [type(one.error) for one in tickets] == [type(None), MemoryError, type(None), MemoryError]
    assert [one.answer for one in tickets] == [ANSWER, None, ANSWER, None]


def test_refusals_inside_a_batch_reach_those_they_are_for(monkeypatch: pytest.MonkeyPatch) -> None:
    process = World().process()
    process.create()
    logs, committing, waiting, gate = real_time(process), threading.Event(), threading.Semaphore(0), threading.Event()

    def hold() -> None:
        committing.set()
        gate.wait(20)

    def wait(one: Ticket, blocking: Callable[[Ticket], None] = Ticket.wait) -> None:
        waiting.release()
        blocking(one)

    process.wal.on("commit", hold, after=True)
    monkeypatch.setattr(Ticket, "wait", wait)
    ends: dict[int, object] = {}

    def work(number: int, request: AppendRequest) -> None:
        try:
            ends[number] = logs.append("s", request)
        except HeadraceError as exc:
            ends[number] = exc.code

    requests = [
        appending(b"first"),
        producing("p", 0, b"a"),
        producing("p", 0, b"a again"),
        producing("p", 1, b"b"),
        appending(b"c", content_type="text/plain"),
        closing(b"last"),
        appending(b"late"),
    ]
    threads = [threading.Thread(target=work, args=each, daemon=True) for each in enumerate(requests)]
    threads[0].start()
    assert committing.wait(20)
    for thread in threads[1:]:  # each waits behind the one before, while the first one commits
        thread.start()
        assert waiting.acquire(timeout=20)
    gate.set()
    for thread in threads:
        thread.join(20)
    assert process.read() == [b"first", b"a", b"b", b"last"]
    assert [getattr(ends[n], "duplicate", ends[n]) for n in range(7)] == [
        False,
        False,
        True,
        False,
        "conflict",
        False,
        "conflict",
    ]
    assert process.wal.calls["commit"] == 3, "the six were one entry"


def test_a_batch_that_waited_too_long_is_told_that_nothing_was_written() -> None:
    process = World(append_timeout_ms=1000).process()
    process.create()
    with process.logs.appender.groups.of("s") as group:
        stale = Ticket(appending(b"x"), "id", process.clock.monotonic())
        process.clock.advance(1.5)
        assert group.enter(stale)
        process.logs.appender._commit_batch("s", group.batch())
        group.hand_over()
    with pytest.raises(Overloaded):
        stale.result()
    assert process.read() == []


def test_control_verbs_take_turns_with_appenders() -> None:
    process = World().process()
    process.create()
    logs = real_time(process)
    # A commit takes long enough for other requests to gather behind it.
    process.wal.on("commit", lambda: time.sleep(0.002), times=float("inf"))
    stop = threading.Event()
    made: list[bool] = []

    def work(number: int) -> None:
        if number:
            while not stop.is_set():
                logs.append("s", appending(b"x"))
            return
        from headrace.streams.values import ForkRequest

        for fork in range(5):
            request = CreateRequest(content_type=BYTES, fork=ForkRequest("s"))
            made.append(logs.create(f"fork{fork}", request).created)
        stop.set()

    run(6, work)
    assert made == [True] * 5


def test_a_control_verb_that_waits_comes_before_the_next_batch() -> None:
    order: list[str] = []
    with Groups().of("s") as group:

        def batch() -> None:
            with group.data_turn():
                order.append("batch")

        group._control += 1  # a control verb has announced itself, and is not yet in its turn
        batches = [threading.Thread(target=batch, daemon=True) for _ in range(8)]
        for thread in batches:
            thread.start()
        time.sleep(0.05)  # every batch has reached its turn, and would pass now if it could
        with group.control_turn():
            order.append("control")
            group._control -= 1
        for thread in batches:
            thread.join(5)
            assert not thread.is_alive()
    assert order == ["control", *["batch"] * 8]
