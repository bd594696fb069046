"""Opens the stores of a process on AWS from its settings and environment; functions and the command line share this
code.

Endpoints and credentials are determined by botocore.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.clock import SystemClock
from headrace.log.stores import Stores
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
    store = Store(region, timeout_s=dynamodb_timeout_s, refused=refused, fast=fast, clock=clock)
    client = make_client(read_timeout_s=s3_read_timeout_s)
    objects = FastObjects(settings.bucket, client, timeout_s=s3_read_timeout_s) if fast else None
    return Stores(
        wal=DynamoWal(store, tables),
        catalog=DynamoCatalog(store, tables["catalog"], damaged),
        watermarks=DynamoWatermarks(store, tables["watermarks"]),
        producers=DynamoProducers(store, tables["producers"]),
        follows=DynamoFollows(store, tables),
        sessions=DynamoSessions(store, tables),
        objects=S3Objects(settings.bucket, client, fast=objects),
        settings=settings,
        clock=clock,
        surfaces=SURFACES,
        counted=COUNTED,
        tables={FEATURE_ROWS: DynamoFeatures(store, tables["features"])},
        derived=derived,
        find_dead=find_dead,
    )
