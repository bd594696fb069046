"""Settings to adapters, once for each process."""

from __future__ import annotations

import functools
import os
from dataclasses import replace

import boto3
from botocore.config import Config

from functions.metrics import SealerMetric
from functions.observability import Meter, make_meter
from functions.observed import ObservedObjects, StoreMetrics
from functions.sealer.parts import Parts, assemble
from functions.sealer.queue import SqsQueue
from headrace.aws import aws_stores, region_of
from headrace.settings import Settings

_DYNAMODB_TIMEOUT_S = 5.0  # nobody waits for an answer here
_S3_READ_TIMEOUT_S = 20.0


@functools.cache
def meter() -> Meter[SealerMetric]:
    """The meter of this process."""
    return make_meter(SealerMetric, os.environ)


@functools.cache
def parts() -> Parts:
    """The parts of this process, built at the first call.

    Raises:
        SettingsError: the environment makes no sense.
    """
    settings = Settings.from_environment(os.environ)
    region = region_of(os.environ)
    refused = functools.partial(meter().add, SealerMetric.StoreThrottles)
    stores = aws_stores(
        settings,
        region,
        dynamodb_timeout_s=_DYNAMODB_TIMEOUT_S,
        s3_read_timeout_s=_S3_READ_TIMEOUT_S,
        refused=refused,
    )
    observed = StoreMetrics(
        gets=functools.partial(meter().add, SealerMetric.ObjectGets),
        puts=functools.partial(meter().add, SealerMetric.ObjectPuts),
        throttles=refused,
    )
    stores = replace(stores, objects=ObservedObjects(stores.objects, observed))
    config = Config(connect_timeout=1.0, read_timeout=5.0, retries={"mode": "standard", "total_max_attempts": 3})
    sqs = boto3.client("sqs", region_name=region, config=config)
    return assemble(stores, SqsQueue(sqs, settings.delay_queue_url))
