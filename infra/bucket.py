"""The bucket: segments, manifests, index runs and spilled payloads. It alone is enough to recover what was published."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

# An upload that took longer than this has no writer any more.
ABANDONED_UPLOAD_DAYS = 2
# What an index job was told and what it answered: of use to who asks why it failed, and to nobody else.
JOB_DAYS = 14
JOBS_PREFIX = "jobs/"


class DataBucket(Construct):
    """Versioned, encrypted with the customer key, private, TLS only, kept after the stack."""

    def __init__(self, scope: Construct, construct_id: str, *, key: kms.IKey, noncurrent_version_days: int) -> None:
        super().__init__(scope, construct_id)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            versioned=True,
            encryption=s3.BucketEncryption.KMS,
            encryption_key=key,
            # One key request for many objects, instead of one for each.
            bucket_key_enabled=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            removal_policy=RemovalPolicy.RETAIN,
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="forget-deleted-objects",
                    noncurrent_version_expiration=Duration.days(noncurrent_version_days),
                    # A marker whose last version is gone only slows listings down.
                    expired_object_delete_marker=True,
                ),
                s3.LifecycleRule(
                    id="abort-abandoned-uploads",
                    abort_incomplete_multipart_upload_after=Duration.days(ABANDONED_UPLOAD_DAYS),
                ),
                s3.LifecycleRule(id="forget-jobs", prefix=JOBS_PREFIX, expiration=Duration.days(JOB_DAYS)),
            ],
        )
