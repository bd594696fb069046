"""A damaged row of the catalog hides no other from listings, audits, recovery; it is counted, told of, and mended."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from functions import worker
from functions.metrics import METRICS_FILE, ApiMetric, IndexerMetric, Meter, Metric, SealerMetric
from functions.queue import Message
from functions.sealer import context as sealer
from functions.sealer.audit import sweep
from functions.sealer.seal import seal
from functions.wiring import open_wiring
from headrace.errors import Damaged
from headrace.log.stores import Stores
from headrace.recovery.recover import recover
from headrace.recovery.verify import verify_all
from headrace.streams.values import CreateRequest
from headrace.streams.verbs import Streams
from headrace.tables.catalog import BUCKETS, Catalog, DamagedRow, Row, row_item, row_key
from headrace.tables.dynamodb import Store
from headrace.tables.dynamodb_catalog import DynamoCatalog
from tests.contract.conftest import dynamodb_ports
from tests.contract.test_catalog import names, put
from tests.support.aws import create_tables
from tests.support.builders import config, row
from tests.unit.sealer.world import World


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
