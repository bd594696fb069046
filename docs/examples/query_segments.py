"""Queries a stream's sealed segments in place with DuckDB: no server is asked, only the bucket.

    uv run python docs/examples/query_segments.py STATE_FILE STREAM "select count(*) from segments"

STATE_FILE is what `headrace dev --state-file` wrote. On AWS, DuckDB needs no help:
    select … from read_parquet('s3://BUCKET/logs/LOG_ID/segments/*.parquet')
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb
import pyarrow.dataset
import pyarrow.fs


def main(state_file: str, stream: str, query: str) -> None:
    """Prints the result of `query` over the table `segments`."""
    environment = json.loads(Path(state_file).read_text())["environment"]
    bucket = pyarrow.fs.S3FileSystem(
        endpoint_override=environment["AWS_ENDPOINT_URL"],
        access_key=environment["AWS_ACCESS_KEY_ID"],
        secret_key=environment["AWS_SECRET_ACCESS_KEY"],
        region=environment["AWS_REGION"],
    )
    logs = f"{environment['HEADRACE_BUCKET']}/logs"
    for log in bucket.get_file_info(pyarrow.fs.FileSelector(logs)):
        with bucket.open_input_file(f"{log.path}/log.json") as description:
            if json.load(description)["config"]["name"] == stream:
                break
    else:
        raise SystemExit(f"no sealed stream of this name: {stream}")
    files = [
        found.path
        for found in bucket.get_file_info(pyarrow.fs.FileSelector(f"{log.path}/segments"))
        if found.path.endswith(".parquet")
    ]
    database = duckdb.connect()
    database.register("segments", pyarrow.dataset.dataset(files, filesystem=bucket, format="parquet"))
    print(f"{len(files)} segments of {log.path}")
    database.sql(query).show()


if __name__ == "__main__":
    main(*sys.argv[1:])
