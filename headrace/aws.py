"""Opens the stores of a process from its settings and environment; functions and the command line share this code. They
are on AWS, unless the environment names a machine (`headrace.machine`).

Endpoints and credentials are determined by botocore.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.clock import SystemClock
from headrace.log.stores import Stores
from headrace.machine import machine_of
from headrace.objects import Objects
from headrace.objects.fast import FastObjects
from headrace.objects.s3 import S3Objects, make_client
from headrace.settings import Settings
from headrace.surfaces import COUNTED, SURFACES, derived, find_dead
from headrace.tables.dynamodb import Store
from headrace.tables.dynamodb_catalog import DynamoCatalog
from headrace.tables.features import TABLE as FEATURE_ROWS
from headrace.tables.features import DynamoFeatures
from headrace.tables.follows import DynamoFollows
from headrace.tables.producers import DynamoProducers
from headrace.tables.sessions import DynamoSessions
from headrace.tables.watermarks import DynamoWatermarks
from headrace.wal.dynamodb import DynamoWal

DEFAULT_REGION = "us-east-1"


def region_of(environment: Mapping[str, str]) -> str:
    """Returns the AWS region that the environment variables name; `us-east-1` if they name none."""
    return environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or DEFAULT_REGION


def aws_stores(
    settings: Settings,
    region: str,
    *,
    dynamodb_timeout_s: float,
    s3_read_timeout_s: float,
    refused: Callable[[], None] = lambda: None,
    damaged: Callable[[], None] = lambda: None,
    fast: bool = False,
) -> Stores:
    """Opens the tables and the bucket that `settings` name.

    Args:
        dynamodb_timeout_s: timeout of one call. botocore tries it once, because the commit protocol retries itself.
        s3_read_timeout_s: timeout of one try; there are two.
        refused: called for each call that DynamoDB refuses because of load.
        damaged: called for each damaged row of the catalog that a listing passes over.
        fast: for the API, whose clients wait: calls to tables go through `Wire`, and objects are read in parallel and
            written through obstore, which only its package has.
    """
    tables = settings.table_names
    clock = SystemClock()
    store = open_store(region, timeout_s=dynamodb_timeout_s, refused=refused, fast=fast, clock=clock)
    return Stores(
        wal=DynamoWal(store, tables),
        catalog=DynamoCatalog(store, tables["catalog"], damaged),
        watermarks=DynamoWatermarks(store, tables["watermarks"]),
        producers=DynamoProducers(store, tables["producers"]),
        follows=DynamoFollows(store, tables),
        sessions=DynamoSessions(store, tables),
        objects=_open_objects(settings.bucket, s3_read_timeout_s, fast=fast),
        settings=settings,
        clock=clock,
        surfaces=SURFACES,
        counted=COUNTED,
        tables={FEATURE_ROWS: DynamoFeatures(store, tables["features"])},
        derived=derived,
        find_dead=find_dead,
    )


def open_store(
    region: str,
    *,
    timeout_s: float,
    refused: Callable[[], None] = lambda: None,
    fast: bool = False,
    clock: SystemClock | None = None,
) -> Store:
    """Opens what the adapters of tables call. The arguments are those of `Store`."""
    machine = machine_of()
    if machine is not None:
        return machine.store()
    return Store(region, timeout_s=timeout_s, refused=refused, fast=fast, clock=clock)


def _open_objects(bucket: str, read_timeout_s: float, *, fast: bool) -> Objects:
    machine = machine_of()
    if machine is not None:
        return machine.objects()
    client = make_client(read_timeout_s=read_timeout_s)
    objects = FastObjects(bucket, client, timeout_s=read_timeout_s) if fast else None
    return S3Objects(bucket, client, fast=objects)
