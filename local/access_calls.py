"""Decides which IAM actions on which resources an HTTP request to AWS needs. Does no I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree

import msgspec

from headrace import decoding


class Call(msgspec.Struct, frozen=True):
    """One action on one resource, for which IAM decides. `context` holds the condition keys that are known."""

    action: str
    resource: str
    context: tuple[tuple[str, str], ...] = ()


ACCOUNT = "123456789012"
REGION = "us-east-1"
API = "emulator"  # the id of the WebSocket API
STAGE = "v0"


PREFIX = "AKIAROLE"
_CREDENTIAL = re.compile(r"Credential=(\w+)/")
_RUNS = re.compile(r"/applications/(\w+)/jobruns(?:/(\w+))?")
_PARTS = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}
# A batch on a queue needs what its parts need.
_QUEUE_BATCHES = {
    "SendMessageBatch": "SendMessage",
    "DeleteMessageBatch": "DeleteMessage",
    "ChangeMessageVisibilityBatch": "ChangeMessageVisibility",
}
# What DynamoDB asks of the customer key in the name of a reader or writer of a table. Source: its developer guide,
# "Authorizing use of your customer managed key".
KEY_OF_TABLES = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)
# The same of S3 and Secrets Manager. Source: their user guides on encryption.
_KEY_OF_ACTION = {
    "s3:GetObject": ("kms:Decrypt",),
    "s3:PutObject": ("kms:GenerateDataKey",),
    "secretsmanager:GetSecretValue": ("kms:Decrypt",),
}


class _OnTable(msgspec.Struct):
    TableName: str


class _Asked(msgspec.Struct):
    """The members of a request's body that name what it acts on; the rest, which may be large, is skipped."""

    TableName: str = ""
    IndexName: str = ""
    TransactItems: list[dict[str, _OnTable]] = []
    RequestItems: dict[str, msgspec.Raw] = {}
    StreamArn: str = ""
    QueueUrl: str = ""
    SecretId: str = ""


def access_key(role: str) -> str:
    """Returns the access key id of a role (a logical id of the template). A process that runs as this role signs with
    it.
    """
    return PREFIX + role


def role_of(authorization: str) -> str | None:
    """Returns the role that a request was signed for; None if the emulator itself or a person signed it."""
    found = _CREDENTIAL.search(authorization)
    return found[1].removeprefix(PREFIX) if found and found[1].startswith(PREFIX) else None


def arn(service: str, resource: str) -> str:
    """Returns an ARN of the emulated account."""
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{resource}"


def json_calls(target: str, body: bytes) -> list[Call]:
    """Returns what IAM must allow for a request to DynamoDB, DynamoDB Streams, SQS or Secrets Manager whose header
    X-Amz-Target is `target`: one call for each action on a resource. The action is `unknown` for any other request.
    """
    service, _, action = target.rpartition(".")
    asked = decoding.from_json(body, _Asked)
    match service:
        case "DynamoDB_20120810":
            return list(_on_tables(action, asked))
        case "DynamoDBStreams_20120810" if asked.StreamArn:
            return [Call(f"dynamodb:{action}", asked.StreamArn)]
        case "AmazonSQS" if asked.QueueUrl:
            queue = asked.QueueUrl.rsplit("/", 1)[-1]
            return [Call(f"sqs:{_QUEUE_BATCHES.get(action, action)}", arn("sqs", queue))]
        case "secretsmanager" if asked.SecretId.startswith("arn:"):
            return [Call(f"secretsmanager:{action}", asked.SecretId)]
    return [Call("unknown", target)]


def object_calls(method: str, uri: str, headers: Mapping[str, str], body: bytes) -> list[Call]:
    """Returns what IAM must allow for a request to S3 in path style; the action is `unknown` for a kind of request that
    is not known here. `headers` have lower-case names.
    """
    url = urlsplit(uri)
    bucket, _, key = unquote(url.path).lstrip("/").partition("/")
    query = parse_qs(url.query, keep_blank_values=True)
    whole = f"arn:aws:s3:::{bucket}"
    one = f"{whole}/{key}"
    subresources = query.keys() - _PLAIN_QUERY
    match method, bool(key):
        case "GET", False if not subresources:
            return [Call("s3:ListBucket", whole, tuple(("s3:prefix", value) for value in query.get("prefix", [])))]
        case "POST", False if subresources == {"delete"}:
            return [Call("s3:DeleteObject", f"{whole}/{name}") for name in _deleted(body)]
        case "GET" | "HEAD", True if not subresources:
            return [Call("s3:GetObject", one)]
        case "PUT", True if subresources <= {"partNumber", "uploadId"} and "x-amz-copy-source" not in headers:
            return [Call("s3:PutObject", one)]
        case "POST", True if subresources in ({"uploads"}, {"uploadId"}):
            return [Call("s3:PutObject", one)]
        case "DELETE", True if subresources == {"uploadId"}:
            return [Call("s3:AbortMultipartUpload", one)]
        case "DELETE", True if not subresources:
            return [Call("s3:DeleteObject", one)]
    return [Call("unknown", f"{method} {uri}")]


