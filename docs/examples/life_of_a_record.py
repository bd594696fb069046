"""Shows where the records of a stream are at this moment: entries, watermark, objects. Asks the stores, no server.

    uv run python docs/examples/life_of_a_record.py STATE_FILE STREAM

STATE_FILE is what `headrace dev --state-file` wrote. docs/formats.md says what each attribute and object holds.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import boto3
from boto3.dynamodb.conditions import Attr, Key


def main(state_file: str, stream: str) -> None:
    """Prints a line for each entry of the write-ahead log, for the watermark, and for each object."""
    environment: dict[str, str] = json.loads(Path(state_file).read_text())["environment"]
    session = boto3.Session(
        environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"], region_name=environment["AWS_REGION"]
    )
    endpoint = environment["AWS_ENDPOINT_URL"]
    tables = session.resource("dynamodb", endpoint_url=endpoint)

    def table(name: str) -> Any:
        return tables.Table(environment[f"HEADRACE_{name}_TABLE"])

    (row,) = table("CATALOG").scan(FilterExpression=Attr("name").eq(stream))["Items"]
    log_id = row["log_id"]
    for item in table("WAL").query(KeyConditionExpression=Key("log_id").eq(log_id))["Items"]:
        payload = len(item["payload"].value) if "payload" in item else 0
        print(f"entry      slot {item['slot']}  {item['kind']}  records {item['count']}  bytes {payload}")
    marked = table("WATERMARKS").get_item(Key={"log_id": log_id}).get("Item", {})
    print(f"watermark  generation {marked.get('generation', 0)}  published to offset {marked.get('end_offset', 0)}")
    bucket = session.resource("s3", endpoint_url=endpoint).Bucket(environment["HEADRACE_BUCKET"])
    for found in bucket.objects.filter(Prefix=f"logs/{log_id}/"):
        print(f"object     {found.key.removeprefix(f'logs/{log_id}/')}  {found.size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
