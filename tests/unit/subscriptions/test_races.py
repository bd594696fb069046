"""What meets a subscription while it is made: nothing that came after it is taken for its history. The simulation found
both (`tests/simulation/relay_subscriptions.py`).
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headrace.log.requests import Head
from headrace.subscriptions.links import LINKING_MS, Links
from headrace.subscriptions.rows import LinkRow, Rows
from headrace.subscriptions.values import KIND, Link
from headrace.subscriptions.wakes import SECOND_LOOK_MS
from tests.unit.subscriptions.world import PULL, World, everyone


@pytest.fixture
def world() -> World:
    world = World()
    world.create("pool")
    return world


def test_a_later_stream_that_is_linked_by_name_before_the_relay_has_heard_of_it_is_news(world: World) -> None:
    """The pattern promised its records; by name alone it would be linked at its tail."""
    world.put()
    world.create("orders/9", {"n": 1})
    world.subs.add("s", ["orders/9"], everyone)
    assert world.links()["orders/9"].acked_offset == "-1"
    world.hear()
    assert [wake["stream"] for wake in world.wakes()] == ["orders/9"]


def test_a_stream_that_is_created_while_it_is_linked_by_name_is_news(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put()
    find, found = Rows.link, []

    def create_after(self: Rows, id_: str, path: str) -> LinkRow | None:
        row = find(self, id_, path)
        if not found:
            found.append(row)
            world.create("orders/9", {"n": 1})
        return row

    monkeypatch.setattr(Rows, "link", create_after)
    world.subs.add("s", ["orders/9"], everyone)
    world.hear()
    assert len(world.wakes()) == 1


def test_streams_count_as_linked_although_a_wake_was_opened_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a second look would link at its tail a stream that came after the answer, if the relay is late."""
    world.create("orders/1")
    put_link = Rows.put_link

    def append_after(self: Rows, id_: str, link: Link, before: LinkRow | None) -> bool:
        written = put_link(self, id_, link, before)
        world.append("orders/1")
        world.hear()
        return written

    monkeypatch.setattr(Rows, "put_link", append_after)
    world.put()
    monkeypatch.undo()
    assert world.sub().generation == 1, "a wake was opened"
    world.create("orders/9", {"n": 1})
    world.advance(SECOND_LOOK_MS / 1000)
    world.tick()
    assert world.links()["orders/9"].acked_offset == "-1"


def test_a_name_that_is_removed_while_its_new_stream_is_linked_is_no_failure(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be repeated, and counted as poisoned. The entry that follows the stream is told, too."""
    world.put(replace(PULL, pattern="", streams=("audit",)))
    world.create("audit", {"n": 1})
    follow = Links.follow

    def remove_after(self: Links, id_: str, path: str, *, is_from_start: bool) -> Head | None:
        head = follow(self, id_, path, is_from_start=is_from_start)
        world.subs.remove("s", "audit", everyone)
        return head

    monkeypatch.setattr(Links, "follow", remove_after)
    log_id = world.streams.head("audit").log_id
    assert world.subs.links.created(log_id) == ([], "")
    row = world.stores.follows.get(log_id, KIND, "s")
    assert row is not None and world.subs.wakes.hear(row) == 1.0, "it comes again"
    world.advance(LINKING_MS / 1000)
    assert world.subs.wakes.hear(row) is None
    assert world.stores.follows.get(log_id, KIND, "s") is None and world.links() == {}


def test_a_subscription_that_was_replaced_while_it_was_made_is_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create("orders/1")
    put_link, others = Rows.put_link, []

    def replace_after(self: Rows, id_: str, link: Link, before: LinkRow | None) -> bool:
        written = put_link(self, id_, link, before)
        if not others:
            others.append(world.another())
            world.advance(1)
            others[0].delete("s", everyone)
        return written

    monkeypatch.setattr(Rows, "put_link", replace_after)
    world.put()
    part = world.stores.sessions.part(KIND, "s")
    assert part is not None and b'"is_deleted":true' in part.data
