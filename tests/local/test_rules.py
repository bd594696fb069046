"""Laws of the dispatcher's pure rules: order, retries, bisecting, filters, events, schedules."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.deployment import ScheduleTrigger, StreamTrigger
from local.lambda_events import matches, matches_any, queue_record, scheduled_event, stream_record
from local.pumps import next_time
from local.stream_pump import (
    PAGE_RECORDS,
    PATIENTLY,
    Batch,
    StreamPump,
    Verdict,
    after_failure,
    failed_identifiers,
    first_failed,
    shuffled_across_keys,
)

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/wal/stream/2026"


def records(*names: str) -> tuple[dict[str, Any], ...]:
    return tuple({"name": name} for name in names)


def rule(**changes: Any) -> StreamTrigger:
    return StreamTrigger(function="Sealer", stream_arn=ARN, **changes)


@given(st.lists(st.sampled_from("abc")), st.integers())
def test_the_order_within_a_key_survives_every_shuffle(keys: list[str], seed: int) -> None:
    written = [{"key": key, "position": position} for position, key in enumerate(keys)]
    shuffled = shuffled_across_keys(written, lambda record: str(record["key"]), Random(seed))
    for key in "abc":
        assert [r for r in shuffled if r["key"] == key] == [r for r in written if r["key"] == key]
    assert len(shuffled) == len(written)


def test_keys_are_shuffled_and_a_seed_repeats_the_order() -> None:
    written = [{"key": str(number)} for number in range(100)]

    def order(seed: int) -> list[dict[str, Any]]:
        return shuffled_across_keys(written, lambda record: str(record["key"]), Random(seed))

    assert order(1) != written
    assert order(1) == order(1) != order(2)


def test_a_failed_batch_is_split_in_half_and_a_split_costs_no_attempt() -> None:
    verdict = after_failure(Batch(records(*"abc")), rule(bisect=True, maximum_retries=0))
    assert verdict == Verdict(again=(Batch(records("a")), Batch(records("b", "c"))))


def test_a_batch_that_cannot_be_split_dies_after_its_retries() -> None:
    batch = Batch(records("a"))
    retry = rule(bisect=True, maximum_retries=2)
    for attempts in (1, 2):
        verdict = after_failure(batch, retry)
        assert verdict == Verdict(again=(Batch(records("a"), attempts),))
        (batch,) = verdict.again
    verdict = after_failure(batch, retry)
    assert verdict == Verdict(dead=Batch(records("a"), 3), condition="RetryAttemptsExhausted")


def test_without_limits_a_batch_is_tried_for_ever_and_whole() -> None:
    assert after_failure(Batch(records("a", "b"), 999), rule()).again == (Batch(records("a", "b"), 1000),)


def test_records_that_are_too_old_are_given_up() -> None:
    verdict = after_failure(Batch(records("a", "b")), rule(maximum_age_seconds=60), oldest_age_seconds=61)
    assert verdict.dead is not None
    assert verdict.condition == "RecordAgeExceeded"


def test_what_precedes_a_reported_failure_is_not_tried_again() -> None:
    answer = {"batchItemFailures": [{"itemIdentifier": "c"}, {"itemIdentifier": "b"}]}
    assert first_failed(answer, ["a", "b", "c"]) == 1
    assert after_failure(Batch(records(*"abc")), rule(), failed_at=1).again == (Batch(records("b", "c")),)


class _Stream:
    """A stream whose pages have these numbers of records; empty ones follow."""

    def __init__(self, *pages: int) -> None:
        self.pages = list(pages)
        self.written = 0
        self.asked: list[str] = []

    def get_records(self, ShardIterator: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        self.asked.append(ShardIterator)
        first, self.written = self.written, self.written + (self.pages.pop(0) if self.pages else 0)
        record = {"eventID": "e", "eventName": "REMOVE", "awsRegion": "us-east-1"}
        numbers = range(first, self.written)
        return {
            "NextShardIterator": "next",
            "Records": [
                {**record, "dynamodb": {"Keys": {"log": {"S": "l"}}, "SequenceNumber": str(number)}}
                for number in numbers
            ],
        }


class _Pauses(threading.Event):
    """An event that notes how long it is waited for, does not wait, and is set after five waits."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.noted.append(timeout)
        if len(self.noted) == 5:
            self.set()
        return self.is_set()


class _NeverInvoked:
    def invoke(self, event: Any) -> tuple[Any, str]:
        raise AssertionError(event)


def test_what_waits_for_its_batch_waits_for_no_poll() -> None:
    stream, stop = _Stream(1), _Pauses()
    pump = StreamPump(
        rule(window_seconds=1), _NeverInvoked(), stream, None, Random(0), clock=lambda: 100 + len(stop.noted) / 10
    )
    pump.run(stop)
    assert [one.partition(PATIENTLY)[2] for one in stream.asked] == ["3.00", "0.90", "0.80", "0.70", "0.60"]


def test_a_stream_is_polled_again_at_once_only_after_a_full_page() -> None:
    stream, stop = _Stream(PAGE_RECORDS, 1, 0, 2), _Pauses()
    inserts = rule(filters=({"eventName": ["INSERT"]},))
    StreamPump(inserts, _NeverInvoked(), stream, None, Random(0)).run(stop)
    assert stop.noted == [0.05] * 5
    assert stream.asked[:2] == [f"{PATIENTLY}3.00", f"next{PATIENTLY}3.00"]
    assert stream.written == PAGE_RECORDS + 3


@pytest.mark.parametrize("answer", [None, {}, {"batchItemFailures": []}, {"batchItemFailures": None}])
def test_an_answer_without_failures_is_success(answer: Any) -> None:
    assert first_failed(answer, ["a"]) is None
    assert failed_identifiers(answer, ["a"]) == set()


