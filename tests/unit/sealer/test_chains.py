"""Laws of work that goes on by messages: one chain for each log and verb, however often anything is repeated."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from functions import worker
from functions.queue import MemoryQueue, Message, NotQueued
from functions.sealer import memo
from functions.sealer import purge as purging
from functions.sealer import trim as trimming
from functions.sealer.handler import Sealer
from functions.sealer.memo import Memo
from headrace.errors import StoreTimeout
from headrace.objects import keys
from tests.unit.sealer.test_dispatch import poison, sqs
from tests.unit.sealer.world import SETTINGS, World, dispatcher


def deliver(world: World, sealer: Sealer, *, times: int = 1) -> list[Message]:
    """Delivers the messages that are due, each so often; returns those that will come again by the queue's own means."""
    again = []
    for message in world.queue.receive(world.clock.now_ms()):
        for _ in range(times):
            again += [message] * len(sealer.dispatch(sqs(message))["batchItemFailures"])
    return again


def retries(world: World) -> list[Message]:
    return [message for message in world.queue.waiting if message.verb == "seal" and message.turn]


@pytest.mark.parametrize("times", [1, 2])
def test_a_poisoned_busy_log_has_one_retry_on_its_way(times: int) -> None:
    """Each batch that named it bred a message, which the queue repeated five times and then gave up."""
    world = World()
    log_id = world.create("bad")
    world.fill("bad", 5)
    lost = world.entries(log_id)[1]
    poison(world, log_id)
    sealer, told = dispatcher(world.parts)
    pauses, last_ms = [], 0
    for _ in range(400):
        assert sealer.dispatch(world.events(log_id)) == {"batchItemFailures": []}
        (retry,) = retries(world)
        if retry.not_before_ms != last_ms:
            pauses.append((retry.not_before_ms - world.clock.now_ms()) // 1000)
            last_ms = retry.not_before_ms
        world.append("bad", b"x" * 100)
        world.wait(10)
        assert deliver(world, sealer, times=times) == []
    assert pauses[0] == 15 and max(pauses) == 900 and len(pauses) < 15
    assert told.counts["PoisonedLogs"] > 400, "each failure is counted"
    world.wal.put(lost)
    world.wait(900)
    for _ in range(3):
        assert deliver(world, sealer, times=times) == []
    assert world.published(log_id)[-1] == b"x" * 100
    assert retries(world) == [] and memo.read(world.parts, log_id) == (Memo(), None)


def test_a_retry_that_was_lost_is_replaced() -> None:
    world = World()
    log_id = world.create("bad")
    world.fill("bad", 5)
    poison(world, log_id)
    sealer, _ = dispatcher(world.parts)
    for seconds, expected in ((0, 1), (60, 0), (3600, 1)):
        world.wait(seconds)
        world.queue.receive(2**62)
        sealer.dispatch(world.events(log_id))
        assert len(retries(world)) == expected


def test_a_batch_is_repeated_if_another_try_can_not_be_asked_for() -> None:
    world = World()
    log_id = world.create("bad")
    world.fill("bad", 5)
    poison(world, log_id)

    def hook(name: str, after: bool) -> None:
        if name == "note":
            raise StoreTimeout(name)

    sealer, _ = dispatcher(world.watched(hook))
    with pytest.raises(Exception, match="count=1"):
        sealer.dispatch(world.events(log_id))
    message = Message("seal", log_id, force=True)
    assert sealer.dispatch(sqs(message)) == {"batchItemFailures": [{"itemIdentifier": "0"}]}


def test_work_that_is_left_to_a_message_which_has_looked_already_is_done_by_one_more() -> None:
    """A message of age failed while a retry sealed: it was left to the retry, which had looked before, and nothing else
    came until the audit of the next day.
    """
    world = World()
    log_id = world.create("a")
    world.fill("a", 2)
    world.queue.receive(2**62)
    memo.go_on(world.parts, Message("seal", log_id), has_failed=True)
    (retry,) = world.queue.receive(2**62)
    failing, _ = dispatcher(world.watched(fails_to_put))
    left = []

    def meanwhile(name: str, after: bool) -> None:
        if name == "note" and not after and not left:  # it has sealed, and is about to forget its number
            left.append(world.append("a", b"late"))
            assert failing.dispatch(sqs(Message("seal", log_id, force=True))) == {"batchItemFailures": []}

    dispatcher(world.watched(meanwhile))[0].dispatch(sqs(replace(retry, not_before_ms=0, force=True)))
    assert left and world.published(log_id)[-1] != b"late"
    (another,) = retries(world)
    assert another.force and another.turn == 2
    world.wait(900)
    deliver(world, dispatcher(world.parts)[0])
    assert world.published(log_id)[-1] == b"late"
    assert retries(world) == [] and memo.read(world.parts, log_id) == (Memo(), None)


def fails_to_put(name: str, after: bool) -> None:
    if name in ("put", "create") and not after:
        raise StoreTimeout(name)


def test_a_first_failure_waits_15_seconds_however_long_the_chain_is() -> None:
    world = World()
    log_id = world.create("a")
    for turn in range(9):
        memo.go_on(world.parts, Message("seal", log_id, turn=turn))
    for expected in (15, 30, 60):
        newest = max(world.queue.receive(2**62), key=lambda message: message.turn)
        memo.go_on(world.parts, newest, has_failed=True)
        (retry,) = retries(world)
        assert retry.not_before_ms - world.clock.now_ms() == expected * 1000


def test_an_audit_whose_messages_are_refused_does_not_begin_its_next_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each repeat of it began the rest of the names again: 250 messages after three pages."""
    monkeypatch.setattr(worker, "AUDIT_ROWS", 1)
    world = World()
    for number in range(60):
        world.create(f"n{number}")
        world.fill(f"n{number}", 2)
    world.wait(2 * SETTINGS.trim_age_ms / 1000)
    world.queue.receive(2**62)
    refusing = Refusing(world.queue)
    sealer, _ = dispatcher(dataclasses.replace(world.parts, queue=refusing))
    sealer.dispatch(sqs(Message("audit")))
    pages = world.queue.receive(2**62)
    refused = {(page.surface, page.part) for page in pages if sealer.dispatch(sqs(page))["batchItemFailures"]}
    assert refused
    assert not any((message.surface, message.part) in refused for message in world.queue.receive(2**62))


class Refusing(MemoryQueue):
    """A queue that takes no message to seal."""

    def __init__(self, target: MemoryQueue) -> None:
        super().__init__()
        self._target = target

    def send(self, messages: Sequence[Message], now_ms: int) -> None:
        if any(message.verb == "seal" for message in messages):
            raise NotQueued("refused")
        self._target.send(messages, now_ms)


def ended(world: World) -> str:
    """Returns the id of a log with much to purge."""
    log_id = world.create("a")
    world.fill("a", 40)
    for number in range(40):
        world.objects.put(keys.payload(log_id, number, "x"), b"")
    world.logs.delete("a")
    world.wait(SETTINGS.trim_age_ms / 1000)
    return log_id


def trimmable(world: World) -> str:
    """Returns the id of a log with much to trim."""
    log_id = world.create("a")
    world.fill("a", 120)
    while not world.seal(log_id).is_done:
        pass
    world.wait(SETTINGS.trim_age_ms / 1000)
    return log_id


def unsealed(world: World) -> str:
    """Returns the id of a log with many segments to seal."""
    log_id = world.create("a")
    world.fill("a", 80)
    return log_id


@pytest.mark.parametrize(("verb", "prepare"), [("purge", ended), ("trim", trimmable), ("seal", unsealed)])
def test_repeated_messages_do_not_multiply(verb: Any, prepare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three events ask for the same, each message comes twice: there is one message more for each run that is needed."""
    monkeypatch.setattr("headrace.wal.memory._PAGE_BYTES", 1000)
    monkeypatch.setattr("functions.sealer.seal.MAX_ROUNDS", 2)
    monkeypatch.setattr(trimming, "MAX_PAGES", 2)
    monkeypatch.setattr(purging, "MAX_PAGES", 2)
    monkeypatch.setattr(purging, "PAGE_OBJECTS", 5)
    world = World()
    log_id = prepare(world)
    world.queue.receive(2**62)
    sealer, _ = dispatcher(world.parts)
    world.queue.send([Message(verb, log_id, force=verb == "seal")] * 3, world.clock.now_ms())
    waiting = []
    while world.queue.waiting and len(waiting) < 100:
        assert deliver(world, sealer, times=2) == []
        mine = [message for message in world.queue.waiting if message.verb == verb]
        world.queue.receive(2**62)
        world.queue.send([replace(message, not_before_ms=0) for message in mine], world.clock.now_ms())
        waiting.append(len(mine))
    assert set(waiting[:-1]) == {1} and waiting[-1] == 0 and 4 < len(waiting) < 50
    assert memo.read(world.parts, log_id) == (Memo(), None)
    assert len(world.published(log_id)) == 240 if verb == "seal" else len(world.entries(log_id)) == 1


def test_a_purge_removes_objects_page_by_page_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purging, "MAX_PAGES", 2)
    monkeypatch.setattr(purging, "PAGE_OBJECTS", 7)
    world = World()
    log_id = world.create("a")
    for number in range(30):
        world.objects.put(keys.payload(log_id, number, "x"), b"")
    world.logs.delete("a")
    world.wait(SETTINGS.trim_age_ms / 1000)
    calls: Counter[str] = Counter()
    parts = world.watched(lambda name, after: calls.update([name]))
    results = [purging.purge(parts, log_id) for _ in range(3)]
    assert [result.is_done for result in results] == [False, False, True]
    assert [result.next_ms is None for result in results] == [False, False, True]
    assert calls["delete"] // 2 == 2 + 2 + 1


def test_a_chain_survives_a_failure_of_every_call() -> None:
    """Whatever call of asking for another try fails, either the event is repeated or a message is on its way."""
    for at in range(1, 14):
        world = World()
        log_id = world.create("bad")
        world.fill("bad", 5)
        poison(world, log_id)
        seen = 0

        def hook(name: str, after: bool, at: int = at) -> None:
            nonlocal seen
            if name in ("note", "set_note", "send", "drop_note"):
                seen += 1
                if seen == at:
                    raise StoreTimeout(name)

        sealer, _ = dispatcher(world.watched(hook))
        try:
            sealer.dispatch(world.events(log_id))
        except Exception:  # noqa: BLE001 - Lambda repeats the batch
            sealer.dispatch(world.events(log_id))
        assert 1 <= len(retries(world)) <= 2, at
