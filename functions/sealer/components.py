"""Settings to adapters, once for each process."""

from __future__ import annotations

import functools
import os

import boto3
from botocore.config import Config

from functions.sealer.parts import Parts, assemble
from functions.sealer.queue import SqsQueue
from headrace.catalog.dynamodb import DynamoCatalog
from headrace.dynamodb import Store
from headrace.log.stores import Stores
from headrace.objects.s3 import S3Objects, make_client
from headrace.producers.dynamodb import DynamoProducers
from headrace.settings import Settings
from headrace.wal.dynamodb import DynamoWal, Tables
from headrace.watermarks.dynamodb import DynamoWatermarks

_DYNAMODB_TIMEOUT_S = 5.0  # nobody waits for an answer here
_S3_READ_TIMEOUT_S = 20.0


@functools.cache
def parts() -> Parts:
    """The parts of this process, built at the first call.

    Raises:
        SettingsError: the environment makes no sense.
    """
    settings = Settings.from_environment(os.environ)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION", "us-east-1")
    tables = Tables(settings.wal_table, settings.catalog_table, settings.watermarks_table, settings.producers_table)
    store = Store(region, timeout_s=_DYNAMODB_TIMEOUT_S)
    stores = Stores(
        wal=DynamoWal(store, tables),
        catalog=DynamoCatalog(store, tables.catalog),
        watermarks=DynamoWatermarks(store, tables.watermarks),
        producers=DynamoProducers(store, tables.producers),
        objects=S3Objects(settings.bucket, make_client(read_timeout_s=_S3_READ_TIMEOUT_S)),
        settings=settings,
    )
    config = Config(connect_timeout=1.0, read_timeout=5.0, retries={"mode": "standard", "total_max_attempts": 3})
    sqs = boto3.client("sqs", region_name=region, config=config)
    return assemble(stores, SqsQueue(sqs, settings.delay_queue_url))
