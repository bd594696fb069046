"""The IAM statements of each role, written out one by one. No action or resource is `*`, and the api role deletes no
object.

Each statement is used whole: `tests/e2e/test_least_privilege.py` compares it with the calls of a complete workload.
`docs/permissions.md` explains each under its name.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_emrserverless as emrserverless
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sqs as sqs

from infra.storage import DUE_INDEX, EXPIRY_INDEX, LIVING_INDEX, PURGE_INDEX, Tables

# One log. Its id has 32 characters, and a star would reach across slashes: into the indexes of a log, for example.
LOG = f"logs/{'?' * 32}"
# Every object of every log.
LOG_OBJECTS = f"{LOG}/*"
# All of those but two: `log.json` and `deleted.json` say for ever what a log was, and that it is gone.
CONTENTS = f"{LOG}/*/*"
TOMBSTONES = f"{LOG}/deleted.json"
MARKS = (f"{LOG}/log.json", TOMBSTONES)
# Payloads too large for an item, written before the item that names them.
SPILLED_OBJECTS = f"{LOG}/wal/*"
SEGMENTS = f"{LOG}/segments/*"
MANIFESTS = f"{LOG}/manifests/*"
# Schema registries and profiles, written before the entry that names them.
DEFINITIONS = f"{LOG}/registry/*"
# What a surface's state names because it has no room for it: removed records, and who holds which job.
STATE_OBJECTS = (f"{LOG}/dead/*", f"{LOG}/snapshots/*")
# Index runs, and the manifests that publish them.
INDEX_RUNS = f"{LOG}/index/runs/*"
INDEX_MANIFESTS = f"{LOG}/index/manifests/*"
# Merged segments, with their key pages: a number, the time of their plan, a nonce. A sealed one's nonce may begin with m.
MERGED_SEGMENTS = f"{LOG}/segments/{'?' * 12}-m{'?' * 13}-*"
# What jobs are told and what they answer.
JOBS = "jobs/*"
JOB_REQUESTS = f"jobs/{'?' * 26}/request.json.zst"
JOB_STATES = f"jobs/{'?' * 26}/*.json.zst"
# What training sets are made for; their owner writes them.
LABELS = "labels/*"
# What Lambda does, in the name of a function, on a queue that it polls for it.
POLL = ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")


def api_statements(
    *,
    tables: Tables,
    bucket: s3.IBucket,
    key: kms.IKey | None,
    api_keys: secretsmanager.ISecret,
    signing_keys: secretsmanager.ISecret,
    relay: sqs.IQueue,
    delay: sqs.IQueue,
) -> list[iam.PolicyStatement]:
    """Returns what the api may do: create, append to, read, close and delete logs. It never deletes or overwrites a
    sealed object.
    """
    return [
        # Delete is for one case: an item of our own that turned out to be below the published end.
        _on_table("Wal", tables.wal, ["Query", "PutItem", "DeleteItem"]),
        # A create that puts objects first announces its log, and its commit removes the announcement.
        _on_table("Catalog", tables.catalog, ["GetItem", "PutItem", "UpdateItem", "DeleteItem"]),
        _on_index("CatalogLiving", tables.catalog, LIVING_INDEX),
        # An expiry commits only if the last touch is unchanged.
        _on_table("Watermarks", tables.watermarks, ["GetItem", "UpdateItem", "ConditionCheckItem"]),
        _on_table("Producers", tables.producers, ["GetItem", "PutItem"]),
        # Who must hear of a log's appends: each row by itself, or with an entry of its log.
        _on_table("Follows", tables.follows, ["GetItem", "Query", "PutItem", "DeleteItem"]),
        # Counters of what is limited, what lasts for a while (slots, sessions, bells), and read clocks.
        _on_table(
            "Sessions", tables.sessions, ["GetItem", "Query", "BatchGetItem", "PutItem", "UpdateItem", "DeleteItem"]
        ),
        _on_index("SessionsExpiry", tables.sessions, EXPIRY_INDEX),
        # What the folder wrote.
        _on_table("Features", tables.features, ["GetItem", "BatchGetItem"]),
        _on_objects("ReadLogs", bucket, ["GetObject"], LOG_OBJECTS),
        _on_objects("SpillPayloads", bucket, ["PutObject"], SPILLED_OBJECTS),
        _on_objects("PutDefinitions", bucket, ["PutObject"], DEFINITIONS),
        _on_objects("PutStateObjects", bucket, ["PutObject"], *STATE_OBJECTS),
        # Exports of feature tables, and what became of them.
        _on_objects("AskForJobs", bucket, ["PutObject"], JOB_REQUESTS),
        _on_objects("FollowJobs", bucket, ["GetObject"], JOB_STATES),
        _list_objects(bucket),
        *_use_key_through_tables(bucket, key),
        *_use_key_through_bucket(bucket, key),
        *_use_key(bucket, key, "Secret", service="secretsmanager", actions=["Decrypt"]),
        _read_secret("ReadApiKeys", api_keys),
        # It shows receivers the public keys, which it computes.
        _read_secret("ReadSigningKeys", signing_keys),
        # Followers that it wakes.
        _on_queue("RelayQueue", relay, ["SendMessage"]),
        # Lanes that an export needs sealed.
        _on_queue("DelayedQueue", delay, ["SendMessage"]),
    ]


def sealer_statements(
    *,
    tables: Tables,
    bucket: s3.IBucket,
    key: kms.IKey | None,
    delay: sqs.IQueue,
    stream_dead_letters: sqs.IQueue,
) -> list[iam.PolicyStatement]:
    """Returns what the sealer may do: seal, publish, trim, expire and purge logs, and receive from the table's stream
    and the delayed queue.
    """
    return [
        # It ends logs and releases the sources of forks as the api does: by entries, with the same fence.
        # Update is for the mark of a log that was purged.
        _on_table("Wal", tables.wal, ["Query", "PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem"]),
        _on_index("WalPurge", tables.wal, PURGE_INDEX),
        # Put and delete are for announcements of logs that were not created.
        _on_table("Catalog", tables.catalog, ["GetItem", "PutItem", "UpdateItem", "DeleteItem"]),
        _on_index("CatalogLiving", tables.catalog, LIVING_INDEX),
        _on_index("CatalogExpiry", tables.catalog, EXPIRY_INDEX),
        _on_table("Watermarks", tables.watermarks, ["GetItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"]),
        _on_table("Producers", tables.producers, ["Query", "BatchWriteItem"]),
        _on_table("Follows", tables.follows, ["Query", "BatchWriteItem"]),
        # It frees what has ended: names that are counted, slots whose deadline has passed, read clocks.
        _on_table("Sessions", tables.sessions, ["UpdateItem", "DeleteItem"]),
        _on_index("SessionsExpiry", tables.sessions, EXPIRY_INDEX),
        # A purge removes the rows of a lane.
        _on_table("Features", tables.features, ["GetItem", "Query", "BatchWriteItem"]),
        _on_objects("ReadLogs", bucket, ["GetObject"], LOG_OBJECTS),
        _on_objects("Seal", bucket, ["PutObject"], SEGMENTS, MANIFESTS, *MARKS),
        _on_objects("Purge", bucket, ["DeleteObject"], CONTENTS),
        _list_objects(bucket),
        *_use_key_through_tables(bucket, key),
        *_use_key_through_bucket(bucket, key),
        *_read_stream(tables.wal),
        _on_queue("DelayedQueue", delay, ["SendMessage", *POLL]),
        # By Lambda, in the name of the function.
        _on_queue("StreamDeadLetters", stream_dead_letters, ["SendMessage"]),
    ]


def relay_statements(
    *,
    tables: Tables,
    bucket: s3.IBucket,
    key: kms.IKey | None,
    queue: sqs.IQueue,
    stream_dead_letters: sqs.IQueue,
    api_keys: secretsmanager.ISecret,
    connections: str,
    signing_keys: secretsmanager.ISecret,
    webhook: lambda_.IFunction,
    fold: sqs.IQueue,
) -> list[iam.PolicyStatement]:
    """Returns what the relay may do: read logs, append to them as the api does, keep the rows of followers, send messages
    to the clients of sockets, sign webhooks and have them posted. It creates no name but lanes, and deletes no object.

    Args:
        connections: ARN of sending to the clients of the WebSocket API.
    """
    return [
        # Delete is for one case, as at the api: an item of our own that turned out to be below the published end.
        _on_table("Wal", tables.wal, ["Query", "PutItem", "DeleteItem"]),
        # Put and delete are for the lanes of a registration whose process has died.
        _on_table("Catalog", tables.catalog, ["GetItem", "PutItem", "UpdateItem", "DeleteItem"]),
        _on_index("CatalogLiving", tables.catalog, LIVING_INDEX),
        _on_table("Watermarks", tables.watermarks, ["GetItem", "UpdateItem", "ConditionCheckItem"]),
        _on_table("Follows", tables.follows, ["GetItem", "Query", "PutItem", "DeleteItem"]),
        _on_index("FollowsDue", tables.follows, DUE_INDEX),
        # Bells, sockets, subscriptions and their links.
        _on_table("Sessions", tables.sessions, ["GetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"]),
        # Which lanes have rows that nothing needs any longer.
        _on_table("Features", tables.features, ["GetItem"]),
        _on_objects("ReadLogs", bucket, ["GetObject"], LOG_OBJECTS),
        _on_objects("SpillPayloads", bucket, ["PutObject"], SPILLED_OBJECTS),
        _on_objects("PutDefinitions", bucket, ["PutObject"], DEFINITIONS),
        _on_objects("PutStateObjects", bucket, ["PutObject"], STATE_OBJECTS[0]),
        # Of back-fills.
        _on_objects("AskForJobs", bucket, ["PutObject"], JOB_REQUESTS),
        _on_objects("FollowJobs", bucket, ["GetObject"], JOB_STATES),
        _list_objects(bucket),
        *_use_key_through_tables(bucket, key),
        *_use_key_through_bucket(bucket, key),
        *_read_stream(tables.wal),
        # What the key allows that opened a socket is asked at each push.
        _read_secret("ReadApiKeys", api_keys),
        _read_secret("ReadSigningKeys", signing_keys),
        *_use_key(bucket, key, "Secret", service="secretsmanager", actions=["Decrypt"]),
        iam.PolicyStatement(sid="PostWebhooks", actions=["lambda:InvokeFunction"], resources=[webhook.function_arn]),
        iam.PolicyStatement(sid="PushToSockets", actions=["execute-api:ManageConnections"], resources=[connections]),
        _on_queue("RelayQueue", queue, ["SendMessage", *POLL]),
        _on_queue("FoldQueue", fold, ["SendMessage"]),
        # By Lambda, in the name of the function.
        _on_queue("StreamDeadLetters", stream_dead_letters, ["SendMessage"]),
    ]


def folder_statements(
    *, tables: Tables, bucket: s3.IBucket, key: kms.IKey | None, queue: sqs.IQueue
) -> list[iam.PolicyStatement]:
    """Returns what the folder may do: read lanes, and write the rows of feature tables. Of a lane it writes one kind of
    entry, which lets go of events that are older than they are kept.
    """
    return [
        # Delete is for one case, as at the api: an item of our own that turned out to be below the published end.
        _on_table("Wal", tables.wal, ["Query", "PutItem", "DeleteItem"]),
        _on_table("Catalog", tables.catalog, ["GetItem"]),
        _on_table("Watermarks", tables.watermarks, ["GetItem", "UpdateItem"]),
        _on_table("Features", tables.features, ["GetItem", "Query", "BatchGetItem", "PutItem", "BatchWriteItem"]),
        _on_objects("ReadLogs", bucket, ["GetObject"], LOG_OBJECTS),
        # The rows that a back-fill's job has computed.
        _on_objects("ReadRows", bucket, ["GetObject"], JOBS),
        _list_objects(bucket),
        *_use_key_through_tables(bucket, key),
        # It writes no object.
        *_use_key(bucket, key, "Bucket", service="s3", actions=["Decrypt"]),
        _on_queue("FoldQueue", queue, ["SendMessage", *POLL]),
    ]


def indexer_statements(
    *,
    tables: Tables,
    bucket: s3.IBucket,
    key: kms.IKey | None,
    queue: sqs.IQueue,
    application: emrserverless.CfnApplication,
    job_role: iam.IRole,
) -> list[iam.PolicyStatement]:
    """Returns what the indexer may do: look at logs, start and follow job runs, publish and retire index runs, publish
    merged and scrubbed segments. To know which jobs of a queue are done, it reads events, which are records.

    It writes no entry, and deletes no sealed segment.
    """
    return [
        _on_table("Wal", tables.wal, ["Query"]),
        _on_index("CatalogLiving", tables.catalog, LIVING_INDEX),
        # It raises the generation of the index, and adds to the counters of requests.
        _on_table("Watermarks", tables.watermarks, ["GetItem", "UpdateItem"]),
        _on_table("Jobs", tables.jobs, ["GetItem", "PutItem", "DeleteItem"]),
        _on_index("JobsDue", tables.jobs, DUE_INDEX),
        _on_objects(
            "LookAtLogs",
            bucket,
            ["GetObject"],
            *(
                MANIFESTS,
                DEFINITIONS,
                SEGMENTS,
                SPILLED_OBJECTS,
                *STATE_OBJECTS,
                TOMBSTONES,
                INDEX_RUNS,
                INDEX_MANIFESTS,
            ),
        ),
        _on_objects("PublishRuns", bucket, ["PutObject"], INDEX_MANIFESTS),
        _on_objects("RetireRuns", bucket, ["DeleteObject"], INDEX_RUNS, INDEX_MANIFESTS),
        _on_objects("PublishMerged", bucket, ["PutObject"], MANIFESTS),
        _on_objects("DropMerged", bucket, ["DeleteObject"], MERGED_SEGMENTS),
        _on_objects("TellJobs", bucket, ["GetObject", "PutObject"], JOBS),
        _list_objects(bucket),
        *_use_key_through_tables(bucket, key),
        *_use_key_through_bucket(bucket, key),
        _on_queue("IndexQueue", queue, ["SendMessage", *POLL]),
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


def job_statements(*, bucket: s3.IBucket, key: kms.IKey | None) -> list[iam.PolicyStatement]:
    """Returns what a job may do: read segments and labels, write runs, merged segments, exports and rows. It publishes and
    deletes nothing.
    """
    return [
        _on_objects("ReadLogs", bucket, ["GetObject"], SEGMENTS, DEFINITIONS, INDEX_RUNS),
        # Of feature tables: what is sealed, and labels.
        _on_objects("ReadForExports", bucket, ["GetObject"], MANIFESTS, LABELS),
        _on_objects("WriteRuns", bucket, ["PutObject"], INDEX_RUNS),
        _on_objects("WriteMerged", bucket, ["PutObject"], MERGED_SEGMENTS),
        _on_objects("AnswerIndexer", bucket, ["GetObject", "PutObject"], JOBS),
        _list_objects(bucket),
        *_use_key_through_bucket(bucket, key),
    ]


def _on_table(sid: str, table: dynamodb.ITable, actions: Sequence[str]) -> iam.PolicyStatement:
    return iam.PolicyStatement(
        sid=sid, actions=[f"dynamodb:{action}" for action in actions], resources=[table.table_arn]
    )


def _on_index(sid: str, table: dynamodb.ITable, index: str) -> iam.PolicyStatement:
    return iam.PolicyStatement(sid=sid, actions=["dynamodb:Query"], resources=[f"{table.table_arn}/index/{index}"])


def _read_secret(sid: str, secret: secretsmanager.ISecret) -> iam.PolicyStatement:
    return iam.PolicyStatement(sid=sid, actions=["secretsmanager:GetSecretValue"], resources=[secret.secret_arn])


def _on_queue(sid: str, queue: sqs.IQueue, actions: Sequence[str]) -> iam.PolicyStatement:
    return iam.PolicyStatement(sid=sid, actions=[f"sqs:{action}" for action in actions], resources=[queue.queue_arn])


def _on_objects(sid: str, bucket: s3.IBucket, actions: Sequence[str], *patterns: str) -> iam.PolicyStatement:
    return iam.PolicyStatement(
        sid=sid,
        actions=[f"s3:{action}" for action in actions],
        resources=[bucket.arn_for_objects(pattern) for pattern in patterns],
    )


def _list_objects(bucket: s3.IBucket) -> iam.PolicyStatement:
    """Returns the permission to list the bucket. Without it S3 answers 403 instead of 404 for an absent object, and
    readers look for the first absent manifest.

    It has no condition on a prefix: a GetObject request carries no prefix, so the condition would bring the 403 back.
    """
    return iam.PolicyStatement(sid="SeeAbsentObjects", actions=["s3:ListBucket"], resources=[bucket.bucket_arn])


def _use_key_through_tables(scope: s3.IBucket, key: kms.IKey | None) -> list[iam.PolicyStatement]:
    """Returns the permission to use the key through DynamoDB, which uses it on behalf of the role
    that reads or writes a table.

    Source: DynamoDB developer guide, encryption at rest, "Authorizing use of your customer managed key".
    """
    actions = ["Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "GenerateDataKeyWithoutPlaintext"]
    actions += ["ReEncryptFrom", "ReEncryptTo"]
    return _use_key(scope, key, "Tables", service="dynamodb", actions=actions)


def _use_key_through_bucket(scope: s3.IBucket, key: kms.IKey | None) -> list[iam.PolicyStatement]:
    """Returns the permission to use the key through S3, which decrypts what is read, and makes a data key for what is
    written.

    Source: S3 user guide, SSE-KMS.
    """
    return _use_key(scope, key, "Bucket", service="s3", actions=["Decrypt", "GenerateDataKey"])


def _use_key(
    scope: s3.IBucket, key: kms.IKey | None, what: str, *, service: str, actions: Sequence[str]
) -> list[iam.PolicyStatement]:
    """Returns the permission to use the key through one AWS service only: a holder of the role can't decrypt anything
    directly. None if there is no key: those of AWS need no permission.
    """
    if key is None:
        return []
    stack = Stack.of(scope)
    return [
        iam.PolicyStatement(
            sid=f"UseKeyThrough{what}",
            actions=[f"kms:{action}" for action in actions],
            resources=[key.key_arn],
            conditions={"StringEquals": {"kms:ViaService": f"{service}.{stack.region}.{stack.url_suffix}"}},
        )
    ]


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
