"""What wakes the sealer: the WAL's stream, the delayed queue, and a clock for the sweep."""

from __future__ import annotations

from typing import Any

import jsii
from aws_cdk import Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

# Events are hints that name logs, and one batch names a log many times: large batches, gathered for a while,
# look at each log once.
STREAM_BATCH_ITEMS = 1_000
STREAM_BATCH_WINDOW = Duration.seconds(5)
# A log that fails goes to the delayed queue and its batch succeeds; only a broken function gets here.
STREAM_RETRIES = 5
# Seals are long: few messages, so that all of them fit into one invocation.
QUEUE_BATCH_MESSAGES = 10
# Expired logs are purged, and missed ones sealed, at most this late.
SWEEP_INTERVAL = Duration.minutes(1)
# What every other trigger missed, and objects that nothing names, are found at most this late.
AUDIT_INTERVAL = Duration.days(1)


@jsii.implements(lambda_.IEventSourceDlq)
class _DeadLetters:
    """The plain destination, not SqsDlq: that one also grants what Lambda does not need. jsii wants an object here."""

    def __init__(self, queue: sqs.IQueue) -> None:
        self._arn = queue.queue_arn

    def bind(self, *_: Any) -> lambda_.DlqDestinationConfig:
        """Called by the CDK with the mapping and the function."""
        return lambda_.DlqDestinationConfig(destination=self._arn)


class SealerTriggers(Construct):
    """Each trigger ends in a dead-letter queue or in the next tick: nothing is dropped silently."""

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
        super().__init__(scope, construct_id)
        # The plain mapping, not DynamoEventSource: that one also grants the whole key and `*`.
        self.stream = lambda_.EventSourceMapping(
            self,
            "Stream",
            target=function,
            event_source_arn=wal.table_stream_arn,
            # From the oldest event, so that nothing written while the mapping is made is missed.
            starting_position=lambda_.StartingPosition.TRIM_HORIZON,
            # Trims emit removes, which would wake the sealer for its own work.
            filters=[lambda_.FilterCriteria.filter({"eventName": lambda_.FilterRule.is_equal("INSERT")})],
            batch_size=STREAM_BATCH_ITEMS,
            max_batching_window=STREAM_BATCH_WINDOW,
            parallelization_factor=invocations_per_shard,
            bisect_batch_on_error=True,
            retry_attempts=STREAM_RETRIES,
            on_failure=_DeadLetters(stream_dead_letters),
        )
        self.queue = lambda_.EventSourceMapping(
            self,
            "Queue",
            target=function,
            event_source_arn=delay.queue_arn,
            batch_size=QUEUE_BATCH_MESSAGES,
            max_concurrency=queue_concurrency,
            report_batch_item_failures=True,
        )
        # A sweep that failed is not repeated, here or by the function: the next tick is the repeat.
        self.sweep = events.Rule(
            self,
            "Sweep",
            description="Headrace: expire what is due",
            schedule=events.Schedule.rate(SWEEP_INTERVAL),
            targets=[targets.LambdaFunction(function, retry_attempts=0, max_event_age=SWEEP_INTERVAL)],
        )
        self.audit = events.Rule(
            self,
            "Audit",
            description="Headrace: seal and purge what was missed, remove orphans",
            schedule=events.Schedule.rate(AUDIT_INTERVAL),
            targets=[
                targets.LambdaFunction(
                    function, event=events.RuleTargetInput.from_object({"verb": "audit"}), retry_attempts=2
                )
            ],
        )
