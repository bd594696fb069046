"""Makes labels for the table `Spend` of docs/features.md, has the server add features to them, and prints the training set.

    uv run python docs/examples/training_set.py STATE_FILE URL

STATE_FILE is what `headrace dev --state-file` wrote: it says where the bucket is. On AWS, `aws s3 cp` puts labels there.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from pathlib import Path

import boto3
import pyarrow as pa
import pyarrow.parquet as pq

LABELS = "labels/default/fraud.parquet"


def main(state_file: str, url: str) -> None:
    """Prints a training set of two users, as of an hour ago and as of now."""
    environment = json.loads(Path(state_file).read_text())["environment"]
    bucket = environment["HEADRACE_BUCKET"]
    client = boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_REGION"],
    )
    now_ms = int(time.time() * 1000)
    labels = pa.table(
        {
            "user_id": ["alice", "alice", "bob"],
            "event_timestamp": pa.array([now_ms - 3_600_000, now_ms, now_ms], pa.timestamp("ms", "UTC")),
            "fraud": [False, True, False],
        }
    )
    data = io.BytesIO()
    pq.write_table(labels, data)
    client.put_object(Bucket=bucket, Key=LABELS, Body=data.getvalue())

    command = ["headrace", "--url", url, "features", "training-set", "Spend", LABELS]
    made = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    for uri in made:
        key = uri.removeprefix(f"s3://{bucket}/")
        found = pq.read_table(pa.BufferReader(client.get_object(Bucket=bucket, Key=key)["Body"].read()))
        for row in found.drop_columns(["event_timestamp"]).to_pylist():
            print(json.dumps(row))


if __name__ == "__main__":
    main(*sys.argv[1:])
