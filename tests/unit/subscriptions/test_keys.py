"""A subscription whose key allows some of its streams, and not others."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from headrace.streams.verbs import Streams
from headrace.subscriptions.desk import Desk
from headrace.subscriptions.values import Config, Subscription
from headrace.subscriptions.verbs import Subscriptions
from tests.unit.subscriptions.world import HOOK, PULL, World, everyone


def refusal(_: Subscription, paths: Iterable[str]) -> tuple[str, str] | None:
    """Refuses streams below `secret/`."""
    return ("forbidden", "no") if any(path.startswith("secret/") for path in paths) else None


@pytest.fixture
def world() -> World:
    world = World()
    world.subs = Subscriptions(Desk(world.stores, Streams(world.stores), lambda _: None, lambda: 0.5, refusal))
    for name in ("pool", "orders/1", "secret/1"):
        world.create(name)
    return world


def test_a_webhook_that_was_refused_for_a_stream_is_called_when_that_is_linked_no_more(world: World) -> None:
    world.put(HOOK)
    world.subs.add("s", ["secret/1"], everyone)
    world.append("orders/1")
    world.append("secret/1")
    world.hear()
    world.tick()
    assert world.calls == []
    world.subs.remove("s", "secret/1", everyone)
    world.advance(120)
    world.tick()
    assert [[view.path for view in call.streams] for call in world.calls] == [["orders/1"]]
    assert world.sub().wake is None


def test_a_webhook_that_was_refused_has_nothing_to_tell_when_its_stream_is_linked_no_more(world: World) -> None:
    world.put(HOOK)
    world.subs.add("s", ["secret/1"], everyone)
    world.append("secret/1")
    world.hear()
    world.tick()
    assert world.sub().status == "failed"
    world.subs.remove("s", "secret/1", everyone)
    world.advance(120)
    world.tick()
    assert world.calls == []
    assert world.sub().wake is None
    world.append("orders/1")
    world.hear()
    world.tick()
    assert len(world.calls) == 1


def test_a_wake_names_a_pending_stream_that_its_key_allows(world: World) -> None:
    world.create("z/1")
    world.put(Config("pull-wake", streams=("secret/1", "z/1"), wake_stream="pool"))
    world.append("secret/1")
    world.hear()
    assert world.wakes() == []
    world.append("z/1")
    world.hear()
    world.advance(40)
    world.tick()
    assert [wake["stream"] for wake in world.wakes()] == ["z/1"]


def test_a_wake_that_was_refused_for_a_stream_that_is_linked_no_more_is_announced_for_another(world: World) -> None:
    world.put(PULL)
    world.subs.add("s", ["secret/1"], everyone)
    world.append("secret/1")
    world.hear()
    world.subs.remove("s", "secret/1", everyone)
    world.advance(40)
    world.tick()
    assert world.sub().wake is None
    world.append("orders/1")
    world.hear()
    assert [wake["stream"] for wake in world.wakes()] == ["orders/1"]
