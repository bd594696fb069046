"""What triggers the sealer, the indexer, the relay and the folder: the WAL table's stream, queues, notifications of new
manifests, job-state events, schedules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jsii
from aws_cdk import Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_emrserverless as emrserverless
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

# Events are hints that name logs, and one batch names a log many times: large batches, gathered for a while,
# look at each log once.
STREAM_BATCH_ITEMS = 1_000
STREAM_BATCH_WINDOW = Duration.seconds(5)
# Followers are told at once. An invocation begins visits for a second: a batch is what that is enough for.
RELAY_BATCH_ITEMS = 100
RELAY_BATCH_WINDOW = Duration.seconds(0)
# A log that fails goes to the delayed queue and its batch succeeds; only a broken function gets here.
STREAM_RETRIES = 5
# Seals are long: few messages, so that all of them fit into one invocation. The indexer looks once at each log of a batch.
QUEUE_BATCH_MESSAGES = 10
# Expired logs are purged, and missed ones sealed, at most this late.
SWEEP_INTERVAL = Duration.minutes(1)
# Ended logs whose event or message was lost are found at most this late.
OVERDUE_INTERVAL = Duration.hours(1)
# What every other trigger missed, and objects that nothing names, are found at most this late.
AUDIT_INTERVAL = Duration.days(1)


@jsii.implements(lambda_.IEventSourceDlq)
class _DeadLetters:
    """The dead-letter queue of the stream's event source mapping. It replaces SqsDlq, which also grants what Lambda
    does not need. A class, because jsii requires an object here.
    """

    def __init__(self, queue: sqs.IQueue) -> None:
        self._arn = queue.queue_arn

    def bind(self, *_: Any) -> lambda_.DlqDestinationConfig:
        """Returns the queue as the CDK's destination for failed events."""
        return lambda_.DlqDestinationConfig(destination=self._arn)


class WorkerTriggers(Construct):
    """The triggers that the workers share: a queue and a daily audit. What fails ends in a dead-letter queue or
    is repeated by the next scheduled run: nothing is dropped silently.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        function: lambda_.IFunction,
        queue: sqs.IQueue,
        queue_concurrency: int,
        audits: str,
    ) -> None:
        super().__init__(scope, construct_id)
        self._function = function
        self.queue = lambda_.EventSourceMapping(
            self,
            "Queue",
            target=function,
            event_source_arn=queue.queue_arn,
            batch_size=QUEUE_BATCH_MESSAGES,
            max_concurrency=queue_concurrency,
            report_batch_item_failures=True,
        )
        message = events.RuleTargetInput.from_object({"verb": "audit"})
        self.audit = events.Rule(
            self,
            "Audit",
            description=f"Headrace: {audits}",
            schedule=events.Schedule.rate(AUDIT_INTERVAL),
            targets=[targets.LambdaFunction(function, event=message, retry_attempts=2)],
        )

    def _tick(self, construct_id: str, does: str, interval: Duration, verb: str = "") -> events.Rule:
        """Creates a schedule, of a verb other than the worker's own if one is given. Lambda does not repeat a run that
        failed, because the next scheduled run does.
        """
        message = events.RuleTargetInput.from_object({"verb": verb}) if verb else None
        return events.Rule(
            self,
            construct_id,
            description=f"Headrace: {does}",
            schedule=events.Schedule.rate(interval),
            targets=[targets.LambdaFunction(self._function, event=message, retry_attempts=0, max_event_age=interval)],
        )

    def _stream(
        self,
        wal: dynamodb.ITable,
        dead_letters: sqs.IQueue,
        *,
        filters: Sequence[Mapping[str, Any]],
        batch_items: int,
        window: Duration,
        invocations_per_shard: int,
    ) -> lambda_.EventSourceMapping:
        """Creates the mapping of the WAL table's stream: entries that one of the filters lets through."""
        # The plain mapping, not DynamoEventSource: that one also grants the whole key and `*`.
        return lambda_.EventSourceMapping(
            self,
            "Stream",
            target=self._function,
            event_source_arn=wal.table_stream_arn,
            # From the oldest event, so that nothing written while the mapping is made is missed.
            starting_position=lambda_.StartingPosition.TRIM_HORIZON,
            filters=[lambda_.FilterCriteria.filter(dict(one)) for one in filters],
            batch_size=batch_items,
            max_batching_window=window,
            parallelization_factor=invocations_per_shard,
            bisect_batch_on_error=True,
            retry_attempts=STREAM_RETRIES,
            on_failure=_DeadLetters(dead_letters),
        )


