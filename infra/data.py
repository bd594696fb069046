"""The data stack: all that must outlive the application. It holds the key, the tables, the bucket, the first keys, and
the queues with the work that waits.

The application stack (`infra/app.py`) imports these by the exports of this stack. So it can be destroyed and deployed
again, or replaced, and finds the same data under the same names; and CloudFormation refuses to delete this stack while
an application uses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aws_cdk import Aws, CfnOutput, CfnResource, DefaultStackSynthesizer, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.environments import Environment
from infra.queues import Queues
from infra.storage import DataBucket, DataKey, Tables


class DataStack(Stack):
    """The resources of one deployment that hold data, and the names under which they are found."""

    def __init__(self, scope: Construct, construct_id: str, *, environment: Environment, **stack: Any) -> None:
        super().__init__(
            scope,
            construct_id,
            stack_name=environment.data_stack_name,
            # Tables that stay behind a deleted stack have to be imported into the next one by hand.
            termination_protection=environment.keep_data,
            # The CLI checks the bootstrap version itself; the template then needs no parameter.
            synthesizer=DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
            **stack,
        )
        # The bucket is kept in any case: CloudFormation deletes none that has objects, and we empty none.
        removal = RemovalPolicy.RETAIN if environment.keep_data else RemovalPolicy.DESTROY
        self.key = DataKey(self, "DataKey", removal=removal).key if environment.customer_key else None
        self.tables = Tables(self, "Tables", key=self.key, removal=removal)
        self.bucket = DataBucket(
            self, "Data", key=self.key, noncurrent_version_days=environment.noncurrent_version_days
        ).bucket
        self.api_keys = GeneratedKey(
            self,
            "AdminKey",
            description="Headrace API keys, comma separated: key[:scopes[:prefixes]]",
            key=self.key,
            removal=removal,
        ).secret
        self.signing_keys = GeneratedKey(
            self,
            "SigningKey",
            description="Headrace keys that sign webhooks, comma separated: key[@first use]",
            key=self.key,
            removal=removal,
        ).secret
        self.queues = Queues(self, "Queues")
        _notify(self.bucket, self.queues.index)
        # All of them, whatever this release of the application uses: CloudFormation refuses to withdraw an export that
        # the application of the release before still imports.
        for attribute in self._attributes():
            self.export_value(attribute)
        outputs = {
            "WalTableName": self.tables.wal.table_name,
            "CatalogTableName": self.tables.catalog.table_name,
            "WatermarksTableName": self.tables.watermarks.table_name,
            "ProducersTableName": self.tables.producers.table_name,
            "FollowsTableName": self.tables.follows.table_name,
            "SessionsTableName": self.tables.sessions.table_name,
            "FeaturesTableName": self.tables.features.table_name,
            "JobsTableName": self.tables.jobs.table_name,
            "BucketName": self.bucket.bucket_name,
            "DelayQueueUrl": self.queues.delay.queue_url,
            "DelayDeadLetterQueueUrl": self.queues.delay_dead_letters.queue_url,
            "StreamDeadLetterQueueUrl": self.queues.stream_dead_letters.queue_url,
            "IndexQueueUrl": self.queues.index.queue_url,
            "IndexDeadLetterQueueUrl": self.queues.index_dead_letters.queue_url,
            "RelayQueueUrl": self.queues.relay.queue_url,
            "RelayDeadLetterQueueUrl": self.queues.relay_dead_letters.queue_url,
            "RelayStreamDeadLetterQueueUrl": self.queues.relay_stream_dead_letters.queue_url,
            "FoldQueueUrl": self.queues.fold.queue_url,
            "FoldDeadLetterQueueUrl": self.queues.fold_dead_letters.queue_url,
            "WalStreamArn": self.tables.wal.table_stream_arn,
            "AdminKeySecretArn": self.api_keys.secret_arn,
            "SigningKeySecretArn": self.signing_keys.secret_arn,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=str(value))

    def _attributes(self) -> Iterator[str]:
        """Yields every attribute that an application may need."""
        for table in self.tables.all:
            yield from (table.table_name, table.table_arn)
        yield str(self.tables.wal.table_stream_arn)
        yield from (self.bucket.bucket_name, self.bucket.bucket_arn)
        yield from (self.api_keys.secret_arn, self.signing_keys.secret_arn)
        if self.key is not None:
            yield self.key.key_arn
        for queue in self.queues.all:
            yield from (queue.queue_url, queue.queue_arn, queue.queue_name)


# Letters and digits only, since `:` and `,` have a meaning in a list of keys; 43 of them carry 256 bits.
KEY_CHARACTERS = 43


class GeneratedKey(Construct):
    """A secret whose text is a list of keys. The first one is generated: of the admin keys, it has every scope. An operator
    adds more.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, description: str, key: kms.IKey | None, removal: RemovalPolicy
    ) -> None:
        super().__init__(scope, construct_id)
        self.secret = secretsmanager.Secret(
            self,
            "Secret",
            description=description,
            encryption_key=key,
            removal_policy=removal,
            generate_secret_string=secretsmanager.SecretStringGenerator(
                exclude_punctuation=True, include_space=False, password_length=KEY_CHARACTERS
            ),
        )


def _notify(bucket: s3.Bucket, queue: sqs.Queue) -> None:
    """Makes the bucket notify the queue of new objects that may be manifests (`logs/….json.zst`), the function checks which
    are; and of requests of jobs.

    It sets the bucket's own property, where the CDK would create a function for it. S3 checks that it may send when the
    property is set, so the queue's policy must exist first. The policy therefore names the account and not the bucket:
    otherwise each would wait for the other.
    """
    queue.add_to_resource_policy(
        iam.PolicyStatement(
            sid="BucketMaySend",
            principals=[iam.ServicePrincipal("s3.amazonaws.com")],
            actions=["sqs:SendMessage"],
            resources=[queue.queue_arn],
            conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
        )
    )
    resource = bucket.node.default_child
    policy = queue.node.find_child("Policy")
    assert isinstance(resource, s3.CfnBucket)
    assert isinstance(policy, sqs.QueuePolicy)
    resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
        queue_configurations=[
            s3.CfnBucket.QueueConfigurationProperty(
                event="s3:ObjectCreated:*",
                queue=queue.queue_arn,
                filter=s3.CfnBucket.NotificationFilterProperty(
                    s3_key=s3.CfnBucket.S3KeyFilterProperty(
                        rules=[
                            s3.CfnBucket.FilterRuleProperty(name="prefix", value=prefix),
                            s3.CfnBucket.FilterRuleProperty(name="suffix", value=suffix),
                        ]
                    )
                ),
            )
            for prefix, suffix in (("logs/", ".json.zst"), ("jobs/", "/request.json.zst"))
        ]
    )
    child = policy.node.default_child
    assert isinstance(child, CfnResource)
    resource.add_resource_dependency(child)
