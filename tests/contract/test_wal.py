"""What every `Wal` adapter does: one suite, on memory and on DynamoDB."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

import pytest
from msgspec.structs import replace

from headrace.errors import StoreThrottled
from headrace.streams.values import StreamState
from headrace.tables.catalog import PutRow
from headrace.tables.producers import PutProducer
from headrace.tables.watermarks import TouchUnchanged, Unpublished
from headrace.wal import MAX_GUARDS, Committed, GuardRefused, SlotTaken, Wal
from headrace.wal.entry import PutEntry
from headrace.wal.state import Ancestor, DefinitionRef, Entry, ForkSource, LogState, Producer, TimeRun
from tests.contract.conftest import Ports
from tests.support.aws import REAL_DYNAMODB
from tests.support.builders import config, first_entry, log_id, next_entry, row

SPAN = 10**9


def chain(wal: Wal, length: int, data: tuple[bytes, ...] = (b"x",)) -> list[Entry]:
    """Commits the entries of a new log; returns them."""
    entries = [first_entry(log_id())]
    while len(entries) < length:
        entries.append(next_entry(entries[-1], *data))
    for entry in entries:
        assert wal.commit(entry) == Committed()
    return entries


def slots(entries: list[Entry]) -> list[int]:
    return [entry.slot for entry in entries]


def test_an_entry_comes_back_as_it_was(ports: Ports) -> None:
    log = log_id()
    full = first_entry(
        log,
        b"\x00\xff",
        b"",
        request_ids=("a_-1", "b", "c"),
        prev_slot=2**40 * SPAN + 7,
        prev_id="z",
        prev_committed_ms=12,
        prev_bytes=2**53,
        times=(TimeRun(1, 5), TimeRun(1, 6)),
        payload_key="logs/x/wal/1-n",
        config=config(
            "ü/\U0001f600",
            ttl_ms=5,
            lineage=(Ancestor("p", 1, 3),),
            source=ForkSource("src", "p", 3, 1, True),
            definition=DefinitionRef(1, "n", 3, "metrics"),
        ),
        state=LogState(
            next_offset=2**53,
            ended="expired",
            forks=2,
            holds_source=True,
            producers=(Producer("p,1", 2**53 - 1, 0), Producer("ü", 1, 1)),
            producers_spilled=True,
            extension=StreamState(last_seq='q"ü', closed=True),
        ),
    )
    assert ports.wal.commit(full) == Committed()
    assert ports.wal.newest(log) == full
    assert ports.wal.read(log).entries == [full]


def test_a_slot_has_one_winner_and_the_others_learn_who_it_is(ports: Ports) -> None:
    winner = first_entry(log_id(), b"mine")
    assert ports.wal.commit(winner) == Committed()
    assert ports.wal.commit(replace(winner, request_ids=("other",), payload=b"other")) == SlotTaken(winner)
    assert ports.wal.commit(winner) == SlotTaken(winner)
    assert ports.wal.read(winner.log_id).entries == [winner]


def test_a_taken_slot_is_told_from_a_guarded_commit_too(ports: Ports) -> None:
    winner = first_entry(log_id(), b"mine")
    other = first_entry(log_id())
    ports.wal.commit(winner)
    guards = [PutEntry(other), PutProducer(winner.log_id, Producer("p", 0, 0))]
    assert ports.wal.commit(replace(winner, request_ids=("late",)), guards) == SlotTaken(winner)
    assert ports.wal.newest(other.log_id) is None
    assert ports.producers.get(winner.log_id, "p") is None


def test_a_guarded_commit_takes_effect_with_all_of_its_guards(ports: Ports) -> None:
    entry, other = first_entry(log_id()), first_entry(log_id())
    name = row("n", entry.log_id, deadline_ms=77)
    producer = Producer("p", 2, 3)
    guards = [PutEntry(other), PutRow(name, None), PutProducer("x", producer), TouchUnchanged(entry.log_id, 0)]
    assert ports.wal.commit(entry, guards) == Committed()
    assert ports.wal.newest(entry.log_id) == entry
    assert ports.wal.newest(other.log_id) == other
    assert ports.catalog.get("streams", "n") == name
    assert ports.producers.get("x", "p") == producer


def test_a_refused_entry_guard_says_what_stands_there_and_nothing_changes(ports: Ports) -> None:
    entry, standing = first_entry(log_id()), first_entry(log_id(), b"there")
    ports.wal.commit(standing)
    late = replace(standing, request_ids=("late",))
    guards = [PutProducer("x", Producer("p", 0, 0)), PutEntry(late)]
    assert ports.wal.commit(entry, guards) == GuardRefused(1, standing)
    assert ports.wal.newest(entry.log_id) is None
    assert ports.producers.get("x", "p") is None
    assert ports.wal.newest(standing.log_id) == standing


def test_a_guarded_commit_below_the_published_end_writes_nothing(ports: Ports) -> None:
    """Its slot is free when it was used and trimmed."""
    log = chain(ports.wal, 3)
    name, end_slot = log[0].log_id, log[2].slot
    ports.wal.remove(name, [entry.slot for entry in log[:2]])
    late = replace(log[1], request_ids=("late",))
    guards = [PutProducer(name, Producer("p", 0, 0)), Unpublished(name, late.slot)]
    ports.watermarks.publish(name, 1, end_slot, 2, 2)
    assert ports.wal.commit(late, guards) == GuardRefused(1)
    assert ports.wal.read(name).entries == log[2:]
    assert ports.producers.get(name, "p") is None
    after = next_entry(log[2])
    assert (
        ports.wal.commit(after, [Unpublished(name, end_slot), PutProducer(name, Producer("p", 0, 0))]) == Committed()
    )
    new = first_entry(log_id())
    assert ports.wal.commit(new, [Unpublished(new.log_id, new.slot)]) == Committed()


@pytest.mark.parametrize("current", [None, "other"])
@pytest.mark.parametrize("replaces", [None, "old"])
def test_a_row_guard_holds_only_for_the_log_it_replaces(
    ports: Ports, current: str | None, replaces: str | None
) -> None:
    if current is not None:
        assert ports.wal.commit(first_entry(log_id()), [PutRow(row("n", current), None)]) == Committed()
    entry = first_entry(log_id())
    outcome = ports.wal.commit(entry, [PutRow(row("n", entry.log_id), replaces)])
    if current is None and replaces is None:
        assert outcome == Committed()
    else:
        assert outcome == GuardRefused(0)
        assert ports.wal.newest(entry.log_id) is None
        found = ports.catalog.get("streams", "n")
        assert (found.log_id if found else None) == current


def test_a_row_is_replaced_when_it_stands_for_the_named_log(ports: Ports) -> None:
    old, new = first_entry(log_id()), first_entry(log_id())
    ports.wal.commit(old, [PutRow(row("n", old.log_id, ended=True, deadline_ms=4), None)])
    assert ports.wal.commit(new, [PutRow(row("n", new.log_id), old.log_id)]) == Committed()
    assert ports.catalog.get("streams", "n") == row("n", new.log_id)


def test_a_touch_guard_holds_only_while_the_touch_stands(ports: Ports) -> None:
    entry = first_entry(log_id())
    ports.watermarks.publish(entry.log_id, 1, 0, 0, 0)
    assert ports.wal.commit(entry, [TouchUnchanged(entry.log_id, 9)]) == GuardRefused(0)
    ports.watermarks.touch(entry.log_id, 9)
    assert ports.wal.commit(entry, [TouchUnchanged(entry.log_id, 0)]) == GuardRefused(0)
    assert ports.wal.commit(entry, [TouchUnchanged(entry.log_id, 8)]) == GuardRefused(0)
    assert ports.wal.newest(entry.log_id) is None
    both = [TouchUnchanged(entry.log_id, 9), Unpublished(entry.log_id, entry.slot)]
    assert ports.wal.commit(entry, both) == Committed()


def test_the_slot_is_named_before_a_guard_when_both_refuse(ports: Ports) -> None:
    entry = first_entry(log_id())
    ports.wal.commit(entry)
    assert ports.wal.commit(replace(entry, request_ids=("x",)), [TouchUnchanged("x", 9)]) == SlotTaken(entry)


def test_a_producer_row_is_overwritten(ports: Ports) -> None:
    first = first_entry(log_id())
    ports.wal.commit(first, [PutProducer("l", Producer("p", 0, 5))])
    ports.wal.commit(next_entry(first), [PutProducer("l", Producer("p", 1, 0))])
    assert ports.producers.get("l", "p") == Producer("p", 1, 0)


@pytest.mark.parametrize("older", [Producer("p", 1, 4), Producer("p", 0, 9)])
def test_a_producer_row_is_never_set_back(ports: Ports, older: Producer) -> None:
    log, newer = log_id(), Producer("p", 1, 5)
    first = first_entry(log)
    ports.wal.commit(first, [PutProducer(log, newer)])
    late = next_entry(first)
    assert ports.wal.commit(late, [PutProducer(log, older)]) == GuardRefused(0)
    assert ports.producers.get(log, "p") == newer
    assert ports.wal.newest(log) == first
    assert ports.wal.commit(late, [PutProducer(log, newer)]) == Committed()


def test_the_most_guards_that_are_promised_fit(ports: Ports) -> None:
    entry = first_entry(log_id())
    guards = [PutProducer(entry.log_id, Producer(f"p{n}", 0, n)) for n in range(MAX_GUARDS)]
    assert ports.wal.commit(entry, guards) == Committed()
    assert ports.producers.get(entry.log_id, f"p{MAX_GUARDS - 1}") == Producer(
        f"p{MAX_GUARDS - 1}", 0, MAX_GUARDS - 1
    )


def test_more_guards_than_promised_are_a_mistake_on_every_adapter(ports: Ports) -> None:
    entry = first_entry(log_id())
    guards = [PutProducer(entry.log_id, Producer(f"p{n}", 0, n)) for n in range(MAX_GUARDS + 1)]
    with pytest.raises(ValueError, match="too many guards"):
        ports.wal.commit(entry, guards)


def test_the_newest_entry(ports: Ports) -> None:
    assert ports.wal.newest(log_id()) is None
    entries = chain(ports.wal, 4)
    log = entries[0].log_id
    assert ports.wal.newest(log) == entries[3]
    assert ports.wal.newest(log, below=entries[3].slot + 1) == entries[3]
    assert ports.wal.newest(log, below=entries[3].slot) == entries[2]
    assert ports.wal.newest(log, below=entries[3].slot - 1) == entries[2]
    assert ports.wal.newest(log, below=0) is None


def test_ranges_are_half_open(ports: Ports) -> None:
    entries = chain(ports.wal, 5)
    log, at = entries[0].log_id, slots(entries)
    assert slots(ports.wal.read(log).entries) == at
    assert slots(ports.wal.read(log, start=at[1], end=at[3]).entries) == at[1:3]
    assert slots(ports.wal.read(log, start=at[1] + 1, end=at[3] + 1).entries) == at[2:4]
    assert slots(ports.wal.read(log, start=at[2]).entries) == at[2:]
    assert slots(ports.wal.read(log, end=at[2]).entries) == at[:2]
    for start, end in ((at[2], at[2]), (at[3], at[1]), (0, 0)):
        assert ports.wal.read(log, start=start, end=end) == ([], True)
    assert ports.wal.read(log, start=at[4] + 1) == ([], True)


def test_descending_reads_begin_at_the_end_of_the_range(ports: Ports) -> None:
    entries = chain(ports.wal, 5)
    log, at = entries[0].log_id, slots(entries)
    assert slots(ports.wal.read(log, descending=True).entries) == at[::-1]
    assert slots(ports.wal.read(log, start=at[1], end=at[4], descending=True).entries) == [at[3], at[2], at[1]]
    page = ports.wal.read(log, limit=2, descending=True)
    assert (slots(page.entries), page.complete) == (at[:2:-1], False)


def test_a_limit_leaves_the_rest_for_later_and_says_so(ports: Ports) -> None:
    entries = chain(ports.wal, 5)
    log, at = entries[0].log_id, slots(entries)
    page = ports.wal.read(log, limit=2)
    assert (slots(page.entries), page.complete) == (at[:2], False)
    page = ports.wal.read(log, limit=6)
    assert (slots(page.entries), page.complete) == (at, True)


@pytest.mark.parametrize("descending", [False, True])
def test_pages_of_about_a_megabyte_chain_into_the_whole(ports: Ports, descending: bool) -> None:
    entries = [first_entry(log_id())]
    ports.wal.commit(entries[0])
    for _ in range(15):
        entries.append(next_entry(entries[-1], b"x", payload=bytes(200_000)))
        ports.wal.commit(entries[-1])
    log, found, pages = entries[0].log_id, [], 0
    page = ports.wal.read(log, descending=descending)
    while True:
        pages += 1
        assert 1 <= len(page.entries) <= 7
        found += slots(page.entries)
        if page.complete:
            break
        if descending:
            page = ports.wal.read(log, end=found[-1], descending=True)
        else:
            page = ports.wal.read(log, start=found[-1] + 1)
    assert found == sorted(slots(entries), reverse=descending)
    assert pages >= 3


def test_logs_do_not_see_each_other(ports: Ports) -> None:
    mine, other = chain(ports.wal, 2), chain(ports.wal, 3)
    assert ports.wal.read(mine[0].log_id).entries == mine
    ports.wal.remove(mine[0].log_id, slots(other))
    assert ports.wal.read(other[0].log_id).entries == other


def test_removed_entries_are_gone_and_missing_ones_are_no_error(ports: Ports) -> None:
    entries = chain(ports.wal, 60)
    log = entries[0].log_id
    ports.wal.remove(log, (slot for slot in slots(entries[:-1])))  # more than one batch, from an iterator
    ports.wal.remove(log, slots(entries[:3]))
    ports.wal.remove(log, [])
    assert ports.wal.read(log).entries == entries[-1:]


def test_a_removed_slot_is_free_again(ports: Ports) -> None:
    entries = chain(ports.wal, 3)
    ports.wal.remove(entries[0].log_id, [entries[1].slot])
    assert ports.wal.commit(replace(entries[1], request_ids=("again",))) == Committed()


def test_a_dead_entry_is_removed_only_if_it_is_the_very_one(ports: Ports) -> None:
    entries = chain(ports.wal, 3)
    log, middle = entries[0].log_id, entries[1]
    ports.wal.remove_dead(replace(middle, request_ids=("another",)))
    ports.wal.remove_dead(replace(middle, request_ids=(*middle.request_ids, "another")))
    assert ports.wal.read(log).entries == entries
    ports.wal.remove_dead(middle)
    ports.wal.remove_dead(middle)
    assert ports.wal.read(log).entries == [entries[0], entries[2]]


def test_a_log_that_may_be_purged_is_found_until_it_is(ports: Ports) -> None:
    ends: list[Entry] = []
    for number, ended in enumerate((True, True, True, False)):
        created = first_entry(log_id(), committed_ms=50)
        state = LogState(ended="deleted" if ended else "", forks=int(number == 2))
        end = next_entry(created, kind="delete", committed_ms=100 * number, state=state)
        for entry in (created, end):
            assert ports.wal.commit(entry) == Committed()
        ends.append(end)
    first, second, *_ = ends
    assert ports.wal.newest(first.log_id) == first
    assert set(ports.wal.unpurged(99)) == {first.log_id}
    assert set(ports.wal.unpurged(10**6)) == {first.log_id, second.log_id}
    for _ in range(2):
        ports.wal.purged(first.log_id, first.slot)
    ports.wal.purged(log_id(), 5)
    assert ports.wal.newest(first.log_id) == first
    assert set(ports.wal.unpurged(10**6)) == {second.log_id}
    ports.wal.remove(second.log_id, [second.slot])
    assert set(ports.wal.unpurged(10**6)) == set()


def test_slots_reach_as_far_as_offsets_do(ports: Ports) -> None:
    far = first_entry(log_id(), slot=(2**64 - 1) * SPAN + SPAN - 1)
    assert ports.wal.commit(far) == Committed()
    assert ports.wal.newest(far.log_id) == far
    assert ports.wal.read(far.log_id, start=(2**64 - 1) * SPAN).entries == [far]


# moto in this process is for one thread; others must keep this promise.
@pytest.mark.parametrize("ports", ["memory", *(["dynamodb"] if REAL_DYNAMODB in os.environ else [])], indirect=True)
def test_of_many_threads_one_takes_the_slot(ports: Ports) -> None:
    wal, log = ports.wal, log_id()
    rivals = [first_entry(log, str(n).encode()) for n in range(16)]
    barrier = threading.Barrier(len(rivals))
    outcomes: dict[int, object] = {}

    def race(number: int) -> None:
        barrier.wait()
        while number not in outcomes:
            with suppress(StoreThrottled):  # it met another transaction, and was not stored
                outcomes[number] = wal.commit(rivals[number], [PutProducer(log, Producer("p", 0, number))])

    threads = [threading.Thread(target=race, args=(n,)) for n in range(len(rivals))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [number for number, outcome in outcomes.items() if outcome == Committed()]
    assert len(winners) == 1
    standing = rivals[winners[0]]
    assert all(outcome == SlotTaken(standing) for n, outcome in outcomes.items() if n != winners[0])
    assert ports.producers.get(log, "p") == Producer("p", 0, winners[0])
