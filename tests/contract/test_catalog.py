"""What every `Catalog` adapter does: one suite, on memory and on DynamoDB."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from functions.access import Access
from functions.api.context import assemble
from headrace.memory import memory_stores
from headrace.settings import Settings
from headrace.tables.catalog import (
    BUCKETS,
    DamagedRow,
    PutRow,
    Row,
    bucket_of,
)
from headrace.tables.dynamodb import Store
from headrace.tables.unborn import DUE_MS, UNBORN, Born, announced, buried
from headrace.wal import MAX_GUARDS, Committed, GuardRefused
from headrace.wal.state import Ancestor, Companion, DefinitionRef, ForkSource
from tests.contract.conftest import Ports, dynamodb_ports
from tests.support.builders import config, first_entry, log_id, row
from tests.support.counting import AwsCalls
from tests.unit.api.asgi import Server

# In byte order, which is neither alphabetical nor that of UTF-16 (the last two).
NAMES = ["A", "B/c", "a", "a b", "a/", "a/1", "a/10", "a/2", "a0", "b", "z", "é", "日本", "\uffee", "\U0001f600"]


def put(ports: Ports, *rows: Row) -> None:
    for at in range(0, len(rows), MAX_GUARDS):
        ports.wal.commit(first_entry(log_id()), [PutRow(one, None) for one in rows[at : at + MAX_GUARDS]])


def names(rows: Iterable[Row | DamagedRow]) -> list[str]:
    return [one.name for one in rows]


def test_a_row_comes_back_as_it_was(ports: Ports) -> None:
    lineage, begun = (Ancestor("p", 1, 3),), DefinitionRef(1, "n", 3, "metrics")
    full = Row(
        "l",
        config("ü/\U0001f600", ttl_ms=4, lineage=lineage, source=ForkSource("s", "p"), definition=begun),
        ended=True,
        deadline_ms=2**50,
    )
    pair = row("pair", "p", companions=(Companion("notes", "q", "text/plain"), Companion("é", "r", "a/b")))
    put(ports, full, pair, row("plain", "m"))
    assert ports.catalog.get("streams", "pair") == pair
    assert ports.catalog.get("streams", "ü/\U0001f600") == full
    assert ports.catalog.get("streams", "plain") == row("plain", "m")


def test_a_name_that_stands_for_nothing(ports: Ports) -> None:
    put(ports, row("n", "l"))
    assert ports.catalog.get("streams", "m") is None
    assert ports.catalog.get("queues", "n") is None


def test_a_name_of_the_greatest_length(ports: Ports) -> None:
    name = "é" * 512
    put(ports, row(name, "l"))
    assert ports.catalog.get("streams", name) == row(name, "l")
    assert names(ports.catalog.living("streams", limit=3)) == [name]


def test_listings_are_in_byte_order(ports: Ports) -> None:
    put(ports, *(row(name, "l") for name in reversed(NAMES)), row("other", "l", surface="queues"))
    assert sorted(NAMES, key=str.encode) == NAMES
    assert names(ports.catalog.living("streams", limit=100)) == NAMES
    assert names(ports.catalog.living("queues", limit=100)) == ["other"]


def test_every_row_is_listed_ended_or_not(ports: Ports) -> None:
    put(ports, *(row(name, "l") for name in NAMES), row("other", "l", surface="queues"))
    for name in NAMES[::2]:
        ports.catalog.mark_ended(row(name, "l"))
    assert names(ports.catalog.every("streams", limit=100)) == NAMES
    assert names(ports.catalog.every("streams", after=NAMES[2], limit=5)) == NAMES[3:8]
    assert names(ports.catalog.living("streams", limit=3)) == NAMES[1:6:2]


def test_every_row_is_listed_as_it_is_now(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ports, sent, call = dynamodb_ports(store), list[Mapping[str, Any]](), store.call
    put(ports, *(row(name, "l") for name in NAMES))
    monkeypatch.setattr(store, "call", lambda verb, asked: (sent.append(asked), call(verb, asked))[1])
    ports.catalog.every("streams", limit=100)
    assert len(sent) == len(BUCKETS) and all(one["ConsistentRead"] for one in sent)


def test_a_listing_goes_on_after_a_name_within_a_prefix(ports: Ports) -> None:
    put(ports, *(row(name, "l") for name in NAMES))
    prefixes = ["", "a", "a/", "a/1", "é", "\U0001f600", "nothing"]
    for prefix, after in itertools.product(prefixes, ["", "A", "a", "a/", "a/9", "b", "\uffee", "\U0001f600"]):
        wanted = [name for name in NAMES if name.startswith(prefix) and name.encode() > after.encode()]
        assert names(ports.catalog.living("streams", prefix=prefix, after=after, limit=100)) == wanted
        assert names(ports.catalog.living("streams", prefix=prefix, after=after, limit=2)) == wanted[:2]


def test_pages_of_a_listing_chain_into_the_whole(ports: Ports) -> None:
    every = [f"s/{number:03d}" for number in range(150)]
    put(ports, *(row(name, "l") for name in every))
    found: list[str] = []
    while page := names(ports.catalog.living("streams", prefix="s/", after=found[-1] if found else "", limit=60)):
        found += page
    assert found == every


def test_the_parts_of_a_listing_are_disjoint_and_whole(ports: Ports) -> None:
    every = [f"s{number:03d}" for number in range(60)]
    put(ports, *(row(name, "l", ended=name == "s007") for name in every), row("other", "l", surface="queues"))
    found: list[str] = []
    for part in BUCKETS:
        whole = names(ports.catalog.part("streams", part, limit=100))
        assert whole == sorted(whole)
        pages: list[str] = []
        while page := names(ports.catalog.part("streams", part, after=pages[-1] if pages else "", limit=2)):
            pages += page
        assert pages == whole
        found += whole
    assert sorted(found) == [name for name in every if name != "s007"]


def test_ended_rows_are_left_out_however_many(ports: Ports) -> None:
    every = [f"s{number:03d}" for number in range(150)]
    put(ports, *(row(name, "l", ended=number % 50 != 0) for number, name in enumerate(every)))
    assert names(ports.catalog.living("streams", limit=10)) == ["s000", "s050", "s100"]


def test_a_listing_costs_what_it_returns_at_any_number_of_ended_names(store: Store) -> None:
    ports = dynamodb_ports(store)
    put(ports, *(row(f"s{number:03d}", "l", ended=True) for number in range(630)), row("t", "l"), row("u", "l"))
    ports.catalog.mark_ended(row("t", "l"))
    calls = AwsCalls(store.connection.client)
    with calls.during() as made:
        assert names(ports.catalog.living("streams", limit=1)) == ["u"]
    assert made == {"Query": 16}, "one for each bucket, none of which pages through what has ended"


def test_the_listing_answers_and_audits_walk_past_any_number_of_ended_names(store: Store) -> None:
    """Both paged through them: a listing took longer than a request may, and answered 408 for good."""
    ports = dynamodb_ports(store)
    memory = memory_stores(Settings(metrics_interval_ms=0, request_timeout_ms=60_000))  # the machine may be busy
    server = Server(parts=assemble(replace(memory, catalog=ports.catalog), Access({})))
    put(ports, *(row(f"s{number:03d}", "l", ended=True) for number in range(630)), row("z", "lz"))
    memory.wal.commit(first_entry("lz", config=config("z")))
    calls = AwsCalls(store.connection.client)
    with calls.during() as made:
        answer = server("GET", "/v1/streams?limit=1")
    assert (answer.status, [one["name"] for one in answer.json], made) == (200, ["z"], {"Query": 16})
    with calls.during() as made:
        assert [name for part in BUCKETS for name in names(ports.catalog.part("streams", part, limit=500))] == ["z"]
    assert made == {"Query": 16}, "one for each part of an audit"


def test_due_rows_are_those_whose_deadline_has_come(ports: Ports) -> None:
    put(
        ports,
        row("early", "l", deadline_ms=10),
        row("on time", "l", deadline_ms=20),
        row("late", "l", deadline_ms=21),
    )
    put(ports, row("never", "l"), row("queue", "l", surface="queues", deadline_ms=15))
    assert sorted(names(ports.catalog.due(20))) == ["early", "on time", "queue"]
    assert names(islice(ports.catalog.due(15), 1)) in (["early"], ["queue"])
    assert list(ports.catalog.due(9)) == []


def test_a_due_row_is_as_it_is_when_it_is_asked_for(ports: Ports) -> None:
    put(ports, *(row(name, "l", deadline_ms=10) for name in ("ended", "renewed", "still due")))
    found = ports.catalog.due(10)
    ports.catalog.mark_ended(row("ended", "l"))
    ports.catalog.set_hints(row("renewed", "l"), deadline_ms=11)
    assert names(found) == ["still due"]


def test_ending_a_row_drops_its_deadline(ports: Ports) -> None:
    put(ports, row("n", "l", deadline_ms=10))
    ports.catalog.mark_ended(row("n", "l"))
    ports.catalog.mark_ended(row("n", "l"))
    assert ports.catalog.get("streams", "n") == row("n", "l", ended=True)
    assert list(ports.catalog.due(99)) == []
    assert ports.catalog.living("streams", limit=10) == []


def test_a_row_is_ended_only_for_its_own_log(ports: Ports) -> None:
    put(ports, row("n", "new", deadline_ms=10))
    ports.catalog.mark_ended(row("n", "old"))
    ports.catalog.mark_ended(row("unknown", "old"))
    assert ports.catalog.get("streams", "n") == row("n", "new", deadline_ms=10)
    assert ports.catalog.get("streams", "unknown") is None


def test_a_deadline_moves_only_for_its_own_living_log(ports: Ports) -> None:
    put(ports, row("n", "new", deadline_ms=10), row("gone", "l", ended=True), row("fresh", "l"))
    ports.catalog.set_hints(row("n", "old"), deadline_ms=99)
    ports.catalog.set_hints(row("gone", "l"), deadline_ms=99)
    ports.catalog.set_hints(row("unknown", "l"), deadline_ms=99)
    assert ports.catalog.get("streams", "n") == row("n", "new", deadline_ms=10)
    assert ports.catalog.get("streams", "gone") == row("gone", "l", ended=True)
    assert ports.catalog.get("streams", "unknown") is None
    ports.catalog.set_hints(row("n", "new"), deadline_ms=99)
    ports.catalog.set_hints(row("fresh", "l"), deadline_ms=98)
    assert sorted(names(ports.catalog.due(99))) == ["fresh", "n"]
    assert list(ports.catalog.due(97)) == []


def test_a_profile_is_corrected_only_for_its_own_living_log(ports: Ports) -> None:
    put(ports, row("n", "new", deadline_ms=10), row("gone", "l", ended=True))
    ports.catalog.set_hints(row("n", "old"), label="metrics")
    ports.catalog.set_hints(row("gone", "l"), label="metrics")
    ports.catalog.set_hints(row("n", "new"))
    assert ports.catalog.get("streams", "n") == row("n", "new", deadline_ms=10)
    assert ports.catalog.get("streams", "gone") == row("gone", "l", ended=True)
    for profile in ("metrics", "generic"):
        ports.catalog.set_hints(row("n", "new"), label=profile)
        assert ports.catalog.get("streams", "n") == row("n", "new", deadline_ms=10, label=profile)


def test_names_spread_over_every_bucket() -> None:
    used = {bucket_of("streams", f"name-{number}") for number in range(400)}
    assert used == {f"streams#{digit}" for digit in BUCKETS}
    assert len(set(itertools.chain(used, {bucket_of("queues", "name-1")}))) == len(used) + 1


def test_an_announcement_is_due_after_a_day_and_a_buried_one_at_once(ports: Ports) -> None:
    ports.catalog.put(announced("l", 1))
    assert list(ports.catalog.due(DUE_MS)) == []
    assert list(ports.catalog.due(DUE_MS + 1)) == [announced("l", 1)]
    for _ in range(2):
        ports.catalog.put(buried("l", 5))
    assert list(ports.catalog.due(0)) == [buried("l", 5)]
    ports.catalog.remove(buried("l", 4))
    assert list(ports.catalog.due(0)) == [buried("l", 5)], "it was buried again"
    for _ in range(2):
        ports.catalog.remove(buried("l", 5))
    assert list(ports.catalog.due(DUE_MS + 1)) == [] and ports.catalog.get(UNBORN, "l") is None


def test_an_announcement_is_no_name(ports: Ports) -> None:
    put(ports, row("n", "m"))
    ports.catalog.put(announced("l", 1))
    assert names(ports.catalog.every("streams", limit=9)) == names(ports.catalog.living("streams", limit=9)) == ["n"]
    assert ports.catalog.living(UNBORN, limit=9) == []
    assert [one for part in BUCKETS for one in ports.catalog.part(UNBORN, part, limit=9)] == []


def test_a_log_is_born_once_and_only_if_it_is_announced_and_not_buried(ports: Ports) -> None:
    first = first_entry(log_id())

    def commit() -> object:
        return ports.wal.commit(first, [PutRow(row("n", first.log_id), None), Born(first.log_id)])

    assert commit() == GuardRefused(1)
    ports.catalog.put(buried(first.log_id, 5))
    assert commit() == GuardRefused(1)
    assert ports.wal.newest(first.log_id) is None and ports.catalog.get("streams", "n") is None
    ports.catalog.put(announced(first.log_id, 1))
    assert commit() == Committed()
    assert ports.catalog.get(UNBORN, first.log_id) is None and list(ports.catalog.due(2 * DUE_MS)) == []
    assert ports.wal.newest(first.log_id) == first
