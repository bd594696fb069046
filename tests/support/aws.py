"""The four tables in moto, in this process, and the adapters on them. Single-threaded use only."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.config import Config
from moto import mock_aws

from headrace.tables.dynamodb import Store

REGION = "us-east-1"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_ACCOUNT_ID_ENDPOINT_MODE": "disabled",
}
_numbers = itertools.count()


@contextmanager
def in_process_aws(*, fast: bool = False) -> Iterator[Store]:
    """Moto for as long as the block lasts, and a connection to it."""
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.delenv("AWS_ENDPOINT_URL", raising=False)
        yield Store(REGION, fast=fast)


def boto3_client(service: str) -> Any:
    """Returns a client for setting things up."""
    import boto3  # only inside moto's mock

    return boto3.client(service, region_name=REGION, config=Config(retries={"total_max_attempts": 1}))


def create_tables() -> dict[str, str]:
    """Four new tables, shaped as the template shapes them: their names by what guards call them."""
    number = next(_numbers)
    tables = {name: f"{name}-{number}" for name in ("wal", "catalog", "watermarks", "producers")}
    _create(
        tables["wal"],
        ("log_id", "S"),
        ("slot", "N"),
        indexes={"purge": ("KEYS_ONLY", ("purge_shard", "S"), ("committed", "N"))},
    )
    _create(
        tables["catalog"],
        ("bucket", "S"),
        ("name", "S"),
        indexes={
            "expiry": ("KEYS_ONLY", ("expiry_shard", "S"), ("expires_at_ms", "N")),
            "living": ("ALL", ("living_in", "S"), ("name", "S")),
        },
    )
    _create(tables["watermarks"], ("log_id", "S"))
    _create(tables["producers"], ("log_id", "S"), ("producer", "S"))
    return tables


def create_jobs_table() -> str:
    """Creates a table of the indexer, shaped as the template shapes it; returns its name."""
    name = f"jobs-{next(_numbers)}"
    _create(name, ("id", "S"), indexes={"due": ("ALL", ("due_queue", "S"), ("due_ms", "N"))})
    return name


Key = tuple[str, str]


def _create(table: str, *key: Key, indexes: dict[str, tuple[str, Key, Key]] | None = None) -> None:
    """Creates a table with indexes: the projection and the key of each, by its name."""
    indexes = indexes or {}
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
