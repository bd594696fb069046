"""Anyone who must hear of alarms does, and nobody else can speak in their place."""

from __future__ import annotations

from typing import Any

from tests.infra.resources import Resources
from tests.infra.synths import synthesize


def test_every_alarm_tells_the_topic_when_it_begins_and_when_it_is_over(resources: Resources) -> None:
    """But for those that end a canary, which say nothing of a deployment that is not under way."""
    (topic,) = resources.of("SNS::Topic")
    for name, alarm in _promises(resources).items():
        assert alarm["Properties"]["AlarmActions"] == [{"Ref": topic}], name
        assert alarm["Properties"]["OKActions"] == [{"Ref": topic}], name


def test_only_alarms_of_this_account_and_rules_may_speak_on_the_topic(resources: Resources) -> None:
    _, policy = resources.one("SNS::TopicPolicy")
    statements = policy["PolicyDocument"]["Statement"]
    allowed, by_rule = (statement for statement in statements if statement["Effect"] == "Allow")
    # Of EventBridge, which tells of the key; AWS's documentation has no condition for its rules there.
    assert (by_rule["Principal"], by_rule["Action"]) == ({"Service": "events.amazonaws.com"}, "sns:Publish")
    assert allowed["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert allowed["Action"] == "sns:Publish"
    assert allowed["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
    (denied,) = (statement for statement in statements if statement["Effect"] == "Deny")
    assert denied["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_a_sandbox_has_the_same_alarms_if_it_asks_and_tells_nobody(resources: Resources) -> None:
    sandbox = Resources.parse(synthesize("dev", alarms=True, name="prod"))
    ours, theirs = _promises(resources), sandbox.of("CloudWatch::Alarm")
    assert ours.keys() == theirs.keys()
    assert not [part for part in sandbox.by_id.values() if part["Type"] == "AWS::SNS::Topic"]
    for name, alarm in theirs.items():
        properties = alarm["Properties"]
        assert "AlarmActions" not in properties
        same = {key: value for key, value in ours[name]["Properties"].items() if key in ("Threshold", "Metrics")}
        assert {key: properties[key] for key in same} == same


def test_no_period_is_shorter_than_what_is_free(resources: Resources) -> None:
    """An alarm with a period under a minute costs more, and metrics come once a minute at most."""
    for name, alarm in resources.of("CloudWatch::Alarm").items():
        stats = [part["MetricStat"] for part in alarm["Properties"].get("Metrics", ()) if "MetricStat" in part]
        periods = {stat["Period"] for stat in stats} or {alarm["Properties"]["Period"]}
        assert periods == {60 if name.startswith("Canary") else 300}, name


def _promises(resources: Resources) -> dict[str, dict[str, Any]]:
    alarms = resources.of("CloudWatch::Alarm")
    return {name: alarm for name, alarm in alarms.items() if not name.startswith("Canary")}
