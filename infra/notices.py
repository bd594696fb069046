"""What people are told beside alarms: a danger to the key, and what a deployment costs."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

# Each ends, at once or in days, with data that nobody can read.
KEY_DANGERS = ("ScheduleKeyDeletion", "DisableKey")
BUDGET_PERCENT = 80


class KeyWatch(Construct):
    """A rule that tells the topic when the customer key is disabled or scheduled for deletion. It hears of that from
    CloudTrail, of which the account needs a trail.
    """

    def __init__(self, scope: Construct, construct_id: str, *, key: kms.IKey, topic: sns.ITopic) -> None:
        super().__init__(scope, construct_id)
        text = (
            f"{events.EventField.from_path('$.detail.eventName')} was called on the key {key.key_arn}: without it no data "
            "can be read. How to undo it: docs/operations.md, Keys of data."
        )
        events.Rule(
            self,
            "Rule",
            description="Headrace: the key is in danger",
            event_pattern=events.EventPattern(
                source=["aws.kms"],
                detail_type=["AWS API Call via CloudTrail"],
                detail={
                    "eventSource": ["kms.amazonaws.com"],
                    "eventName": list(KEY_DANGERS),
                    "resources": {"ARN": [key.key_arn]},
                },
            ),
            targets=[targets.SnsTopic(topic, message=events.RuleTargetInput.from_text(text))],
        )


class Budget(Construct):
    """A monthly budget of the deployment's stacks, which tells an address by e-mail. What belongs to them is known by
    AWS's own tag, which has to be activated for cost allocation.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, name: str, stack_names: Sequence[str], usd: int, email: str
    ) -> None:
        super().__init__(scope, construct_id)
        budgets.CfnBudget(
            self,
            "Budget",
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_name=name,
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=usd, unit="USD"),
                cost_filters={"TagKeyValue": [f"aws:cloudformation:stack-name${stack}" for stack in stack_names]},
            ),
            notifications_with_subscribers=[
                budgets.CfnBudget.NotificationWithSubscribersProperty(
                    notification=budgets.CfnBudget.NotificationProperty(
                        notification_type=kind,
                        comparison_operator="GREATER_THAN",
                        threshold=BUDGET_PERCENT,
                        threshold_type="PERCENTAGE",
                    ),
                    subscribers=[budgets.CfnBudget.SubscriberProperty(subscription_type="EMAIL", address=email)],
                )
                for kind in ("ACTUAL", "FORECASTED")
            ],
        )
