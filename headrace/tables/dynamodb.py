"""What the DynamoDB adapters share: one low-level pynamodb connection, and one table of errors.

pynamodb's public `put` can't return the item because of which a condition failed, so the adapters use
`Connection.dispatch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import botocore
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pynamodb.connection import Connection
from pynamodb.exceptions import PynamoDBException, VerboseClientError

from headrace.clock import check_deadline
from headrace.errors import StoreThrottled, StoreTimeout
from headrace.tables.items import ConditionFailed, Item, TransactionCancelled, s

# botocore would put its own name together again for each call, at a seventh of the CPU of a put.
_USER_AGENT = f"headrace botocore/{botocore.__version__}"
_BATCH = 25  # writes of one BatchWriteItem
_THROTTLES = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingException",
        "ThrottlingError",
        "TransactionInProgressException",
        "TransactionConflictException",
        "LimitExceededException",
    }
)
_CONTENTION = frozenset({"TransactionInProgressException", "TransactionConflictException"})
_CANCEL_THROTTLES = frozenset({"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"})


class Store:
    """A connection to DynamoDB that converts errors to those of the ports.

    Args:
        region: AWS region.
        connection: an existing connection to share.
        timeout_s: timeout of one call. The commit protocol retries; botocore does not.
        refused: called for each call that was refused because of load, but not because of a collision.
    """

    def __init__(
        self,
        region: str,
        connection: Connection | None = None,
        timeout_s: float = 2.0,
        refused: Callable[[], None] = lambda: None,
    ) -> None:
        self._refused = refused
        if connection is None:
            connection = Connection(
                region=region,
                connect_timeout_seconds=1.0,
                read_timeout_seconds=timeout_s,
                max_pool_connections=64,
                retry_configuration={"total_max_attempts": 1, "mode": "standard"},
            )
            # A session is of its thread, so the client that has this configuration is created in this one.
            connection.session.set_default_client_config(Config(user_agent=_USER_AGENT))
            connection.client  # noqa: B018 - created by being asked for
        self.connection = connection

    def call(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Makes one API call and returns its answer.

        Raises:
            ConditionFailed, TransactionCancelled: a condition did not hold; nothing changed.
            StoreThrottled: the call was refused; nothing changed.
            StoreTimeout: the outcome is unknown. `DeadlineExceeded`: the request's deadline had passed before the call.
        """
        check_deadline()
        try:
            return self.connection.dispatch(operation, {"ReturnConsumedCapacity": "NONE", **arguments})
        except VerboseClientError as exc:
            if _is_for_load(exc):
                self._refused()
            raise _translate(exc) from exc
        except (BotoCoreError, PynamoDBException) as exc:
            raise StoreTimeout(f"{operation}: {exc}") from exc

    def delete(self, table: str, keys: Iterable[Item]) -> None:
        """Deletes rows in batches; repeats those that the store did not process. Missing rows are not an error."""
        requests = [{"DeleteRequest": {"Key": key}} for key in keys]
        for at in range(0, len(requests), _BATCH):
            pending: dict[str, Any] = {table: requests[at : at + _BATCH]}
            while pending:
                pending = self.call("BatchWriteItem", {"RequestItems": pending}).get("UnprocessedItems", {})

    def purge(self, table: str, log_id: str, range_key: str) -> None:
        """Deletes every row of a log from a table whose keys are `log_id` and `range_key`."""
        query = {
            "TableName": table,
            "KeyConditionExpression": "log_id = :log",
            "ExpressionAttributeValues": {":log": s(log_id)},
            "ExpressionAttributeNames": {"#range": range_key},
            "ProjectionExpression": "log_id, #range",
            "Limit": _BATCH,
        }
        while keys := self.call("Query", query)["Items"]:
            self.delete(table, keys)


def _response(exc: VerboseClientError) -> Mapping[str, Any]:
    cause = exc.__cause__
    return cause.response if isinstance(cause, ClientError) else {}


def _code(response: Mapping[str, Any]) -> str:
    return str(response.get("Error", {}).get("Code", ""))


def _is_for_load(exc: VerboseClientError) -> bool:
    """Returns whether a call was refused because of load, itself or as a member of its transaction."""
    response = _response(exc)
    reasons = {str(reason.get("Code", "None")) for reason in response.get("CancellationReasons", [])}
    return _code(response) in _THROTTLES - _CONTENTION or bool(
        reasons & (_CANCEL_THROTTLES - {"TransactionConflict"})
    )


def _translate(exc: VerboseClientError) -> Exception:
    response = _response(exc)
    code = _code(response)
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(response.get("Item"))
    if code == "TransactionCanceledException":
        reasons = [(str(r.get("Code", "None")), r.get("Item")) for r in response.get("CancellationReasons", [])]
        if any(reason in _CANCEL_THROTTLES for reason, _ in reasons):
            return StoreThrottled(f"transaction met another: {[reason for reason, _ in reasons]}")
        return TransactionCancelled(reasons)
    if code in _THROTTLES:
        return StoreThrottled(code)
    if status >= 500 or not status:
        return StoreTimeout(f"{code} {status}")
    return exc  # a mistake of ours (validation, missing table, access): let it be seen
