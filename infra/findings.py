"""Accepted findings of cdk-nag (AWS Solutions rules) and cfn-lint in the template, each with the reason why it may
stay.

A synth fails on any other finding of cdk-nag, the tests on any other of cfn-lint. Each finding is acknowledged for the
construct where it occurs. An acknowledgement without a finding must be removed, too (`tests/infra/test_lint.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import Acknowledgment, App, CfnResource, Stack, Validations
from cdk_nag import AwsSolutionsChecks
from constructs import IConstruct

from infra import permissions
from infra.doors import CONNECTIONS

PACK = "AwsSolutions"
_RUNTIME = (
    "Python 3.13, not the newest: what is locked and tested, for which wheels of pyarrow and jsonschema-rs exist"
)
_OPEN_ROUTE = "the application checks bearer keys, scopes and prefixes itself, as it does behind any other door"


@dataclass(frozen=True)
class Finding:
    """An accepted finding of a rule at a construct (its path in the stack) or below it.

    `resource` is the ARN pattern in a permission; with `of`, what follows the ARN of the construct there, after a slash
    unless it is a colon. Only for rule IAM5.
    """

    path: str
    rule: str
    reason: str
    of: str = ""
    resource: str = ""

    def id(self, stacks: Sequence[Stack]) -> str:
        """Returns the id under which cdk-nag reports it; one of the stacks has the construct at `of`."""
        if not self.resource:
            return f"{PACK}-{self.rule}"
        if not self.of:
            return f"{PACK}-{self.rule}[Resource::{self.resource}]"
        named = _found(stacks, self.of)
        element = named if isinstance(named, CfnResource) else named.node.default_child
        assert isinstance(element, CfnResource)
        stack = element.stack
        if self.resource == CONNECTIONS:
            api = stack.get_logical_id(element)
            where = "arn:<AWS::Partition>:execute-api:<AWS::Region>:<AWS::AccountId>"
            return f"{PACK}-{self.rule}[Resource::{where}:<{api}>/{CONNECTIONS}]"
        if _stack_of(stacks, self.path) == stack:
            arn = f"<{stack.get_logical_id(element)}.Arn>"
        else:
            arn = stack.resolve(stack.export_value(element.get_att("Arn")))["Fn::ImportValue"]
        between = "" if self.resource.startswith(":") else "/"
        return f"{PACK}-{self.rule}[Resource::{arn}{between}{self.resource}]"


def _objects(path: str, reason: str, *patterns: str) -> tuple[Finding, ...]:
    return tuple(Finding(path, "IAM5", reason, of="Data/Bucket", resource=pattern) for pattern in patterns)


ACKNOWLEDGED = (
    Finding("Api/Function", "L1", _RUNTIME),
    Finding("Streaming/Function", "L1", _RUNTIME),
    Finding("Sockets/Function", "L1", _RUNTIME),
    Finding("Sealer/Function", "L1", _RUNTIME),
    Finding("Indexer/Function", "L1", _RUNTIME),
    Finding("Relay/Function", "L1", _RUNTIME),
    Finding("Webhook/Function", "L1", _RUNTIME),
    Finding("Folder/Function", "L1", _RUNTIME),
    Finding("Versions/Function", "L1", _RUNTIME),
    *(
        Finding(
            "Versions/Role",
            "IAM5",
            "a version gets its number when it is published; the function without a number is not meant",
            of=f"{name}/Function",
            resource=":*",
        )
        for name in ("Api", "Streaming", "Sockets", "Sealer", "Indexer", "Relay", "Webhook", "Folder")
    ),
    Finding(
        "Canary/Role",
        "IAM5",
        "CloudWatch lists alarms, and knows no permission to list some of them",
        resource="arn:<AWS::Partition>:cloudwatch:<AWS::Region>:<AWS::AccountId>:alarm:*",
    ),
    Finding("Door/Api/ANY--", "APIG4", _OPEN_ROUTE),
    Finding("Door/Api/ANY--{proxy+}", "APIG4", _OPEN_ROUTE),
    Finding("WebSocket/Api/$connect-Route", "APIG4", _OPEN_ROUTE),
    Finding("WebSocket/Api/$disconnect-Route", "APIG4", "API Gateway calls it by itself, when a socket has ended"),
    Finding(
        "WebSocket/Message",
        "APIG4",
        "the application asks at each message what the key allows that opened the socket",
    ),
    Finding(
        "WebSocket/Stage",
        "APIG1",
        "it needs a role that API Gateway has in the whole account and region, which is not of one deployment",
    ),
    Finding(
        "Relay/Role",
        "IAM5",
        "a connection gets its id when it is opened; API and stage are named",
        of="WebSocket/Api",
        resource=CONNECTIONS,
    ),
    Finding(
        "AdminKey/Secret",
        "SMG4",
        "clients hold these keys: a rotation nobody told them of would lock them out; docs/operations.md has the way",
    ),
    Finding(
        "SigningKey/Secret",
        "SMG4",
        "`headrace rotate-signing-key` makes a new key public before its first use, which no rotation of AWS does",
    ),
    Finding(
        "Data/Bucket",
        "S1",
        "eight roles reach it, by the policies of this stack; who must know of each read turns on CloudTrail's data events",
    ),
    *(
        Finding(f"Queues/{name}", "SQS3", "it is a dead-letter queue: of a stream's mapping, which names no queue")
        for name in ("StreamDeadLetters", "RelayStreamDeadLetters")
    ),
    *_objects("Api/Role", "readers read any object of any log", permissions.LOG_OBJECTS),
    *_objects("Streaming/Role", "readers read any object of any log", permissions.LOG_OBJECTS),
    *_objects("Api/Role", "a payload's key holds its slot and a nonce", permissions.SPILLED_OBJECTS),
    *_objects("Streaming/Role", "a payload's key holds its slot and a nonce", permissions.SPILLED_OBJECTS),
    *_objects("Api/Role", "a definition's key holds its number and a nonce", permissions.DEFINITIONS),
    *_objects("Streaming/Role", "a definition's key holds its number and a nonce", permissions.DEFINITIONS),
    *_objects("Api/Role", "the key of what a state names holds a number and a nonce", *permissions.STATE_OBJECTS),
    *_objects(
        "Streaming/Role", "the key of what a state names holds a number and a nonce", *permissions.STATE_OBJECTS
    ),
    *_objects("Sockets/Role", "readers read any object of any log", permissions.LOG_OBJECTS),
    *_objects("Sockets/Role", "a payload's key holds its slot and a nonce", permissions.SPILLED_OBJECTS),
    *_objects("Sockets/Role", "a definition's key holds its number and a nonce", permissions.DEFINITIONS),
    *_objects("Sockets/Role", "the key of what a state names holds a number and a nonce", *permissions.STATE_OBJECTS),
    *(
        finding
        for role in ("Api/Role", "Streaming/Role", "Sockets/Role", "Relay/Role")
        for finding in _objects(
            role, "a job has a directory of its own, named when it is asked for", permissions.JOB_STATES
        )
    ),
    *_objects(
        "Sealer/Role", "it seals and purges any log, and reads what it needs for that", permissions.LOG_OBJECTS
    ),
    *_objects("Sealer/Role", "a segment's key holds its number and a nonce", permissions.SEGMENTS),
    *_objects("Sealer/Role", "a manifest's key holds its generation", permissions.MANIFESTS),
    *_objects("Sealer/Role", "a purge removes everything of a log but what says that it was", permissions.CONTENTS),
    *(
        Finding(
            f"{name}/Role",
            "IAM5",
            "Lambda looks for the table's stream, whose label is the time of its making",
            of="Tables/Wal",
            resource="stream/*",
        )
        for name in ("Sealer", "Relay")
    ),
    *_objects("Relay/Role", "it reads on in any log for those who follow it", permissions.LOG_OBJECTS),
    *_objects("Relay/Role", "a payload's key holds its slot and a nonce", permissions.SPILLED_OBJECTS),
    *_objects("Relay/Role", "a definition's key holds its number and a nonce", permissions.DEFINITIONS),
    *_objects("Folder/Role", "it reads any lane, whose ids it is told", permissions.LOG_OBJECTS),
    *_objects("Folder/Role", "a job has a directory of its own, named when it is asked for", permissions.JOBS),
    *_objects("Relay/Role", "the key of removed records holds a number and a nonce", permissions.STATE_OBJECTS[0]),
    *_objects("Indexer/Role", "it looks at the manifests of any log", permissions.MANIFESTS),
    *_objects("Indexer/Role", "it looks at the definitions of any log", permissions.DEFINITIONS),
    *_objects(
        "Indexer/Role", "it looks at the segments of any log: keys, and events of queues", permissions.SEGMENTS
    ),
    *_objects("Indexer/Role", "a payload's key holds its slot and a nonce", permissions.SPILLED_OBJECTS),
    *_objects("Indexer/Role", "the key of what a state names holds a number and a nonce", *permissions.STATE_OBJECTS),
    *_objects("Indexer/Role", "a merged segment's key holds a time and a nonce", permissions.MERGED_SEGMENTS),
    *_objects("Indexer/Role", "a run has a directory of its own, named when it is planned", permissions.INDEX_RUNS),
    *_objects("Indexer/Role", "an index manifest's key holds its generation", permissions.INDEX_MANIFESTS),
    *_objects("Indexer/Role", "a job has a directory of its own, named when it is planned", permissions.JOBS),
    Finding(
        "Indexer/Role",
        "IAM5",
        "a job run gets its id when it starts; the application is named",
        of="Spark/Application",
        resource="jobruns/*",
    ),
    *_objects("Spark/Role", "a job reads the segments of any log", permissions.SEGMENTS),
    *_objects("Spark/Role", "a job reads the definitions of any log", permissions.DEFINITIONS),
    *_objects(
        "Spark/Role",
        "an export reads the manifests of any lane, and labels",
        permissions.MANIFESTS,
        permissions.LABELS,
    ),
    *_objects("Spark/Role", "a job writes the runs it was told to, and merges others", permissions.INDEX_RUNS),
    *_objects("Spark/Role", "a merged segment's key holds a time and a nonce", permissions.MERGED_SEGMENTS),
    *_objects("Spark/Role", "a job has a directory of its own, named when it is planned", permissions.JOBS),
)

# Of cfn-lint. Its ids are in the template, so that a run on the template shows only new findings.
_NEEDLESS = "the CDK names a function's role once more among what must be made before it, which changes nothing"
LINT_ACKNOWLEDGED = (
    Finding("Api/Function", "W3005", _NEEDLESS),
    Finding("Streaming/Function", "W3005", _NEEDLESS),
    Finding("Sockets/Function", "W3005", _NEEDLESS),
    Finding("Sealer/Function", "W3005", _NEEDLESS),
    Finding("Indexer/Function", "W3005", _NEEDLESS),
    Finding("Relay/Function", "W3005", _NEEDLESS),
    Finding("Webhook/Function", "W3005", _NEEDLESS),
    Finding("Folder/Function", "W3005", _NEEDLESS),
    Finding("Versions/Function", "W3005", _NEEDLESS),
)


def check(app: App) -> None:
    """Makes the app's synth fail on findings that are not acknowledged."""
    Validations.of(app).add_plugins(AwsSolutionsChecks(app, verbose=True))


