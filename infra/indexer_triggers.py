"""What wakes the indexer: created manifests, job runs that change their state, and a clock."""

from __future__ import annotations

from aws_cdk import Aws, CfnResource, Duration
from aws_cdk import aws_emrserverless as emrserverless
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

# Each look at a log costs a few reads; messages of one log in a batch are one look.
QUEUE_BATCH_MESSAGES = 10
# What a lost event or message would have asked for is done at most this late.
TICK_INTERVAL = Duration.minutes(1)
# What every other trigger missed, and objects that nothing names, are found at most this late.
AUDIT_INTERVAL = Duration.days(1)
OVER = ["SUCCESS", "FAILED", "CANCELLED"]


class IndexerTriggers(Construct):
    """Each trigger ends in a dead-letter queue or in the next tick: nothing is dropped silently."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        function: lambda_.IFunction,
        bucket: s3.Bucket,
        queue: sqs.Queue,
        application: emrserverless.CfnApplication,
        queue_concurrency: int,
    ) -> None:
        super().__init__(scope, construct_id)
        _notify(bucket, queue)
        self.queue = lambda_.EventSourceMapping(
            self,
            "Queue",
            target=function,
            event_source_arn=queue.queue_arn,
            batch_size=QUEUE_BATCH_MESSAGES,
            max_concurrency=queue_concurrency,
            report_batch_item_failures=True,
        )
        self.job_state = events.Rule(
            self,
            "JobState",
            description="Headrace: publish what an index job made",
            event_pattern=events.EventPattern(
                source=["aws.emr-serverless"],
                detail_type=["EMR Serverless Job Run State Change"],
                detail={"applicationId": [application.attr_application_id], "state": OVER},
            ),
            targets=[targets.LambdaFunction(function, retry_attempts=2)],
        )
        self.tick = events.Rule(
            self,
            "Tick",
            description="Headrace: follow index jobs and start what is due",
            schedule=events.Schedule.rate(TICK_INTERVAL),
            targets=[targets.LambdaFunction(function, retry_attempts=0, max_event_age=TICK_INTERVAL)],
        )
        self.audit = events.Rule(
            self,
            "Audit",
            description="Headrace: index what was missed, remove orphans",
            schedule=events.Schedule.rate(AUDIT_INTERVAL),
            targets=[
                targets.LambdaFunction(
                    function, event=events.RuleTargetInput.from_object({"verb": "audit"}), retry_attempts=2
                )
            ],
        )


def _notify(bucket: s3.Bucket, queue: sqs.Queue) -> None:
    """Has the bucket tell the queue of objects that may be manifests; the function knows which are.

    The bucket's own property, where the CDK would make a function for it. S3 checks that it may send when the property is
    set, so the queue's policy comes first; therefore it names the account and not the bucket, or each would wait for the
    other.
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
                            s3.CfnBucket.FilterRuleProperty(name="prefix", value="logs/"),
                            s3.CfnBucket.FilterRuleProperty(name="suffix", value=".json.zst"),
                        ]
                    )
                ),
            )
        ]
    )
    child = policy.node.default_child
    assert isinstance(child, CfnResource)
    resource.add_resource_dependency(child)
