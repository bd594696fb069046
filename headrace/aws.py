"""The stores of a process on AWS, from its settings and environment: one wiring for the functions and the command line.

Endpoint and credentials are botocore's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.log.stores import Stores
from headrace.objects.parallel import ParallelRanges
from headrace.objects.s3 import S3Objects, make_client
from headrace.settings import Settings
from headrace.streams.values import STREAMS
from headrace.tables.catalog import DynamoCatalog
from headrace.tables.dynamodb import Store
from headrace.tables.producers import DynamoProducers
from headrace.tables.watermarks import DynamoWatermarks
from headrace.wal.dynamodb import DynamoWal

DEFAULT_REGION = "us-east-1"


def region_of(environment: Mapping[str, str]) -> str:
    """Returns the region that the environment names."""
    return environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or DEFAULT_REGION


def aws_stores(
    settings: Settings,
    region: str,
    *,
    dynamodb_timeout_s: float,
    s3_read_timeout_s: float,
    refused: Callable[[], None] = lambda: None,
) -> Stores:
    """Returns the four tables and the bucket that `settings` name.

    Args:
        dynamodb_timeout_s: of one call, which is tried once: the commit protocol repeats it.
        s3_read_timeout_s: of one try, of which there are two.
        refused: as of `Store`.
    """
    tables = settings.table_names
    store = Store(region, timeout_s=dynamodb_timeout_s, refused=refused)
    client = make_client(read_timeout_s=s3_read_timeout_s)
    return Stores(
        wal=DynamoWal(store, tables),
        catalog=DynamoCatalog(store, tables["catalog"]),
        watermarks=DynamoWatermarks(store, tables["watermarks"]),
        producers=DynamoProducers(store, tables["producers"]),
        objects=S3Objects(
            settings.bucket, client, ranges=ParallelRanges(settings.bucket, client, timeout_s=s3_read_timeout_s)
        ),
        settings=settings,
        surfaces=(STREAMS,),
    )
