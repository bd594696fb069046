"""What an owner may ask for beside alarms: tags, a subscription, a watch over the key, a budget."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from infra.environments import environment_of
from tests.infra.resources import Resources
from tests.infra.synths import synthesize

Synth = Callable[..., Resources]
# Of one synth, since none has to do with another.
OPTIONS: dict[str, Any] = {
    "tags": "team=data platform,cost-center=42",
    "notify_email": "ops@example.com",
    "monthly_budget_usd": 50,
}
# Of the types that hold data or run, each with the property that has its tags.
TAGGED = {
    "DynamoDB::Table": "Tags",
    "S3::Bucket": "Tags",
    "SQS::Queue": "Tags",
    "KMS::Key": "Tags",
    "SecretsManager::Secret": "Tags",
    "Lambda::Function": "Tags",
    "EMRServerless::Application": "Tags",
    "ApiGatewayV2::Api": "Tags",
    "Logs::LogGroup": "Tags",
    "CloudWatch::Alarm": "Tags",
    "SNS::Topic": "Tags",
    "IAM::Role": "Tags",
}


def test_tags_are_on_everything_of_both_stacks(resources: Resources, resources_of: Synth) -> None:
    found = resources_of(**OPTIONS)
    wanted = {"team": "data platform", "cost-center": "42"}
    for kind, name in TAGGED.items():
        for key, resource in found.of(kind).items():
            given = resource["Properties"][name]
            tags = given if isinstance(given, dict) else {one["Key"]: one["Value"] for one in given}
            assert tags.items() >= wanted.items(), key
    assert "cost-center" not in json.dumps(resources.by_id), "nothing is tagged unless it is asked for"


@pytest.mark.parametrize("text", ["a=b", "a=b,c=d", "cost center=4 2", "Team/x:y=a.b-c_d@e+f"])
def test_tags_are_names_and_values(text: str) -> None:
    pairs = environment_of({"headrace:tags": text}).tag_values
    assert len(pairs) == text.count("=")
    assert all(name == name.strip() and value == value.strip() for name, value in pairs.items())


def test_an_address_subscribes_to_the_topic(resources: Resources, resources_of: Synth) -> None:
    found = resources_of(**OPTIONS)
    _, subscription = found.one("SNS::Subscription")
    (topic,) = found.of("SNS::Topic")
    assert subscription == {"Endpoint": "ops@example.com", "Protocol": "email", "TopicArn": {"Ref": topic}}
    assert "AWS::SNS::Subscription" not in {one["Type"] for one in resources.by_id.values()}


def test_a_key_that_is_disabled_or_to_be_deleted_is_told_to_the_topic(resources: Resources) -> None:
    key, _ = resources.one("KMS::Key")
    (topic,) = resources.of("SNS::Topic")
    _, rule = resources.one("Events::Rule", "KeyWatch")
    assert rule["EventPattern"] == {
        "source": ["aws.kms"],
        "detail-type": ["AWS API Call via CloudTrail"],
        "detail": {
            "eventSource": ["kms.amazonaws.com"],
            "eventName": ["ScheduleKeyDeletion", "DisableKey"],
            "resources": {"ARN": [{"Fn::GetAtt": [key, "Arn"]}]},
        },
    }
    (target,) = rule["Targets"]
    assert target["Arn"] == {"Ref": topic}
    assert "<detail-eventName>" in json.dumps(target["InputTransformer"]["InputTemplate"])


@pytest.mark.parametrize("given", [{"customer_key": True}, {"alarms": True, "notify": True}])
def test_nobody_watches_a_key_that_is_not_there_or_tells_a_topic_that_is_not(given: dict[str, Any]) -> None:
    found = Resources.parse(synthesize("dev", **given))
    assert not [key for key in found.of("Events::Rule") if key.startswith("KeyWatch")]


def test_a_budget_counts_what_is_of_the_stacks_and_tells_an_address(resources_of: Synth) -> None:
    _, properties = resources_of(**OPTIONS).one("Budgets::Budget")
    budget = properties["Budget"]
    assert (budget["BudgetName"], budget["BudgetType"], budget["TimeUnit"]) == ("headrace-prod", "COST", "MONTHLY")
    assert budget["BudgetLimit"] == {"Amount": 50, "Unit": "USD"}
    assert budget["CostFilters"] == {
        "TagKeyValue": [f"aws:cloudformation:stack-name${name}" for name in ("headrace-prod-data", "headrace-prod")]
    }
    told = properties["NotificationsWithSubscribers"]
    assert [one["Notification"]["NotificationType"] for one in told] == ["ACTUAL", "FORECASTED"]
    assert {one["Notification"]["Threshold"] for one in told} == {80}
    assert [one["Subscribers"] for one in told] == [[{"Address": "ops@example.com", "SubscriptionType": "EMAIL"}]] * 2
