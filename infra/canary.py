"""The canary of a deployment: a tenth of the requests goes to the new version first, and back if an alarm is raised.

CloudFormation asks CodeDeploy to move the alias, waits, and rolls its whole update back if CodeDeploy did: the
deployment fails, and the earlier version serves. What it watches are alarms of its own, in steps of a minute, that tell
nobody.

The two doors have a canary, since a client sees their failures. Sealer and indexer do work that waits and is repeated,
which a tenth of it for some minutes would say little of; they move to their new versions when the canary is over, and
not at all if it failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import ArnFormat, Duration, Stack
from aws_cdk import aws_codedeploy as codedeploy
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.alarms import Rule, build_alarm
from infra.bundle import LIVE, PythonFunction
from infra.metrics import Own, of_door, of_function

PERIOD = Duration.minutes(1)
# CodeDeploy's own configurations, for 5, 10, 15 and 30 minutes.
CONFIGURATION = "CodeDeployDefault.LambdaCanary10Percent{}Minutes"


def rules(own: Own, *, doors: Mapping[str, PythonFunction], api_id: str) -> list[Rule]:
    """Returns the definitions of the alarms that end a canary. A tenth of all requests that fails is enough for each."""
    failed = 3  # answers in a minute, below which a share of them says little
    found = [
        Rule(
            "canary-answers-fail",
            "More than one answer in fifty of the HTTP API was a 5xx within a minute.",
            {
                "failed": of_door(api_id, "5xx", "Sum", "5xx"),
                "requests": of_door(api_id, "Count", "Sum", "requests"),
            },
            f"IF(failed>={failed},100*failed/requests,0)",
            2,
            anchor="canary",
        ),
        Rule(
            "canary-commits-unknown",
            "Writers don't learn what became of their appends.",
            {"unknown": own("api", "UnknownOutcomes")},
            "unknown",
            failed,
            breaching=2,
            periods=3,
            anchor="canary",
        ),
    ]
    for name, door in doors.items():
        found.append(
            Rule(
                f"canary-function-fails-{name}",
                "Lambda could not run the function to its end.",
                {"errors": of_function(door.function, "Errors", "Sum", "errors")},
                "errors",
                1,
                breaching=2,
                periods=3,
                anchor="canary",
            )
        )
    if "streaming" in doors:
        found.append(
            Rule(
                "canary-url-fails",
                "The streaming door answered with 5xx.",
                {"failed": of_function(doors["streaming"].function, "Url5xxCount", "Sum", "5xx")},
                "failed",
                failed,
                anchor="canary",
            )
        )
    return found


class Canary(Construct):
    """Deployment groups of the doors, the alarms that each of them watches, and CodeDeploy's role."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        doors: Mapping[str, PythonFunction],
        workers: Sequence[PythonFunction],
        api_id: str,
        minutes: int,
    ) -> None:
        """Defines the canary.

        Args:
            doors: functions whose new versions get a tenth of the requests for `minutes`, by their names.
            workers: functions that move only when all doors have.
            minutes: one for which CodeDeploy has a configuration.
        """
        super().__init__(scope, construct_id)
        alarms = [
            build_alarm(self, rule, period=PERIOD) for rule in rules(Own(Stack.of(self)), doors=doors, api_id=api_id)
        ]
        role = self._role(doors)
        shift = codedeploy.LambdaDeploymentConfig.from_lambda_deployment_config_name(
            self, "Shift", CONFIGURATION.format(minutes)
        )
        application = codedeploy.LambdaApplication(self, "Application")
        for name, door in doors.items():
            group = codedeploy.LambdaDeploymentGroup(
                self,
                name.capitalize(),
                application=application,
                alias=door.live,
                deployment_config=shift,
                alarms=alarms,
                auto_rollback=codedeploy.AutoRollbackConfig(
                    deployment_in_alarm=True, failed_deployment=True, stopped_deployment=True
                ),
                role=role.without_policy_updates(),
            )
            # With its policy, which a first canary needs at once.
            group.node.add_dependency(role.node.find_child("DefaultPolicy"))
            for worker in workers:
                worker.live.node.add_dependency(door.live)

    def _role(self, doors: Mapping[str, PythonFunction]) -> iam.Role:
        """Creates CodeDeploy's role. It may move the doors' aliases and read alarms; AWS's own policy for this
        (AWSCodeDeployRoleForLambdaLimited) is for every alias of the account.
        """
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("codedeploy.amazonaws.com"))
        aliases = [
            arn
            for door in doors.values()
            for arn in (door.function.function_arn, f"{door.function.function_arn}:{LIVE}")
        ]
        role.add_to_policy(
            iam.PolicyStatement(
                sid="MoveAliases",
                actions=["lambda:GetAlias", "lambda:UpdateAlias", "lambda:GetProvisionedConcurrencyConfig"],
                resources=aliases,
            )
        )
        role.add_to_policy(
            iam.PolicyStatement(
                sid="ReadAlarms",
                actions=["cloudwatch:DescribeAlarms"],
                # CloudWatch lists alarms, and knows no permission to list some of them.
                resources=[
                    Stack.of(self).format_arn(
                        service="cloudwatch",
                        resource="alarm",
                        resource_name="*",
                        arn_format=ArnFormat.COLON_RESOURCE_NAME,
                    )
                ],
            )
        )
        return role
