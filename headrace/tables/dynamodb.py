"""What the DynamoDB adapters share: one low-level pynamodb connection, one table of errors, and a faster way to make its
calls.

pynamodb's public `put` can't return the item because of which a condition failed, so the adapters use
`Connection.dispatch`.
"""

from __future__ import annotations

import hmac
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import count, islice
from typing import Any, NamedTuple, TypedDict
from urllib.parse import urlsplit

import botocore
import msgspec
import urllib3
from botocore.awsrequest import AWSPreparedRequest, HeadersDict
from botocore.config import Config
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from botocore.httpsession import create_urllib3_context, get_cert_path
from pynamodb.connection import Connection
from pynamodb.exceptions import PynamoDBException

from headrace.clock import Budget, SystemClock, check_deadline
from headrace.errors import SignatureExpired, StoreThrottled, StoreTimeout
from headrace.tables.items import Attribute, ConditionFailed, Item, TransactionCancelled, s

# botocore would put its own name together again for each call, at a seventh of the CPU of a put.
_USER_AGENT = f"headrace botocore/{botocore.__version__}"
_BATCH = 25  # writes of one BatchWriteItem
_BATCH_READS = 100  # keys of one BatchGetItem
_DELETE_MS = 10_000  # for repeats of one deletion: a worker's next run goes on, and writers need the partition, too
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
_BAD_SIGNATURE = "InvalidSignatureException"  # also of a call that arrives more than 5 minutes after it was signed
_BAD_TIME = re.compile("Signature (expired|not yet current)")
_CONTENTION = frozenset({"TransactionInProgressException", "TransactionConflictException"})
_CANCEL_THROTTLES = frozenset({"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"})


