"""The sealer hears of every insert, the relay of what is followed; what nobody could do is kept where a person finds it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from functions.fold_queue import SLOT_MS
from functions.folder.handler import PASS_S
from headrace.features.fold import MAX_DIRECT
from headrace.objects.keys import job_ended, job_input, job_request, manifest
from headrace.wal.entry import entry_item
from headrace.wal.state import LogState
from local.lambda_events import matches_any
from tests.infra.resources import Resources
from tests.support.builders import first_entry

WORKERS = ("Sealer", "Relay")

TWO_WEEKS_S = 14 * 24 * 3600


def test_the_stream_mapping_wakes_on_inserts_only(resources: Resources) -> None:
    (pattern,) = _stream_mapping(resources)["FilterCriteria"]["Filters"]
    assert json.loads(pattern["Pattern"]) == {"eventName": ["INSERT"]}


def test_lambda_drops_what_nobody_follows_before_it_calls_the_relay(resources: Resources) -> None:
    filters = _stream_mapping(resources, "Relay")["FilterCriteria"]["Filters"]
    patterns = [json.loads(one["Pattern"]) for one in filters]
    for kind in ("create", "append", "delete", "expire"):
        for state in (LogState(), LogState(followers=1)):
            item = entry_item(replace(first_entry("0" * 32), kind=kind, state=state))
            inserted = {"eventName": "INSERT", "dynamodb": {"NewImage": item}}
            assert matches_any(patterns, inserted) == (kind == "create" or bool(state.followers))
    assert not matches_any(patterns, {"eventName": "REMOVE", "dynamodb": {}})


def test_the_relay_is_told_at_once(resources: Resources) -> None:
    mapping = _stream_mapping(resources, "Relay")
    assert mapping["MaximumBatchingWindowInSeconds"] == 0
    assert (mapping["BatchSize"], mapping["ParallelizationFactor"]) == (100, 10)


@pytest.mark.parametrize("worker", WORKERS)
def test_the_stream_mapping_misses_nothing_and_does_not_retry_for_ever(resources: Resources, worker: str) -> None:
    mapping = _stream_mapping(resources, worker)
    assert mapping["StartingPosition"] == "TRIM_HORIZON"
    assert mapping["BisectBatchOnFunctionError"] is True
    assert 0 < mapping["MaximumRetryAttempts"] < 100


@pytest.mark.parametrize("worker", WORKERS)
def test_a_stream_batch_that_fails_ends_in_a_dead_letter_queue(resources: Resources, worker: str) -> None:
    destination = _stream_mapping(resources, worker)["DestinationConfig"]["OnFailure"]["Destination"]
    queue = destination["Fn::GetAtt"][0]
    assert resources.by_id[queue]["Properties"]["MessageRetentionPeriod"] == TWO_WEEKS_S
    assert json.dumps(destination) in resources.allowed(worker.lower(), "sqs")["sqs:SendMessage"]


@pytest.mark.parametrize("worker", WORKERS)
def test_a_message_that_fails_ends_in_a_dead_letter_queue(resources: Resources, worker: str) -> None:
    redrive = _queue(resources, worker)["RedrivePolicy"]
    dead_letters = redrive["deadLetterTargetArn"]["Fn::GetAtt"][0]
    assert redrive["maxReceiveCount"] == 5
    assert resources.by_id[dead_letters]["Properties"]["MessageRetentionPeriod"] == TWO_WEEKS_S
    of_stream = _stream_mapping(resources, worker)["DestinationConfig"]["OnFailure"]["Destination"]
    assert dead_letters != of_stream["Fn::GetAtt"][0]


@pytest.mark.parametrize("worker", WORKERS)
def test_one_failed_message_does_not_repeat_its_batch(resources: Resources, worker: str) -> None:
    mapping = resources.one("Lambda::EventSourceMapping", f"{worker}TriggersQueue")[1]
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


@pytest.mark.parametrize("worker", WORKERS)
def test_a_message_stays_hidden_while_a_worker_may_still_hold_it(resources: Resources, worker: str) -> None:
    assert _queue(resources, worker)["VisibilityTimeout"] >= 6 * resources.function(worker.lower())["Timeout"]


def test_a_lane_is_folded_by_one_folder_at_a_time_after_equal_messages_of_two_seconds(resources: Resources) -> None:
    mapping = resources.one("Lambda::EventSourceMapping", "FolderTriggersQueue")[1]
    assert mapping["BatchSize"] == 1
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    queue = resources.by_id[mapping["EventSourceArn"]["Fn::GetAtt"][0]]["Properties"]
    assert queue["FifoQueue"] is True
    assert queue["DelaySeconds"] * 1000 == SLOT_MS
    assert queue["VisibilityTimeout"] == resources.function("folder")["Timeout"] == 2 * PASS_S
    redrive = queue["RedrivePolicy"]
    dead_letters = resources.by_id[redrive["deadLetterTargetArn"]["Fn::GetAtt"][0]]["Properties"]
    assert (dead_letters["FifoQueue"], dead_letters["MessageRetentionPeriod"]) == (True, TWO_WEEKS_S)
    assert redrive["maxReceiveCount"] > MAX_DIRECT + 2, "one more notes the generation that kills, and one stops it"


def test_queues_are_encrypted_and_refuse_plain_http(resources: Resources) -> None:
    queues = resources.of("SQS::Queue")
    assert all(queue["Properties"]["SqsManagedSseEnabled"] is True for queue in queues.values())
    guarded = {
        reference["Ref"]
        for policy in resources.of("SQS::QueuePolicy").values()
        if "aws:SecureTransport" in json.dumps(policy["Properties"]["PolicyDocument"])
        for reference in policy["Properties"]["Queues"]
    }
    assert guarded == set(queues)


@pytest.mark.parametrize("worker", WORKERS)
def test_the_sweep_runs_every_minute(resources: Resources, worker: str) -> None:
    _, rule = resources.one("Events::Rule", f"{worker}TriggersSweep")
    assert rule["ScheduleExpression"] == "rate(1 minute)"
    assert rule["State"] == "ENABLED"
    (target,) = rule["Targets"]
    assert resources.called(target["Arn"]) == resources.function(worker.lower())


def test_what_is_to_be_purged_is_looked_for_every_hour(resources: Resources) -> None:
    _, rule = resources.one("Events::Rule", "Overdue")
    assert (rule["ScheduleExpression"], rule["State"]) == ("rate(1 hour)", "ENABLED")
    (target,) = rule["Targets"]
    assert target["Input"] == '{"verb":"overdue"}'
    assert resources.called(target["Arn"]) == resources.function("sealer")


@pytest.mark.parametrize("worker", WORKERS)
def test_the_audit_runs_every_day_with_its_own_message(resources: Resources, worker: str) -> None:
    _, rule = resources.one("Events::Rule", f"{worker}TriggersAudit")
    assert rule["ScheduleExpression"] == "rate(1 day)"
    assert rule["State"] == "ENABLED"
    (target,) = rule["Targets"]
    assert target["Input"] == '{"verb":"audit"}'
    assert resources.called(target["Arn"]) == resources.function(worker.lower())


def test_stream_and_queues_call_the_function_that_they_are_for(resources: Resources) -> None:
    called = {
        key: resources.called(m["Properties"]["FunctionName"])["Handler"]
        for key, m in resources.of("Lambda::EventSourceMapping").items()
    }
    assert {key.partition("Triggers")[0].lower(): handler for key, handler in called.items()} == {
        name: f"functions.{name}.handler.handler" for name in ("sealer", "indexer", "relay", "folder")
    }
    assert len(called) == 6


def test_the_bucket_tells_the_index_queue_of_what_may_be_a_manifest_or_asks_for_a_job(resources: Resources) -> None:
    _, bucket = resources.one("S3::Bucket")
    queue, _ = _index_queue(resources)
    told = []
    for notified in bucket["NotificationConfiguration"]["QueueConfigurations"]:
        assert notified["Queue"] == {"Fn::GetAtt": [queue, "Arn"]}
        assert notified["Event"] == "s3:ObjectCreated:*"
        told.append({rule["Name"]: rule["Value"] for rule in notified["Filter"]["S3Key"]["Rules"]})
    for example in (manifest("0" * 32, 1), job_request("1700000000000-a")):
        assert any(example.startswith(rules["prefix"]) and example.endswith(rules["suffix"]) for rules in told)
    for other in (job_input("1700000000000-a"), job_ended("1700000000000-a")):
        assert not any(other.startswith(rules["prefix"]) and other.endswith(rules["suffix"]) for rules in told)
    (mapping,) = [
        m for k, m in resources.of("Lambda::EventSourceMapping").items() if k.startswith("IndexerTriggersQueue")
    ]
    assert mapping["Properties"]["EventSourceArn"] == notified["Queue"]
    assert mapping["Properties"]["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


def test_the_bucket_may_send_before_it_is_told_to(resources: Resources) -> None:
    """S3 checks when the property is set; a policy that named the bucket would wait for it in turn."""
    ((_, bucket),) = resources.of("S3::Bucket").items()
    (policy,) = [one for one in bucket["DependsOn"] if resources.by_id[one]["Type"] == "AWS::SQS::QueuePolicy"]
    statements = resources.by_id[policy]["Properties"]["PolicyDocument"]["Statement"]
    (sends,) = [one for one in statements if one.get("Principal") == {"Service": "s3.amazonaws.com"}]
    assert sends["Action"] == "sqs:SendMessage"
    assert sends["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
    assert "DataBucket" not in json.dumps(resources.by_id[policy])


def test_an_index_message_that_fails_ends_in_a_dead_letter_queue(resources: Resources) -> None:
    _, queue = _index_queue(resources)
    dead_letters = queue["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"][0]
    assert resources.by_id[dead_letters]["Properties"]["MessageRetentionPeriod"] == TWO_WEEKS_S
    assert queue["VisibilityTimeout"] >= 6 * resources.function("indexer")["Timeout"]


def test_a_job_run_that_is_over_wakes_the_indexer_and_so_does_every_minute(resources: Resources) -> None:
    application, _ = resources.one("EMRServerless::Application")
    _, rule = resources.one("Events::Rule", "JobState")
    assert rule["EventPattern"] == {
        "source": ["aws.emr-serverless"],
        "detail-type": ["EMR Serverless Job Run State Change"],
        "detail": {
            "applicationId": [{"Fn::GetAtt": [application, "ApplicationId"]}],
            "state": ["SUCCESS", "FAILED", "CANCELLED"],
        },
    }
    _, tick = resources.one("Events::Rule", "IndexerTriggersTick")
    assert tick["ScheduleExpression"] == "rate(1 minute)"
    _, audit = resources.one("Events::Rule", "IndexerTriggersAudit")
    assert audit["ScheduleExpression"] == "rate(1 day)"
    assert audit["Targets"][0]["Input"] == '{"verb":"audit"}'
    for one in (rule, tick, audit):
        (target,) = one["Targets"]
        assert resources.called(target["Arn"]) == resources.function("indexer")


def test_the_application_stops_when_idle_and_has_a_limit(resources: Resources) -> None:
    _, application = resources.one("EMRServerless::Application")
    assert application["ReleaseLabel"] == "emr-spark-8.0.0"
    assert application["AutoStopConfiguration"]["Enabled"] is True
    assert set(application["MaximumCapacity"]) == {"Cpu", "Memory", "Disk"}


def _index_queue(resources: Resources) -> tuple[str, dict[str, Any]]:
    ((key, queue),) = (
        (key, one["Properties"])
        for key, one in resources.of("SQS::Queue").items()
        if key.startswith("QueuesIndex") and "DeadLetters" not in key
    )
    return key, queue


def _stream_mapping(resources: Resources, worker: str = "Sealer") -> dict[str, Any]:
    return resources.one("Lambda::EventSourceMapping", f"{worker}TriggersStream")[1]


def _queue(resources: Resources, worker: str) -> dict[str, Any]:
    """Returns the queue that a worker receives from."""
    source = resources.one("Lambda::EventSourceMapping", f"{worker}TriggersQueue")[1]["EventSourceArn"]
    found: dict[str, Any] = resources.by_id[source["Fn::GetAtt"][0]]["Properties"]
    return found
