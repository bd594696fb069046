"""Settings to adapters, once for each process."""

from __future__ import annotations

import functools
import os
from dataclasses import replace

import boto3
from botocore.config import Config

from functions.indexer.parts import Parts, assemble
from functions.indexer.queue import SqsQueue
from functions.indexer.runs import EmrRuns
from functions.metrics import IndexerMetric
from functions.observability import Meter, make_meter
from functions.observed import ObservedObjects, StoreMetrics
from headrace.aws import aws_stores, region_of
from headrace.settings import Settings
from headrace.tables.dynamodb import Store
from headrace.tables.jobs import DynamoJobs

_DYNAMODB_TIMEOUT_S = 5.0  # nobody waits for an answer here
_S3_READ_TIMEOUT_S = 20.0


@functools.cache
def meter() -> Meter[IndexerMetric]:
    """The meter of this process."""
    return make_meter(IndexerMetric, os.environ)


@functools.cache
def parts() -> Parts:
    """The parts of this process, built at the first call.

    Raises:
        SettingsError: the environment makes no sense.
    """
    settings = Settings.from_environment(os.environ)
    region = region_of(os.environ)
    refused = functools.partial(meter().add, IndexerMetric.StoreThrottles)
    stores = aws_stores(
        settings,
        region,
        dynamodb_timeout_s=_DYNAMODB_TIMEOUT_S,
        s3_read_timeout_s=_S3_READ_TIMEOUT_S,
        refused=refused,
    )
    observed = StoreMetrics(
        gets=functools.partial(meter().add, IndexerMetric.ObjectGets),
        puts=functools.partial(meter().add, IndexerMetric.ObjectPuts),
        throttles=refused,
    )
    stores = replace(stores, objects=ObservedObjects(stores.objects, observed))
    jobs = DynamoJobs(Store(region, timeout_s=_DYNAMODB_TIMEOUT_S, refused=refused), settings.jobs_table)
    config = Config(connect_timeout=1.0, read_timeout=10.0, retries={"mode": "standard", "total_max_attempts": 3})
    sqs = boto3.client("sqs", region_name=region, config=config)
    emr = boto3.client("emr-serverless", region_name=region, config=config)
    return assemble(stores, jobs, EmrRuns(emr, settings), SqsQueue(sqs, settings.index_queue_url))
