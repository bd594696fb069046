"""Builds the events that Lambda passes to a function from answers of AWS APIs, and evaluates the patterns that filter
events. Does no I/O.
"""

from __future__ import annotations

import base64
import json
import operator
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from local.deployment import ScheduleTrigger, StreamTrigger

Json = dict[str, Any]


def stream_record(record: Json, stream_arn: str) -> Json:
    """Converts a record of GetRecords to the form that Lambda passes on: times in epoch seconds, bytes as base64
    text.
    """
    change = dict(record["dynamodb"])
    created = change.get("ApproximateCreationDateTime")
    if isinstance(created, datetime):
        change["ApproximateCreationDateTime"] = float(int(created.timestamp()))
    for image in ("Keys", "NewImage", "OldImage"):
        if image in change:
            change[image] = {name: attribute(value) for name, value in change[image].items()}
    return {
        "eventID": record["eventID"],
        "eventName": record["eventName"],
        "eventVersion": record.get("eventVersion", "1.1"),
        "eventSource": "aws:dynamodb",
        "awsRegion": record["awsRegion"],
        "dynamodb": change,
        "eventSourceARN": stream_arn,
    }


def attribute(value: Json) -> Json:
    """Converts a DynamoDB attribute: bytes (B, BS, at any depth) become base64 text."""
    ((kind, content),) = value.items()
    match kind:
        case "B":
            return {kind: _base64(content)}
        case "BS":
            return {kind: [_base64(element) for element in content]}
        case "L":
            return {kind: [attribute(element) for element in content]}
        case "M":
            return {kind: {name: attribute(element) for name, element in content.items()}}
    return {kind: content}


def _base64(content: bytes | str) -> str:
    return content if isinstance(content, str) else base64.b64encode(content).decode()


def partition_key(record: Json) -> str:
    """Returns, as JSON text, the value of a stream record's partition key, which decides its shard. That is `log_id` if
    the table has such a key, else the first key.
    """
    keys = record["dynamodb"]["Keys"]
    name = "log_id" if "log_id" in keys else next(iter(keys))
    return json.dumps(keys[name], sort_keys=True)


def sequence_number(record: Json) -> str:
    """Returns a stream record's sequence number, by which a function reports that the record failed."""
    number: str = record["dynamodb"]["SequenceNumber"]
    return number


def queue_record(message: Json, queue_arn: str) -> Json:
    """Converts a message of ReceiveMessage to the form that Lambda passes on."""
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message.get("Attributes", {}),
        "messageAttributes": {
            name: {
                "stringValue": value.get("StringValue"),
                "binaryValue": _base64(value["BinaryValue"]) if "BinaryValue" in value else None,
                "stringListValues": [],
                "binaryListValues": [],
                "dataType": value["DataType"],
            }
            for name, value in message.get("MessageAttributes", {}).items()
        },
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": queue_arn.split(":")[3],
    }


def filterable_message(record: Json) -> Json:
    """Returns the form of a message to which a queue's filter applies: its body is parsed if it is JSON."""
    try:
        return {**record, "body": json.loads(record["body"])}
    except ValueError:
        return record


def scheduled_event(trigger: ScheduleTrigger, *, at: datetime, event_id: str, account: str, region: str) -> Any:
    """Returns the event of a scheduled rule or, parsed from JSON, the constant input that its target names."""
    if trigger.input is not None:
        return json.loads(trigger.input)
    return {
        "version": "0",
        "id": event_id,
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": account,
        "time": at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": region,
        "resources": [f"arn:aws:events:{region}:{account}:rule/{trigger.rule}"],
        "detail": {},
    }


def failed_batch(
    trigger: StreamTrigger,
    records: list[Json],
    *,
    request_id: str,
    invocations: int,
    condition: str,
    at: datetime,
) -> Json:
    """Returns the message that Lambda sends to the on-failure destination: it says where the records are, and does not
    contain them.
    """
    times = [record["dynamodb"].get("ApproximateCreationDateTime", 0.0) for record in records]
    return {
        "requestContext": {
            "requestId": request_id,
            "functionArn": f"arn:aws:lambda:us-east-1:123456789012:function:{trigger.function}",
            "condition": condition,
            "approximateInvokeCount": invocations,
        },
        "responseContext": {"statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled"},
        "version": "1.0",
        "timestamp": _iso(at),
        "DDBStreamBatchInfo": {
            "shardId": "shardId-00000001541626099285-f35f62ef",
            "startSequenceNumber": sequence_number(records[0]),
            "endSequenceNumber": sequence_number(records[-1]),
            "approximateArrivalOfFirstRecord": _iso(datetime.fromtimestamp(times[0], UTC)),
            "approximateArrivalOfLastRecord": _iso(datetime.fromtimestamp(times[-1], UTC)),
            "batchSize": len(records),
            "streamArn": trigger.stream_arn,
        },
    }


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


_MISSING = object()
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def matches_any(patterns: Iterable[dict[str, Any]], event: dict[str, Any]) -> bool:
    """Returns whether the event matches one of the patterns; True if there are no patterns."""
    patterns = list(patterns)
    return not patterns or any(matches(pattern, event) for pattern in patterns)


def matches(pattern: dict[str, Any], event: Any) -> bool:
    """Returns whether the event matches every field of the pattern. Raises ValueError for an unknown kind of rule."""
    for field, expected in pattern.items():
        if field == "$or":
            if not any(matches(alternative, event) for alternative in expected):
                return False
            continue
        actual = event.get(field, _MISSING) if isinstance(event, dict) else _MISSING
        matched = matches(expected, actual) if isinstance(expected, dict) else _matches_one_of(expected, actual)
        if not matched:
            return False
    return True


def _matches_one_of(rules: list[Any], actual: Any) -> bool:
    values = actual if isinstance(actual, list) else [actual]
    return any(_obeys(rule, value) for rule in rules for value in values)


def _obeys(rule: Any, value: Any) -> bool:
    if not isinstance(rule, dict):
        # True is not 1 in JSON.
        return value is not _MISSING and type(value) is type(rule) and bool(value == rule)
    ((name, operand),) = rule.items()
    if name == "exists":
        return bool((value is not _MISSING) == operand)
    if value is _MISSING:
        return False
    match name:
        case "prefix":
            return isinstance(value, str) and value.startswith(operand)
        case "suffix":
            return isinstance(value, str) and value.endswith(operand)
        case "equals-ignore-case":
            return isinstance(value, str) and value.lower() == str(operand).lower()
        case "anything-but":
            refused = operand if isinstance(operand, list) else [operand]
            return not any(_obeys(entry, value) for entry in refused)
        case "numeric":
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            pairs = zip(operand[::2], operand[1::2], strict=True)
            return is_number and all(_COMPARISONS[sign](value, bound) for sign, bound in pairs)
    raise ValueError(f"unknown rule in an event pattern: {name}")
