"""The code of job runs, uploaded by `cdk deploy` to the bucket of the CDK's bootstrap beside that of the functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsii
from aws_cdk import AssetHashType, BundlingOptions, BundlingOutput, DockerImage, ILocalBundling
from aws_cdk import aws_iam as iam
from aws_cdk.aws_s3_assets import Asset
from constructs import Construct

from infra import spark_package
from infra.commands import REPOSITORY


@jsii.implements(ILocalBundling)
class _Fill:
    """Fills an asset's folder without docker."""

    def __init__(self, fill: Callable[[Path], None]) -> None:
        self._fill = fill

    def try_bundle(self, output_dir: str, *_options: Any, **_more_options: Any) -> bool:
        """Called by the CDK; True means done. Raises when it can't: there is no docker to fall back to."""
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
        """What a job run needs to fetch these three and nothing else of the bucket.

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
