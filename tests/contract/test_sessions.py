"""What every `Sessions` adapter does: one suite, on memory and on DynamoDB. With it, how names and slots are counted."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.errors import LimitReached, StoreTimeout
from headrace.memory import memory_stores
from headrace.tables.catalog import MarkEnded, PutRow, Row
from headrace.tables.counters import (
    SHARDS,
    TABLE,
    Count,
    SetShard,
    one_less,
    one_more,
    part_of,
    put_counted,
    usual_shard,
)
from headrace.tables.dynamodb import Store
from headrace.tables.items import n, s
from headrace.tables.parts import SLOT, DropPart, Part, PutPart, freeing, taking
from headrace.tables.sessions import CLOCK_KEPT_S, DynamoSessions
from headrace.tables.slots import Limit, free_expired, take
from headrace.wal import Committed, GuardRefused
from headrace.wal.state import LogConfig, LogState
from tests.contract.conftest import Ports
from tests.support.aws import create_tables
from tests.support.builders import first_entry, log_id


def held(ports: Ports, what: str) -> int:
    return sum(ports.sessions.counts(what))


def row(name: str, log: str) -> Row:
    return Row(log, LogConfig(surface="topics", name=name, incarnation=1, content_type="", created_ms=0))


# Counters.


def test_a_shard_takes_its_part_and_no_more(ports: Ports) -> None:
    what = log_id()
    count = Count(what, 1, 2 * SHARDS + 3, 2)  # shards 0 to 2 may hold 3
    for _ in range(3):
        assert isinstance(ports.wal.commit(first_entry(log_id()), [count]), Committed)
    refused = first_entry(log_id())
    assert ports.wal.commit(refused, [count]) == GuardRefused(0)
    assert ports.wal.newest(refused.log_id) is None
    assert ports.sessions.counts(what) == [0, 0, 3] + [0] * (SHARDS - 3)


def test_a_counter_without_limit_counts(ports: Ports) -> None:
    what = log_id()
    for _ in range(3):
        ports.wal.commit(first_entry(log_id()), [Count(what, 1, 0, 5)])
    assert ports.sessions.counts(what)[5] == 3
    ports.wal.commit(first_entry(log_id()), [Count(what, -4, 0, 5)])
    assert held(ports, what) == -1


def test_a_change_of_many_needs_room_for_all_of_it(ports: Ports) -> None:
    what = log_id()
    assert ports.sessions.commit([Count(what, 10, 16 * 12, 0)]) is None
    assert ports.sessions.commit([Count(what, 3, 16 * 12, 0)]) == 0
    assert ports.sessions.commit([Count(what, 2, 16 * 12, 0)]) is None
    assert held(ports, what) == 12


@pytest.mark.parametrize("most", [1, 5, 16, 37])
def test_the_limit_is_reached_at_the_limit_and_not_before(ports: Ports, most: int) -> None:
    what = log_id()

    def count(name: str) -> bool:
        refused: list[tuple[Count, None]] = []
        while len(refused) < 2:
            guard = one_more(what, name, most, ports.sessions.counts, refused)
            if ports.sessions.commit([guard]) is None:
                return True
            refused.append((guard, None))
        return False

    for number in range(most):
        assert count(f"name{number}")
    with pytest.raises(LimitReached) as raised:
        count("another")
    assert raised.value.detail == {"limit": f"max_{what}", "max": most}
    assert ports.sessions.commit([one_less(what, "whichever")]) is None
    assert count("another")
    assert held(ports, what) == most


def test_a_shard_is_set_if_it_has_not_changed(ports: Ports) -> None:
    what = log_id()
    assert ports.sessions.commit([SetShard(what, 0, 0, 7), SetShard(what, 1, 0, 0)]) is None
    assert ports.sessions.commit([SetShard(what, 1, 0, 3), SetShard(what, 0, 6, 9)]) == 1
    assert ports.sessions.counts(what)[:2] == [7, 0]
    assert ports.sessions.commit([SetShard(what, 1, 0, 3), SetShard(what, 0, 7, 9)]) is None
    assert ports.sessions.counts(what)[:2] == [9, 3]


# Names that are counted.


def test_a_name_is_counted_with_its_row_and_freed_once(ports: Ports) -> None:
    log, name = log_id(), log_id()
    before = held(ports, "topics")
    new = row(name, log)
    guards = put_counted(new, None, lambda: Count("topics", 1, 0, usual_shard(name, 0)))
    ports.wal.commit(first_entry(log), guards)
    assert held(ports, "topics") == before + 1
    assert ports.sessions.commit([MarkEnded(new), one_less("topics", name)]) is None
    marked = ports.catalog.get("topics", name)
    assert marked is not None and marked.ended
    assert ports.sessions.commit([MarkEnded(new), one_less("topics", name, 1)]) == 0
    assert held(ports, "topics") == before
    assert new.name not in [one.name for one in ports.catalog.living("topics", limit=1000)]


def test_a_create_over_a_marked_row_counts_again(ports: Ports) -> None:
    old, new, name = log_id(), log_id(), log_id()
    ports.wal.commit(first_entry(old), [PutRow(row(name, old), None)])
    ports.sessions.commit([MarkEnded(row(name, old))])
    before = held(ports, "topics")
    guards = put_counted(row(name, new), ports.catalog.get("topics", name), lambda: Count("topics", 1, 0, 0))
    assert isinstance(ports.wal.commit(first_entry(new), guards), Committed)
    assert held(ports, "topics") == before + 1


def test_a_create_over_an_unmarked_row_takes_over_its_place(ports: Ports) -> None:
    old, new, name = log_id(), log_id(), log_id()
    ports.wal.commit(first_entry(old), [PutRow(row(name, old), None), Count("topics", 1, 0, 0)])
    before = held(ports, "topics")
    guards = put_counted(row(name, new), ports.catalog.get("topics", name), lambda: Count("topics", 1, 0, 0))
    assert isinstance(ports.wal.commit(first_entry(new), guards), Committed)
    assert held(ports, "topics") == before
    # Who ended the old log marks its row late: the name has another log, so nothing is freed.
    assert ports.sessions.commit([MarkEnded(row(name, old)), one_less("topics", name)]) == 0
    assert held(ports, "topics") == before


def test_a_row_that_was_marked_meanwhile_leaves_no_place(ports: Ports) -> None:
    old, new, name = log_id(), log_id(), log_id()
    ports.wal.commit(first_entry(old), [PutRow(row(name, old), None), Count("topics", 1, 0, 0)])
    before = held(ports, "topics")
    seen = ports.catalog.get("topics", name)
    ports.sessions.commit([MarkEnded(row(name, old)), one_less("topics", name)])
    guards = put_counted(row(name, new), seen, lambda: Count("topics", 1, 0, 0))
    assert ports.wal.commit(first_entry(new), guards) == GuardRefused(0)
    guards = put_counted(row(name, new), ports.catalog.get("topics", name), lambda: Count("topics", 1, 0, 0))
    assert isinstance(ports.wal.commit(first_entry(new), guards), Committed)
    assert held(ports, "topics") == before


def test_stores_free_the_names_of_counted_surfaces_only(ports: Ports) -> None:
    stores = memory_stores(counted=frozenset({"topics"}))
    stores = dataclasses.replace(stores, catalog=ports.catalog, sessions=ports.sessions)
    log, name = log_id(), log_id()
    ports.wal.commit(first_entry(log), [PutRow(row(name, log), None)])
    before = held(ports, "topics")
    dataclasses.replace(stores, counted=frozenset[str]()).mark_ended(row(name, "another"), None)
    stores.mark_ended(row(name, "another"), None)
    assert held(ports, "topics") == before
    stores.mark_ended(row(name, log), None)
    stores.mark_ended(row(name, log), LogState())
    assert held(ports, "topics") == before - 1
    found = ports.catalog.get("topics", name)
    assert found is not None and found.ended


# Slots.


def slot(expires_ms: int = 5_000) -> Part:
    return Part(SLOT, log_id(), expires_ms=expires_ms)


def limits(most: int, of_key: int = 0, what: str = "") -> tuple[str, list[Limit]]:
    what = what or log_id()
    return what, [Limit("max_all", what, most), Limit("max_of_key", f"{what}/k", of_key)]


def test_a_slot_is_counted_where_it_is_limited_and_freed_once(ports: Ports) -> None:
    what, both = limits(100, 10)
    taken = take(ports.sessions, slot(5_000), both, 0)
    assert taken is not None
    assert [held(ports, one) for one in (what, f"{what}/k")] == [1, 1]
    assert ports.sessions.drop_part(taken)
    assert not ports.sessions.drop_part(taken)
    assert [held(ports, one) for one in (what, f"{what}/k")] == [0, 0]
    what, only = limits(0, 10)
    take(ports.sessions, slot(5_000), only, 0)
    assert [held(ports, one) for one in (what, f"{what}/k")] == [0, 1]
    assert take(ports.sessions, slot(5_000), limits(0)[1], 0) is None


@pytest.mark.parametrize(("most", "of_key", "named"), [(3, 100, "max_all"), (100, 3, "max_of_key")])
def test_no_more_slots_than_the_least_limit(ports: Ports, most: int, of_key: int, named: str) -> None:
    what, both = limits(most, of_key)
    slots = [take(ports.sessions, slot(5_000), both, 0) for _ in range(3)]
    with pytest.raises(LimitReached) as raised:
        take(ports.sessions, slot(5_000), both, 0)
    assert raised.value.detail == {"limit": named, "max": 3}
    assert [held(ports, one) for one in (what, f"{what}/k")] == [3, 3]
    assert slots[0] is not None
    ports.sessions.drop_part(slots[0])
    assert take(ports.sessions, slot(5_000), both, 0) is not None


def test_expired_slots_are_freed_before_anyone_is_turned_away(ports: Ports) -> None:
    what, both = limits(2, 2)
    slots = [take(ports.sessions, slot(5_000 + number), both, 0) for number in range(2)]
    with pytest.raises(LimitReached):
        take(ports.sessions, slot(9_000), both, 4_999)
    assert take(ports.sessions, slot(9_000), both, 5_000) is not None
    assert held(ports, what) == 2
    first, second = slots
    assert first is not None and second is not None
    assert not ports.sessions.drop_part(first), "its process wakes up late, and frees nothing twice"
    assert ports.sessions.drop_part(second)
    assert held(ports, what) == 1


def test_the_sweep_frees_what_has_expired_with_its_counts(ports: Ports) -> None:
    free_expired(ports.sessions, 10**9, 1_000)
    what, both = limits(100, 100)
    for number in range(6):
        take(ports.sessions, slot(1_000 + number), both, 0)
    assert free_expired(ports.sessions, 1_002, 2) == 2
    assert free_expired(ports.sessions, 1_002, 100) == 1
    assert [held(ports, one) for one in (what, f"{what}/k")] == [3, 3]
    assert sorted(slot.expires_ms for slot in ports.sessions.expired(10**9)) == [1_003, 1_004, 1_005]


def test_nothing_that_is_counted_is_removed_by_the_store_itself() -> None:
    counted = Part(SLOT, log_id(), expires_ms=5_000, counts=(("c", 0),))
    rows = (PutPart(counted), Count("c", 1, 16, 0), Count("c", -1, 0, 0), SetShard("c", 0, 1, 2))
    for one in rows:
        assert "expires_at'" not in repr(one.member({TABLE: "sessions"})), "the count would stay without the row"
        assert "expires_at " not in repr(one.member({TABLE: "sessions"}))


def test_a_slot_is_taken_whole_or_not_at_all(ports: Ports) -> None:
    what = log_id()
    part = Part(SLOT, log_id(), expires_ms=5_000, counts=((what, 0), (f"{what}/k", 0)))
    ports.sessions.commit([Count(f"{what}/k", 1, 16, 0)])
    assert ports.sessions.commit(taking(part, {what: 16, f"{what}/k": 16})) == 2
    assert held(ports, what) == 0
    assert ports.sessions.commit(freeing(replace(part, version=1))) == 0
    assert ports.sessions.commit([PutPart(part)]) is None
    assert ports.sessions.commit([PutPart(part)]) == 0
    assert ports.sessions.commit([DropPart(replace(part, version=1))]) is None


def test_parallel_opens_share_the_limit_exactly() -> None:
    sessions = memory_stores().sessions
    _, both = limits(37, 50, "w")
    taken: list[Part | None] = []
    refused: list[LimitReached] = []

    def open_some(thread: int) -> None:
        for number in range(10):
            try:
                taken.append(take(sessions, Part(SLOT, f"{thread}-{number}", expires_ms=5_000), both, 0))
            except LimitReached as exc:
                refused.append(exc)

    threads = [threading.Thread(target=open_some, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(taken), len(refused)) == (37, 13)
    assert sum(sessions.counts("w")) == 37
    assert all(count <= part_of(shard, 37) for shard, count in enumerate(sessions.counts("w")))


# Read clocks.


def test_a_read_clock_only_rises(ports: Ports) -> None:
    log, other, unread = log_id(), log_id(), log_id()
    ports.sessions.touch(log, 1_000)
    ports.sessions.touch(log, 3_000)
    ports.sessions.touch(log, 2_000)
    ports.sessions.touch(other, 5)
    assert ports.sessions.clocks([log, unread, other, log]) == {log: 3_000, other: 5}
    assert ports.sessions.clocks([]) == {}


def test_a_read_clock_that_is_written_after_the_purge_ends_by_itself(store: Store) -> None:
    tables, log = create_tables(), log_id()
    sessions = DynamoSessions(store, tables)
    for now_ms in (1_000, 5_000, 3_000):
        sessions.touch(log, now_ms)
    key = {"id": s(f"clock#{log}"), "part": s("-")}
    (item,) = store.get_all(tables["sessions"], [key])
    assert item["expires_at"] == n(5 + CLOCK_KEPT_S)


def test_read_clocks_of_many_logs_come_in_batches(ports: Ports) -> None:
    logs = [log_id() for _ in range(130)]
    for number, log in enumerate(logs):
        ports.sessions.touch(log, number + 1)
    assert ports.sessions.clocks(logs) == {log: number + 1 for number, log in enumerate(logs)}


def test_a_purge_drops_the_clock_of_one_log(ports: Ports) -> None:
    log, other = log_id(), log_id()
    ports.sessions.touch(log, 1_000)
    ports.sessions.touch(other, 1_000)
    assert ports.sessions.purge(log)
    assert ports.sessions.purge(log)
    assert ports.sessions.clocks([log, other]) == {other: 1_000}


# Rows of what lasts for a while.


def test_a_part_is_written_only_over_the_version_that_was_read(ports: Ports) -> None:
    name = log_id()
    new = Part("watch", name, data=b"{}", expires_ms=9_000)
    assert ports.sessions.part("watch", name) is None
    assert ports.sessions.put_part(new, None)
    assert not ports.sessions.put_part(new, None)
    first = ports.sessions.part("watch", name)
    assert first == replace(new, version=1)
    assert ports.sessions.put_part(replace(first, data=b"[1]", expires_ms=0, version=9), first)
    second = ports.sessions.part("watch", name)
    assert second == Part("watch", name, data=b"[1]", version=2)
    assert not ports.sessions.put_part(first, first)
    assert not ports.sessions.drop_part(first)
    assert ports.sessions.drop_part(second)
    assert not ports.sessions.drop_part(second)
    assert not ports.sessions.put_part(second, second), "it was removed meanwhile"
    assert ports.sessions.part("watch", name) is None


def test_parts_of_one_thing_come_in_order_and_in_pages(ports: Ports) -> None:
    name, other = log_id(), log_id()
    for part in ("link#b", "-", "link#a", "lino", "link#c"):
        assert ports.sessions.put_part(Part("sub", name, part), None)
    assert ports.sessions.put_part(Part("sub", other, "link#d"), None)
    assert ports.sessions.put_part(Part("su", f"b#{name}", "link#e"), None)

    def found(**asked: object) -> list[str]:
        return [one.part for one in ports.sessions.parts("sub", name, **{"limit": 10, **asked})]  # type: ignore[arg-type]

    assert found() == ["-", "link#a", "link#b", "link#c", "lino"]
    assert found(limit=2) == ["-", "link#a"]
    assert found(after="link#a", limit=2) == ["link#b", "link#c"]
    assert found(prefix="link#") == ["link#a", "link#b", "link#c"]
    assert found(prefix="link#", limit=1) == ["link#a"]
    assert found(prefix="link#", after="link#a") == ["link#b", "link#c"]
    assert found(prefix="link#", after="a") == ["link#a", "link#b", "link#c"]
    assert found(prefix="link#", after="link#c") == found(prefix="link#", after="z") == []
    assert found(prefix="a") == []


def test_a_part_that_is_counted_comes_goes_and_expires_with_its_counts(ports: Ports) -> None:
    what, both = limits(10, 10)
    session = take(ports.sessions, Part("watch", log_id(), data=b"{}", expires_ms=5_000), both, 0)
    assert session is not None
    assert ports.sessions.part("watch", session.id) == session
    assert ports.sessions.put_part(replace(session, expires_ms=8_000), session)
    free_expired(ports.sessions, 7_999, 1_000)
    renewed = ports.sessions.part("watch", session.id)
    assert renewed is not None and held(ports, what) == 1
    assert not ports.sessions.drop_part(session)
    with pytest.raises(ValueError, match="counts of a row"):
        ports.sessions.put_part(replace(renewed, counts=()), renewed)
    with pytest.raises(ValueError, match="counts of a row"):
        ports.sessions.put_part(replace(renewed, id=log_id()), None)
    free_expired(ports.sessions, 8_000, 1_000)
    assert ports.sessions.part("watch", session.id) is None
    assert [held(ports, one) for one in (what, f"{what}/k")] == [0, 0]


def test_a_counted_part_has_a_deadline_and_the_sweep_leaves_the_others_alone(ports: Ports) -> None:
    with pytest.raises(ValueError, match="without a deadline"):
        Part("watch", "w", counts=(("c", 0),))
    other = Part("watch", log_id(), expires_ms=1)
    assert ports.sessions.put_part(other, None)
    assert other.id not in [one.id for one in ports.sessions.expired(10**12)]


def test_the_store_itself_removes_a_part_that_is_not_counted() -> None:
    item = PutPart(Part("watch", "w", expires_ms=5_000)).member({TABLE: "sessions"})["Put"]["Item"]
    assert item["expires_at"] == n(5 + 3600)
    assert "expires_at" not in PutPart(Part("sub", "s")).member({TABLE: "sessions"})["Put"]["Item"]


# Bells.


def test_a_bell_rings_until_it_is_taken(ports: Ports) -> None:
    session, other = log_id(), log_id()
    assert not ports.sessions.peek_bell(session)
    assert ports.sessions.take_bell(session) == frozenset()
    ports.sessions.ring(session, [3, 1, 3], 9_000)
    ports.sessions.ring(session, [2], 9_000)
    ports.sessions.ring(other, [7], 9_000)
    assert ports.sessions.peek_bell(session)
    assert ports.sessions.take_bell(session) == {1, 2, 3}
    assert not ports.sessions.peek_bell(session)
    assert ports.sessions.take_bell(session) == frozenset()
    ports.sessions.ring(session, [2], 9_000)
    assert ports.sessions.take_bell(session) == {2}
    assert ports.sessions.take_bell(other) == {7}


def test_a_bell_whose_answer_was_lost_may_have_rung_for_anything(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions, session = DynamoSessions(store, create_tables()), log_id()
    sessions.ring(session, [3], 9_000)
    call = store.call

    def lose(*asked: Any) -> Any:
        call(*asked)
        raise StoreTimeout("lost")

    monkeypatch.setattr(store, "call", lose)
    assert sessions.take_bell(session) is None
    monkeypatch.undo()
    assert sessions.take_bell(session) == frozenset()


def test_a_silent_bell_leaves_a_row_that_ends_by_itself(store: Store) -> None:
    tables, session = create_tables(), log_id()
    sessions = DynamoSessions(store, tables)
    assert sessions.take_bell(session) == frozenset()
    key = {"id": s(f"bell#{session}"), "part": s("-")}
    assert list(store.get_all(tables["sessions"], [key])) == []
    sessions.ring(session, [3], 9_000)
    sessions.take_bell(session)
    (item,) = store.get_all(tables["sessions"], [key])
    assert item == {**key, "expires_at": n(9 + 3600)}
