"""Queries a stream's segments and index runs in place with DuckDB: no server is asked, only the bucket.

    uv run python docs/examples/query_bucket.py STATE_FILE STREAM "select count(*) from col"

STATE_FILE is what `headrace dev --state-file` wrote. STREAM may also be a topic, or an event of feature tables with its
namespace (`default/Txn`): then the tables have all its lanes. docs/analytics.md says which tables there are. The objects
are those that the newest manifests name: others may be beside them that were replaced, or that an attempt left behind.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import boto3
import duckdb
import pyarrow.dataset
import pyarrow.fs

from headrace.index import descriptors
from headrace.index.manifest import IndexManifestStore
from headrace.machine import machine_of
from headrace.manifest.store import ManifestStore
from headrace.objects import Objects
from headrace.objects.s3 import S3Objects
from local.machine.objects import FileObjects


def open_bucket(environment: dict[str, str]) -> Objects:
    """Returns the bucket, or the folder of `headrace dev --data`."""
    if machine := machine_of(environment):
        return machine.objects()
    client = boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_REGION"],
    )
    return S3Objects(environment["HEADRACE_BUCKET"], client)


def objects_of(environment: dict[str, str], stream: str) -> dict[str, list[str]]:
    """Keys of the Parquet objects of a stream, by table. Raises LookupError if nothing of it is sealed."""
    objects = open_bucket(environment)
    logs: dict[str, str] = {}  # by role: a name has one main log, and an event may have lanes
    for key in objects.list("logs/"):
        if not key.endswith("/log.json"):
            continue
        config = json.loads(objects.get(key))["config"]
        role = config.get("role", "")
        if config["name"] == stream and (not role or role.startswith("lane.")):
            logs.setdefault(role, key.split("/")[1])
    if not logs:
        raise LookupError(f"no sealed stream of this name: {stream}")
    manifests = ManifestStore(objects)
    found: dict[str, list[str]] = {"segments": []}
    for log_id in logs.values():
        published = manifests.newest(log_id, None, 0)
        found["segments"] += [one.key for one in manifests.segments_from(published, 0)] if published else []
        for run in IndexManifestStore(objects).newest(log_id).runs:
            for family, parts in descriptors.open_descriptor(run, objects.get(run.descriptor)).parts.items():
                found.setdefault(family, []).extend(part.key for part in parts)
    return found


def connect(environment: dict[str, str], stream: str) -> duckdb.DuckDBPyConnection:
    """Returns a database with the stream's tables."""
    objects = open_bucket(environment)
    if isinstance(objects, FileObjects):
        bucket, path = pyarrow.fs.LocalFileSystem(), lambda key: str(objects.path(key))
    else:
        bucket = pyarrow.fs.S3FileSystem(
            endpoint_override=environment["AWS_ENDPOINT_URL"],
            access_key=environment["AWS_ACCESS_KEY_ID"],
            secret_key=environment["AWS_SECRET_ACCESS_KEY"],
            region=environment["AWS_REGION"],
        )
        path = f"{environment['HEADRACE_BUCKET']}/{{}}".format
    database = duckdb.connect()
    database.sql("set timezone = 'UTC'")
    for table, keys in objects_of(environment, stream).items():
        if not keys:  # nothing of this kind is configured
            continue
        database.register(table, pyarrow.dataset.dataset(list(map(path, keys)), filesystem=bucket, format="parquet"))
    return database


def main(state_file: str, stream: str, query: str) -> None:
    """Prints the result of `query`."""
    environment = json.loads(Path(state_file).read_text())["environment"]
    connect(environment, stream).sql(query).show()


if __name__ == "__main__":
    main(*sys.argv[1:])