class SealerTriggers(WorkerTriggers):
    """The sealer's triggers: new entries, the delayed queue, a sweep and an audit."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        function: lambda_.IFunction,
        wal: dynamodb.ITable,
        delay: sqs.IQueue,
        stream_dead_letters: sqs.IQueue,
        invocations_per_shard: int,
        queue_concurrency: int,
    ) -> None:
        audits = "seal and purge what was missed, remove orphans"
        super().__init__(scope, construct_id, function, delay, queue_concurrency, audits)
        self.stream = self._stream(
            wal,
            stream_dead_letters,
            # Trims emit removes, which would wake the sealer for its own work.
            filters=[{"eventName": lambda_.FilterRule.is_equal("INSERT")}],
            batch_items=STREAM_BATCH_ITEMS,
            window=STREAM_BATCH_WINDOW,
            invocations_per_shard=invocations_per_shard,
        )
        self.sweep = self._tick("Sweep", "expire what is due", SWEEP_INTERVAL)
        self.overdue = self._tick("Overdue", "purge what was missed", OVERDUE_INTERVAL, "overdue")


# What a lost event or message would have asked for is done at most this late.
TICK_INTERVAL = Duration.minutes(1)
OVER = ["SUCCESS", "FAILED", "CANCELLED"]


class IndexerTriggers(WorkerTriggers):
    """The indexer's triggers: new manifests through the queue, job-state events, a tick and an audit."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        function: lambda_.IFunction,
        queue: sqs.IQueue,
        application: emrserverless.CfnApplication,
        queue_concurrency: int,
    ) -> None:
        audits = "index what was missed, remove orphans"
        super().__init__(scope, construct_id, function, queue, queue_concurrency, audits)
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
        self.tick = self._tick("Tick", "follow index jobs and start what is due", TICK_INTERVAL)


class RelayTriggers(WorkerTriggers):
    """The relay's triggers: new entries of followed logs, and creates; its queue, a sweep and an audit."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        function: lambda_.IFunction,
        wal: dynamodb.ITable,
        queue: sqs.IQueue,
        stream_dead_letters: sqs.IQueue,
        invocations_per_shard: int,
        queue_concurrency: int,
    ) -> None:
        audits = "visit followers that were missed"
        super().__init__(scope, construct_id, function, queue, queue_concurrency, audits)
        # Lambda applies the filters before it calls: entries of a log that nobody follows start nothing.
        inserted = {"eventName": lambda_.FilterRule.is_equal("INSERT")}
        images = [{"relay": {"N": ["1"]}}, {"kind": {"S": ["create"]}}]
        self.stream = self._stream(
            wal,
            stream_dead_letters,
            filters=[{**inserted, "dynamodb": {"NewImage": image}} for image in images],
            batch_items=RELAY_BATCH_ITEMS,
            window=RELAY_BATCH_WINDOW,
            invocations_per_shard=invocations_per_shard,
        )
        self.sweep = self._tick("Sweep", "ask again for visits whose messages were lost", SWEEP_INTERVAL)


class FolderTriggers(Construct):
    """The folder's trigger: its queue. Each message is an invocation of its own: a lane of which a folder dies takes no
    other one with it.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        function: lambda_.IFunction,
        queue: sqs.IQueue,
        queue_concurrency: int,
    ) -> None:
        super().__init__(scope, construct_id)
        self.queue = lambda_.EventSourceMapping(
            self,
            "Queue",
            target=function,
            event_source_arn=queue.queue_arn,
            batch_size=1,
            max_concurrency=queue_concurrency,
            report_batch_item_failures=True,
        )
