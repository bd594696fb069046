"""Gathers facts about a deployment from AWS. It only reads; a question that can't be answered is recorded as a fact,
too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from headrace.log.stores import Stores
from headrace.settings import Settings
from headrace.tables.catalog import Row
from headrace.tables.jobs import DynamoJobs
from operators.doctor.facts import (
    AlarmFacts,
    BucketFacts,
    CloudFacts,
    JobFacts,
    LogFacts,
    QueueFacts,
    TableFacts,
    WaitingFacts,
)
from operators.doctor.features import Features
from operators.doctor.following import Following, attempt
from operators.doctor.resources import Resources
from operators.stores import threads

MAX_LOGS = 200
MAX_WAITING = 200
_LATER_MS = 6 * 3_600_000  # rows of logs that failed are due as much later at most
_JOB_RUNS = 10
_RECENT = timedelta(minutes=10)
_TABLES = ("wal", "catalog", "watermarks", "producers", "follows", "sessions", "features", "jobs")
_QUEUES = ("delay", "index", "relay", "fold")
_CUSTOMER_KEY = ("aws:kms", "aws:kms:dsse")

Clients = Callable[[str], Any]


class CloudDoctor:
    """A gatherer of facts about one deployment.

    Args:
        clients: returns a boto3 client for a service.
        is_emulated: whether the AWS endpoint is on this machine.
    """

    def __init__(
        self,
        resources: Resources,
        settings: Settings,
        stores: Stores,
        jobs: DynamoJobs | None,
        clients: Clients,
        *,
        is_emulated: bool,
    ) -> None:
        self._resources = resources
        self._settings = settings
        self._stores = stores
        self._jobs_table = jobs
        self._clients = clients
        self._is_emulated = is_emulated

    def look(self) -> CloudFacts:
        """Gathers and returns all facts. What could not be asked is an error text among them; nothing is raised for it."""
        found, logs_error = attempt(self._logs)
        logs, more_logs = found or ((), False)
        waiting, waiting_error = attempt(self._waiting)
        in_hand, _ = attempt(self._in_hand_ms)
        jobs, jobs_error = attempt(self._job_runs)
        alarms, alarms_error = attempt(self._alarms)
        return CloudFacts(
            is_emulated=self._is_emulated,
            tables=tuple(self._tables()),
            bucket=self._bucket(),
            queues=tuple(self._queues()),
            logs=logs,
            more_logs=more_logs,
            logs_error=logs_error,
            following=Following(self._stores).look(),
            features=Features(self._stores).look(),
            waiting=waiting or (),
            waiting_error=waiting_error,
            job_in_hand_ms=in_hand,
            jobs=jobs,
            jobs_error=jobs_error,
            has_alarms=self._resources.has_alarms,
            needs_customer_key=self._resources.has_customer_key,
            alarms=alarms or (),
            alarms_error=alarms_error,
            seal_age_ms=self._settings.seal_age_ms,
            index_age_ms=self._settings.index_age_ms,
        )

    def _tables(self) -> Iterator[TableFacts]:
        dynamodb = self._clients("dynamodb")
        for name in _TABLES:
            table = getattr(self._settings, f"{name}_table")
            if not table:
                yield TableFacts(
                    name, error=f"HEADRACE_{name.upper()}_TABLE is not set: nothing says what it is called"
                )
                continue
            found, error = attempt(partial(_table, dynamodb, name, table))
            yield found or TableFacts(name, error=f"{table}: {error}")

    def _bucket(self) -> BucketFacts:
        name = self._settings.bucket
        if not name:
            return BucketFacts(name, error="HEADRACE_BUCKET is not set: nothing says what it is called")
        found, error = attempt(lambda: bucket_facts(self._clients("s3"), name, is_emulated=self._is_emulated))
        return found or BucketFacts(name, error=f"{name}: {error}")

    def _queues(self) -> Iterator[QueueFacts]:
        own = {name: getattr(self._settings, f"{name}_queue_url") for name in _QUEUES}
        named = [(name, url, False) for name, url in own.items()]
        dead_letters = self._resources.dead_letters or dict(self._redriven(own))
        named += [(name, url, True) for name, url in dead_letters.items()]
        for name, url, is_dead_letters in named:
            if not url:
                yield QueueFacts(name, is_dead_letters, error=f"HEADRACE_{name.upper()}_QUEUE_URL is not set")
                continue
            found, error = attempt(partial(self._queue, name, url, is_dead_letters))
            yield found or QueueFacts(name, is_dead_letters, error=f"{url}: {error}")

    def _redriven(self, queues: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yields the name and URL of the dead-letter queues that the queues' own redrive policies name (the queue's
        name, if its URL can't be asked). The one of the table's stream is in no policy.
        """
        sqs = self._clients("sqs")
        for name, url in queues.items():
            found, _ = attempt(partial(sqs.get_queue_attributes, QueueUrl=url, AttributeNames=["RedrivePolicy"]))
            policy = json.loads((found or {}).get("Attributes", {}).get("RedrivePolicy", "{}"))
            if target := policy.get("deadLetterTargetArn"):
                queue = target.rpartition(":")[2]
                there, _ = attempt(partial(sqs.get_queue_url, QueueName=queue))
                yield f"{name} dead letters", there["QueueUrl"] if there else queue

    def _queue(self, name: str, url: str, is_dead_letters: bool) -> QueueFacts:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed"]
        names.append("ApproximateNumberOfMessagesNotVisible")
        found = self._clients("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        waiting, delayed, in_flight = (int(found[name]) for name in names)
        oldest_s, _ = attempt(lambda: self._oldest_s(url.rpartition("/")[2]))
        return QueueFacts(name, is_dead_letters, "", waiting, delayed, in_flight, oldest_s)

    def _oldest_s(self, queue: str) -> float | None:
        """Returns the age of a queue's oldest message in seconds, from CloudWatch; None if CloudWatch has no data."""
        now = datetime.now(UTC)
        answer = self._clients("cloudwatch").get_metric_statistics(
            Namespace="AWS/SQS",
            MetricName="ApproximateAgeOfOldestMessage",
            Dimensions=[{"Name": "QueueName", "Value": queue}],
            StartTime=now - _RECENT,
            EndTime=now,
            Period=60,
            Statistics=["Maximum"],
        )
        points = sorted(answer["Datapoints"], key=lambda point: point["Timestamp"])
        return float(points[-1]["Maximum"]) if points else None

    def _logs(self) -> tuple[tuple[LogFacts, ...], bool]:
        stores = self._stores
        pages = (stores.catalog.living(surface, limit=MAX_LOGS + 1) for surface in stores.surfaces)
        logs = [log for rows in pages for row in rows for log in row.logs]
        return tuple(threads().map(self._log, logs[:MAX_LOGS])), len(logs) > MAX_LOGS

    def _log(self, row: Row) -> LogFacts:
        oldest_ms, error = attempt(lambda: self._oldest_unsealed_ms(row.log_id))
        return LogFacts(row.config.title, oldest_ms, error)

    def _oldest_unsealed_ms(self, log_id: str) -> int | None:
        wal = self._stores.wal
        end_slot = self._stores.watermarks.get(log_id).end_slot
        newest = wal.newest(log_id)
        if newest is None or newest.slot < end_slot or newest.state.ended:
            return None
        oldest = wal.read(log_id, start=end_slot, limit=1).entries
        return max(0, self._stores.clock.now_ms() - (oldest[0] if oldest else newest).committed_ms)

    def _waiting(self) -> tuple[WaitingFacts, ...]:
        if self._jobs_table is None:
            return ()
        now_ms = self._stores.clock.now_ms()
        rows = self._jobs_table.due(now_ms + _LATER_MS, limit=MAX_WAITING)
        return tuple(
            WaitingFacts(row.log_id, now_ms - row.since_ms if row.since_ms else None, row.failures, row.reason)
            for row in rows
        )

    def _in_hand_ms(self) -> int | None:
        place = self._jobs_table.place(0) if self._jobs_table is not None else None
        return self._stores.clock.now_ms() - place.since_ms if place is not None else None

    def _job_runs(self) -> tuple[JobFacts, ...] | None:
        if not self._settings.spark_application:
            return None
        answer = self._clients("emr-serverless").list_job_runs(
            applicationId=self._settings.spark_application, maxResults=_JOB_RUNS
        )
        now_s = time.time()
        return tuple(
            JobFacts(run["id"], run["state"], max(0, round((now_s - run["updatedAt"].timestamp()) * 1000)))
            for run in answer["jobRuns"]
        )

    def _alarms(self) -> tuple[AlarmFacts, ...]:
        prefix: Mapping[str, str] = {"AlarmNamePrefix": f"{self._resources.stack or self._settings.stack}/"}
        pages = self._clients("cloudwatch").get_paginator("describe_alarms").paginate(**prefix)
        return tuple(
            AlarmFacts(alarm["AlarmName"], alarm["StateValue"], alarm.get("StateReason", ""))
            for page in pages
            for alarm in [*page.get("MetricAlarms", []), *page.get("CompositeAlarms", [])]
        )


def _table(dynamodb: Any, name: str, table: str) -> TableFacts:
    found = dynamodb.describe_table(TableName=table)["Table"]
    backups, _ = attempt(lambda: dynamodb.describe_continuous_backups(TableName=table))
    recovery = backups["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {}) if backups else None
    stream = found.get("StreamSpecification", {})
    return TableFacts(
        name,
        status=found["TableStatus"],
        is_protected=bool(found.get("DeletionProtectionEnabled")),
        is_on_demand=found.get("BillingModeSummary", {}).get("BillingMode") == "PAY_PER_REQUEST",
        has_customer_key=(found.get("SSEDescription") or {}).get("SSEType") == "KMS",
        is_recoverable=recovery.get("PointInTimeRecoveryStatus") == "ENABLED" if recovery is not None else None,
        has_stream=(stream.get("StreamEnabled", False) and stream.get("StreamViewType") == "NEW_IMAGE")
        if name == "wal"
        else None,
    )


def bucket_facts(s3: Any, name: str, *, is_emulated: bool) -> BucketFacts:
    """Asks S3 about the bucket, of an emulator only whether it is there."""
    s3.head_bucket(Bucket=name)
    if is_emulated:
        return BucketFacts(name)
    rules = s3.get_bucket_encryption(Bucket=name)["ServerSideEncryptionConfiguration"]["Rules"]
    kinds = {rule.get("ApplyServerSideEncryptionByDefault", {}).get("SSEAlgorithm", "") for rule in rules}
    block, _ = attempt(lambda: dict(s3.get_public_access_block(Bucket=name)["PublicAccessBlockConfiguration"]))
    return BucketFacts(
        name,
        is_versioned=s3.get_bucket_versioning(Bucket=name).get("Status") == "Enabled",
        is_encrypted=bool(kinds) and "" not in kinds,
        has_customer_key=bool(kinds) and kinds <= set(_CUSTOMER_KEY),
        is_private=block is not None and len(block) == 4 and all(block.values()),
    )
