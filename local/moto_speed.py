"""Removes avoidable work from moto, measured as CPU of the emulator: a put takes 1.4 ms instead of 2.5, a query of 20
items 2 ms instead of 10, a receive from a queue of 500 messages 3 ms instead of 360.
"""

from __future__ import annotations

import base64
import time
import uuid
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson
from moto.core import responses
from moto.dynamodb.responses import DynamoHandler
from moto.dynamodbstreams.responses import DynamoDBStreamsHandler
from moto.sqs import models as sqs
from moto.utilities import aws_headers

# Any: the names replaced below are imports of that module, not exports.
_core: Any = responses
# Their results are the answer as it is; those of other actions need moto's serializer to leave things out.
_PLAIN_ACTIONS = frozenset(
    {"PutItem", "GetItem", "DeleteItem", "UpdateItem", "Query", "Scan", "TransactWriteItems", "GetRecords"}
)


def install() -> None:
    """Makes moto cache what it looks up for each request, and write plain DynamoDB answers without consulting the
    service model.
    """
    # moto asks `inspect` for the methods of the same few classes each time.
    _core.method_names_from_class = lru_cache(_core.method_names_from_class)
    _cheap_request_ids()
    for handler in (DynamoHandler, DynamoDBStreamsHandler):
        _write_plain_answers(handler)
    _cheap_messages()


def _cheap_request_ids() -> None:
    """Makes moto create a request id with one system call instead of 52 random choices."""

    def request_id(headerdict: dict[str, Any] | None = None) -> str:
        identifier = uuid.uuid4().hex.upper()
        if isinstance(headerdict, dict):
            headerdict["x-amzn-requestid"] = identifier
        return identifier

    _core.gen_amzn_requestid_long = request_id
    aws_headers.gen_amzn_requestid_long = request_id


def _cheap_messages() -> None:
    """Replaces how moto checks the age of queue messages.

    For each message that it receives, moto counts all others three times, with a slow clock: 0.6 s for one message when
    2,000 wait, during which nothing else is served.
    """

    def is_kept(self: Any, queue_name: str, message: Any) -> bool:
        kept_s: float = self.get_queue(queue_name).message_retention_period
        sent_s: float = message.sent_timestamp / 1000
        return kept_s + sent_s > time.time()

    queues: Any = sqs
    queues.SQSBackend.is_message_valid_based_on_retention_period = is_kept
    queues.unix_time_millis = lambda: time.time() * 1000


def _write_plain_answers(handler: Any) -> None:
    serialized = handler.serialized

    def fast_serialized(self: Any, action_result: Any) -> Any:
        result = action_result.result
        if not isinstance(result, dict) or self._get_action() not in _PLAIN_ACTIONS:
            return serialized(self, action_result)
        body = orjson.dumps(result, default=_plain, option=orjson.OPT_PASSTHROUGH_DATETIME).decode()
        return 200, {"Content-Type": "application/x-amz-json-1.0", **self.response_headers}, body

    handler.serialized = fast_serialized


def _plain(value: Any) -> Any:
    """Converts bytes to base64 text and times to epoch seconds, their form in the JSON protocol. Raises TypeError for
    anything else.
    """
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        # moto's times are UTC and do not say so.
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    raise TypeError(f"not part of a DynamoDB answer: {type(value).__name__}")
