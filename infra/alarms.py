"""The alarms: one for each promise that can be broken, and the topic that they notify.

Each alarm has a section in docs/operations.md, which says what it means, what to look at, and what to do. An idle
deployment raises no alarm: each metric is either written at every scheduled run, or may be missing without harm. An
alarm is paid for by its metrics, and a metric while it is written: so few are written by an idle deployment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.metrics import PERIOD, SERVICES, Own, of_function, of_queue

RUNBOOK = "docs/operations.md#alarm-"
_MINUTE_MS = 60_000


class Rule(NamedTuple):
    """The definition of one alarm.

    Attributes:
        name: words joined by dashes; also the end of its anchor in the runbook, unless `anchor` is given.
        promise: a sentence that says what no longer holds when the alarm is raised.
        metrics: the metrics, by their names in `expression`.
        expression: metric math whose result is compared with `threshold`.
        breaching, periods: the alarm is raised if `breaching` of the last `periods` periods are at or above the
            threshold (with `below`: below it).
        missing_is_bad: whether missing data raises the alarm.
        anchor: the end of the anchor in the runbook, for alarms that share a section.
    """

    name: str
    promise: str
    metrics: Mapping[str, cloudwatch.Metric]
    expression: str
    threshold: float
    breaching: int = 1
    periods: int = 1
    below: bool = False
    missing_is_bad: bool = False
    anchor: str = ""


def rules(
    own: Own, *, functions: Mapping[str, lambda_.IFunction], dead_letters: Mapping[str, sqs.IQueue]
) -> list[Rule]:
    """Returns the definitions of all alarms of a deployment, whose own metrics `own` returns."""
    throttles = {service: own(service, "StoreThrottles") for service in SERVICES}
    appends, races = own("api", "Appends"), own("api", "SlotRaces")
    busy = 50  # appends or jobs in a period, below which a share of them says little
    throttled = 20  # calls refused in a period: single ones are repeated without notice
    return [
        Rule(
            "sealer-silent",
            "The sealer gave no sign of life for 15 minutes.",
            {"sweeps": own("sealer", "Sweeps")},
            "sweeps",
            1,
            below=True,
            breaching=3,
            periods=3,
            missing_is_bad=True,
        ),
        *(
            Rule(
                name,
                f"{what} are written to, and for 15 minutes the sealer heard nothing of it.",
                {"appends": written, "told": own("sealer", "StreamEvents")},
                "IF(appends>0 AND told==0,1,0)",
                1,
                breaching=3,
                periods=3,
                anchor="stream-unheard",
            )
            for name, what, written in (
                ("stream-unheard", "Streams", appends),
                ("stream-unheard-topics", "Topics", own("api", "TopicAppends")),
            )
        ),
        Rule(
            "sealing-lags",
            "Entries were published much later than the seal age.",
            {"lag": own("sealer", "SealLagMs", "Maximum")},
            "lag",
            30 * _MINUTE_MS,
            breaching=2,
            periods=3,
        ),
        *(
            Rule(
                f"log-poisoned-{service}",
                "A log can't be sealed, indexed or folded, or a follower not be told, and no repeat will help.",
                {"logs": own(service, "PoisonedLogs")},
                "logs",
                1,
                breaching=1,
                periods=12,  # it is tried again within half an hour: one alarm, not one for each try
                anchor="log-poisoned",
            )
            for service in ("sealer", "indexer", "relay", "folder")
        ),
        *(
            Rule(
                f"dead-letters-{name}",
                "Work was given up after its last repeat.",
                {"letters": of_queue(queue, "ApproximateNumberOfMessagesVisible", name)},
                "letters",
                1,
                anchor="dead-letters",
            )
            for name, queue in dead_letters.items()
        ),
        *(
            Rule(
                f"store-throttled-{service}",
                "A table or the bucket refuses calls for load.",
                {"refused": refused},
                "refused",
                throttled,
                breaching=2,
                periods=3,
                anchor="store-throttled",
            )
            for service, refused in throttles.items()
        ),
        Rule(
            "log-hot",
            "Writers of one log stand in each other's way: an append loses more than one race on average.",
            {"races": races, "appends": appends},
            f"IF(appends>={busy},races/appends,0)",
            1,
            breaching=3,
            periods=3,
        ),
        Rule(
            "answers-fail",
            "A request was answered 500: damage, or a bug.",
            {"failures": own("api", "Failures"), "broken": own("api", "BrokenAnswers")},
            "failures+broken",
            1,
            breaching=1,
            periods=3,
        ),
        Rule(
            "stores-unavailable",
            "More than one request in a hundred was answered 503.",
            {"unavailable": own("api", "StoreFailures"), "requests": own("api", "Requests")},
            f"IF(requests>={busy},100*unavailable/requests,0)",
            1,
            breaching=2,
            periods=3,
        ),
        Rule(
            "outcomes-unknown",
            "Writers don't learn what became of their appends.",
            {"unknown": own("api", "UnknownOutcomes")},
            "unknown",
            5,
            breaching=2,
            periods=3,
        ),
        Rule(
            "appends-slow",
            "One append in a hundred takes more than half of its budget, and neither throttles nor races explain it.",
            {
                "p99": own("api", "AppendMs", "p99"),
                "races": races,
                "appends": appends,
                "api_throttles": throttles["api"],
            },
            f"IF(appends>={busy} AND races<appends AND api_throttles<{throttled},p99,0)",
            1500,
            breaching=3,
            periods=3,
        ),
        Rule(
            "queries-time-out",
            "More than one search in ten was answered with what was found until its time was over.",
            {"late": own("api", "SearchTimeouts"), "searches": own("api", "Searches")},
            "IF(searches>=10,100*late/searches,0)",
            10,
            breaching=2,
            periods=3,
        ),
        Rule(
            "jobs-wait",
            "Workers of a queue are behind or gone: a job waited half an hour for its first delivery.",
            {"waited": own("api", "JobWaitMs", "Maximum")},
            "waited",
            30 * _MINUTE_MS,
            breaching=3,
            periods=3,
        ),
        Rule(
            "jobs-given-up",
            "A job was delivered as often as it may be, and moved to the dead-letter topic.",
            {"dead": own("api", "DeadLetters")},
            "dead",
            1,
        ),
        Rule(
            "leases-churn",
            "More than half of the jobs that workers get were delivered before: leases end, or jobs fail.",
            {"again": own("api", "JobsRedelivered"), "claimed": own("api", "JobsClaimed")},
            f"IF(claimed>={busy},100*again/claimed,0)",
            50,
            breaching=3,
            periods=3,
        ),
        Rule(
            "indexer-silent",
            "The indexer gave no sign of life for 15 minutes.",
            {"ticks": own("indexer", "Ticks")},
            "ticks",
            1,
            below=True,
            breaching=3,
            periods=3,
            missing_is_bad=True,
        ),
        Rule(
            "indexing-lags",
            "Published segments wait for a job run much longer than the index age.",
            {"waited": own("indexer", "IndexWaitMs", "Maximum")},
            "waited",
            60 * _MINUTE_MS,
        ),
        Rule(
            "job-stuck",
            "A job run takes longer than any should.",
            {"age": own("indexer", "JobAgeMs", "Maximum")},
            "age",
            45 * _MINUTE_MS,
        ),
        Rule(
            "jobs-fail",
            "Job runs fail again and again.",
            {"failed": own("indexer", "JobsFailed")},
            "failed",
            1,
            breaching=2,
            periods=6,
        ),
        Rule(
            "relay-silent",
            "The relay gave no sign of life for 15 minutes.",
            {"sweeps": own("relay", "Sweeps")},
            "sweeps",
            1,
            below=True,
            breaching=3,
            periods=3,
            missing_is_bad=True,
        ),
        Rule(
            "relay-lags",
            "Followers hear of entries more than a minute after they were written.",
            {"lag": own("relay", "RelayLagMs", "Maximum")},
            "lag",
            _MINUTE_MS,
            breaching=2,
            periods=3,
        ),
        Rule(
            "visits-fail",
            "Visits of followers fail again and again; each is repeated.",
            {"failed": own("relay", "VisitFailures")},
            "failed",
            throttled,
            breaching=3,
            periods=3,
        ),
        Rule(
            "webhooks-fail",
            "More than half of the calls of webhooks are accepted by no receiver; each is tried again.",
            {"failed": own("relay", "WebhooksFailed"), "calls": own("relay", "Webhooks")},
            f"IF(calls>={busy},100*failed/calls,0)",
            50,
            breaching=3,
            periods=3,
        ),
        Rule(
            "webhooks-late",
            "A receiver was called for half an hour, and has not accepted its wake.",
            {"age": own("relay", "WebhookAgeMs", "Maximum")},
            "age",
            30 * _MINUTE_MS,
            breaching=3,
            periods=3,
        ),
        Rule(
            "fold-lags",
            "Events get into the rows of feature tables more than a minute after their push; reads compute the rest.",
            {"lag": own("folder", "FoldLagMs", "Maximum")},
            "lag",
            _MINUTE_MS,
            breaching=2,
            periods=3,
        ),
        Rule(
            "table-stopped",
            "A feature table answers 503 in a lane: its features can't be computed of an event there.",
            {"stopped": own("folder", "TablesStopped")},
            "stopped",
            1,
            periods=12,
        ),
        Rule(
            "backfill-stuck",
            "A back-fill of a feature table is under way for six hours: the table is read without the events before.",
            {"age": own("relay", "BackfillAgeMs", "Maximum")},
            "age",
            360 * _MINUTE_MS,
        ),
        *(
            Rule(
                f"function-fails-{name}",
                "Lambda could not run the function to its end, or at all.",
                {
                    "errors": of_function(function, "Errors", "Sum", "errors"),
                    "throttles": of_function(function, "Throttles", "Sum", "throttles"),
                },
                "FILL(errors,0)+FILL(throttles,0)",
                1,
                breaching=2,
                periods=3,
                anchor="function-fails",
            )
            for name, function in functions.items()
        ),
    ]


class Alarms(Construct):
    """The construct with the alarms, and the topic that they notify if the environment names one."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        functions: Mapping[str, lambda_.IFunction],
        dead_letters: Mapping[str, sqs.IQueue],
        notify: bool,
        email: str = "",
    ) -> None:
        super().__init__(scope, construct_id)
        self.topic = self._topic() if notify else None
        if self.topic is not None and email:
            self.topic.add_subscription(subscriptions.EmailSubscription(email))
        found = rules(Own(Stack.of(self)), functions=functions, dead_letters=dead_letters)
        self.alarms = [build_alarm(self, rule) for rule in found]
        if self.topic is not None:
            action = actions.SnsAction(self.topic)
            for alarm in self.alarms:
                alarm.add_alarm_action(action)
                alarm.add_ok_action(action)

    def _topic(self) -> sns.Topic:
        """Creates the topic that people subscribe to, and lets the account's alarms publish to it. Messages name alarms
        and hold no data.
        """
        topic = sns.Topic(self, "Topic", enforce_ssl=True)
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsOfThisAccount",
                actions=["sns:Publish"],
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                resources=[topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
            )
        )
        return topic