class Store:
    """A connection to DynamoDB that converts errors to those of the ports.

    Args:
        region: AWS region.
        connection: an existing connection to share.
        timeout_s: timeout of one call. The commit protocol retries; botocore does not.
        refused: called for each call that was refused because of load, but not because of a collision.
        fast: makes its calls through `Wire`.
        clock: follows the time that answers tell, and times the repeats of deletions; by default the system's.
    """

    def __init__(
        self,
        region: str,
        connection: Connection | None = None,
        timeout_s: float = 2.0,
        refused: Callable[[], None] = lambda: None,
        *,
        fast: bool = False,
        clock: SystemClock | None = None,
    ) -> None:
        self._refused = refused
        self._clock = clock or SystemClock()
        self._sent = threading.local()
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
        self._wire: Wire | None = None
        if fast:
            self._wire = Wire(connection.client, connection.session, timeout_s, self._clock)
        else:
            connection.client.meta.events.register("response-received.dynamodb", self._hear)

    def call(self, operation: str, arguments: Mapping[str, Any], signed_ms: int | None = None) -> dict[str, Any]:
        """Makes one API call and returns its answer.

        Args:
            signed_ms: the time (epoch ms) with which `Wire` signs it; None: now.

        Raises:
            ConditionFailed, TransactionCancelled: a condition did not hold; nothing changed.
            StoreThrottled: the call was refused, perhaps because of its age (`SignatureExpired`); nothing changed.
            StoreTimeout: the outcome is unknown. `DeadlineExceeded`: the request's deadline had passed before the call.
        """
        check_deadline()
        self._sent.wall_ms = self._clock.wall_ms()
        asked = {"ReturnConsumedCapacity": "NONE", **arguments}
        try:
            if self._wire is not None:
                return self._wire.call(operation, asked, signed_ms)
            answer: dict[str, Any] = self.connection.dispatch(operation, asked)
            return answer
        except ClientError as exc:
            response = _response(exc)
            if _is_for_load(response):
                self._refused()
            raise _translate(exc, response) from exc
        except (BotoCoreError, PynamoDBException) as exc:
            raise StoreTimeout(f"{operation}: {exc}") from exc

    def query(self, arguments: Mapping[str, Any]) -> Iterator[Item]:
        """Yields the items of a query, page by page, as far as the caller reads on. Raises as `call` does."""
        start: Mapping[str, Any] = {}
        while True:
            answer = self.call("Query", {**arguments, **start})
            yield from answer["Items"]
            if not answer.get("LastEvaluatedKey"):
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def get_all(self, table: str, keys: Sequence[Item], *, consistent: bool = False) -> Iterator[Item]:
        """Yields those of the items with these keys that exist, with reads of 100, in any order. An answer holds 16 MB, so
        what the store leaves out is read again.

        Raises:
            StoreThrottled: the store read none of those that were left.
        """
        for at in range(0, len(keys), _BATCH_READS):
            left = list(keys[at : at + _BATCH_READS])
            while left:
                asked = {table: {"Keys": left, "ConsistentRead": consistent}}
                answer = self.call("BatchGetItem", {"RequestItems": asked})
                found = answer["Responses"].get(table, ())
                yield from found
                left = answer.get("UnprocessedKeys", {}).get(table, {}).get("Keys", [])
                if left and not found:
                    self._refused()
                    raise StoreThrottled(f"rows are not read: table={table}")

    def _hear(self, response_dict: Mapping[str, Any] | None = None, **_: Any) -> None:
        """Takes the time from an answer; a handler of botocore's event."""
        sent_ms = getattr(self._sent, "wall_ms", self._clock.wall_ms())
        told: Mapping[str, Any] = response_dict or {}
        is_refused = _refuses_signature(told.get("status_code", 0), told.get("body", b""))
        self._clock.follow_date(sent_ms, told.get("headers", {}).get("Date"), None if is_refused else sent_ms)

    def delete(self, table: str, keys: Iterable[Item]) -> None:
        """Deletes rows in batches; repeats those that the store did not process, after growing pauses. Missing rows are
        not an error.

        Raises:
            StoreThrottled: rows were left when the time for repeats was over; others are deleted.
        """
        requests = [{"DeleteRequest": {"Key": key}} for key in keys]
        budget = Budget(self._clock, _DELETE_MS)
        for at in range(0, len(requests), _BATCH):
            pending: dict[str, Any] = {table: requests[at : at + _BATCH]}
            for tries in count(1):
                pending = self.call("BatchWriteItem", {"RequestItems": pending}).get("UnprocessedItems", {})
                if not pending:
                    break
                self._refused()
                if budget.spent:
                    raise StoreThrottled(f"rows are not deleted: table={table} left={len(requests) - at}")
                budget.pause(tries)

    def purge(self, table: str, log_id: str, range_key: str, limit: int) -> bool:
        """Deletes rows of a log, at most `limit`, from a table whose keys are `log_id` and `range_key`. Returns whether
        none are left.
        """
        query = {
            "TableName": table,
            "KeyConditionExpression": "log_id = :log",
            "ExpressionAttributeValues": {":log": s(log_id)},
            "ExpressionAttributeNames": {"#range": range_key},
            "ProjectionExpression": "log_id, #range",
            "Limit": limit,
        }
        keys = list(islice(self.query(query), limit))
        self.delete(table, keys)
        return len(keys) < limit


def _response(exc: ClientError) -> Mapping[str, Any]:
    """Returns the whole response of an error; pynamodb's own error has only a part of it, and names it as its cause."""
    cause = exc.__cause__
    response: Mapping[str, Any] = cause.response if isinstance(cause, ClientError) else exc.response
    return response


def _refuses_signature(status: int, content: bytes) -> bool:
    """Returns whether an answer refuses the signature of its call, perhaps because of its time."""
    return status == 400 and _BAD_SIGNATURE.encode() in content


def _code(response: Mapping[str, Any]) -> str:
    return str(response.get("Error", {}).get("Code", ""))


def _is_for_load(response: Mapping[str, Any]) -> bool:
    """Returns whether a call was refused because of load, itself or as a member of its transaction."""
    reasons = {str(reason.get("Code", "None")) for reason in response.get("CancellationReasons", [])}
    return _code(response) in _THROTTLES - _CONTENTION or bool(
        reasons & (_CANCEL_THROTTLES - {"TransactionConflict"})
    )


