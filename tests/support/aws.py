"""The tables in moto, in this process (single-threaded use only), or in a server that `python -m tests.real` names;
and the adapters on them.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from botocore.config import Config
from moto import mock_aws

from headrace.log.stores import Stores
from headrace.objects import Objects
from headrace.settings import Settings
from headrace.tables.dynamodb import Store
from headrace.tables.dynamodb_catalog import DynamoCatalog
from headrace.tables.features import TABLE as FEATURE_ROWS
from headrace.tables.features import DynamoFeatures
from headrace.tables.follows import DynamoFollows
from headrace.tables.producers import DynamoProducers
from headrace.tables.sessions import DynamoSessions
from headrace.tables.watermarks import DynamoWatermarks
from headrace.wal.dynamodb import DynamoWal

REGION = "us-east-1"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_ACCOUNT_ID_ENDPOINT_MODE": "disabled",
}
_numbers = itertools.count()


REAL_DYNAMODB = "HEADRACE_REAL_DYNAMODB"  # variables with the endpoint of another implementation
REAL_S3 = "HEADRACE_REAL_S3"
REAL_S3_VERSIONS = "HEADRACE_REAL_S3_VERSIONS"  # "no" if it is to be asked without versions


@contextmanager
def aws_for_tests(real: str) -> Iterator[None]:
    """Moto in this process for as long as the block lasts; or the server that the variable `real` names, if it is set."""
    endpoint = os.environ.get(real)
    with pytest.MonkeyPatch.context() as patch, mock_aws() if endpoint is None else nullcontext():
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.delenv("AWS_ENDPOINT_URL", raising=False)
        if endpoint is not None:
            patch.setenv("AWS_ENDPOINT_URL", endpoint)
        yield


@contextmanager
def in_process_aws(*, fast: bool = False) -> Iterator[Store]:
    """A connection to DynamoDB as `aws_for_tests` has it."""
    with aws_for_tests(REAL_DYNAMODB):
        yield Store(REGION, fast=fast)


def boto3_client(service: str) -> Any:
    """Returns a client for setting things up."""
    import boto3  # only inside moto's mock

    return boto3.client(service, region_name=REGION, config=Config(retries={"total_max_attempts": 1}))


Key = tuple[str, str]
Indexes = dict[str, tuple[str, Key, Key]]
# As the template shapes the tables: the key of each, and projection and key of its indexes.
SHAPES: dict[str, tuple[tuple[Key, ...], Indexes]] = {
    "wal": (
        (("log_id", "S"), ("slot", "N")),
        {"purge": ("KEYS_ONLY", ("purge_shard", "S"), ("committed", "N"))},
    ),
    "catalog": (
        (("bucket", "S"), ("name", "S")),
        {
            "expiry": ("KEYS_ONLY", ("expiry_shard", "S"), ("expires_at_ms", "N")),
            "living": ("ALL", ("living_in", "S"), ("name", "S")),
        },
    ),
    "watermarks": ((("log_id", "S"),), {}),
    "producers": ((("log_id", "S"), ("producer", "S")), {}),
    "follows": (
        (("log_id", "S"), ("id", "S")),
        {"due": ("ALL", ("due_shard", "S"), ("due_ms", "N"))},
    ),
    "sessions": (
        (("id", "S"), ("part", "S")),
        {"expiry": ("ALL", ("expiry_shard", "S"), ("expires_at_ms", "N"))},
    ),
    FEATURE_ROWS: ((("id", "S"), ("part", "S")), {}),
}
JOBS: tuple[tuple[Key, ...], Indexes] = ((("id", "S"),), {"due": ("ALL", ("due_queue", "S"), ("due_ms", "N"))})


def create_tables() -> dict[str, str]:
    """New tables, shaped as the template shapes them: their names by what guards call them."""
    number = next(_numbers)
    tables = {name: f"{name}-{number}" for name in SHAPES}
    for name, (keys, indexes) in SHAPES.items():
        _create(tables[name], *keys, indexes=indexes)
    return tables


def dynamodb_stores(store: Store, objects: Objects, settings: Settings | None = None, **given: Any) -> Stores:
    """Returns stores on new tables; `given` are further arguments of `Stores`."""
    tables = create_tables()
    return Stores(
        DynamoWal(store, tables),
        DynamoCatalog(store, tables["catalog"]),
        DynamoWatermarks(store, tables["watermarks"]),
        DynamoProducers(store, tables["producers"]),
        DynamoFollows(store, tables),
        DynamoSessions(store, tables),
        objects,
        settings or Settings(),
        **{"tables": {FEATURE_ROWS: DynamoFeatures(store, tables[FEATURE_ROWS])}, **given},
    )


def create_jobs_table() -> str:
    """Creates a table of the indexer, shaped as the template shapes it; returns its name."""
    name = f"jobs-{next(_numbers)}"
    _create(name, *JOBS[0], indexes=JOBS[1])
    return name


def _create(table: str, *key: Key, indexes: Indexes) -> None:
    """Creates a table with indexes: the projection and the key of each, by its name."""
    attributes = dict(key) | {name: kind for _, *keys in indexes.values() for name, kind in keys}
    arguments: dict[str, Any] = {
        "TableName": table,
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": _schema(key),
        "AttributeDefinitions": [{"AttributeName": n, "AttributeType": t} for n, t in attributes.items()],
    }
    if indexes:
        arguments["GlobalSecondaryIndexes"] = [
            {"IndexName": name, "KeySchema": _schema(tuple(keys)), "Projection": {"ProjectionType": projection}}
            for name, (projection, *keys) in indexes.items()
        ]
    boto3_client("dynamodb").create_table(**arguments)


def _schema(key: tuple[Key, ...]) -> list[dict[str, str]]:
    kinds = ("HASH", "RANGE")
    return [{"AttributeName": name, "KeyType": kind} for (name, _), kind in zip(key, kinds, strict=False)]
