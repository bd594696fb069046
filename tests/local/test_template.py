"""Laws of reading a template: what is deployed, what triggers what, and that the committed template is understood."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote_plus

import pytest

from headrace.settings import SETTING_OF_OUTPUT
from local.deployment import Deployment, EventTrigger, QueueTrigger, ScheduleTrigger
from local.template import UnusableTemplate, deployable_part, joined, read_template
from tests.local.small_template import FUNCTION, template
from tests.support.emulated_cloud import Cloud, emulated_cloud


def test_only_what_moto_can_create_is_deployed_and_dangling_properties_go() -> None:
    part = deployable_part(template(handler="h"))
    assert sorted(part["Resources"]) == ["Bucket", "DeadLetters", "Delay", "Notified", "Wal"]
    assert "SSESpecification" not in part["Resources"]["Wal"]["Properties"]
    assert "StreamSpecification" in part["Resources"]["Wal"]["Properties"]
    assert "KeyArn" not in part["Outputs"]


def test_triggers_are_read_with_the_names_that_cloudformation_gave(cloud: Cloud) -> None:
    deployment = cloud.deployment
    (stream,) = deployment.streams
    assert stream.stream_arn == deployment.outputs["WalStreamArn"]
    assert (stream.function, stream.batch_size, stream.bisect, stream.maximum_retries) == (FUNCTION, 50, True, 2)
    assert stream.filters == ({"eventName": ["INSERT"]},)
    assert stream.on_failure_arn is not None
    assert ":sqs:" in stream.on_failure_arn
    (queue,) = deployment.queues
    assert queue == QueueTrigger(FUNCTION, queue.queue_arn, 10, (), True)
    assert deployment.schedules == (ScheduleTrigger(FUNCTION, "Sweep", "rate(1 day)"),)
    function = deployment.functions[FUNCTION]
    assert function.timeout_seconds == 30
    # A reference that only AWS could resolve is no setting.
    assert "HEADRACE_SECRET" not in function.environment
    assert deployment.settings()["HEADRACE_SEAL_RECORDS"] == "7"
    assert deployment.settings()["HEADRACE_WAL_TABLE"] == deployment.outputs["WalTableName"]
    assert Deployment.from_json(deployment.to_json()) == deployment


def test_the_committed_template_deploys_with_every_name_and_trigger() -> None:
    with emulated_cloud() as cloud:
        assert set(SETTING_OF_OUTPUT) <= set(cloud.deployment.outputs)
        assert set(SETTING_OF_OUTPUT.values()) <= set(cloud.environment)
        streams = {cloud.deployment.functions[stream.function].handler: stream for stream in cloud.deployment.streams}
        assert {stream.stream_arn for stream in streams.values()} == {cloud.deployment.outputs["WalStreamArn"]}
        assert {handler: stream.prompt for handler, stream in streams.items()} == {
            "functions.sealer.handler.handler": False,
            "functions.relay.handler.handler": True,
        }
        handlers = {cloud.deployment.functions[queue.function].handler for queue in cloud.deployment.queues}
        assert handlers == {f"functions.{name}.handler.handler" for name in ("sealer", "indexer", "relay", "folder")}
        (event,) = cloud.deployment.events
        assert cloud.deployment.functions[event.function].handler == "functions.indexer.handler.handler"
        assert event.pattern["detail"]["applicationId"] == [cloud.environment["HEADRACE_SPARK_APPLICATION"]]
        for part in ("ENTRY_POINT", "PACKAGES", "ENVIRONMENT"):
            assert cloud.environment[f"HEADRACE_SPARK_{part}"].startswith("s3://cdk-")
        assert cloud.environment["HEADRACE_SPARK_ROLE"].startswith("arn:aws:iam::")
        assert {schedule.expression for schedule in cloud.deployment.schedules} == {
            *("rate(1 minute)", "rate(1 hour)", "rate(1 day)")
        }


def test_a_bucket_tells_its_queue_of_objects_that_pass_its_filter(cloud: Cloud) -> None:
    s3, sqs = cloud.client("s3"), cloud.client("sqs")
    bucket = cloud.deployment.outputs["BucketName"]
    for key in ("logs/a/1.json.zst", "logs/a/1.parquet", "jobs/1.json.zst"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    url = cloud.deployment.outputs["NotifiedQueueUrl"]
    keys = []
    for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
        body = json.loads(message["Body"])
        keys += [record["s3"]["object"]["key"] for record in body.get("Records", [])]
    assert [unquote_plus(key) for key in keys] == ["logs/a/1.json.zst"]


def test_a_rule_with_a_pattern_is_read_with_its_references(cloud: Cloud) -> None:
    (event,) = cloud.deployment.events
    assert event == EventTrigger(
        FUNCTION,
        "JobState",
        {"source": ["aws.emr-serverless"], "detail": {"applicationId": ["00headraceemulator"]}},
        retries=1,
    )


def test_a_missing_template_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UnusableTemplate, match="synthesize the CDK app"):
        read_template(tmp_path / "none.json")


def test_stacks_are_read_as_one_with_each_import_replaced_by_what_is_exported(tmp_path: Path) -> None:
    data = {
        "Resources": {"Wal": {"Type": "AWS::DynamoDB::Table"}},
        "Outputs": {
            "WalTableName": {"Value": {"Ref": "Wal"}},
            "E": {"Value": {"Ref": "Wal"}, "Export": {"Name": "data:wal"}},
        },
    }
    user = {"Type": "AWS::Lambda::Function", "Properties": {"Names": ["x", {"Fn::ImportValue": "data:wal"}]}}
    (tmp_path / "a.template.json").write_text(json.dumps(data))
    (tmp_path / "b.template.json").write_text(json.dumps({"Resources": {"Api": user}}))
    one = read_template(tmp_path)
    assert one["Resources"]["Api"]["Properties"]["Names"] == ["x", {"Ref": "Wal"}]
    assert one["Resources"]["Wal"] == data["Resources"]["Wal"]
    assert one["Outputs"] == {"WalTableName": {"Value": {"Ref": "Wal"}}}
    with pytest.raises(UnusableTemplate, match="no stack exports data:wal"):
        joined([{"Resources": {"Api": user}}])
    with pytest.raises(UnusableTemplate, match=r"two stacks have Resources of one name: \['Wal'\]"):
        joined([data, data])