def _translate(exc: Exception, response: Mapping[str, Any]) -> Exception:
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
    if code == _BAD_SIGNATURE and _BAD_TIME.search(str(exc)):
        return SignatureExpired(str(exc))
    if status >= 500 or not status:
        return StoreTimeout(f"{code} {status}")
    return exc  # a mistake of ours (validation, missing table, access): let it be seen


_TARGET = "DynamoDB_20120810."
_TYPE = "application/x-amz-json-1.0"


_Attributes = dict[str, Attribute]


class _Reason(TypedDict, total=False):
    Code: str | None
    Item: _Attributes | None


# What Headrace reads of answers and errors.
_Content = TypedDict(
    "_Content",
    {
        "Item": _Attributes | None,
        "Attributes": _Attributes,
        "Items": list[_Attributes],
        "LastEvaluatedKey": _Attributes,
        "UnprocessedItems": dict[str, Any],
        "Responses": dict[str, list[_Attributes]],  # by table
        "UnprocessedKeys": dict[str, Any],
        "__type": str,  # of an error
        "message": str | None,
        "Message": str | None,
        "CancellationReasons": list[_Reason],
    },
    total=False,
)
_content = msgspec.json.Decoder(_Content)


class Answer(NamedTuple):
    """An answer of any status. Its fields are named as botocore's."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


class Wire:
    """Calls of DynamoDB at half the CPU of a botocore client: each is encoded, signed, sent and decoded in one step.

    Endpoint, region, credentials and trusted certificates are those of a client, and its handlers of `before-send` see
    every request. Proxies are not used. Nothing is tried twice, except what was refused because of a wrong clock, which
    the refusal has corrected. Thread-safe.
    """

    def __init__(self, client: Any, session: Any, timeout_s: float, clock: SystemClock) -> None:
        """Opens no connection yet.

        Args:
            client: the botocore client to stand in for.
            session: its botocore session.
            timeout_s: longest silence within an answer; a connection has to open within 1 s.
            clock: the time of signatures; follows the time that answers tell.
        """
        self._url, self._region = _place(client)
        parts = urlsplit(self._url)
        self._path = parts.path
        is_tls = parts.scheme == "https"
        self._host = parts.netloc.removesuffix(":443" if is_tls else ":80")  # as it is sent
        self._events = client.meta.events
        self._session = session
        self._clock = clock
        trust = {"ssl_context": _trust(session), "cert_reqs": "CERT_REQUIRED"} if is_tls else {}
        timeout = urllib3.Timeout(connect=1.0, read=timeout_s)
        self._pool = urllib3.connection_from_url(self._url, timeout=timeout, maxsize=64, retries=False, **trust)

    def call(self, operation: str, arguments: Mapping[str, Any], signed_ms: int | None = None) -> dict[str, Any]:
        """Makes one API call, signed with the time `signed_ms` (None: now), and returns its answer.

        Raises:
            ClientError: DynamoDB refuses or fails; it has code, message and items as botocore's has.
            StoreTimeout: no whole answer came.
            BotoCoreError: there are no credentials, or a handler raised it.
        """
        credentials = self._session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        body, frozen = msgspec.json.encode(arguments), credentials.get_frozen_credentials()
        answer, was_corrected = self._exchange(operation, body, frozen, signed_ms)
        if signed_ms is None and was_corrected and _refuses_signature(answer.status_code, answer.content):
            answer, _ = self._exchange(operation, body, frozen)  # it was not executed
        try:
            content: Any = _content.decode(answer.content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            if answer.status_code < 300:
                raise StoreTimeout(f"{operation}: no whole answer") from exc
            content = {"__type": str(answer.status_code), "message": answer.content[:200].decode(errors="replace")}
        if answer.status_code < 300:
            return dict(content)
        code = content.get("__type", "").rpartition("#")[2]
        error = {"Code": code, "Message": content.get("message") or content.get("Message") or ""}
        told = {"HTTPStatusCode": answer.status_code, "RequestId": answer.headers.get("x-amzn-requestid", "")}
        raise ClientError({**content, "Error": error, "ResponseMetadata": told}, operation)

    def _exchange(
        self, operation: str, body: bytes, credentials: ReadOnlyCredentials, signed_ms: int | None = None
    ) -> tuple[Answer, bool]:
        """Signs and sends a call once. Returns the answer, and whether the clock was corrected by it."""
        sent_ms, at_ms = self._clock.wall_ms(), self._clock.now_ms() if signed_ms is None else signed_ms
        headers = signed(credentials, self._region, self._host, self._path, _TARGET + operation, body, at_ms / 1000)
        headers["User-Agent"] = _USER_AGENT
        request = AWSPreparedRequest("POST", self._url, HeadersDict(headers), body, stream_output=False)
        _, answer = self._events.emit_until_response(f"before-send.dynamodb.{operation}", request=request)
        if answer is None:
            answer = self.send(request)
        is_refused = _refuses_signature(answer.status_code, answer.content)
        return answer, self._clock.follow_date(sent_ms, answer.headers.get("Date"), None if is_refused else at_ms)

    def send(self, request: AWSPreparedRequest) -> Answer:
        """Sends a request and returns its answer. Raises StoreTimeout if none comes, or not all of it."""
        try:
            found = self._pool.urlopen(request.method, self._path, body=request.body, headers=request.headers)
            return Answer(found.status, found.headers, found.data)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as exc:
            raise StoreTimeout(f"{request.headers['X-Amz-Target']}: {exc}") from exc


def _place(client: Any) -> tuple[str, str]:
    """Returns the URL to which a client sends its calls, and the region for which it signs them. It is asked for a call
    that a handler stops: the endpoint in its `meta` can be another, such as with FIPS.
    """
    found: list[tuple[str, str]] = []

    def stop(params: Mapping[str, Any], **_: Any) -> tuple[Answer, dict[str, Any]]:
        region = params["context"].get("signing", {}).get("region") or client.meta.region_name
        found.append((params["url"], region))
        return Answer(200, {}, b""), {}

    client.meta.events.register_first("before-call.dynamodb.ListTables", stop)
    client.list_tables()
    client.meta.events.unregister("before-call.dynamodb.ListTables", stop)
    return found[0]


def _trust(session: Any) -> ssl.SSLContext:
    """Returns a context that trusts the certificates that a client of a session trusts, with botocore's settings."""
    context: ssl.SSLContext = create_urllib3_context()
    context.load_verify_locations(session.get_config_variable("ca_bundle") or get_cert_path(True))
    return context


def signed(
    credentials: ReadOnlyCredentials, region: str, host: str, path: str, target: str, body: bytes, now: float
) -> dict[str, str]:
    """Returns the headers of a call, with its signature (AWS Signature Version 4, IAM User Guide)."""
    at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    headers = {"Content-Type": _TYPE, "Host": host, "X-Amz-Date": at}
    if credentials.token:
        headers["X-Amz-Security-Token"] = credentials.token
    headers["X-Amz-Target"] = target
    names = ";".join(headers).lower()
    lines = "".join([f"{name.lower()}:{value}\n" for name, value in headers.items()])
    canonical = f"POST\n{path}\n\n{lines}\n{names}\n{sha256(body).hexdigest()}"
    scope = f"{at[:8]}/{region}/dynamodb/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
    key = _signing_key(credentials.secret_key, at[:8], region)
    signature = hmac.new(key, text.encode(), sha256).hexdigest()
    del headers["Host"]  # it is sent anyway
    told = f"Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "Authorization": f"AWS4-HMAC-SHA256 {told}"}


@lru_cache(maxsize=4)
def _signing_key(secret: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, "dynamodb", "aws4_request"):
        key = hmac.new(key, part.encode(), sha256).digest()
    return key
