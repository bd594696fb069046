"""Counts calls to AWS as they leave the process, retries included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headrace.log.stores import Stores
from headrace.objects.s3 import S3Objects
from tests.support.aws import boto3_client, dynamodb_stores, in_process_aws

READS = frozenset({"GetItem", "Query", "BatchGetItem", "Scan", "TransactGetItems"})


class AwsCalls:
    """What clients sent, by operation."""

    def __init__(self, *clients: Any) -> None:
        """Watches botocore or boto3 clients."""
        self.sent: Counter[str] = Counter()
        self.intercept: Callable[[str, Any], None] | None = None
        for client in clients:
            client.meta.events.register_first("before-send.*.*", self._sending)

    def _sending(self, request: Any, event_name: str = "", **_: Any) -> None:
        operation = event_name.rpartition(".")[2]
        self.sent[operation] += 1
        if self.intercept is not None:
            self.intercept(operation, request)

    @property
    def reads(self) -> int:
        """DynamoDB reads."""
        return sum(count for operation, count in self.sent.items() if operation in READS)

    @property
    def total(self) -> int:
        """Everything."""
        return sum(self.sent.values())

    @contextmanager
    def during(self) -> Iterator[Counter[str]]:
        """Yields the calls made inside the block; complete when it ends."""
        before = Counter(self.sent)
        made: Counter[str] = Counter()
        yield made
        made.update({name: count - before[name] for name, count in self.sent.items() if count > before[name]})


@dataclass
class Counted:
    """Stores on moto, and the calls made to them."""

    stores: Stores
    calls: AwsCalls


@contextmanager
def counted_stores(**given: Any) -> Iterator[tuple[Stores, AwsCalls]]:
    """Yields stores on an emulated AWS in this process, and the calls made to them; `given` are further arguments of
    `dynamodb_stores`.
    """
    with in_process_aws() as store:
        s3 = boto3_client("s3")
        s3.create_bucket(Bucket="bucket")
        stores = dynamodb_stores(store, S3Objects("bucket", s3), **given)
        yield stores, AwsCalls(store.connection.client, s3)
