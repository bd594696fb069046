"""Settings to adapters, once for each process."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import boto3
from botocore.config import Config

from functions.api.door import timeouts
from functions.api.door.access import Access, check_exposure, parse
from functions.api.door.blocking import on_lambda
from functions.api.door.keyring import Keyring, Keys
from functions.api.parts import Parts, assemble
from functions.metrics import ApiMetric
from functions.observability import make_meter
from functions.observed import ObservedObjects, StoreMetrics
from headrace.aws import aws_stores, region_of
from headrace.clock import SystemClock
from headrace.settings import Settings


def build() -> Parts:
    """The parts of this process, from its environment.

    Raises:
        SettingsError: the environment makes no sense.
        AccessError: the keys are malformed, or there are none where there must be.
    """
    settings = Settings.from_environment(os.environ)
    region = region_of(os.environ)
    access = _access(settings, region)
    meter = make_meter(ApiMetric, os.environ)
    refused = partial(meter.add, ApiMetric.StoreThrottles)
    stores = aws_stores(
        settings,
        region,
        dynamodb_timeout_s=timeouts.DYNAMODB_S,
        s3_read_timeout_s=timeouts.OBJECT_STORE_S,
        refused=refused,
    )
    observed = StoreMetrics(
        gets=partial(meter.add, ApiMetric.ObjectGets),
        puts=partial(meter.add, ApiMetric.ObjectPuts),
        throttles=refused,
    )
    return assemble(replace(stores, objects=ObservedObjects(stores.objects, observed)), access, meter)


def _access(settings: Settings, region: str) -> Keys:
    def check(access: Access) -> None:
        check_exposure(
            access, host=settings.host, on_lambda=on_lambda(), allow_insecure=settings.allow_insecure_no_auth
        )

    if settings.api_keys or not settings.api_keys_secret:
        access = parse(settings.api_keys)
        check(access)
        return access
    read = _secret_reader(settings.api_keys_secret, region)
    return Keyring(read, SystemClock(), age_ms=settings.keys_age_ms, check=check)


def _secret_reader(name: str, region: str) -> Callable[[], str]:
    """Reads the text of a Secrets Manager secret. A request may wait for it. No connection is kept for a snapshot."""
    config = Config(connect_timeout=1.0, read_timeout=1.0, retries={"mode": "standard", "total_max_attempts": 2})
    client = boto3.client("secretsmanager", region_name=region, config=config)

    def read() -> str:
        try:
            return str(client.get_secret_value(SecretId=name)["SecretString"])
        finally:
            client.close()

    return read
