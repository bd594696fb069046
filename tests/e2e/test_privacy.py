"""The promise about deleted records on the bucket of a deployment, in the emulator. Versions and lifecycle rule are the
template's; what S3 does by that rule, this test does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from headrace.objects.s3 import S3Objects
from local.template import read_template
from tests.support.clocks import ManualClock
from tests.support.emulated_cloud import Cloud, emulated_cloud
from tests.unit.indexer.test_privacy import DAY_S, Topic, acknowledge, check_goes, delete


class DeployedBucket(S3Objects):
    """A bucket with the versions and the lifecycle rule of the template. `forgotten`: keys of versions that it removed."""

    def __init__(self, name: str, client: Any, clock: ManualClock) -> None:
        super().__init__(name, client)
        (bucket,) = (
            one["Properties"] for one in read_template()["Resources"].values() if one["Type"] == "AWS::S3::Bucket"
        )
        (self.version_days,) = (
            rule["NoncurrentVersionExpiration"]["NoncurrentDays"]
            for rule in bucket["LifecycleConfiguration"]["Rules"]
            if "NoncurrentVersionExpiration" in rule
        )
        client.create_bucket(Bucket=name)
        client.put_bucket_versioning(Bucket=name, VersioningConfiguration=bucket["VersioningConfiguration"])
        self._clock = clock
        self._replaced_ms: dict[str, int] = {}  # by version
        self.forgotten: list[str] = []

    def _versions(self) -> Iterator[dict[str, Any]]:
        for page in self._client.get_paginator("list_object_versions").paginate(Bucket=self._bucket):
            yield from page.get("Versions", [])

    def forget(self) -> None:
        """Removes versions that were replaced or deleted so many days ago."""
        now_ms = self._clock.now_ms()
        for version in list(self._versions()):
            if version["IsLatest"]:
                continue
            key, id_ = version["Key"], version["VersionId"]
            if self._replaced_ms.setdefault(id_, now_ms) <= now_ms - self.version_days * DAY_S * 1000:
                self._client.delete_object(Bucket=self._bucket, Key=key, VersionId=id_)
                self.forgotten.append(key)

    def current(self) -> Iterable[tuple[str, bytes]]:
        """Yields each object, with its key."""
        return ((key, self.get(key)) for key in self.list(""))

    def everything(self) -> Iterable[tuple[str, bytes]]:
        """Yields each version of each object, with its key."""
        for version in self._versions():
            asked = {"Bucket": self._bucket, "Key": version["Key"], "VersionId": version["VersionId"]}
            yield version["Key"], self._client.get_object(**asked)["Body"].read()


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with emulated_cloud() as running:
        yield running


@pytest.mark.parametrize(
    "gone", [pytest.param(delete, id="deleted"), pytest.param(acknowledge, id="done", marks=pytest.mark.full)]
)
def test_no_version_of_an_object_has_what_was_deleted_after_the_stated_time(
    cloud: Cloud, gone: Callable[[Topic], None]
) -> None:
    made = list[DeployedBucket]()

    def bucket(clock: ManualClock) -> DeployedBucket:
        made.append(DeployedBucket(f"versions-of-{gone.__name__}", cloud.client("s3"), clock))
        return made[0]

    check_goes(Topic(bucket, type="queue" if gone is acknowledge else "log"), gone, 2)
    assert {key.split("/")[2] for key in made[0].forgotten} >= {"segments", "index"}, "it kept versions"
