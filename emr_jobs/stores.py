"""Access to the object store from the driver and from each worker, each with a client of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, TypeVar

import boto3
from botocore.config import Config

import headrace.queues.timings  # noqa: F401 (it builds in the definition of lease logs)
from headrace.definition import Definition, built_in, decode
from headrace.errors import Damaged, InvalidRequest, StoreError
from headrace.machine import machine_of
from headrace.objects import ObjectMissing, Objects
from headrace.objects.s3 import S3Objects

_TRIES = 4
_PAUSE_S = 0.2  # doubled after each try

T = TypeVar("T")


class Door(Protocol):
    """How to reach a bucket. It is pickled to be sent to the workers, and hashable, so that each worker opens it only
    once.
    """

    def open(self) -> Objects:
        """Opens a client of the bucket."""

    def __hash__(self) -> int:
        """Returns equal hashes for equal doors."""


@dataclass(frozen=True)
class S3Door:
    """A bucket of S3.

    Attributes:
        bucket: its name.
        endpoint: the URL of a service other than AWS, such as the emulator; if empty, the environment decides.
    """

    bucket: str
    endpoint: str = ""

    def open(self) -> Objects:
        """Opens a client with longer timeouts than the api's, because objects are large and no user waits; or the bucket of
        a machine.
        """
        machine = machine_of()
        if machine is not None:
            return machine.objects()
        config = Config(
            connect_timeout=5,
            read_timeout=30,
            retries={"mode": "standard", "total_max_attempts": 3},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        return S3Objects(self.bucket, boto3.client("s3", endpoint_url=self.endpoint or None, config=config))


@lru_cache(maxsize=8)
def open_bucket(door: Door) -> Objects:
    """Returns this process's client of the bucket; opens it at the first call."""
    return door.open()


def retry(call: Callable[[], T], *, sleep: Callable[[float], None] = time.sleep) -> T:
    """Makes a call, up to four times with pauses if the store fails, and returns its result. Use it only for calls that
    may be repeated.

    Raises:
        StoreError: it failed every time.
    """
    for attempt in range(_TRIES - 1):
        try:
            return call()
        except StoreError:
            sleep(_PAUSE_S * 2**attempt)
    return call()


@lru_cache(maxsize=64)
def load_definition_once(door: Door, key: str) -> Definition:
    """Loads a definition as `load_definition` does, with retries, or returns it from this process's cache. Definitions
    never change.
    """
    return retry(lambda: load_definition(open_bucket(door), key))


def load_definition(objects: Objects, key: str) -> Definition:
    """Loads the definition stored under a key, or returns the built-in one of this key.

    Raises:
        Damaged: the object is missing, or is not a definition.
    """
    known = built_in(key)
    if known is not None:
        return known
    try:
        definition = decode(objects.get(key), key)
        _ = definition.search, definition.lenses
    except ObjectMissing as exc:
        raise Damaged(f"definition is missing: object={key}") from exc
    except InvalidRequest as exc:
        raise Damaged(f"definition is none: object={key} reason={exc}") from exc
    return definition
