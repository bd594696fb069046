"""What every `Catalog` adapter does: one suite, on memory and on DynamoDB."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from functions import worker
from functions.api.context import assemble
from functions.api.door.access import Access
from functions.metrics import METRICS_FILE, ApiMetric, IndexerMetric, Meter, Metric, SealerMetric
from functions.queue import Message
from functions.sealer import context as sealer
from functions.sealer.audit import sweep
from functions.sealer.seal import seal
from functions.wiring import open_wiring
from headrace.errors import Damaged
from headrace.log.stores import Stores
from headrace.memory import memory_stores
from headrace.recovery.recover import recover
from headrace.recovery.verify import verify_all
from headrace.settings import Settings
from headrace.streams.values import CreateRequest
from headrace.streams.verbs import Streams
from headrace.tables.catalog import BUCKETS, Catalog, DamagedRow, DynamoCatalog, Row, bucket_of, row_item, row_key
from headrace.tables.dynamodb import Store
from headrace.tables.naming import PutRow
from headrace.tables.unborn import DUE_MS, UNBORN, Born, announced, buried
from headrace.wal import MAX_GUARDS, Committed, GuardRefused
from headrace.wal.state import Ancestor, Companion, DefinitionRef, ForkSource
from tests.contract.conftest import Ports, dynamodb_ports
from tests.support.aws import create_tables
from tests.support.builders import config, first_entry, log_id, row
from tests.support.counting import AwsCalls
from tests.unit.api.asgi import Server
from tests.unit.sealer.world import World

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
    memory = memory_stores(Settings(metrics_interval_ms=0))
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


def damage(store: Store, catalog: Catalog, *damaged: str, **values: str) -> None:
    """Writes attributes that do not parse to rows that were committed, beside their keys; removes those that are empty."""
    assert isinstance(catalog, DynamoCatalog)
    for name in damaged:
        item = row_item(row(name, "l", deadline_ms=10)) | {key: {"S": value} for key, value in values.items()}
        item = {key: value for key, value in item.items() if value != {"S": ""}}
        store.call("PutItem", {"TableName": catalog._table, "Item": item})


@pytest.mark.parametrize(
    "config",
    [
        "{",
        "{}",
        msgspec.json.encode(config("z")).decode(),
        msgspec.json.encode(config("s007", surface="queues")).decode().replace("s007", "NAME"),
    ],
    ids=["cut", "empty", "other name", "other surface"],
)
def test_a_damaged_row_hides_no_other(store: Store, caplog: pytest.LogCaptureFixture, config: str) -> None:
    """One ended an audit's part, the expiry sweep, every listing and a recovery."""
    count: list[None] = []
    ports = dynamodb_ports(store, damaged=lambda: count.append(None))
    every = [f"s{number:03d}" for number in range(60)]
    put(ports, *(row(name, "l", deadline_ms=10) for name in every))
    gone = every[::7]
    for name in gone:
        damage(store, ports.catalog, name, config=config.replace("NAME", name))
    left = [name for name in every if name not in gone]
    assert names(ports.catalog.living("streams", limit=60)) == left
    assert len(count) == len(gone)
    rows = [*ports.catalog.every("streams", limit=7), *ports.catalog.every("streams", after="s006", limit=60)]
    assert names(rows) == every
    damaged = [one for one in rows if isinstance(one, DamagedRow)]
    assert [(one.surface, one.name, one.log_id) for one in damaged] == [("streams", name, "l") for name in gone]
    assert all(f"name={{'S': '{one.name}'}}" in one.reason for one in damaged)
    count.clear()
    caplog.clear()
    assert sorted(name for part in BUCKETS for name in names(ports.catalog.part("streams", part, limit=50))) == left
    assert len(count) == len(gone)
    assert sorted(re.findall(r"name=\{'S': '(\w+)'\}", caplog.text)) == gone
    assert sorted(names(ports.catalog.due(10))) == left
    assert len(count) == 2 * len(gone)
    with pytest.raises(Damaged, match=r"name=.*s007"):
        ports.catalog.get("streams", "s007")


def test_a_worker_goes_on_past_a_damaged_row_and_counts_it(store: Store) -> None:
    world = World()
    lines: list[str] = []
    meter = Meter(SealerMetric, lines.append)
    ports = dynamodb_ports(store, damaged=meter.count_damage)
    logs = {name: world.create(name, ttl_ms=1000) for name in ("a", "b", "c")}
    put(ports, *(Row(log, config(name, ttl_ms=1000), deadline_ms=10) for name, log in logs.items()))
    damage(store, ports.catalog, "b", config="{")
    parts = sealer.assemble(replace(world.stores, catalog=ports.catalog), world.queue, meter)
    seen = []
    for part in BUCKETS:
        message = Message("audit", surface="streams", part=part)
        seen += worker.audit(parts, message, lambda one: one.name, lambda _: []).found
    assert sorted(seen) == ["a", "c"]
    world.wait(3600)
    assert sweep(parts)[:2] == (2, 0)
    meter.flush()
    assert [json.loads(line)["PoisonedLogs"] for line in lines] == [[2]]