def acknowledge(*stacks: Stack) -> None:
    """Marks the accepted findings as acknowledged in the stacks of a deployment, each at its construct. Constructs that
    the environment leaves out are skipped.
    """
    for finding in of(stacks, ACKNOWLEDGED):
        rule = Acknowledgment(id=f"{PACK}::{finding.id(stacks)}", reason=finding.reason)
        Validations.of(_found(stacks, finding.path)).acknowledge(rule)
    for finding in of(stacks, LINT_ACKNOWLEDGED):
        resource = _found(stacks, finding.path).node.default_child
        assert isinstance(resource, CfnResource)
        resource.add_metadata("cfn-lint", {"config": {"ignore_checks": [finding.rule]}})


def of(stacks: Sequence[Stack], findings: Sequence[Finding]) -> list[Finding]:
    """Returns the findings whose constructs exist in one of the stacks."""
    return [
        finding
        for finding in findings
        if all(_stack_of(stacks, path) is not None for path in (finding.path, finding.of or finding.path))
    ]


def _found(stacks: Sequence[Stack], path: str) -> IConstruct:
    found: IConstruct | None = _stack_of(stacks, path)
    assert found is not None, path
    for name in path.split("/"):
        found = found.node.find_child(name)
    return found


def _stack_of(stacks: Sequence[Stack], path: str) -> Stack | None:
    first = path.split("/")[0]
    return next((stack for stack in stacks if stack.node.try_find_child(first) is not None), None)
