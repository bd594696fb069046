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
from headrace.manifest.store import ManifestStore
from headrace.objects.s3 import S3Objects


def objects_of(environment: dict[str, str], stream: str) -> dict[str, list[str]]:
    """Keys of the Parquet objects of a stream, by table. Raises LookupError if nothing of it is sealed."""
    client = boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_REGION"],
    )
    bucket = environment["HEADRACE_BUCKET"]
    objects = S3Objects(bucket, client)
    listed = client.list_objects_v2(Bucket=bucket, Prefix="logs/", Delimiter="/")
    logs: dict[str, str] = {}  # by role: a name has one main log, and an event may have lanes
    for folder in listed.get("CommonPrefixes", []):
        config = json.loads(objects.get(folder["Prefix"] + "log.json"))["config"]
        role = config.get("role", "")
        if config["name"] == stream and (not role or role.startswith("lane.")):
            logs.setdefault(role, folder["Prefix"].split("/")[1])
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
    bucket = pyarrow.fs.S3FileSystem(
        endpoint_override=environment["AWS_ENDPOINT_URL"],
        access_key=environment["AWS_ACCESS_KEY_ID"],
        secret_key=environment["AWS_SECRET_ACCESS_KEY"],
        region=environment["AWS_REGION"],
    )
    database = duckdb.connect()
    database.sql("set timezone = 'UTC'")
    for table, keys in objects_of(environment, stream).items():
        if not keys:  # nothing of this kind is configured
            continue
        files = [f"{environment['HEADRACE_BUCKET']}/{key}" for key in keys]
        database.register(table, pyarrow.dataset.dataset(files, filesystem=bucket, format="parquet"))
    return database


def main(state_file: str, stream: str, query: str) -> None:
    """Prints the result of `query`."""
    environment = json.loads(Path(state_file).read_text())["environment"]
    connect(environment, stream).sql(query).show()


if __name__ == "__main__":
    main(*sys.argv[1:])
