"""A stream that goes the whole way by the deployed triggers alone: appended, sealed, indexed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.index.manifest import IndexManifest, IndexManifestStore
from headrace.objects.s3 import S3Objects
from headrace.settings import Settings
from tests.conformance.contract.client import Api, Stream, expect
from tests.deployed.deploy import Stack

BATCHES = 11
BATCH_RECORDS = 10_000
RECORDS = BATCHES * BATCH_RECORDS
KINDS = 7
SEARCH: dict[str, Any] = {
    "primaryTimestampField": "at",
    "fields": {
        "at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}], "column": True, "exact": True},
        "kind": {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "/kind"}], "exact": True},
    },
}


@dataclass(frozen=True)
class Flow:
    """A stream of `RECORDS` records, each with its number `n` and a `kind`."""

    stream: Stream
    stack: Stack
    log_id: str

    @classmethod
    def begin(cls, api: Api, stack: Stack) -> Flow:
        """Appends everything. The deployed settings seal at 100,000 records."""
        assert Settings().seal_records < RECORDS
        stream = api.with_schema(schema={"type": "object"}, search=SEARCH)
        for first in range(0, RECORDS, BATCH_RECORDS):
            batch = [record(number) for number in range(first, first + BATCH_RECORDS)]
            expect(stream.append(batch), 204)
        return cls(stream, stack, log_id_of(stack, stream.name))

    @property
    def objects(self) -> S3Objects:
        """The deployed bucket."""
        return S3Objects(self.stack.outputs["BucketName"], self.stack.emulator.client("s3"))

    def index(self) -> IndexManifest:
        """Returns the newest index manifest."""
        return IndexManifestStore(self.objects).newest(self.log_id)

    def status(self) -> dict[str, Any]:
        """Returns what the API says of segments and indexes."""
        found: dict[str, Any] = expect(self.stream.index_status(), 200).json()
        return found

    def wait_until_sealed(self, within_s: float) -> None:
        """A segment is published, by nobody's hand."""
        _wait(lambda: self.status()["segments"]["uploaded_count"] > 0, within_s, "nothing was sealed")

    def wait_until_indexed(self, within_s: float) -> None:
        """Each published segment is covered by a run."""

        def is_indexed() -> bool:
            found = self.status()
            families = found["search_families"]
            sealed = found["segments"]["uploaded_count"]
            return bool(sealed) and all(family["covered_segment_count"] == sealed for family in families)

        _wait(is_indexed, within_s, "no index run was published")


def record(number: int) -> dict[str, Any]:
    """Number `number` of a flow."""
    return {"n": number, "at": 1_790_000_000_000 + number, "kind": f"k{number % KINDS}"}


def log_id_of(stack: Stack, name: str) -> str:
    """Returns the log that a name stands for, from the deployed catalog."""
    pages = stack.emulator.client("dynamodb").get_paginator("scan")
    for page in pages.paginate(TableName=stack.outputs["CatalogTableName"]):
        for item in page["Items"]:
            if item["name"]["S"] == name:
                return str(item["log_id"]["S"])
    raise AssertionError(f"no such stream: {name}")


def _wait(holds: Callable[[], bool], within_s: float, otherwise: str) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"{otherwise} within {within_s:.0f} s"
        time.sleep(0.5)  # polls: the deployment has nothing to wait on
