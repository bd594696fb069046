"""Permissions of the template in the words of the documentation."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from tests.infra.resources import Resources, Statement

ROLES = {
    "api": "ApiRole",
    "streaming": "StreamingRole",
    "sockets": "SocketsRole",
    "sealer": "SealerRole",
    "indexer": "IndexerRole",
    "relay": "RelayRole",
    "folder": "FolderRole",
    "webhook": "WebhookRole",
    "job": "SparkRole",
    "versions": "VersionsRole",
    "canary": "CanaryRole",
}
_NAMES = {
    r"Tables(\w+?)[0-9A-F]{8}": "table {}",
    r"Queues(\w+?)[0-9A-F]{8}": "queue {}",
    r"DataBucket[0-9A-F]{8}": "bucket",
    r"WebhookLive[0-9A-F]{8}": "function webhook",
    r"AdminKeySecret[0-9A-F]{8}": "secret of keys",
    r"SigningKeySecret[0-9A-F]{8}": "secret of signing keys",
    r"DataKey[0-9A-F]{8}": "key",
    r"SparkApplication[0-9A-F]{8}": "application",
    r"SparkRole[0-9A-F]{8}": "role of jobs",
    r"(?:Api|Streaming|Sockets|Sealer|Indexer|Relay|Folder|Webhook|Versions)Log[0-9A-F]{8}": "log group",
    r"(Api|Streaming|Sockets|Sealer|Indexer|Relay|Folder|Webhook)Function[0-9A-F]{8}": "function {}",
}
_LOG = "logs/" + "?" * 32


class Row(NamedTuple):
    """One statement: whose, its name, its actions and its resources as text."""

    role: str
    sid: str
    actions: str
    on: str


def rows(resources: Resources) -> list[Row]:
    """Returns every statement of every role, in the template's order."""
    return [
        Row(role, one.sid, _actions(one), ", ".join(dict.fromkeys(_resource(target) for target in one.resources)))
        for role, part in ROLES.items()
        for one in _statements(resources, part)
    ]


def _statements(resources: Resources, part: str) -> list[Statement]:
    (role,) = (key for key in resources.of("IAM::Role") if key.startswith(part))
    return list(resources.statements_of(role))


def _actions(statement: Statement) -> str:
    """`s3: GetObject, PutObject`; a statement speaks of one service."""
    (service,) = {action.partition(":")[0] for action in statement.actions}
    return f"{service}: {', '.join(action.partition(':')[2] for action in statement.actions)}"


def _resource(target: str) -> str:
    if "-assets-${AWS::AccountId}" in target:  # of the CDK's bootstrap; names change with what they hold
        return "assets of this deployment" if '"/' in target else "bucket of assets"
    if "@connections" in target:
        return "clients of the WebSocket API"
    if ":alarm:*" in target:
        return "alarms of account and region"
    match json.loads(target):
        case {"Fn::Join": ["", [inner, str(rest)]]}:
            path = rest.removeprefix("/").replace(_LOG, "logs/LOG")
            return f"`{path}`" if _name(inner) == "bucket" else f"{_name(inner)}, `{path}`"
        case other:
            return _name(other)


def _name(value: dict[str, object]) -> str:
    match value:
        case {"Ref": str(logical)} | {"Fn::GetAtt": [str(logical), "Arn"]}:
            attribute = ""
        case {"Fn::GetAtt": [str(logical), "StreamArn"]}:
            attribute = "stream of "
        case _:
            raise AssertionError(f"unheard of: {value}")
    for pattern, name in _NAMES.items():
        if found := re.fullmatch(pattern, logical):
            words = [re.sub(r"(?<!^)(?=[A-Z])", " ", group).lower() for group in found.groups()]
            return attribute + name.format(*words)
    raise AssertionError(f"no name for {logical}")
