"""Where data is stored: the customer-managed key, the tables and the bucket. The bucket alone is enough to recover
everything that was published; a principal that may not use the key can read nothing.
"""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct


class DataKey(Construct):
    """The customer-managed key of tables, bucket and secret: rotated yearly, and kept after the stack is deleted if the
    data is kept.
    """

    def __init__(self, scope: Construct, construct_id: str, *, removal: RemovalPolicy) -> None:
        super().__init__(scope, construct_id)
        self.key = kms.Key(
            self,
            "Key",
            description="Headrace: tables, bucket and secret",
            enable_key_rotation=True,
            removal_policy=removal,
        )


EXPIRY_INDEX = "expiry"
LIVING_INDEX = "living"
PURGE_INDEX = "purge"
DUE_INDEX = "due"


class Tables(Construct):
    """The DynamoDB tables: on-demand capacity, point-in-time recovery of 35 days; protected from deletion if the
    environment keeps data.
    """

    def __init__(self, scope: Construct, construct_id: str, *, key: kms.IKey | None, removal: RemovalPolicy) -> None:
        super().__init__(scope, construct_id)
        self._removal = removal
        self._key = key
        self.wal = self._table(
            "Wal",
            partition_key=_text("log_id"),
            sort_key=_number("slot"),
            # Readers of the stream see the item itself; trims carry no image worth sending.
            stream=dynamodb.StreamViewType.NEW_IMAGE,
        )
        self.wal.add_global_secondary_index(
            index_name=PURGE_INDEX,
            partition_key=_text("purge_shard"),
            sort_key=_number("committed"),
            projection_type=dynamodb.ProjectionType.KEYS_ONLY,
        )
        self.catalog = self._table("Catalog", partition_key=_text("bucket"), sort_key=_text("name"))
        self.catalog.add_global_secondary_index(
            index_name=EXPIRY_INDEX,
            partition_key=_text("expiry_shard"),
            sort_key=_number("expires_at_ms"),
            projection_type=dynamodb.ProjectionType.KEYS_ONLY,
        )
        self.catalog.add_global_secondary_index(
            index_name=LIVING_INDEX,
            partition_key=_text("living_in"),
            sort_key=_text("name"),
            # A listing shows what is in the row.
            projection_type=dynamodb.ProjectionType.ALL,
        )
        self.watermarks = self._table("Watermarks", partition_key=_text("log_id"))
        self.producers = self._table(
            "Producers",
            partition_key=_text("log_id"),
            sort_key=_text("producer"),
            # Unix seconds, as DynamoDB wants it.
            time_to_live_attribute="expires_at",
        )
        self.follows = self._table(
            "Follows",
            partition_key=_text("log_id"),
            sort_key=_text("id"),
            # Of followers that last for a while. The others are counted in the state of their log.
            time_to_live_attribute="expires_at",
        )
        self.follows.add_global_secondary_index(
            index_name=DUE_INDEX,
            partition_key=_text("due_shard"),
            sort_key=_number("due_ms"),
            # Who visits a follower must know all of it.
            projection_type=dynamodb.ProjectionType.ALL,
        )
        self.sessions = self._table(
            "Sessions",
            partition_key=_text("id"),
            sort_key=_text("part"),
            # Rows that are counted have none: they go together with their counts.
            time_to_live_attribute="expires_at",
        )
        self.sessions.add_global_secondary_index(
            index_name=EXPIRY_INDEX,
            partition_key=_text("expiry_shard"),
            sort_key=_number("expires_at_ms"),
            # What an expired slot counts is freed with it.
            projection_type=dynamodb.ProjectionType.ALL,
        )
        self.features = self._table(
            "Features",
            partition_key=_text("id"),
            sort_key=_text("part"),
            # Of rows whose features all have windows, in tables that forget idle entities.
            time_to_live_attribute="expires_at",
        )
        self.jobs = self._table("Jobs", partition_key=_text("id"))
        self.jobs.add_global_secondary_index(
            index_name=DUE_INDEX,
            partition_key=_text("due_queue"),
            sort_key=_number("due_ms"),
            # A handful of numbers, all of which a look at what is due needs.
            projection_type=dynamodb.ProjectionType.ALL,
        )

    @property
    def all(self) -> tuple[dynamodb.Table, ...]:
        """Returns every table, in the order of their declaration."""
        return (
            *(self.wal, self.catalog, self.watermarks, self.producers, self.follows, self.sessions),
            *(self.features, self.jobs),
        )

    def _table(
        self,
        construct_id: str,
        *,
        partition_key: dynamodb.Attribute,
        sort_key: dynamodb.Attribute | None = None,
        stream: dynamodb.StreamViewType | None = None,
        time_to_live_attribute: str | None = None,
    ) -> dynamodb.Table:
        return dynamodb.Table(
            self,
            construct_id,
            partition_key=partition_key,
            sort_key=sort_key,
            stream=stream,
            time_to_live_attribute=time_to_live_attribute,
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=self._removal is RemovalPolicy.RETAIN,
            removal_policy=self._removal,
            encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED if self._key else dynamodb.TableEncryption.DEFAULT,
            encryption_key=self._key,
        )


def _text(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)


def _number(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.NUMBER)


# An upload that took longer than this has no writer any more.
ABANDONED_UPLOAD_DAYS = 2
# What an index job was told and what it answered: needed only to find out why it failed.
JOB_DAYS = 14
JOBS_PREFIX = "jobs/"


class DataBucket(Construct):
    """The S3 bucket: versioned, encrypted (with the customer-managed key, if there is one), private, TLS only, kept after
    the stack is deleted.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, key: kms.IKey | None, noncurrent_version_days: int
    ) -> None:
        super().__init__(scope, construct_id)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            versioned=True,
            encryption=s3.BucketEncryption.KMS if key else s3.BucketEncryption.S3_MANAGED,
            encryption_key=key,
            # One key request for many objects, instead of one for each.
            bucket_key_enabled=key is not None,
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
