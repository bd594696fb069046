"""What `cdk deploy` does with a cloud assembly, by the same calls: bucket of the bootstrap, assets, template, stack."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
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
    """A deployed one."""

    emulator: Emulator
    name: str
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


def deploy(assembly: Assembly, reduced: Reduced, emulator: Emulator) -> Stack:
    """Uploads the assets that are used and the template, makes the stack, and waits for it.

    Raises DeploymentFailed when that fails.
    """
    account = emulator.client("sts").get_caller_identity()["Account"]
    s3 = emulator.client("s3")
    bucket = BUCKET.format(account=account, region=s3.meta.region_name)
    s3.create_bucket(Bucket=bucket)
    used = json.dumps(reduced.template)
    for asset in assembly.assets:
        if asset.key in used:
            s3.upload_file(str(_packed(asset, emulator.scratch)), bucket, asset.key)
    s3.put_object(Bucket=bucket, Key=QUALIFIED_TEMPLATE, Body=used.encode())
    cloudformation = emulator.client("cloudformation")
    # By URL: the text itself may have 51,200 bytes only.
    cloudformation.create_stack(
        StackName=assembly.stack_name,
        TemplateURL=f"{emulator.endpoint}/{bucket}/{QUALIFIED_TEMPLATE}",
        Capabilities=["CAPABILITY_IAM"],
    )
    _wait(cloudformation, "stack_create_complete", assembly.stack_name)
    (described,) = cloudformation.describe_stacks(StackName=assembly.stack_name)["Stacks"]
    return Stack(
        emulator,
        assembly.stack_name,
        {output["OutputKey"]: output["OutputValue"] for output in described.get("Outputs", [])},
        _resources(cloudformation, assembly.stack_name),
    )


def remove(stack: Stack) -> None:
    """Deletes the stack and waits. Raises DeploymentFailed when that fails."""
    cloudformation = stack.emulator.client("cloudformation")
    cloudformation.delete_stack(StackName=stack.name)
    _wait(cloudformation, "stack_delete_complete", stack.name)


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
