"""What `cdk deploy` does with a cloud assembly, by the same calls: bucket of the bootstrap, assets, template, stack."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.exceptions import WaiterError

from infra.assembly import Assembly, Asset
from tests.deployed.emulator import Emulator
from tests.deployed.template import Reduced

BUCKET = "cdk-hnb659fds-assets-{account}-{region}"
QUALIFIED_TEMPLATE = "headrace.template.json"
STACK_S = 120


class DeploymentFailed(AssertionError):
    """The stack was not made, or not removed; the message holds the events that say why."""


@dataclass(frozen=True)
class Stack:
    """A deployed application with its data, or the data alone. Outputs and resources are those of all of its stacks."""

    emulator: Emulator
    names: tuple[str, ...]
    """Of its stacks, the data's first."""
    outputs: dict[str, str]
    resources: dict[str, dict[str, Any]]
    """By logical id, as CloudFormation describes them."""

    @property
    def types(self) -> Counter[str]:
        """How many resources of each type were made."""
        return Counter(resource["ResourceType"] for resource in self.resources.values())

    def physical(self, type_: str, *, holding: str = "") -> str:
        """Returns the id of the one resource of a type whose logical id holds a text. Raises ValueError unless there
        is one.
        """
        (found,) = [
            resource["PhysicalResourceId"]
            for id_, resource in self.resources.items()
            if resource["ResourceType"] == type_ and holding in id_
        ]
        return str(found)


def deploy(assembly: Assembly, reduced: Sequence[Reduced], emulator: Emulator) -> Stack:
    """Uploads the assets that are used and the templates, and makes each stack that is not there yet, in their order.

    Raises DeploymentFailed when that fails.
    """
    account = emulator.client("sts").get_caller_identity()["Account"]
    s3 = emulator.client("s3")
    bucket = BUCKET.format(account=account, region=s3.meta.region_name)
    s3.create_bucket(Bucket=bucket)
    cloudformation = emulator.client("cloudformation")
    stacks = cloudformation.describe_stacks()["Stacks"]
    living = [one["StackName"] for one in stacks if one["StackStatus"] != "DELETE_COMPLETE"]
    for stack, part in zip(assembly.stacks, reduced, strict=True):
        if stack.name in living:
            continue
        used = json.dumps(part.template)
        for asset in assembly.assets:
            if asset.key in used:
                s3.upload_file(str(_packed(asset, emulator.scratch)), bucket, asset.key)
        s3.put_object(Bucket=bucket, Key=QUALIFIED_TEMPLATE, Body=used.encode())
        # By URL: the text itself may have 51,200 bytes only.
        cloudformation.create_stack(
            StackName=stack.name,
            TemplateURL=f"{emulator.endpoint}/{bucket}/{QUALIFIED_TEMPLATE}",
            Capabilities=["CAPABILITY_IAM"],
            EnableTerminationProtection=stack.is_protected,
        )
        _wait(cloudformation, "stack_create_complete", stack.name)
    return described(emulator, tuple(stack.name for stack in assembly.stacks))


def update(stack: Stack, template: dict[str, Any]) -> Stack:
    """Updates the application to another template, whose assets are uploaded already. Raises DeploymentFailed when that
    fails.
    """
    emulator, name = stack.emulator, stack.names[-1]
    account = emulator.client("sts").get_caller_identity()["Account"]
    s3 = emulator.client("s3")
    bucket = BUCKET.format(account=account, region=s3.meta.region_name)
    s3.put_object(Bucket=bucket, Key=QUALIFIED_TEMPLATE, Body=json.dumps(template).encode())
    cloudformation = emulator.client("cloudformation")
    url = f"{emulator.endpoint}/{bucket}/{QUALIFIED_TEMPLATE}"
    cloudformation.update_stack(StackName=name, TemplateURL=url, Capabilities=["CAPABILITY_IAM"])
    _wait(cloudformation, "stack_update_complete", name)
    return described(emulator, stack.names)


def described(emulator: Emulator, names: tuple[str, ...]) -> Stack:
    """Returns the deployed stacks of these names as one."""
    cloudformation = emulator.client("cloudformation")
    outputs: dict[str, str] = {}
    resources: dict[str, dict[str, Any]] = {}
    for name in names:
        (one,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
        outputs |= {output["OutputKey"]: output["OutputValue"] for output in one.get("Outputs", [])}
        resources |= _resources(cloudformation, name)
    return Stack(emulator, names, outputs, resources)


def remove(emulator: Emulator, name: str) -> None:
    """Takes away a stack's protection, deletes it, and waits. Raises DeploymentFailed when that fails, ClientError if it
    is refused.
    """
    cloudformation = emulator.client("cloudformation")
    cloudformation.update_termination_protection(StackName=name, EnableTerminationProtection=False)
    cloudformation.delete_stack(StackName=name)
    _wait(cloudformation, "stack_delete_complete", name)


def _resources(cloudformation: Any, name: str) -> dict[str, dict[str, Any]]:
    """By logical id."""
    pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=name)
    return {summary["LogicalResourceId"]: summary for page in pages for summary in page["StackResourceSummaries"]}


def _packed(asset: Asset, scratch: Path) -> Path:
    """Returns the file that is uploaded for an asset."""
    if not asset.is_zipped:
        return asset.path
    packed = scratch / asset.key
    # Quickly, not small: it travels over loopback.
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in sorted(asset.path.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(asset.path))
    return packed


def _wait(cloudformation: Any, state: str, name: str) -> None:
    try:
        cloudformation.get_waiter(state).wait(StackName=name, WaiterConfig={"Delay": 1, "MaxAttempts": STACK_S})
    except WaiterError as exc:
        events = cloudformation.describe_stack_events(StackName=name)["StackEvents"]
        failed = [
            f"{event['LogicalResourceId']} {event['ResourceStatus']}: {event.get('ResourceStatusReason', '')}"
            for event in events
            if "FAILED" in event["ResourceStatus"] or "ROLLBACK" in event["ResourceStatus"]
        ]
        raise DeploymentFailed("\n".join([f"{state} of {name}: {exc}", *failed])) from exc
