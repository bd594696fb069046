"""The sealer hears of every insert, and work that nobody could do is kept where a person finds it."""

from __future__ import annotations

import json
from typing import Any

from tests.infra.resources import Resources

TWO_WEEKS_S = 14 * 24 * 3600


def test_the_stream_mapping_wakes_on_inserts_only(resources: Resources) -> None:
    (pattern,) = _stream_mapping(resources)["FilterCriteria"]["Filters"]
    assert json.loads(pattern["Pattern"]) == {"eventName": ["INSERT"]}


def test_the_stream_mapping_misses_nothing_and_does_not_retry_for_ever(resources: Resources) -> None:
    mapping = _stream_mapping(resources)
    assert mapping["StartingPosition"] == "TRIM_HORIZON"
    assert mapping["BisectBatchOnFunctionError"] is True
    assert 0 < mapping["MaximumRetryAttempts"] < 100


def test_a_stream_batch_that_fails_ends_in_a_dead_letter_queue(resources: Resources) -> None:
    destination = _stream_mapping(resources)["DestinationConfig"]["OnFailure"]["Destination"]
    queue = destination["Fn::GetAtt"][0]
    assert resources.by_id[queue]["Properties"]["MessageRetentionPeriod"] == TWO_WEEKS_S
    assert json.dumps(destination) in resources.allowed("sealer", "sqs")["sqs:SendMessage"]


def test_a_message_that_fails_ends_in_a_dead_letter_queue(resources: Resources) -> None:
    _, delay = resources.one("SQS::Queue", "QueuesDelayE")
    redrive = delay["RedrivePolicy"]
    dead_letters = redrive["deadLetterTargetArn"]["Fn::GetAtt"][0]
    assert redrive["maxReceiveCount"] == 5
    assert resources.by_id[dead_letters]["Properties"]["MessageRetentionPeriod"] == TWO_WEEKS_S
    assert (
        dead_letters != _stream_mapping(resources)["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0]
    )


def test_one_failed_message_does_not_repeat_its_batch(resources: Resources) -> None:
    assert _queue_mapping(resources)["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


def test_a_message_stays_hidden_while_the_sealer_may_still_hold_it(resources: Resources) -> None:
    _, delay = resources.one("SQS::Queue", "QueuesDelayE")
    assert delay["VisibilityTimeout"] >= 6 * resources.function("sealer")["Timeout"]


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


def test_the_sweep_runs_every_minute(resources: Resources) -> None:
    _, rule = resources.one("Events::Rule", "Sweep")
    assert rule["ScheduleExpression"] == "rate(1 minute)"
    assert rule["State"] == "ENABLED"
    (target,) = rule["Targets"]
    assert resources.by_id[target["Arn"]["Fn::GetAtt"][0]]["Properties"] == resources.function("sealer")


def test_the_audit_runs_every_day_with_its_own_message(resources: Resources) -> None:
    _, rule = resources.one("Events::Rule", "Audit")
    assert rule["ScheduleExpression"] == "rate(1 day)"
    assert rule["State"] == "ENABLED"
    (target,) = rule["Targets"]
    assert target["Input"] == '{"verb":"audit"}'
    assert resources.by_id[target["Arn"]["Fn::GetAtt"][0]]["Properties"] == resources.function("sealer")


def test_both_mappings_call_the_sealer(resources: Resources) -> None:
    mappings = resources.of("Lambda::EventSourceMapping").values()
    called = [resources.by_id[m["Properties"]["FunctionName"]["Ref"]]["Properties"]["Handler"] for m in mappings]
    assert called == ["functions.sealer.handler.handler"] * 2


def _stream_mapping(resources: Resources) -> dict[str, Any]:
    return resources.one("Lambda::EventSourceMapping", "Stream")[1]


def _queue_mapping(resources: Resources) -> dict[str, Any]:
    return resources.one("Lambda::EventSourceMapping", "Queue")[1]
