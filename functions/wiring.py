"""What every function needs from its environment: logger, settings, meter, stores and AWS clients.

Log events are short texts with fields; they never contain a payload or a key.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import boto3
from aws_lambda_powertools import Logger
from aws_lambda_powertools.logging.utils import copy_config_to_registered_loggers
from botocore.config import Config

from functions.access import Access, Keyring, parse, parse_hosts
from functions.metrics import Meter, Metric, make_meter
from headrace.aws import aws_stores, region_of
from headrace.clock import SystemClock
from headrace.log.stores import Stores
from headrace.machine import machine_of
from headrace.settings import Settings
from headrace.subscriptions.signing import SigningKeyring

_PACKAGES = {"functions", "headrace"}  # they log with the standard library; in a function that becomes structured

M = TypeVar("M", bound=Metric)


def make_logger(service: str) -> Logger:
    """Returns the structured logger of a function and of the packages that it consists of."""
    logger = Logger(service=service)
    for package in _PACKAGES:
        logging.getLogger(package)
    copy_config_to_registered_loggers(logger, include=_PACKAGES)
    return logger


def spare_start_up() -> None:
    """Takes all objects that exist now out of the garbage collector, and lets it run after 10,000 new ones (Python 3.11:
    700; 3.13: 2,000). A process calls this once, when it is set up: else some requests would wait 35 to 50 ms for a
    collection that visits every module.
    """
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


class Wiring(NamedTuple, Generic[M]):
    """The settings, meter and stores of a process. The meter counts throttled calls to its tables."""

    settings: Settings
    region: str
    meter: Meter[M]
    stores: Stores

    def client(self, service: str, *, read_timeout_s: float, tries: int = 3, endpoint: str = "") -> Any:
        """Returns a new boto3 client of an AWS service, in the region of this process; or the client of a machine.

        Args:
            read_timeout_s: timeout of one try; there are at most `tries`.
            endpoint: the URL of the service; empty for the usual one.
        """
        machine = machine_of()
        local = machine.client(service) if machine is not None else None
        if local is not None:
            return local
        retries = {"mode": "standard", "total_max_attempts": tries}
        config = Config(connect_timeout=1.0, read_timeout=read_timeout_s, retries=retries)
        return boto3.client(service, region_name=self.region, endpoint_url=endpoint or None, config=config)

    def access(self, check: Callable[[Access], None] = lambda _: None) -> Access:
        """Returns the access of this process: with the keys of the setting, or with those of a secret.

        Args:
            check: raises AccessError for keys with which the process must not run.

        Raises:
            AccessError: the keys or hosts are malformed, or refused by `check`.
        """
        settings = self.settings
        hosts = parse_hosts(settings.allowed_hosts, allow_insecure=settings.allow_insecure_no_auth)
        if settings.api_keys or not settings.api_keys_secret:
            access = parse(settings.api_keys, hosts)
            check(access)
            return access
        read = self._reader_of(settings.api_keys_secret)
        return Keyring(read, SystemClock(), age_ms=settings.keys_age_ms, check=check, hosts=hosts)

    def signing(self) -> SigningKeyring:
        """Returns the keys that sign webhooks: those of the setting, or those of a secret."""
        settings = self.settings
        if settings.signing_keys or not settings.signing_keys_secret:
            return SigningKeyring(lambda: settings.signing_keys, SystemClock(), age_ms=settings.keys_age_ms)
        read = self._reader_of(settings.signing_keys_secret)
        return SigningKeyring(read, SystemClock(), age_ms=settings.keys_age_ms)

    def _reader_of(self, secret: str) -> Callable[[], str]:
        # Fast enough for a request to wait for it, and made before a snapshot of the process is taken.
        client = self.client("secretsmanager", read_timeout_s=1.0, tries=2)

        def read() -> str:
            try:
                return str(client.get_secret_value(SecretId=secret)["SecretString"])
            finally:
                client.close()  # a snapshot could not restore an open connection

        return read


DYNAMODB_TIMEOUT_S = 5.0  # timeout of a worker: no client waits for its answers
S3_READ_TIMEOUT_S = 20.0


def open_wiring(
    metrics: type[M],
    *,
    dynamodb_timeout_s: float = DYNAMODB_TIMEOUT_S,
    s3_read_timeout_s: float = S3_READ_TIMEOUT_S,
    fast: bool = False,
) -> Wiring[M]:
    """Reads the settings from the environment, and opens the stores and the meter.

    Args:
        dynamodb_timeout_s, s3_read_timeout_s: timeouts of one try of a call; the defaults are for workers.
        fast: passed on to `aws_stores`.

    Raises:
        SettingsError: a setting is missing or invalid.
    """
    settings = Settings.from_environment(os.environ)
    region = region_of(os.environ)
    meter = make_meter(metrics, os.environ, stack=settings.stack)
    stores = aws_stores(
        settings,
        region,
        dynamodb_timeout_s=dynamodb_timeout_s,
        s3_read_timeout_s=s3_read_timeout_s,
        refused=meter.count_throttle,
        damaged=meter.count_damage,
        fast=fast,
    )
    return Wiring(settings, region, meter, stores)
