"""The ports of the engine's tables: in memory, on DynamoDB (moto in this process), and on SQLite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from headrace.memory import memory_stores
from headrace.tables.catalog import Catalog
from headrace.tables.dynamodb import Store
from headrace.tables.dynamodb_catalog import DynamoCatalog
from headrace.tables.features import TABLE as FEATURE_ROWS
from headrace.tables.features import DynamoFeatures, FeatureRows
from headrace.tables.follows import DynamoFollows, Follows
from headrace.tables.producers import DynamoProducers, Producers
from headrace.tables.sessions import DynamoSessions, Sessions
from headrace.tables.watermarks import DynamoWatermarks, Watermarks
from headrace.wal import Wal
from headrace.wal.dynamodb import DynamoWal
from local.machine import LocalMachine
from tests.support.aws import create_tables, in_process_aws
from tests.support.machine import declare_tables, machine_folder


class Ports(NamedTuple):
    """One set of tables."""

    wal: Wal
    catalog: Catalog
    watermarks: Watermarks
    producers: Producers
    follows: Follows
    sessions: Sessions
    features: FeatureRows


def memory_ports() -> Ports:
    """In memory."""
    stores = memory_stores()
    features: FeatureRows = stores.tables[FEATURE_ROWS]  # type: ignore[assignment]  # the port has more than a surface's table
    tables = (stores.catalog, stores.watermarks, stores.producers, stores.follows, stores.sessions)
    return Ports(stores.wal, *tables, features)


def dynamodb_ports(
    store: Store, damaged: Callable[[], None] = lambda: None, tables: dict[str, str] | None = None
) -> Ports:
    """In new tables of DynamoDB, or in those given."""
    tables = tables or create_tables()
    return Ports(
        DynamoWal(store, tables),
        DynamoCatalog(store, tables["catalog"], damaged),
        DynamoWatermarks(store, tables["watermarks"]),
        DynamoProducers(store, tables["producers"]),
        DynamoFollows(store, tables),
        DynamoSessions(store, tables),
        DynamoFeatures(store, tables[FEATURE_ROWS]),
    )


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    """Yields a connection to moto."""
    with in_process_aws() as store:
        yield store


@pytest.fixture(scope="module")
def machine() -> Iterator[LocalMachine]:
    """Yields an empty single machine."""
    with machine_folder() as folder:
        yield LocalMachine(folder)


@pytest.fixture(params=["memory", "dynamodb", "sqlite"])
def ports(request: pytest.FixtureRequest) -> Ports:
    """Empty tables."""
    if request.param == "memory":
        return memory_ports()
    if request.param == "sqlite":
        machine: LocalMachine = request.getfixturevalue("machine")
        return dynamodb_ports(machine.store(), tables=declare_tables(machine))
    return dynamodb_ports(request.getfixturevalue("store"))
