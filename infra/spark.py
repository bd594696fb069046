"""Where index jobs run: an EMR Serverless application that costs nothing while it is idle, the role of its job runs,
and their code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsii
from aws_cdk import AssetHashType, BundlingOptions, BundlingOutput, DockerImage, ILocalBundling, Stack
from aws_cdk import aws_emrserverless as emrserverless
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk.aws_s3_assets import Asset
from constructs import Construct

from infra import spark_package
from infra.environments import SPARK_DRIVER_VCPUS, SPARK_EXECUTOR_VCPUS, Environment
from infra.machine import ARM, REPOSITORY, X86
from infra.permissions import job_statements
from infra.spark_package import SPARK

RELEASE = "emr-spark-8.0.0"
ARCHITECTURES = {ARM: "ARM64", X86: "X86_64"}
# Between two waves of work workers stay warm for so long; then the application stops.
IDLE_MINUTES = 15


class Spark(Construct):
    """One application. Its limits bound what a backlog can cost."""

    def __init__(
        self, scope: Construct, construct_id: str, *, bucket: s3.IBucket, key: kms.IKey, environment: Environment
    ) -> None:
        super().__init__(scope, construct_id)
        maximum_vcpus = environment.spark_maximum_vcpus
        self.application = emrserverless.CfnApplication(
            self,
            "Application",
            name=f"{Stack.of(self).stack_name}-index",
            release_label=RELEASE,
            type="SPARK",
            architecture=ARCHITECTURES[SPARK.architecture],
            auto_start_configuration=emrserverless.CfnApplication.AutoStartConfigurationProperty(enabled=True),
            auto_stop_configuration=emrserverless.CfnApplication.AutoStopConfigurationProperty(
                enabled=True, idle_timeout_minutes=IDLE_MINUTES
            ),
            initial_capacity=_warm(environment.spark_warm_executors),
            maximum_capacity=emrserverless.CfnApplication.MaximumAllowedResourcesProperty(
                cpu=f"{maximum_vcpus} vCPU", memory=f"{4 * maximum_vcpus} GB", disk=f"{40 * maximum_vcpus} GB"
            ),
        )
        self.role = iam.Role(
            self,
            "Role",
            # Only for applications of this account, whatever another one is told about the role.
            assumed_by=iam.ServicePrincipal(
                "emr-serverless.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
            ),
        )
        self.assets = SparkAssets(self, "Assets")
        for statement in (*job_statements(bucket=bucket, key=key), *self.assets.read_statements()):
            self.role.add_to_policy(statement)


def _warm(executors: int) -> list[emrserverless.CfnApplication.InitialCapacityConfigKeyValuePairProperty] | None:
    """Returns a driver and executors that wait for the next job: it then starts in seconds instead of a minute or two.

    Their sizes are those that jobs ask for (`functions/indexer/runs.py`), overhead included: others would serve none.
    """
    if not executors:
        return None
    sizes = {
        "Driver": (1, SPARK_DRIVER_VCPUS, 8),
        "Executor": (executors, SPARK_EXECUTOR_VCPUS, 12),
    }
    return [
        emrserverless.CfnApplication.InitialCapacityConfigKeyValuePairProperty(
            key=kind,
            value=emrserverless.CfnApplication.InitialCapacityConfigProperty(
                worker_count=count,
                worker_configuration=emrserverless.CfnApplication.WorkerConfigurationProperty(
                    cpu=f"{vcpus} vCPU", memory=f"{memory_gb} GB"
                ),
            ),
        )
        for kind, (count, vcpus, memory_gb) in sizes.items()
    ]


@jsii.implements(ILocalBundling)
class _Fill:
    """Fills an asset's folder without docker."""

    def __init__(self, fill: Callable[[Path], None]) -> None:
        self._fill = fill

    def try_bundle(self, output_dir: str, *_options: Any, **_more_options: Any) -> bool:
        """Fills the folder for the CDK and returns True. Raises when it can't: there is no docker to fall back to."""
        self._fill(Path(output_dir))
        return True


class SparkAssets(Construct):
    """Three objects, each named by the hash of its content: a job run never sees the code of another deployment."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.entry_point = self._asset("EntryPoint", spark_package.copy_entry_point, BundlingOutput.SINGLE_FILE)
        self.packages = self._asset("Packages", spark_package.copy_jobs, BundlingOutput.NOT_ARCHIVED)
        self.environment = self._asset("Environment", spark_package.pack_environment, BundlingOutput.SINGLE_FILE)

    def read_statements(self) -> list[iam.PolicyStatement]:
        """Returns what a job run needs to fetch these three objects, and nothing else of the bucket.

        Spark asks whether each is a folder, which is a listing.
        """
        assets = (self.entry_point, self.packages, self.environment)
        bucket = self.entry_point.bucket  # one for all assets of a stack
        return [
            iam.PolicyStatement(
                sid="ReadOwnCode",
                actions=["s3:GetObject"],
                resources=[bucket.arn_for_objects(asset.s3_object_key) for asset in assets],
            ),
            iam.PolicyStatement(
                sid="SeeOwnCode",
                actions=["s3:ListBucket"],
                resources=[bucket.bucket_arn],
                conditions={"StringLike": {"s3:prefix": [f"{asset.s3_object_key}*" for asset in assets]}},
            ),
        ]

    def _asset(self, construct_id: str, fill: Callable[[Path], None], output: BundlingOutput) -> Asset:
        return Asset(
            self,
            construct_id,
            path=str(REPOSITORY),
            # The hash is of what is shipped. A synth without bundling uses a constant instead.
            asset_hash_type=AssetHashType.OUTPUT,
            bundling=BundlingOptions(
                image=DockerImage.from_registry("never-used"),
                local=_Fill(fill),
                output_type=output,
                # The CDK stages assets of equal folder and options once, and can't see into `local`.
                environment={"ASSET": construct_id},
            ),
        )
