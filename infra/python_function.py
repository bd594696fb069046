"""A Python Lambda function. The only place for runtime, memory, logs and bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import Annotations, AssetHashType, BundlingOptions, Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.bundle import Bundle
from infra.commands import REPOSITORY
from infra.machine import ARM, LAMBDA, X86, Machine

# The size at which Lambda gives one whole vCPU: all that one Python thread can use. It leaves more than 1 GB of
# room to the sealer, which holds 16 MiB of payload a few times over (items, rows, Arrow columns, file).
MEMORY_MB = 1769
METRICS_NAMESPACE = "Headrace"
ARCHITECTURES = {ARM: lambda_.Architecture.ARM_64, X86: lambda_.Architecture.X86_64}


class PythonFunction(Construct):
    """`functions/<artifact>/handler.py`, with a role and a log group of its own.

    The role may write to that log group and nothing else; the stack grants the rest.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        artifact: str,
        timeout: Duration,
        environment: Mapping[str, str],
        log_retention: logs.RetentionDays,
        snap_start: bool = False,
        reserved_concurrency: int = 0,
        provisioned_concurrency: int = 0,
        retry_attempts: int | None = None,
        machine: Machine = LAMBDA,
        handler: str = "",
        same_code_as: PythonFunction | None = None,
    ) -> None:
        """`artifact` names a folder of `functions/` and a dependency group of `pyproject.toml`.

        `snap_start` resumes new instances from a snapshot of the initialised process; `provisioned_concurrency` keeps
        so many of them ready. Lambda allows one or the other, for published versions alone: callers must then use
        `invoke_target`. `reserved_concurrency` is as many instances as there may be; 0 sets no bound.
        `retry_attempts` bounds the repeats of an asynchronous invocation (0 to 2). `handler` replaces the usual one,
        `same_code_as` names a function of the same artifact, which is then bundled once.
        """
        super().__init__(scope, construct_id)
        runtime = lambda_.Runtime(f"python{machine.python}", lambda_.RuntimeFamily.PYTHON, supports_snap_start=True)
        self.log_group = logs.LogGroup(self, "Log", retention=log_retention, removal_policy=RemovalPolicy.DESTROY)
        self.role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        self.code: lambda_.Code = same_code_as.code if same_code_as else _code(artifact, runtime, machine)
        self.function = lambda_.Function(
            self,
            "Function",
            runtime=runtime,
            architecture=ARCHITECTURES[machine.architecture],
            memory_size=MEMORY_MB,
            timeout=timeout,
            handler=handler or f"functions.{artifact}.handler.handler",
            code=self.code,
            role=self.role,
            log_group=self.log_group,
            environment={
                **environment,
                "POWERTOOLS_SERVICE_NAME": artifact,
                "POWERTOOLS_METRICS_NAMESPACE": METRICS_NAMESPACE,
                "POWERTOOLS_LOG_LEVEL": "INFO",
            },
            snap_start=lambda_.SnapStartConf.ON_PUBLISHED_VERSIONS if snap_start else None,
            reserved_concurrent_executions=reserved_concurrency or None,
            retry_attempts=retry_attempts,
        )
        self.grant(
            [
                iam.PolicyStatement(
                    sid="WriteOwnLog",
                    actions=["logs:CreateLogStream", "logs:PutLogEvents"],
                    resources=[self.log_group.log_group_arn],
                )
            ]
        )
        self.invoke_target: lambda_.IFunction = self.function
        if snap_start or provisioned_concurrency:
            # Only published versions have snapshots or instances at the ready, and the alias follows the newest.
            self.invoke_target = lambda_.Alias(
                self,
                "Live",
                alias_name="live",
                version=self.function.current_version,
                provisioned_concurrent_executions=provisioned_concurrency or None,
            )
        if snap_start:
            Annotations.of(self.function).acknowledge_warning(
                "@aws-cdk/aws-lambda:snapStartRequirePublish", "the alias publishes one"
            )

    def grant(self, statements: Sequence[iam.PolicyStatement]) -> None:
        """Adds to what the function may do."""
        for statement in statements:
            self.role.add_to_policy(statement)


def _code(artifact: str, runtime: lambda_.Runtime, machine: Machine) -> lambda_.Code:
    return lambda_.Code.from_asset(
        str(REPOSITORY),
        # The hash is of what is shipped. A synth without bundling uses a constant instead.
        asset_hash_type=AssetHashType.OUTPUT,
        bundling=BundlingOptions(
            image=runtime.bundling_image,
            local=Bundle(artifact=artifact, machine=machine),
            # The CDK stages assets of equal folder and options once, and can't see into `local`: without this the
            # second function would ship the first one's code.
            environment={"ARTIFACT": artifact},
        ),
    )
