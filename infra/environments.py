"""What differs between two deployments, and nothing else.

Data is kept, encrypted and deletion protected in every environment: that is not a setting.
"""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import aws_logs as logs


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The numbers of one deployment."""

    name: str
    """Ends the stack's name: `headrace-<name>`."""

    log_retention: logs.RetentionDays
    """Age at which function and access logs are dropped."""

    noncurrent_version_days: int
    """How long an overwritten or deleted object can be brought back, and how long deleted data lingers."""

    requests_per_second: int
    """Steady rate that the HTTP API admits; above it clients get 429."""

    request_burst: int
    """Requests admitted at once above the steady rate."""

    sealer_invocations_per_shard: int
    """Concurrent sealer runs for one shard of the WAL stream, 1 to 10. Items of one log stay in order."""

    sealer_queue_concurrency: int
    """Concurrent sealer runs for the delayed queue, 2 to 1,000: a backlog must leave Lambdas to the api."""

    indexer_queue_concurrency: int
    """Concurrent indexer runs for its queue, 2 to 1,000."""

    spark_maximum_vcpus: int
    """All that index jobs may use at once: a bound on what a backlog costs."""

    notify: bool
    """Whether alarms tell an SNS topic, which the stack then makes. They are there in any case."""

    termination_protection: bool
    """Whether the stack refuses to be deleted."""


DEV = Environment(
    name="dev",
    log_retention=logs.RetentionDays.ONE_WEEK,
    noncurrent_version_days=7,
    requests_per_second=500,
    request_burst=500,
    sealer_invocations_per_shard=1,
    sealer_queue_concurrency=2,
    indexer_queue_concurrency=2,
    spark_maximum_vcpus=16,
    notify=False,
    termination_protection=False,
)

PROD = Environment(
    name="prod",
    log_retention=logs.RetentionDays.THREE_MONTHS,
    noncurrent_version_days=30,
    requests_per_second=5_000,
    request_burst=5_000,
    sealer_invocations_per_shard=4,
    sealer_queue_concurrency=20,
    indexer_queue_concurrency=4,
    spark_maximum_vcpus=128,
    notify=True,
    termination_protection=True,
)

ENVIRONMENTS = {environment.name: environment for environment in (DEV, PROD)}
