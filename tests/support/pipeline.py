"""What is in the emulated tables and bucket, seen from outside."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import zstandard

from local.environment import client
from tests.support.emulated_cloud import DevServer

NO_METRICS = {"HEADRACE_METRICS_INTERVAL_MS": "0"}  # for tests that count what is stored: no stream but their own


class LogPipeline(NamedTuple):
    """How far one log came: its segments, the records published, the entries that are in the write-ahead log."""

    log_id: str
    segments: int
    published: int
    entries: int


class Pipeline:
    """Tables and bucket of a running `headrace dev`."""

    def __init__(self, server: DevServer) -> None:
        self.server = server
        self.settings: dict[str, str] = server.state["environment"]
        self.endpoint: str = server.state["endpoint"]
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        """Returns the boto3 client of the emulated cloud for a service."""
        if service not in self._clients:
            self._clients[service] = client(service, self.endpoint)
        return self._clients[service]

    def keys(self, prefix: str = "") -> list[str]:
        """Keys of the bucket."""
        pages = self.client("s3").get_paginator("list_objects_v2")
        bucket = self.settings["HEADRACE_BUCKET"]
        return [
            found["Key"]
            for page in pages.paginate(Bucket=bucket, Prefix=prefix)
            for found in page.get("Contents", [])
        ]

    def get(self, key: str) -> bytes:
        """Returns an object."""
        answer = self.client("s3").get_object(Bucket=self.settings["HEADRACE_BUCKET"], Key=key)
        return bytes(answer["Body"].read())

    def log_id(self, name: str) -> str:
        """Returns the log that a name stands for, from the catalog."""
        pages = self.client("dynamodb").get_paginator("scan")
        for page in pages.paginate(TableName=self.settings["HEADRACE_CATALOG_TABLE"]):
            for item in page["Items"]:
                if item["name"]["S"] == name:
                    return str(item["log_id"]["S"])
        raise AssertionError(f"no such stream: {name}")

    def of(self, name: str) -> LogPipeline:
        """Returns how far a stream came."""
        log_id = self.log_id(name)
        prefix = f"logs/{log_id}/manifests/"
        generations = [key for key in self.keys(prefix) if "/" not in key.removeprefix(prefix)]
        published = 0
        if generations:
            newest = zstandard.ZstdDecompressor().decompressobj().decompress(self.get(max(generations)))
            published = json.loads(newest)["end_offset"]
        segments = [key for key in self.keys(f"logs/{log_id}/segments/") if key.endswith(".parquet")]
        return LogPipeline(log_id, len(segments), published, len(self.entries(log_id)))

    def metric(self, name: str) -> int:
        """Returns the sum of a metric so far, whichever function wrote it, from EMF lines."""
        lines = (line for line in self.server.metric_lines() if f'"{name}":[' in line)
        return sum(int(value) for line in lines for value in json.loads(line)[name])

    def entries(self, log_id: str) -> list[int]:
        """Slots that are in the write-ahead log."""
        pages = self.client("dynamodb").get_paginator("query")
        return [
            int(item["slot"]["N"])
            for page in pages.paginate(
                TableName=self.settings["HEADRACE_WAL_TABLE"],
                KeyConditionExpression="log_id = :log",
                ExpressionAttributeValues={":log": {"S": log_id}},
                ProjectionExpression="slot",
            )
            for item in page["Items"]
        ]

    def dump(self) -> dict[str, Any]:
        """Returns everything in every table and in the bucket."""
        dynamodb, found = self.client("dynamodb"), {}
        for name in ("WAL", "CATALOG", "WATERMARKS", "PRODUCERS"):
            table = self.settings[f"HEADRACE_{name}_TABLE"]
            items = [
                item for page in dynamodb.get_paginator("scan").paginate(TableName=table) for item in page["Items"]
            ]
            found[name] = sorted(items, key=repr)
        found["BUCKET"] = {key: self.get(key) for key in self.keys()}
        return found
