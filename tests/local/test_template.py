"""Laws of reading a template: what is deployed, what triggers what, and that the committed template is understood."""

from __future__ import annotations

from pathlib import Path

import pytest

from local.deployment import SETTING_OF_OUTPUT, Deployment, QueueTrigger, ScheduleTrigger
from local.emulated_cloud import Cloud, emulated_cloud
from local.template import UnusableTemplate, deployable_part, read_template
from tests.local.small_template import FUNCTION, template


def test_only_what_moto_can_create_is_deployed_and_dangling_properties_go() -> None:
    part = deployable_part(template(handler="h"))
    assert sorted(part["Resources"]) == ["Bucket", "DeadLetters", "Delay", "Wal"]
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
        (stream,) = cloud.deployment.streams
        assert stream.stream_arn == cloud.deployment.outputs["WalStreamArn"]
        assert cloud.deployment.functions[stream.function].handler == "functions.sealer.handler.handler"
        assert len(cloud.deployment.queues) == 1
        assert {schedule.expression for schedule in cloud.deployment.schedules} == {"rate(1 minute)", "rate(1 day)"}


def test_a_missing_template_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UnusableTemplate, match="synthesize the CDK app"):
        read_template(tmp_path / "none.json")
