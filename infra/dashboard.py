"""The dashboard for operators: whether the deployment answers, how fast, how far behind background work is, and the
cost.

Times are in milliseconds; a sum covers five minutes. Alarms with their states are at the top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.metrics import PERIOD, SERVICES, Own, of_door, of_function, of_queue, of_table

WIDTH, HEIGHT = 8, 6  # size of a widget; a dashboard is 24 wide


class Dashboard(Construct):
    """The dashboard: one page, with a row of graphs for each question."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        functions: Mapping[str, lambda_.IFunction],
        tables: Mapping[str, dynamodb.ITable],
        queues: Mapping[str, sqs.IQueue],
        dead_letters: Mapping[str, sqs.IQueue],
        api_id: str,
        alarms: Sequence[cloudwatch.IAlarm],
    ) -> None:
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        own = Own(stack)
        # An account has one list of dashboards for all regions.
        name = f"{stack.stack_name}_{stack.region}"
        self.dashboard = cloudwatch.Dashboard(self, "Page", dashboard_name=name)
        if alarms:
            status = cloudwatch.AlarmStatusWidget(alarms=list(alarms), width=24, height=3, title="Promises")
            self.dashboard.add_widgets(status)
        for row in (
            _requests(own, api_id),
            _writes(own),
            _queries(own),
            _jobs(own),
            _tables(own),
            _sealing(own, functions["sealer"]),
            _indexing(own),
            _relaying(own, functions["relay"]),
            _folding(own),
            _trouble(own, queues, dead_letters),
            _lambdas(functions),
            _costs(own, functions, tables),
        ):
            self.dashboard.add_widgets(*row)


def _requests(own: Own, api_id: str) -> list[cloudwatch.IWidget]:
    errors = ("ClientErrors", "Conflicts", "Timeouts", "Overloads", "UnknownOutcomes", "StoreFailures", "Failures")
    return [
        _graph(
            "Requests", own("api", "Requests"), own("api", "Reads"), own("api", "Appends"), own("api", "Searches")
        ),
        _graph("Errors by class", *(own("api", name) for name in (*errors, "Unauthorized", "Forbidden"))),
        _graph(
            "At the door",
            of_door(api_id, "Latency", "p50", "latency p50"),
            of_door(api_id, "Latency", "p99", "latency p99"),
            of_door(api_id, "5xx", "Sum", "5xx"),
        ),
    ]


def _writes(own: Own) -> list[cloudwatch.IWidget]:
    return [
        cloudwatch.GraphWidget(
            title="Appended",
            left=[own("api", "AppendedRecords")],
            right=[own("api", "AppendedBytes")],
            width=WIDTH,
            height=HEIGHT,
        ),
        _graph("Append latency, ms", *_percentiles(own, "api", "AppendMs")),
        _graph("Lost races per append", _ratio(own, "api", "SlotRaces", "Appends")),
    ]


def _queries(own: Own) -> list[cloudwatch.IWidget]:
    return [
        _graph("Read latency, ms", *_percentiles(own, "api", "ReadMs")),
        _graph(
            "Query latency, ms",
            own("api", "SearchMs", "p50", "search p50"),
            own("api", "SearchMs", "p99", "search p99"),
            own("api", "AggregateMs", "p99", "aggregate p99"),
            own("api", "SearchTimeouts", label="timed out"),
        ),
        _graph(
            "GETs per query",
            own("api", "QueryGets", "Average", "average"),
            own("api", "QueryGets", "Maximum", "largest"),
        ),
    ]


def _jobs(own: Own) -> list[cloudwatch.IWidget]:
    names = ("JobsClaimed", "JobsAcked", "JobsNacked", "JobsRedelivered", "DeadLetters", "EmptyClaims")
    return [
        _graph("Queues: age of the oldest undelivered job, ms", own("api", "JobWaitMs", "Maximum", "oldest")),
        _graph("Queues: jobs", *(own("api", name) for name in names)),
        _graph("Queues: share delivered before", _ratio(own, "api", "JobsRedelivered", "JobsClaimed")),
    ]


def _tables(own: Own) -> list[cloudwatch.IWidget]:
    return [
        _graph(
            "Feature tables: requests", *(own("api", name) for name in ("Pushes", "FeatureReads", "Registrations"))
        ),
        _graph(
            "Feature tables: latency, ms",
            own("api", "PushMs", "p50", "push p50"),
            own("api", "PushMs", "p99", "push p99"),
            own("api", "FeatureReadMs", "p50", "read p50"),
            own("api", "FeatureReadMs", "p99", "read p99"),
        ),
        _graph("Feature tables: age of back-fills, ms", own("relay", "BackfillAgeMs", "Maximum", "oldest")),
    ]


