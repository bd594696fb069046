"""The EMR Serverless application that runs index jobs, and the code that its job runs use.

An application costs nothing while it is idle. A job run gets three objects: its entry point, the packages of the jobs,
and an archive of locked wheels without an interpreter, whose `bin/python` starts the image's own Python. So the archive
may be unpacked anywhere, and is packed without Python, docker or a compiler of the target. `emr-spark-8.0.0` brings
Python 3.11, 3.12 and 3.13 (Amazon EMR Release Guide, "Amazon runtime for Apache Spark (emr-spark-8.0.0)", versions).
"""

from __future__ import annotations

import gzip
import shutil
import tarfile
import tempfile
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

from infra import wheels
from infra.bundle import copy_packages
from infra.environments import SPARK_DRIVER_VCPUS, SPARK_EXECUTOR_VCPUS, Environment
from infra.machine import ARM, REPOSITORY, X86, Machine
from infra.permissions import job_statements

RELEASE = "emr-spark-8.0.0"
ARCHITECTURES = {ARM: "ARM64", X86: "X86_64"}
# Between two waves of work workers stay warm for so long; then the application stops.
IDLE_MINUTES = 15


class Spark(Construct):
    """The EMR Serverless application. Its capacity limits bound what a backlog can cost."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        bucket: s3.IBucket,
        key: kms.IKey | None,
        environment: Environment,
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
    """Returns the configuration of a driver and executors that are kept started, so that the next job starts in seconds
    instead of a minute or two; None if there are no executors to keep.

    Their sizes, overhead included, are those that jobs ask for (`functions/indexer/runs.py`): warm workers of other
    sizes would serve no job.
    """
    if not executors:
        return None
    sizes = {
        "Driver": (1, SPARK_DRIVER_VCPUS, 4),
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
    """The CDK's local bundling of one asset: calls a function that fills its folder, without docker."""

    def __init__(self, fill: Callable[[Path], None]) -> None:
        self._fill = fill

    def try_bundle(self, output_dir: str, *_options: Any, **_more_options: Any) -> bool:
        """Fills the folder for the CDK and returns True. Raises when it can't: there is no docker to fall back to."""
        self._fill(Path(output_dir))
        return True


class SparkAssets(Construct):
    """The three uploaded objects of a job run, each named by the hash of its content: a job run never uses the code of
    another deployment.
    """

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.entry_point = self._asset("EntryPoint", copy_entry_point, BundlingOutput.SINGLE_FILE)
        self.packages = self._asset("Packages", copy_jobs, BundlingOutput.NOT_ARCHIVED)
        self.environment = self._asset("Environment", pack_environment, BundlingOutput.SINGLE_FILE)

    def read_statements(self) -> list[iam.PolicyStatement]:
        """Returns the permissions that a job run needs to fetch these three objects, and nothing else of the bucket.

        They include listing, because Spark checks whether each object is a folder.
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


# Python 3.11 is the oldest that the library knows, and the one that most of its tests run on. AWS documents arm64 for EMR
# Serverless, but not for this release, and not which Pythons its image has there (docs/decisions.md).
SPARK = Machine(architecture=X86, python="3.11")
ENTRY_POINT = "main.py"
# Spark goes by the name's end, and the CDK keeps what follows the last dot.
ENVIRONMENT = "environment.tgz"
UNPACKED = "environment"  # the name under which the submission unpacks the archive
PACKAGES = ("headrace", "emr_jobs")
SERVICES = ("s3",)
# An executor fetches and unpacks it before its first task.
MAX_PACKED_BYTES = 100 * 1024 * 1024
MAX_UNPACKED_BYTES = 260 * 1024 * 1024
_LIBRARIES = "lib"
# Any moment will do, so long as it is always the same; some tars warn of 1970.
_TIME_S = 315_532_800

# `$0` is relative when Spark calls it, and Python's workers change their folder.
_LAUNCHER = """\
#!/bin/sh
# The image's own Python {version}, with the libraries beside this file on its path.
root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
PYTHONPATH="$root/{libraries}${{PYTHONPATH:+:$PYTHONPATH}}"
export PYTHONPATH
for python in python{version} /usr/bin/python{version} /usr/local/bin/python{version}; do
    if command -v "$python" >/dev/null 2>&1; then
        exec "$python" "$@"
    fi
done
echo "no Python {version} here: the libraries in $root are for that version alone" >&2
exit 127
"""


def copy_entry_point(folder: Path) -> None:
    """Copies to a folder the Python file that a job run starts with."""
    shutil.copy2(REPOSITORY / "emr_jobs" / ENTRY_POINT, folder / ENTRY_POINT)


def copy_jobs(folder: Path) -> None:
    """Copies the packages of the jobs to a folder. Zipped, it is what Spark puts on every worker's Python path."""
    copy_packages(PACKAGES, folder)


def pack_environment(folder: Path, machine: Machine = SPARK) -> None:
    """Writes the archive of the wheels that jobs import, for the Python and the processor of `machine`.

    Raises RuntimeError if a wheel can't be found, ValueError if the result is too large.
    """
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        libraries = root / _LIBRARIES
        wheels.install(extra="spark", target=libraries, machine=machine, services=SERVICES)
        wheels.compile_all(libraries, version=machine.python, shown_as=f"{UNPACKED}/{_LIBRARIES}")
        launcher = root / "bin" / "python"
        launcher.parent.mkdir()
        launcher.write_text(_LAUNCHER.format(version=machine.python, libraries=_LIBRARIES))
        launcher.chmod(0o755)
        unpacked = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
        archive = folder / ENVIRONMENT
        pack(root, archive)
    packed = archive.stat().st_size
    if unpacked > MAX_UNPACKED_BYTES or packed > MAX_PACKED_BYTES:
        raise ValueError(
            f"environment too large: unpacked={unpacked} limit={MAX_UNPACKED_BYTES} packed={packed} "
            f"limit={MAX_PACKED_BYTES}"
        )


def pack(root: Path, archive: Path) -> None:
    """Writes a gzipped tar of what is in `root`. The same files give the same bytes: sorted, owned by uid 0, with one
    fixed mtime."""
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for path in sorted(root.rglob("*")):
            tar.add(path, arcname=str(path.relative_to(root)), recursive=False, filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = _TIME_S
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry
