"""What the roles of a template may do, with each reference replaced by what the emulator has in its place. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from local.access_calls import arn
from local.access_door import Policies
from local.access_policies import Statement, UnknownPolicy, read_statement
from local.account import ACCOUNT, REGION

_PSEUDO = {
    "AWS::AccountId": ACCOUNT,
    "AWS::Partition": "aws",
    "AWS::Region": REGION,
    "AWS::URLSuffix": "amazonaws.com",
}
# ARNs of what is not deployed; `{}` is the logical id.
_NOT_DEPLOYED = {
    "AWS::EMRServerless::Application": arn("emr-serverless", "/applications/00headraceemulator"),
    "AWS::IAM::Role": f"arn:aws:iam::{ACCOUNT}:role/{{}}",
    "AWS::KMS::Key": arn("kms", "key/{}"),
    "AWS::Logs::LogGroup": arn("logs", "log-group:{}"),
    "AWS::SecretsManager::Secret": arn("secretsmanager", "secret:{}"),
}

Json = dict[str, Any]


def read_policies(resources: Json, resolved: Mapping[str, str]) -> Policies:
    """The policies that the template's resources attach to its roles, and its one customer key, if there is one.

    Args:
        resolved: JSON text of an intrinsic, to the text that CloudFormation made of it.

    Raises:
        UnknownPolicy: a policy that is not evaluated here.
    """
    roles: dict[str, list[Statement]] = {}
    for name, part in resources.items():
        if part["Type"] == "AWS::IAM::Role":
            roles.setdefault(name, [])
            if part["Properties"].keys() & {"ManagedPolicyArns", "Policies"}:
                raise UnknownPolicy(f"{name}: only policies of their own are read")
        if part["Type"] != "AWS::IAM::Policy":
            continue
        statements = [
            read_statement(_resolve(document, resources, resolved))
            for document in part["Properties"]["PolicyDocument"]["Statement"]
        ]
        for role in part["Properties"]["Roles"]:
            roles.setdefault(role["Ref"], []).extend(statements)
    keys = [name for name, part in resources.items() if part["Type"] == "AWS::KMS::Key"]
    key = _NOT_DEPLOYED["AWS::KMS::Key"].format(keys[0]) if len(keys) == 1 else ""
    return Policies({role: tuple(statements) for role, statements in roles.items()}, key)


def _resolve(value: Any, resources: Json, resolved: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_resolve(element, resources, resolved) for element in value]
    if not isinstance(value, dict):
        return value
    known = resolved.get(json.dumps(value, sort_keys=True))
    if known is not None:
        return known
    match value:
        case {"Ref": name} if name in _PSEUDO:
            return _PSEUDO[name]
        case {"Fn::Join": [between, parts]}:
            return between.join(_resolve(part, resources, resolved) for part in parts)
        case {"Fn::Sub": str(text)}:
            for name, instead in _PSEUDO.items():
                text = text.replace(f"${{{name}}}", instead)
            return text
        case {"Ref": name} | {"Fn::GetAtt": [name, "Arn"]} if resources.get(name, {}).get("Type") in _NOT_DEPLOYED:
            return _NOT_DEPLOYED[resources[name]["Type"]].format(name)
    if any(key == "Ref" or key.startswith("Fn::") for key in value):
        raise UnknownPolicy(f"a policy refers to what the emulator does not have: {value}")
    return {key: _resolve(inner, resources, resolved) for key, inner in value.items()}
