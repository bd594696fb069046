"""What every `Follows` adapter does: one suite, on memory and on DynamoDB."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headrace.errors import Damaged
from headrace.tables.follows import DUE_SHARDS, DropFollow, Follow, PutFollow, follow_item, item_follow
from headrace.tables.items import n
from headrace.wal import Committed, GuardRefused
from tests.contract.conftest import Ports
from tests.support.builders import first_entry, log_id


def bell(log: str, name: str = "b", until_ms: int = 5_000, **more: int) -> Follow:
    return Follow(log, "bell", name, b"[7]", until_ms, **more)


def stay(ports: Ports, log: str, *names: str) -> list[Follow]:
    """Routers, written as guards of a commit."""
    guards = [PutFollow(Follow(log, "router", name)) for name in names]
    assert isinstance(ports.wal.commit(first_entry(log_id()), guards), Committed)
    return [guard.written for guard in guards]


def test_a_row_is_written_only_over_the_version_that_was_read(ports: Ports) -> None:
    log = log_id()
    assert ports.follows.get(log, "bell", "b") is None
    assert ports.follows.put(bell(log), None)
    assert not ports.follows.put(bell(log), None)
    first = ports.follows.get(log, "bell", "b")
    assert first == bell(log, version=1)
    assert ports.follows.put(replace(first, until_ms=9_000, due_ms=7, version=55), first)
    second = ports.follows.get(log, "bell", "b")
    assert second == bell(log, until_ms=9_000, due_ms=7, version=2)
    assert not ports.follows.put(replace(first, data=b""), first)
    assert not ports.follows.remove(first)
    assert ports.follows.remove(second)
    assert not ports.follows.remove(second)
    assert not ports.follows.put(second, second), "it was removed meanwhile"
    assert ports.follows.get(log, "bell", "b") is None


def test_followers_of_a_log_come_in_the_order_of_their_keys_and_in_pages(ports: Ports) -> None:
    log, other = log_id(), log_id()
    routers = stay(ports, log, "r2", "r1", "s")
    stay(ports, other, "r1")
    for name in ("x", "y"):
        assert ports.follows.put(bell(log, name), None)
    rows = ports.follows.of(log)
    assert [row.key for row in rows] == ["bell#x", "bell#y", "router#r1", "router#r2", "router#s"]
    assert [row.id for row in ports.follows.of(log, "router")] == ["r1", "r2", "s"]
    assert ports.follows.of(log, "route") == []
    assert ports.follows.of(log, limit=2) == rows[:2]
    assert ports.follows.of(log, after="bell#y", limit=2) == rows[2:4]
    assert ports.follows.of(log, after="bell#z", limit=10) == rows[2:]
    assert ports.follows.of(log, "router", after="router#r1", limit=1) == [routers[0]]
    assert ports.follows.of(log, "router", after="a") == rows[2:]
    assert ports.follows.of(log, "bell", after="router#r1") == []


def test_a_row_of_one_that_stays_comes_and_goes_only_with_an_entry(ports: Ports) -> None:
    log = log_id()
    with pytest.raises(ValueError, match="entry of its log"):
        ports.follows.put(Follow(log, "router", "r"), None)
    (router,) = stay(ports, log, "r")
    with pytest.raises(ValueError, match="entry of its log"):
        ports.follows.remove(router)
    with pytest.raises(ValueError, match="entry of its log"):
        ports.follows.put(replace(router, until_ms=5), router)
    assert ports.follows.put(replace(router, due_ms=5, data=b"{}"), router)
    assert ports.follows.get(log, "router", "r") == Follow(log, "router", "r", b"{}", due_ms=5, version=2)


def test_a_refused_row_commits_nothing_and_is_returned(ports: Ports) -> None:
    log, entry = log_id(), first_entry(log_id())
    (router,) = stay(ports, log, "r")
    again = PutFollow(Follow(log, "router", "r"))
    assert ports.wal.commit(entry, [PutFollow(Follow(log, "router", "q")), again]) == GuardRefused(1, router)
    assert ports.wal.newest(entry.log_id) is None
    assert [row.id for row in ports.follows.of(log)] == ["r"]
    older = replace(router, version=7)
    assert ports.wal.commit(entry, [DropFollow(older)]) == GuardRefused(0, router)
    assert ports.wal.commit(entry, [DropFollow(Follow(log, "router", "q", version=1))]) == GuardRefused(0, None)
    assert isinstance(ports.wal.commit(entry, [DropFollow(router)]), Committed)
    assert ports.follows.of(log) == []


def test_those_that_must_be_visited_are_found_until_they_are_not(ports: Ports) -> None:
    logs = [digit + log_id()[1:] for digit in DUE_SHARDS[:3]]
    for number, log in enumerate(logs):
        assert ports.follows.put(bell(log, due_ms=10 * (number + 1)), None)
    assert ports.follows.put(bell(logs[0], "never"), None)
    own = {row.log_id: row for row in ports.follows.due(20) if row.log_id in logs}
    assert own == {log: ports.follows.get(log, "bell", "b") for log in logs[:2]}
    assert ports.follows.put(replace(own[logs[0]], due_ms=0), own[logs[0]])
    assert [row.log_id for row in ports.follows.due(20) if row.log_id in logs] == [logs[1]]


def test_no_followers_keep_others_from_being_found(ports: Ports) -> None:
    shard = {digit: digit + log_id()[1:] for digit in "0f"}
    for log in shard.values():
        assert ports.follows.put(bell(log, due_ms=1), None)
    firsts = {next(row.log_id for row in ports.follows.due(minute * 60_000 + 1)) for minute in range(16)}
    assert firsts & set(shard.values())


def test_a_purge_removes_the_rows_of_one_log(ports: Ports) -> None:
    log, other = log_id(), log_id()
    stay(ports, log, *(f"r{number}" for number in range(30)))
    stay(ports, other, "r")
    assert ports.follows.purge(log)
    assert ports.follows.purge(log)
    assert ports.follows.of(log) == []
    assert [row.id for row in ports.follows.of(other)] == ["r"]


def test_the_store_itself_removes_only_what_lasts_for_a_while() -> None:
    assert follow_item(bell("ab", until_ms=5_000))["expires_at"] == n(5 + 3600)
    assert "expires_at" not in follow_item(Follow("ab", "router", "r", due_ms=5)), "its log would count it for ever"


def test_a_row_that_does_not_parse_is_damaged() -> None:
    item = follow_item(bell("ab", version=3))
    assert item_follow(item) == bell("ab", version=3)
    with pytest.raises(Damaged, match=r"follows log_id=.*ab"):
        item_follow({**item, "version": n(1), "until_ms": {"S": "x"}})
