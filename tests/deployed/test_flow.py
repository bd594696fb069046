"""The deployed triggers do their work by themselves: the stream's mapping seals, the bucket's notification indexes."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

from headrace.aws import aws_stores
from headrace.index import manifest as indexes
from headrace.log.stores import Stores
from headrace.manifest.store import ManifestStore
from headrace.recovery.verify import verify
from headrace.settings import Settings
from local.environment import REGION, aws_environment
from tests.conformance.contract.client import expect
from tests.deployed.deploy import Stack
from tests.deployed.flow import KINDS, RECORDS, Flow, record
from tests.deployed.job_events import Relayed

SEAL_S = 120
INDEX_S = 240
STORE_S = 30.0


@pytest.fixture
def stores(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Stores:
    """Returns the deployed tables and bucket, as the functions see them."""
    for name, value in aws_environment(stack.emulator.endpoint).items():
        monkeypatch.setenv(name, value)
    names = {
        "HEADRACE_WAL_TABLE": "WalTableName",
        "HEADRACE_CATALOG_TABLE": "CatalogTableName",
        "HEADRACE_WATERMARKS_TABLE": "WatermarksTableName",
        "HEADRACE_PRODUCERS_TABLE": "ProducersTableName",
        "HEADRACE_FOLLOWS_TABLE": "FollowsTableName",
        "HEADRACE_SESSIONS_TABLE": "SessionsTableName",
        "HEADRACE_FEATURES_TABLE": "FeaturesTableName",
        "HEADRACE_BUCKET": "BucketName",
    }
    settings = Settings.from_environment({setting: stack.outputs[output] for setting, output in names.items()})
    return aws_stores(settings, REGION, dynamodb_timeout_s=STORE_S, s3_read_timeout_s=STORE_S)


@pytest.mark.timeout(SEAL_S + 60)
def test_the_streams_mapping_seals_what_was_appended(flow: Flow, stores: Stores, findings: dict[str, Any]) -> None:
    flow.wait_until_sealed(SEAL_S)
    report = verify(stores, flow.log_id)
    assert report.clean, report.findings
    (log,) = report.logs
    manifest = ManifestStore(stores.objects).newest(flow.log_id, None, 0)
    assert manifest is not None
    watermark = stores.watermarks.get(flow.log_id)
    assert (watermark.generation, watermark.end_slot, watermark.end_offset) == (
        manifest.generation,
        manifest.end_slot,
        manifest.end_offset,
    )
    assert log.segments >= 1
    assert 100_000 <= manifest.end_offset <= RECORDS
    findings["sealed"] = {"segments": log.segments, "records": manifest.end_offset, "bytes": log.bytes}


def test_segments_are_parquet_with_the_records_in_order(flow: Flow, tmp_path: Any) -> None:
    s3, bucket = flow.stack.emulator.client("s3"), flow.stack.outputs["BucketName"]
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=f"logs/{flow.log_id}/segments/")["Contents"]
    numbers: list[int] = []
    for found in sorted(listed, key=lambda item: str(item["Key"])):
        if found["Key"].endswith(".parquet"):
            file = tmp_path / "segment.parquet"
            s3.download_file(bucket, found["Key"], str(file))
            numbers += [orjson.loads(data)["n"] for data in pq.read_table(file)["data"].to_pylist()]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= 100_000


@pytest.mark.timeout(INDEX_S + 60)
def test_a_published_manifest_ends_as_an_index_run(flow: Flow, relayed: Relayed, findings: dict[str, Any]) -> None:
    flow.wait_until_indexed(INDEX_S)
    index = flow.index()
    indexes.check(index, "newest")
    assert not indexes.gaps(index.runs, 0, 100_000)
    assert "SUCCESS" in relayed.passed
    assert set(relayed.passed) <= {"SUCCESS", "FAILED", "CANCELLED"}
    assert {"SUBMITTED", "RUNNING"} <= set(relayed.told)
    findings["indexed"] = {"runs": len(index.runs), "job_states": relayed.told}


def test_every_record_is_found_wherever_it_is(flow: Flow) -> None:
    found = expect(flow.stream.search(q="kind:k3", sort=["offset:desc"], size=5), 200).json()
    newest = [number for number in range(RECORDS) if number % KINDS == 3][-5:]
    assert [hit["source"] for hit in found["hits"]] == [record(number) for number in reversed(newest)]
    assert found["coverage"]["complete"] is True
    assert found["coverage"]["indexed_segments"] >= 1


def test_schedules_tick(stack: Stack) -> None:
    """Each is due every minute, and minutes have passed."""
    log = stack.emulator.log.read_text()
    for holding in ("Sealer", "Indexer", "Relay"):
        function = stack.physical("AWS::Lambda::Function", holding=holding)
        assert f"EventBridge → Lambda {function}: dispatched" in log, holding


def test_nothing_ended_as_a_dead_letter(stack: Stack) -> None:
    queues = stack.emulator.client("sqs")
    for output, url in stack.outputs.items():
        if output.endswith("DeadLetterQueueUrl"):
            answer = queues.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
            assert answer["Attributes"]["ApproximateNumberOfMessages"] == "0", output
