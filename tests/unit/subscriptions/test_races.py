"""What meets a subscription while it is made: nothing that came after it is taken for its history. The simulation found
both (`tests/simulation/relay_subscriptions.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from headrace.log.requests import Head
from headrace.subscriptions.errors import NoSubscription
from headrace.subscriptions.links import LINKING_MS, Links
from headrace.subscriptions.rows import LinkRow, Row, Rows
from headrace.subscriptions.values import KIND, Link, Subscription
from headrace.subscriptions.wakes import SECOND_LOOK_MS
from headrace.tables.parts import PutPart
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
    put_links, written = Rows.put_links, []

    def append_before(self: Rows, before: Row, after: Subscription, links: Sequence[PutPart]) -> bool:
        if not written:
            world.append("orders/1")
            world.hear()
        written.append(put_links(self, before, after, links))
        return written[-1]

    monkeypatch.setattr(Rows, "put_links", append_before)
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


@pytest.mark.parametrize("maker", ["a PUT", "by name", "the relay"])
def test_a_link_that_is_made_while_its_subscription_is_deleted_does_not_outlast_it(
    world: World, monkeypatch: pytest.MonkeyPatch, maker: str
) -> None:
    """It would be of the next subscription with this id, with another's cursor."""
    new_link, others = Rows.new_link, []
    world.create("orders/1")
    if maker != "a PUT":
        world.put()

    def delete_before(self: Rows, id_: str, link: Link) -> PutPart:
        if not others:
            others.append(world.another())
            world.advance(1)
            others[0].delete("s", everyone)
        return new_link(self, id_, link)

    monkeypatch.setattr(Rows, "new_link", delete_before)
    if maker == "a PUT":
        world.put()
    elif maker == "by name":
        with pytest.raises(NoSubscription):
            world.subs.add("s", ["named"], everyone)
    else:
        world.create("orders/2", {"n": 1})
        world.hear()
    assert others, "it was deleted"
    part = world.stores.sessions.part(KIND, "s")
    assert part is not None and b'"is_deleted":true' in part.data
    assert Rows(world.stores.sessions).links("s") == []