def build_alarm(scope: Construct, rule: Rule, *, period: Duration = PERIOD) -> cloudwatch.Alarm:
    """Creates an alarm that looks at its metrics in steps of `period`, and tells nobody."""
    compare, treatment = cloudwatch.ComparisonOperator, cloudwatch.TreatMissingData
    return cloudwatch.Alarm(
        scope,
        "".join(word.capitalize() for word in rule.name.split("-")),
        # The slash is in no stack's name, so no stack's alarms begin as those of another.
        alarm_name=f"{Stack.of(scope).stack_name}/{rule.name}",
        alarm_description=f"{rule.promise} Runbook: {RUNBOOK}{rule.anchor or rule.name}",
        metric=_metric(rule, period),
        threshold=rule.threshold,
        comparison_operator=(
            compare.LESS_THAN_THRESHOLD if rule.below else compare.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
        ),
        datapoints_to_alarm=rule.breaching,
        evaluation_periods=rule.periods,
        treat_missing_data=treatment.BREACHING if rule.missing_is_bad else treatment.NOT_BREACHING,
    )


def _metric(rule: Rule, period: Duration) -> cloudwatch.IMetric:
    """Returns the one metric of a rule, or the math over several, whose period is that of each."""
    if list(rule.metrics) == [rule.expression]:
        return rule.metrics[rule.expression].with_(period=period)
    return cloudwatch.MathExpression(
        expression=rule.expression, using_metrics=dict(rule.metrics), period=period, label=rule.name
    )
