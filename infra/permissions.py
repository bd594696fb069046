"""What each function may do, written out. Nothing here names `*`, and the api deletes no object."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_emrserverless as emrserverless
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sqs as sqs

from infra.tables import DUE_INDEX, EXPIRY_INDEX, Tables

# Every object of every log.
LOG_OBJECTS = "logs/*"
# Payloads too large for an item, written before the item that names them.
SPILLED_OBJECTS = "logs/*/wal/*"
# Schema registries and profiles, written before the entry that names them.
DEFINITIONS = "logs/*/registry/*"
# Index runs and their manifests.
INDEX = "logs/*/index/*"
# Index runs alone: a job publishes nothing.
INDEX_RUNS = "logs/*/index/runs/*"
# Merged segments, with their key pages.
MERGED_SEGMENTS = "logs/*/segments/*-m*"
# Generations of log manifests.
MANIFESTS = "logs/*/manifests/*.json.zst"
# What jobs are told and what they answer.
JOBS = "jobs/*"


def api_statements(
    *, tables: Tables, bucket: s3.IBucket, key: kms.IKey, api_keys: secretsmanager.ISecret
) -> list[iam.PolicyStatement]:
    """Creates, appends, reads, closes and deletes logs; never deletes or overwrites what was sealed."""
    return [
        # Delete is for one case: an item of our own that turned out to be below the published end. The condition check
        # is for another log's entry in one transaction (a fork and its source): its predecessor must stand.
        _on_table("Wal", tables.wal, ["GetItem", "Query", "PutItem", "DeleteItem", "ConditionCheckItem"]),
        _on_table("Catalog", tables.catalog, ["GetItem", "Query", "PutItem", "UpdateItem"]),
        # An expiry commits only if the last touch is unchanged.
        _on_table("Watermarks", tables.watermarks, ["GetItem", "UpdateItem", "ConditionCheckItem"]),
        _on_table("Producers", tables.producers, ["GetItem", "PutItem"]),
        _on_objects("ReadObjects", bucket, ["GetObject"], LOG_OBJECTS),
        _on_objects("SpillPayloads", bucket, ["PutObject"], SPILLED_OBJECTS),
        _on_objects("PutDefinitions", bucket, ["PutObject"], DEFINITIONS),
        _list_objects(bucket),
        _use_key(bucket, key, services=("dynamodb", "s3", "secretsmanager")),
        iam.PolicyStatement(
            sid="ReadApiKeys",
            actions=["secretsmanager:GetSecretValue"],
            resources=[api_keys.secret_arn],
        ),
    ]


def sealer_statements(
    *, tables: Tables, bucket: s3.IBucket, key: kms.IKey, delay: sqs.IQueue
) -> list[iam.PolicyStatement]:
    """Seals, publishes, trims, expires and purges; is fed by the stream and by the delayed queue."""
    return [
        _on_table(
            "Wal",
            tables.wal,
            ["GetItem", "Query", "PutItem", "DeleteItem", "BatchWriteItem", "ConditionCheckItem"],
        ),
        _on_table("Catalog", tables.catalog, ["GetItem", "Query", "PutItem", "UpdateItem"]),
        iam.PolicyStatement(
            sid="CatalogExpiry",
            actions=["dynamodb:Query"],
            resources=[f"{tables.catalog.table_arn}/index/{EXPIRY_INDEX}"],
        ),
        _on_table(
            "Watermarks",
            tables.watermarks,
            ["GetItem", "PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"],
        ),
        _on_table("Producers", tables.producers, ["Query", "DeleteItem", "BatchWriteItem"]),
        _on_objects("KeepObjects", bucket, ["GetObject", "PutObject", "DeleteObject"], LOG_OBJECTS),
        _list_objects(bucket),
        _use_key(bucket, key, services=("dynamodb", "s3")),
        *_read_stream(tables.wal),
        iam.PolicyStatement(
            sid="DelayedQueue",
            actions=[
                "sqs:SendMessage",
                "sqs:ReceiveMessage",
                "sqs:DeleteMessage",
                "sqs:GetQueueAttributes",
            ],
            resources=[delay.queue_arn],
        ),
    ]


def indexer_statements(
    *,
    tables: Tables,
    bucket: s3.IBucket,
    key: kms.IKey,
    queue: sqs.IQueue,
    application: emrserverless.CfnApplication,
    job_role: iam.IRole,
) -> list[iam.PolicyStatement]:
    """Looks at logs, starts and follows job runs, publishes and retires index runs, publishes merged segments.

    It writes no entry, and deletes no segment that was sealed.
    """
    return [
        _on_table("Wal", tables.wal, ["Query"]),
        _on_table("Catalog", tables.catalog, ["Query"]),
        # It adds to the counters of requests.
        _on_table("Watermarks", tables.watermarks, ["GetItem", "UpdateItem"]),
        _on_table("Jobs", tables.jobs, ["GetItem", "PutItem", "DeleteItem"]),
        iam.PolicyStatement(
            sid="JobsDue",
            actions=["dynamodb:Query"],
            resources=[f"{tables.jobs.table_arn}/index/{DUE_INDEX}"],
        ),
        _on_objects("ReadLogs", bucket, ["GetObject"], LOG_OBJECTS),
        _on_objects("KeepIndexes", bucket, ["PutObject", "DeleteObject"], INDEX),
        _on_objects("PublishMerged", bucket, ["PutObject"], MANIFESTS),
        _on_objects("DropMerged", bucket, ["DeleteObject"], MERGED_SEGMENTS),
        _on_objects("TellJobs", bucket, ["GetObject", "PutObject"], JOBS),
        _list_objects(bucket),
        _use_key(bucket, key, services=("dynamodb", "s3")),
        iam.PolicyStatement(
            sid="IndexQueue",
            actions=[
                "sqs:SendMessage",
                "sqs:ReceiveMessage",
                "sqs:DeleteMessage",
                "sqs:GetQueueAttributes",
            ],
            resources=[queue.queue_arn],
        ),
        iam.PolicyStatement(
            sid="RunJobs",
            actions=["emr-serverless:StartJobRun"],
            resources=[application.attr_arn],
        ),
        iam.PolicyStatement(
            sid="FollowJobs",
            actions=["emr-serverless:GetJobRun"],
            resources=[f"{application.attr_arn}/jobruns/*"],
        ),
        iam.PolicyStatement(
            sid="LendJobRole",
            actions=["iam:PassRole"],
            resources=[job_role.role_arn],
            conditions={"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}},
        ),
    ]


def job_statements(*, bucket: s3.IBucket, key: kms.IKey) -> list[iam.PolicyStatement]:
    """What a job may do: read logs, write runs and merged segments. It publishes and deletes nothing, and has no table."""
    return [
        _on_objects("ReadLogs", bucket, ["GetObject"], LOG_OBJECTS),
        _on_objects("WriteRuns", bucket, ["PutObject"], INDEX_RUNS),
        _on_objects("WriteMerged", bucket, ["PutObject"], MERGED_SEGMENTS),
        _on_objects("AnswerIndexer", bucket, ["GetObject", "PutObject"], JOBS),
        _list_objects(bucket),
        _use_key(bucket, key, services=("s3",)),
    ]


def _on_table(sid: str, table: dynamodb.ITable, actions: Sequence[str]) -> iam.PolicyStatement:
    return iam.PolicyStatement(
        sid=sid, actions=[f"dynamodb:{action}" for action in actions], resources=[table.table_arn]
    )


def _on_objects(sid: str, bucket: s3.IBucket, actions: Sequence[str], pattern: str) -> iam.PolicyStatement:
    return iam.PolicyStatement(
        sid=sid,
        actions=[f"s3:{action}" for action in actions],
        resources=[bucket.arn_for_objects(pattern)],
    )


def _list_objects(bucket: s3.IBucket) -> iam.PolicyStatement:
    """Without it S3 answers 403 for an object that is absent, and readers look for the first absent manifest.

    Not narrowed to a prefix: a GetObject carries none, so a condition on it would bring the 403 back.
    """
    return iam.PolicyStatement(sid="SeeAbsentObjects", actions=["s3:ListBucket"], resources=[bucket.bucket_arn])


def _use_key(scope: s3.IBucket, key: kms.IKey, *, services: Sequence[str]) -> iam.PolicyStatement:
    """The key through the stores only: holding the role does not decrypt anything by hand."""
    stack = Stack.of(scope)
    return iam.PolicyStatement(
        sid="UseKeyThroughStores",
        actions=[
            "kms:Decrypt",
            "kms:DescribeKey",
            "kms:Encrypt",
            "kms:GenerateDataKey",
            "kms:GenerateDataKeyWithoutPlaintext",
            "kms:ReEncryptFrom",
            "kms:ReEncryptTo",
        ],
        resources=[key.key_arn],
        conditions={
            "StringEquals": {
                "kms:ViaService": [f"{service}.{stack.region}.{stack.url_suffix}" for service in services]
            }
        },
    )


def _read_stream(table: dynamodb.Table) -> list[iam.PolicyStatement]:
    stream_arn = table.table_stream_arn
    assert stream_arn is not None, "the wal table has a stream"
    return [
        iam.PolicyStatement(
            sid="ReadStream",
            actions=["dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"],
            resources=[stream_arn],
        ),
        iam.PolicyStatement(
            sid="FindStream",
            actions=["dynamodb:ListStreams"],
            resources=[f"{table.table_arn}/stream/*"],
        ),
    ]
