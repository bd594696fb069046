"""Keeps one earlier version of each function: a function of its own removes older ones, once a day.

Its role is the only one that may delete anything of a function, and that only a version or alias: the ARN of a version
has one part more than that of the function.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.bundle import ARCHITECTURES, LIVE, PythonFunction, runtime_of
from infra.machine import REPOSITORY, Machine

# Its text is in the template: nothing is uploaded, and it needs no packages but those of Lambda's runtime.
HANDLER = REPOSITORY / "functions" / "versions" / "handler.py"
INTERVAL = Duration.days(1)
MEMORY_MB = 256
TIMEOUT = Duration.minutes(2)


class Versions(Construct):
    """The function that removes versions, its role and log, and its schedule. Nothing serves through it, so it has no
    version itself.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        functions: Sequence[PythonFunction],
        kept_days: int,
        log_retention: logs.RetentionDays,
        machine: Machine,
    ) -> None:
        """Defines the function.

        Args:
            functions: whose versions are removed.
            kept_days: how long after a deployment the one earlier version stays.
        """
        super().__init__(scope, construct_id)
        log_group = logs.LogGroup(self, "Log", retention=log_retention, removal_policy=RemovalPolicy.DESTROY)
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        for statement in _statements(log_group, functions):
            role.add_to_policy(statement)
        self.function = lambda_.Function(
            self,
            "Function",
            runtime=runtime_of(machine),
            architecture=ARCHITECTURES[machine.architecture],
            memory_size=MEMORY_MB,
            timeout=TIMEOUT,
            handler="index.handler",
            code=lambda_.InlineCode(HANDLER.read_text()),
            role=role,
            log_group=log_group,
        )
        asked = {
            "functions": [one.function.function_name for one in functions],
            "alias": LIVE,
            "kept_days": kept_days,
        }
        events.Rule(
            self,
            "Daily",
            description="Headrace: remove versions of functions that no rollback needs",
            schedule=events.Schedule.rate(INTERVAL),
            targets=[targets.LambdaFunction(self.function, event=events.RuleTargetInput.from_object(asked))],
        )


def _statements(log_group: logs.ILogGroup, functions: Sequence[PythonFunction]) -> list[iam.PolicyStatement]:
    arns = [one.function.function_arn for one in functions]
    return [
        iam.PolicyStatement(
            sid="WriteOwnLog",
            actions=["logs:CreateLogStream", "logs:PutLogEvents"],
            resources=[log_group.log_group_arn],
        ),
        iam.PolicyStatement(
            sid="SeeVersions", actions=["lambda:ListVersionsByFunction", "lambda:GetAlias"], resources=arns
        ),
        iam.PolicyStatement(
            sid="RemoveVersions", actions=["lambda:DeleteFunction"], resources=[f"{arn}:*" for arn in arns]
        ),
    ]
