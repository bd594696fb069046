"""Followers after a disaster: the rows say who follows, and the state of each log counts them again."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headrace.recovery import survey
from headrace.tables.follows import Follow
from headrace.wal.entry import entry_item
from tests.unit.recovery.world import Ruins


def follow(world: Ruins, log_id: str, *names: str) -> None:
    """Routers and, for a name in capitals, bells."""
    for name in names:
        until_ms = world.clock.now_ms() + 60_000 if name.isupper() else 0
        kind = "bell" if until_ms else "router"
        world.logs.follow("a", Follow(log_id, kind, name, until_ms=until_ms))


def counted(world: Ruins) -> tuple[int, int]:
    """What the state says, and how many rows there are of those that stay."""
    head = world.logs.head("a")
    rows = world.wal.follows.of(head.log_id)
    assert all(row.until_ms <= head.state.followed_ms for row in rows)
    return head.state.followers, sum(row.stays for row in rows)


def test_a_log_that_is_followed_is_clean_and_left_as_it_is() -> None:
    world = Ruins()
    log_id = world.create("a")
    follow(world, log_id, "r", "q", "B")
    world.fill("a", 2)
    world.seal(log_id)
    assert world.kinds() == set()
    assert not world.recover().changed
    assert counted(world) == (2, 2)


@pytest.mark.parametrize("is_sealed", [True, False])
def test_rows_outlive_entries_and_are_counted_again(is_sealed: bool) -> None:
    world = Ruins()
    log_id = world.create("a")
    world.fill("a", 2)
    if is_sealed:
        world.seal(log_id)
    before = world.snapshot()
    follow(world, log_id, "r", "q", "B")
    before.follows.rows = dict(world.wal.follows.rows)
    world.rewind(before)
    assert world.kinds() == {"follower.uncounted"}
    assert len(world.verify().findings) == 2, "of those that stay, and of those that last for a while"
    assert world.recover(dry_run=True).changed
    assert counted_after(world) == (2, 2)
    world.fill("a", 1)
    assert entry_item(world.entries(log_id)[-1])["relay"] == {"N": "1"}


def counted_after(world: Ruins) -> tuple[int, int]:
    """As `counted`, after a recovery that is clean and leaves nothing to do."""
    world.recover()
    assert world.kinds() == set()
    assert not world.recover().changed
    return counted(world)


def test_followers_that_are_lost_are_not_counted() -> None:
    world = Ruins()
    log_id = world.create("a")
    follow(world, log_id, "r", "q")
    row = world.wal.follows.get(log_id, "router", "q")
    assert row is not None
    del world.wal.follows.rows[log_id, "router#r"]
    assert world.kinds() == {"follower.missing"}
    assert counted_after(world) == (1, 1)
    assert world.logs.unfollow("a", row)
    assert counted(world) == (0, 0)


def test_a_log_that_comes_back_from_the_bucket_has_the_followers_that_have_rows() -> None:
    world = Ruins()
    log_id = world.create("a")
    follow(world, log_id, "r", "q")
    world.fill("a", 2)
    world.seal(log_id)
    rows = dict(world.wal.follows.rows)
    world.lose_tables()
    assert counted_after(world) == (0, 0)
    world.lose_tables()
    world.wal.follows.rows = rows
    assert counted_after(world) == (2, 2)


def test_a_log_that_has_ended_needs_no_count() -> None:
    world = Ruins()
    log_id = world.create("a")
    follow(world, log_id, "r")
    world.logs.delete("a")
    del world.wal.follows.rows[log_id, "router#r"]
    assert world.kinds() == set()
    assert not world.recover().changed


def test_very_many_followers_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "_PAGE", 2)
    world = Ruins()
    log_id = world.create("a")
    follow(world, log_id, "r", "q", "B", "p", "C")
    assert world.kinds() == set()


def test_one_that_comes_while_the_log_is_verified_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Ruins()
    log_id = world.create("a")
    of, came = world.wal.follows.of, []

    def of_and_follow(*asked: object, **more: object) -> list[Follow]:
        found = of(*asked, **more)  # type: ignore[arg-type]
        if not came:
            came.append(log_id)
            follow(world, log_id, "r")
        return found

    monkeypatch.setattr(world.wal.follows, "of", of_and_follow)
    assert world.kinds() == set()
    assert came == [log_id]
    assert counted(world) == (1, 1)


def test_a_bell_that_has_ended_is_no_finding() -> None:
    world = Ruins()
    log_id = world.create("a")
    follow(world, log_id, "B")
    row = world.wal.follows.get(log_id, "bell", "B")
    assert row is not None
    world.wal.follows.rows[log_id, "bell#late"] = replace(row, id="late", until_ms=world.clock.now_ms() + 10**6)
    assert world.kinds() == {"follower.uncounted"}
    world.wait(1001)
    assert world.kinds() == set()