@pytest.mark.parametrize("metrics", [SealerMetric, IndexerMetric, ApiMetric])
def test_a_function_counts_a_damaged_row_if_it_audits(
    store: Store, metrics: type[Metric], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The api, which meets the row in a listing, has no such metric."""
    for name, table in create_tables().items():
        monkeypatch.setenv(f"HEADRACE_{name.upper()}_TABLE", table)
    monkeypatch.setenv("HEADRACE_BUCKET", "none")
    monkeypatch.setenv(METRICS_FILE, str(tmp_path / "metrics"))
    wiring = open_wiring(metrics)
    damage(store, wiring.stores.catalog, "b", config="{")
    assert wiring.stores.catalog.living("streams", limit=9) == []
    wiring.meter.flush()
    counted = [json.loads(line)["PoisonedLogs"] for line in (tmp_path / "metrics").read_text().splitlines()]
    assert counted == ([] if metrics is ApiMetric else [[1]])


def test_a_recovery_goes_on_past_a_damaged_row_and_refuses_its_log(store: Store) -> None:
    world = World()
    ports = dynamodb_ports(store)
    logs = {name: world.create(name) for name in ("a", "b")}
    for log in logs.values():
        world.seal(log)
    damage(store, ports.catalog, "b", config="{")
    stores = replace(world.stores, catalog=ports.catalog)
    found = {log.name: (log.status, log.reason) for log in recover(stores, dry_run=True).logs}
    assert found["a"] == ("repaired", "") and found["b"][0] == "refused" and "does not parse" in found["b"][1]
    kinds = {finding.log_id: finding.kind for finding in verify_all(stores).findings}
    assert kinds == {logs["a"]: "catalog.missing", logs["b"]: "catalog.damaged"}


def refusals(stores: Stores) -> dict[str, str]:
    """Returns the names that recovery refuses, each with its log; verification must find the same rows damaged."""
    refused = [log for log in recover(stores, dry_run=True).logs if log.status == "refused"]
    damaged = {(one.log_id, one.where) for one in verify_all(stores).findings if one.kind == "catalog.damaged"}
    assert damaged == {(log.log_id, f"streams/{log.name}") for log in refused}
    assert all("does not parse" in log.reason for log in refused)
    return {log.name: log.log_id for log in refused}


def test_the_runbook_for_a_damaged_row_loses_no_name_that_was_not_sealed(store: Store) -> None:
    """Neither command told of such a log: nothing but entries names it, and only its damaged row leads to them."""
    ports, world = dynamodb_ports(store), World()
    tables = {"wal": ports.wal, "watermarks": ports.watermarks, "producers": ports.producers}
    stores = replace(world.stores, catalog=ports.catalog, surfaces=("streams",), **tables)
    streams = Streams(stores)
    logs = {name: streams.create(name, CreateRequest()).head.log_id for name in ("a", "b", "c")}
    whole = ports.catalog.get("streams", "c")
    assert whole is not None and isinstance(ports.catalog, DynamoCatalog)
    damage(store, ports.catalog, "b", config="{", log_id=logs["b"])
    damage(store, ports.catalog, "c", config="{", log_id="")
    assert refusals(stores) == {"b": logs["b"], "c": ""}
    # The log's `log.json` does not exist: a seal writes it. Then the item goes.
    assert list(world.objects.list(f"logs/{logs['b']}/")) == []
    seal(sealer.assemble(stores, world.queue), logs["b"], force=True)
    assert f"logs/{logs['b']}/log.json" in list(world.objects.list(f"logs/{logs['b']}/"))
    store.call("DeleteItem", {"TableName": ports.catalog._table, "Key": row_key("streams", "b")})
    # Of the other not even the log's id is known: the item itself is put back from a restored table.
    store.call("PutItem", {"TableName": ports.catalog._table, "Item": row_item(whole)})
    assert recover(stores).clean
    assert {one.name: one.log_id for one in streams.list(limit=9)} == logs
    assert verify_all(stores).clean


@pytest.mark.parametrize("is_told", [True, False], ids=["log id", "nothing"])
def test_a_damaged_row_of_which_nothing_else_is_left_is_refused(store: Store, is_told: bool) -> None:
    ports, world = dynamodb_ports(store), World()
    stores = replace(world.stores, catalog=ports.catalog, surfaces=("streams",))
    damage(store, ports.catalog, "b", config="{", log_id="x" if is_told else "")
    assert refusals(stores) == {"b": "x" if is_told else ""}
    world.seal(world.create("b"))  # a log that says of itself that it has the name
    (log_id,) = {key.split("/")[1] for key in world.objects.list("logs/")}
    assert refusals(stores) == {"b": log_id}


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
        ports.catalog.put(buried("l"))
    assert list(ports.catalog.due(0)) == [buried("l")]
    for _ in range(2):
        ports.catalog.remove(buried("l"))
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
    ports.catalog.put(buried(first.log_id))
    assert commit() == GuardRefused(1)
    assert ports.wal.newest(first.log_id) is None and ports.catalog.get("streams", "n") is None
    ports.catalog.put(announced(first.log_id, 1))
    assert commit() == Committed()
    assert ports.catalog.get(UNBORN, first.log_id) is None and list(ports.catalog.due(2 * DUE_MS)) == []
    assert ports.wal.newest(first.log_id) == first