def call_of_absence(calls: list[Call]) -> list[Call]:
    """Returns the calls that S3 checks before it reveals that the objects of these calls are absent: listing the
    bucket, once for each `s3:GetObject`.
    """
    return [Call("s3:ListBucket", one.resource.split("/", 1)[0]) for one in calls if one.action == "s3:GetObject"]


def job_calls(method: str, path: str, body: bytes) -> list[Call]:
    """Returns what IAM must allow for a request to EMR Serverless; starting a run also needs iam:PassRole. The action
    is `unknown` for a kind of request that is not known here.
    """
    found = _RUNS.fullmatch(path)
    if found is None:
        return [Call("unknown", f"{method} {path}")]
    application, run = found.groups()
    whole = arn("emr-serverless", f"/applications/{application}")
    one = f"{whole}/jobruns/{run}"
    match method, run:
        case "POST", None:
            request = json.loads(body)
            lent = (("iam:PassedToService", "emr-serverless.amazonaws.com"),)
            tags = [Call("emr-serverless:TagResource", whole)] if request.get("tags") else []
            pass_role = Call("iam:PassRole", request.get("executionRoleArn", ""), lent)
            return [Call("emr-serverless:StartJobRun", whole), pass_role, *tags]
        case "GET", None:
            return [Call("emr-serverless:ListJobRuns", whole)]
        case "GET", str():
            return [Call("emr-serverless:GetJobRun", one)]
        case "DELETE", str():
            return [Call("emr-serverless:CancelJobRun", one)]
    return [Call("unknown", f"{method} {path}")]


def connection_call(method: str, connection_id: str) -> Call:
    """Returns what IAM must allow for a request to a connection of the WebSocket API."""
    resource = f"{API}/{STAGE}/{method}/@connections/{connection_id}"
    return Call("execute-api:ManageConnections", arn("execute-api", resource))


def key_calls(call: Call, key: str) -> list[Call]:
    """Returns the calls on the customer-managed key `key` that a store makes in the caller's name to execute this call;
    none if there is no key.
    """
    if not key:
        return []
    service = call.action.partition(":")[0]
    actions = KEY_OF_TABLES if service == "dynamodb" else _KEY_OF_ACTION.get(call.action, ())
    through = (("kms:ViaService", f"{service}.{REGION}.amazonaws.com"),)
    return [Call(action, key, through) for action in actions]


def _on_tables(action: str, asked: _Asked) -> Iterator[Call]:
    if action == "TransactWriteItems":
        for item in asked.TransactItems:
            ((part, operation),) = item.items()
            yield Call(f"dynamodb:{_PARTS[part]}", _table(operation.TableName))
    elif action == "TransactGetItems":
        for item in asked.TransactItems:
            yield Call("dynamodb:GetItem", _table(item["Get"].TableName))
    elif action in ("BatchWriteItem", "BatchGetItem"):
        for table in asked.RequestItems:
            yield Call(f"dynamodb:{action}", _table(table))
    elif asked.IndexName:
        yield Call(f"dynamodb:{action}", f"{_table(asked.TableName)}/index/{asked.IndexName}")
    elif asked.TableName:
        yield Call(f"dynamodb:{action}", _table(asked.TableName))
    else:
        yield Call("unknown", action)


def _table(name: str) -> str:
    return name if name.startswith("arn:") else arn("dynamodb", f"table/{name}")


def _deleted(body: bytes) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(body).iter() if element.tag.endswith("Key")]


# What a client may add to a request without changing what it asks for.
_PLAIN_QUERY = {
    *("list-type", "prefix", "delimiter", "max-keys", "continuation-token", "start-after", "encoding-type"),
    *("fetch-owner", "x-id"),
}