@pytest.mark.parametrize(
    "answer", ["done", {"batchItemFailures": [{"itemIdentifier": "zzz"}]}, {"batchItemFailures": [{"id": "a"}]}]
)
def test_an_answer_that_makes_no_sense_fails_the_whole_batch(answer: Any) -> None:
    assert first_failed(answer, ["a", "b"]) == 0
    assert failed_identifiers(answer, ["a", "b"]) is None


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ({"eventName": ["INSERT"]}, {"eventName": "INSERT"}, {"eventName": "REMOVE"}),
        ({"a": {"b": {"S": ["x", "y"]}}}, {"a": {"b": {"S": "y"}}}, {"a": {"b": {"S": "z"}}}),
        ({"a": [{"exists": False}]}, {"b": 1}, {"a": 1}),
        ({"a": [{"exists": True}]}, {"a": 1}, {}),
        ({"a": [{"prefix": "x"}]}, {"a": "xy"}, {"a": "yx"}),
        ({"a": [{"suffix": "x"}]}, {"a": "yx"}, {"a": "xy"}),
        ({"a": [{"anything-but": ["x"]}]}, {"a": "y"}, {"a": "x"}),
        ({"a": [{"anything-but": {"prefix": "x"}}]}, {"a": "y"}, {"a": "xy"}),
        ({"a": [{"equals-ignore-case": "Ab"}]}, {"a": "aB"}, {"a": "b"}),
        ({"a": [{"numeric": [">", 1, "<=", 3]}]}, {"a": 3}, {"a": 1}),
        ({"a": [None]}, {"a": None}, {"a": 0}),
        ({"a": [1]}, {"a": [2, 1]}, {"a": True}),
        ({"$or": [{"a": [1]}, {"b": [1]}]}, {"b": 1}, {"c": 1}),
    ],
)
def test_filters_match_as_event_patterns_do(pattern: Any, matching: Any, other: Any) -> None:
    assert matches(pattern, matching)
    assert not matches(pattern, other)
    assert matches_any([], other)


def test_a_stream_record_has_epoch_seconds_and_base64() -> None:
    record = {
        "eventID": "e",
        "eventName": "INSERT",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1",
        "dynamodb": {
            "ApproximateCreationDateTime": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            "Keys": {"log_id": {"S": "a"}, "slot": {"N": "1"}},
            "NewImage": {"m": {"M": {"l": {"L": [{"B": b"\x00"}, {"BS": [b"\xff"]}]}}}, "n": {"NULL": True}},
            "SequenceNumber": "7",
            "SizeBytes": 3,
            "StreamViewType": "NEW_IMAGE",
        },
    }
    event = stream_record(record, ARN)
    assert event["eventSourceARN"] == ARN
    assert event["dynamodb"]["ApproximateCreationDateTime"] == 1767323045.0
    assert event["dynamodb"]["NewImage"] == {
        "m": {"M": {"l": {"L": [{"B": "AA=="}, {"BS": ["/w=="]}]}}},
        "n": {"NULL": True},
    }


def test_a_queue_record_has_lower_case_names() -> None:
    message = {
        "MessageId": "m",
        "ReceiptHandle": "r",
        "Body": "{}",
        "MD5OfBody": "5",
        "Attributes": {"SentTimestamp": "1"},
    }
    record = queue_record(message, "arn:aws:sqs:us-east-1:123456789012:delay")
    assert record["messageId"] == "m"
    assert record["attributes"] == {"SentTimestamp": "1"}
    assert record["eventSource"] == "aws:sqs"
    assert record["awsRegion"] == "us-east-1"


def test_a_schedule_sends_its_event_or_its_constant_input() -> None:
    at = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    names = {"at": at, "event_id": "i", "account": "1", "region": "us-east-1"}
    event = scheduled_event(ScheduleTrigger("f", "Sweep", "rate(1 day)"), **names)
    assert event["detail-type"] == "Scheduled Event"
    assert event["time"] == "2026-01-02T03:04:00Z"
    assert event["resources"] == ["arn:aws:events:us-east-1:1:rule/Sweep"]
    assert scheduled_event(ScheduleTrigger("f", "Sweep", "rate(1 day)", '{"a": 1}'), **names) == {"a": 1}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("rate(1 minute)", datetime(2026, 1, 2, 3, 5, 30, tzinfo=UTC)),
        ("rate(2 days)", datetime(2026, 1, 4, 3, 4, 30, tzinfo=UTC)),
        ("cron(0 3 * * ? *)", datetime(2026, 1, 3, 3, 0, tzinfo=UTC)),
        ("cron(0/15 * * * ? *)", datetime(2026, 1, 2, 3, 15, tzinfo=UTC)),
        ("cron(0 10 ? * MON-FRI *)", datetime(2026, 1, 2, 10, 0, tzinfo=UTC)),
        ("cron(30 1 1 FEB,MAR ? 2026)", datetime(2026, 2, 1, 1, 30, tzinfo=UTC)),
    ],
)
def test_schedules_come_when_eventbridge_says(expression: str, expected: datetime) -> None:
    assert next_time(expression, datetime(2026, 1, 2, 3, 4, 30, tzinfo=UTC)) == expected


@pytest.mark.parametrize("expression", ["every day", "rate(1 year)", "cron(0 3 L * ? *)", "cron(0 0 31 FEB ? *)"])
def test_a_schedule_that_is_not_understood_is_an_error(expression: str) -> None:
    with pytest.raises(ValueError, match=r"schedule|cron"):
        next_time(expression, datetime(2026, 1, 2, tzinfo=UTC))
