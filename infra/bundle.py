"""Fills the folder of a Lambda artifact: locked dependencies for its machine, the library, one function, byte code.

Runs only during a deployment's synth, on any Linux or macOS machine with uv; needs no docker and no compiler.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jsii
from aws_cdk import Annotations, AssetHashType, BundlingOptions, Duration, ILocalBundling, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra import wheels
from infra.machine import ARM, LAMBDA, REPOSITORY, X86, Machine
from infra.metrics import NAMESPACE

# Lambda refuses an artifact above 250 MiB unzipped.
MAX_BYTES = 250 * 1024 * 1024
LAMBDA_FOLDER = "/var/task"
# What each function calls, as botocore names it.
SERVICES = {
    "api": ("dynamodb", "s3", "secretsmanager", "sqs"),
    "sealer": ("dynamodb", "s3", "sqs"),
    "indexer": ("dynamodb", "s3", "sqs", "emr-serverless"),
    "relay": ("dynamodb", "s3", "sqs", "secretsmanager", "apigatewaymanagementapi", "lambda"),
    "folder": ("dynamodb", "s3", "sqs"),
    "webhook": (),
}


@jsii.implements(ILocalBundling)
class Bundle:
    """The CDK's local bundling of one artifact: fills its asset folder without docker."""

    def __init__(self, *, artifact: str, machine: Machine) -> None:
        self._artifact = artifact
        self._machine = machine

    def try_bundle(self, output_dir: str, *_options: Any, **_more_options: Any) -> bool:
        """Builds the artifact for the CDK and returns True. Raises when it can't: there is no docker to fall back to."""
        build(artifact=self._artifact, target=Path(output_dir), machine=self._machine)
        return True


def build(*, artifact: str, target: Path, machine: Machine = LAMBDA) -> None:
    """Writes the artifact into the empty folder `target`, for `machine`, whatever machine this runs on.

    Raises RuntimeError if a step fails, ValueError if the result is too large for Lambda.
    """
    wheels.install(extra=artifact, target=target, machine=machine, services=SERVICES[artifact])
    copy_sources(artifact=artifact, target=target)
    wheels.compile_all(target, version=machine.python, shown_as=LAMBDA_FOLDER)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    if size > MAX_BYTES:
        raise ValueError(f"artifact too large: name={artifact} bytes={size} limit={MAX_BYTES}")


def copy_sources(*, artifact: str, target: Path) -> None:
    """Copies the library, the function's own folder, and everything beside it that functions share (folders and modules
    without a handler).
    """
    copy_packages(("headrace", f"functions/{artifact}"), target)
    for path in sorted((REPOSITORY / "functions").iterdir()):
        if path.suffix == ".py":
            shutil.copy2(path, target / "functions" / path.name)
        elif (path / "__init__.py").exists() and not (path / "handler.py").exists():
            copy_packages((f"functions/{path.name}",), target)


def copy_packages(folders: Iterable[str], target: Path) -> None:
    """Copies folders of the repository to `target`, source files only."""
    for folder in folders:
        shutil.copytree(REPOSITORY / folder, target / folder, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))


ARCHITECTURES = {ARM: lambda_.Architecture.ARM_64, X86: lambda_.Architecture.X86_64}


LIVE = "live"


class PythonFunction(Construct):
    """A Lambda function from `functions/<artifact>/handler.py`, with a role and a log group of its own.

    Each change of it publishes a version, and everything calls it through `live`, an alias of the newest one. Earlier
    versions stay when a deployment replaces them, so that the alias can be put back; `infra/versions.py` removes them
    in the end.

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
        memory_mb: int,
        log_retention: logs.RetentionDays,
        snap_start: bool = False,
        reserved_concurrency: int = 0,
        provisioned_concurrency: int = 0,
        retry_attempts: int | None = None,
        machine: Machine = LAMBDA,
        handler: str = "",
        same_code_as: PythonFunction | None = None,
    ) -> None:
        """Defines the function.

        Args:
            artifact: a folder of `functions/` and an extra of `pyproject.toml`.
            memory_mb: at 1,769 Lambda gives one whole vCPU, all that one Python thread can use. That leaves more than
                1 GB of room to the sealer, which holds 16 MiB of payload a few times over (items, rows, Arrow columns,
                file).
            snap_start: whether new instances resume from a snapshot of the initialised process.
            provisioned_concurrency: how many instances are kept ready. Lambda allows this or `snap_start`.
            reserved_concurrency: the most instances that may run; 0 sets no bound.
            retry_attempts: bounds the repeats of an asynchronous invocation (0 to 2).
            handler: replaces the usual one.
            same_code_as: a function of the same artifact, which is then bundled once.
        """
        super().__init__(scope, construct_id)
        runtime = runtime_of(machine)
        self.log_group = logs.LogGroup(self, "Log", retention=log_retention, removal_policy=RemovalPolicy.DESTROY)
        self.role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        self.code: lambda_.Code = same_code_as.code if same_code_as else _code(artifact, runtime, machine)
        self.function = lambda_.Function(
            self,
            "Function",
            runtime=runtime,
            architecture=ARCHITECTURES[machine.architecture],
            memory_size=memory_mb,
            timeout=timeout,
            handler=handler or f"functions.{artifact}.handler.handler",
            code=self.code,
            role=self.role,
            log_group=self.log_group,
            environment={
                **environment,
                "POWERTOOLS_SERVICE_NAME": artifact,
                "POWERTOOLS_METRICS_NAMESPACE": NAMESPACE,
                "POWERTOOLS_LOG_LEVEL": "INFO",
            },
            snap_start=lambda_.SnapStartConf.ON_PUBLISHED_VERSIONS if snap_start else None,
            reserved_concurrent_executions=reserved_concurrency or None,
            # Not RETAIN: that would keep the version of a deployment that was rolled back, too, and Lambda publishes no
            # other one for the same code, so that the same deployment could not be tried again.
            current_version_options=lambda_.VersionOptions(removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE),
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
        self.live = lambda_.Alias(
            self,
            "Live",
            alias_name=LIVE,
            version=self.function.current_version,
            provisioned_concurrent_executions=provisioned_concurrency or None,
            # Of the alias, since Lambda keeps this by what was invoked.
            retry_attempts=retry_attempts,
        )
        if snap_start:
            Annotations.of(self.function).acknowledge_warning(
                "@aws-cdk/aws-lambda:snapStartRequirePublish", "the alias publishes one"
            )

    def grant(self, statements: Sequence[iam.PolicyStatement]) -> None:
        """Adds permissions to the function's role."""
        for statement in statements:
            self.role.add_to_policy(statement)


def runtime_of(machine: Machine) -> lambda_.Runtime:
    """Returns the runtime of a machine's Python."""
    return lambda_.Runtime(
        f"python{machine.python}",
        lambda_.RuntimeFamily.PYTHON,
        supports_snap_start=True,
        supports_inline_code=True,
    )


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