def _sealing(own: Own, sealer: lambda_.IFunction) -> list[cloudwatch.IWidget]:
    return [
        _graph(
            "Unsealed age and seal lag, ms",
            own("sealer", "UnsealedAgeMs", "Maximum", "unsealed age"),
            own("sealer", "SealLagMs", "Maximum", "seal lag"),
            own("sealer", "TrimLagMs", "Maximum", "trim lag"),
        ),
        _graph(
            "Stream lag, ms",
            own("sealer", "StreamLagMs", "Maximum", "oldest event"),
            of_function(sealer, "IteratorAge", "Maximum", "iterator age"),
        ),
        _graph(
            "Sealed, trimmed, purged",
            *(own("sealer", name) for name in ("Sweeps", "SegmentsSealed", "ItemsTrimmed", "LogsPurged")),
        ),
    ]


def _indexing(own: Own) -> list[cloudwatch.IWidget]:
    return [
        _graph("Index lag, ms", own("indexer", "IndexWaitMs", "Maximum", "waited for a job run")),
        _graph(
            "Job runs",
            *(own("indexer", name) for name in ("JobsStarted", "JobsSucceeded", "JobsFailed", "RunsPublished")),
        ),
        _graph(
            "Age of job runs, ms",
            own("indexer", "JobAgeMs", "Maximum", "under way"),
            own("indexer", "JobMs", "Maximum", "over"),
        ),
    ]


def _relaying(own: Own, relay: lambda_.IFunction) -> list[cloudwatch.IWidget]:
    return [
        _graph(
            "Relay lag, ms",
            own("relay", "RelayLagMs", "Maximum", "oldest entry"),
            of_function(relay, "IteratorAge", "Maximum", "iterator age"),
        ),
        _graph(
            "Relay: visits",
            *(own("relay", name) for name in ("Visits", "VisitsContinued", "VisitsPutOff", "VisitsBlocked")),
        ),
        _graph("Relay: repeats", own("relay", "VisitFailures"), own("relay", "VisitsMissed")),
        _graph("Webhooks", *(own("relay", name) for name in ("Webhooks", "WebhooksFailed"))),
    ]


def _folding(own: Own) -> list[cloudwatch.IWidget]:
    return [
        _graph("Fold lag, ms", own("folder", "FoldLagMs", "Maximum", "oldest event")),
        _graph("Folder: events", own("folder", "EventsFolded")),
        _graph(
            "Folder: passes",
            *(own("folder", name) for name in ("Passes", "PassesOvertaken", "PassFailures", "TablesStopped")),
        ),
    ]


def _trouble(
    own: Own, queues: Mapping[str, sqs.IQueue], dead_letters: Mapping[str, sqs.IQueue]
) -> list[cloudwatch.IWidget]:
    visible = "ApproximateNumberOfMessagesVisible"
    return [
        _graph("Calls refused for load", *(own(service, "StoreThrottles", label=service) for service in SERVICES)),
        _graph(
            "Failures",
            own("sealer", "SealFailures"),
            own("sealer", "PoisonedLogs", label="sealer, poisoned"),
            own("indexer", "IndexFailures"),
            own("indexer", "PoisonedLogs", label="indexer, poisoned"),
            own("relay", "PoisonedLogs", label="relay, poisoned"),
            own("folder", "PoisonedLogs", label="folder, poisoned"),
        ),
        _graph(
            "Messages",
            *(of_queue(queue, visible, name) for name, queue in queues.items()),
            *(of_queue(queue, visible, f"{name}, dead letters") for name, queue in dead_letters.items()),
        ),
    ]


def _lambdas(functions: Mapping[str, lambda_.IFunction]) -> list[cloudwatch.IWidget]:
    return [
        _graph(title, *(of_function(function, name, statistic, label) for label, function in functions.items()))
        for title, name, statistic in (
            ("Function errors", "Errors", "Sum"),
            ("Function duration, ms", "Duration", "p99"),
            ("Functions at once", "ConcurrentExecutions", "Maximum"),
        )
    ]


def _costs(
    own: Own, functions: Mapping[str, lambda_.IFunction], tables: Mapping[str, dynamodb.ITable]
) -> list[cloudwatch.IWidget]:
    return [
        _graph(
            "Cost: writes of tables",
            *(of_table(table, "ConsumedWriteCapacityUnits", name) for name, table in tables.items()),
        ),
        _graph(
            "Cost: requests to the bucket",
            *(
                own(service, what, label=f"{service} {what}")
                for service in SERVICES
                for what in ("ObjectGets", "ObjectPuts")
            ),
        ),
        _graph(
            "Cost: invocations, job runs",
            *(of_function(function, "Invocations", "Sum", name) for name, function in functions.items()),
            own("indexer", "JobsStarted"),
        ),
    ]


def _graph(title: str, *metrics: cloudwatch.IMetric) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=WIDTH, height=HEIGHT)


def _percentiles(own: Own, service: str, name: str) -> list[cloudwatch.Metric]:
    return [own(service, name, statistic, statistic) for statistic in ("p50", "p99")]


def _ratio(own: Own, service: str, part: str, whole: str) -> cloudwatch.MathExpression:
    return cloudwatch.MathExpression(
        expression="part/whole",
        using_metrics={"part": own(service, part), "whole": own(service, whole)},
        period=PERIOD,
        label=f"{part} per {whole}",
    )
