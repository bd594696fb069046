"""Every table of a running deployment is emptied; the command line brings back what was published."""

from __future__ import annotations

import json
import time
from pathlib import Path

import httpx

from tests.support.command_line import headrace
from tests.support.emulated_cloud import dev_server
from tests.support.pipeline import NO_METRICS, Pipeline

KEYS = {"WAL": ("log_id", "slot"), "CATALOG": ("bucket", "name"), "WATERMARKS": ("log_id",)}
KEYS["PRODUCERS"] = ("log_id", "producer")
KEYS["FEATURES"] = ("id", "part")
STATE_AGE_S = 1.0


def drop_items(pipeline: Pipeline) -> int:
    """Removes every item of every table; how many."""
    dynamodb, dropped = pipeline.client("dynamodb"), 0
    for name, keys in KEYS.items():
        table = pipeline.settings[f"HEADRACE_{name}_TABLE"]
        for page in dynamodb.get_paginator("scan").paginate(TableName=table):
            for item in page["Items"]:
                dynamodb.delete_item(TableName=table, Key={key: item[key] for key in keys})
                dropped += 1
    return dropped


def test_lost_tables_are_rebuilt_from_the_bucket(tmp_path: Path) -> None:
    with dev_server("--seal-age", "1s", "--state-age", f"{STATE_AGE_S:.0f}s", environment=NO_METRICS) as server:
        pipeline = Pipeline(server)
        state_file = tmp_path / "dev.json"
        state_file.write_text(json.dumps(server.state))
        with httpx.Client(base_url=f"{server.url}/v1/stream/", timeout=30) as http:
            json_type = {"Content-Type": "application/json"}
            for name in ("orders", "closed", "deleted"):
                assert http.put(name, headers=json_type).status_code == 201
                for number in range(20):
                    assert http.post(name, json=[{"n": number}], headers=json_type).is_success
            assert http.post("closed", headers={"Stream-Closed": "true"}).is_success
            assert http.delete("deleted").status_code == 204
            fork = {**json_type, "Stream-Forked-From": "/v1/stream/orders"}
            assert http.put("branch", headers=fork).status_code == 201
            assert http.post("branch", json=[{"branch": True}], headers=json_type).is_success
            before = http.head("orders").headers["stream-next-offset"]
            until = time.monotonic() + 60
            while [pipeline.of(name).published for name in ("orders", "closed", "branch")] != [20, 20, 21]:
                assert time.monotonic() < until, "not sealed in time"
                time.sleep(0.2)  # polls the bucket
            time.sleep(1.5)  # control entries are sealed, too
            assert http.post("orders", json=[{"n": "late"}], headers=json_type).is_success
            late = http.head("orders").headers["stream-next-offset"]
            assert drop_items(pipeline) > 20
            time.sleep(STATE_AGE_S + 0.2)  # nobody remembers the lost tail
            assert http.get("orders").status_code == 404

            code, dry = headrace("recover", "--state-file", str(state_file), "--dry-run")
            assert (code, dry["dry_run"]) == (0, True)
            assert http.get("orders").status_code == 404
            code, report = headrace("recover", "--state-file", str(state_file))
            assert code == 0
            said = {log["name"]: log for log in report["logs"]}
            assert {name: said[name]["status"] for name in ("orders", "closed", "branch")} == dict.fromkeys(
                ("orders", "closed", "branch"), "restored"
            )
            code, again = headrace("recover", "--state-file", str(state_file))
            assert code == 0 and not any(log["wrote"] for log in again["logs"])
            code, checked = headrace("verify", "--state-file", str(state_file))
            assert code == 0, checked["findings"]

            written = [{"n": number} for number in range(20)] + [{"n": "late"}]
            end = said["orders"]["end_offset"]
            assert end >= 20
            assert http.get("orders").json() == written[:end]
            assert http.get("branch").json() == [*written[:20], {"branch": True}]
            assert http.head("closed").headers["stream-closed"] == "true"
            assert http.get("orders", params={"offset": before}).json() == written[20:end]
            if end == 20:
                assert http.get("orders", params={"offset": late}).status_code == 410
            assert http.post("orders", json=[{"n": "after"}], headers=json_type).is_success
            assert http.get("orders").json() == [*written[:end], {"n": "after"}]
            assert http.post("closed", json=[1], headers=json_type).status_code == 409
