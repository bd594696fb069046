"""Nobody from outside gets in, nothing is kept in the clear, and nothing ends silently: in every environment."""

from __future__ import annotations

from typing import Any

import pytest

from infra.environments import ENVIRONMENTS
from tests.infra.resources import Resources
from tests.infra.synths import synthesize

ACCOUNT = {
    "AWS": {"Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, ":iam::", {"Ref": "AWS::AccountId"}, ":root"]]}
}
RESOURCE_POLICIES = {"S3::BucketPolicy": "Bucket", "SQS::QueuePolicy": "Queues"}


@pytest.fixture(scope="module", params=sorted(ENVIRONMENTS))
def deployed(request: pytest.FixtureRequest) -> Resources:
    """Returns the resources of each environment in turn, with a customer key."""
    return Resources.parse(synthesize(request.param, customer_key=True))


def test_every_bucket_and_queue_refuses_plain_http(deployed: Resources) -> None:
    guarded: set[str] = set()
    for kind, names in RESOURCE_POLICIES.items():
        for policy in deployed.of(kind).values():
            statements = policy["Properties"]["PolicyDocument"]["Statement"]
            named = policy["Properties"][names]
            subjects = {one["Ref"] for one in (named if isinstance(named, list) else [named])}
            (tls,) = [one for one in statements if one["Effect"] == "Deny"]
            assert tls["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
            assert tls["Principal"] == {"AWS": "*"}
            assert tls["Action"] in ("s3:*", "sqs:*")
            assert subjects <= set(_named(tls["Resource"]))
            guarded |= subjects
    assert guarded == {*deployed.of("S3::Bucket"), *deployed.of("SQS::Queue")}


def test_no_policy_of_a_resource_lets_anybody_in_but_the_bucket_to_its_queue(deployed: Resources) -> None:
    allowed = [
        (kind, statement)
        for kind in RESOURCE_POLICIES
        for policy in deployed.of(kind).values()
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    ]
    ((kind, statement),) = allowed
    assert (kind, statement["Sid"], statement["Action"]) == ("SQS::QueuePolicy", "BucketMaySend", "sqs:SendMessage")
    assert not any(one["Type"] == "AWS::SecretsManager::ResourcePolicy" for one in deployed.by_id.values())
    assert not any("ResourcePolicy" in table["Properties"] for table in deployed.of("DynamoDB::Table").values())


def test_the_key_is_the_accounts_alone(deployed: Resources) -> None:
    """Who of the account may use it is said by the policies of roles."""
    ((_, key),) = deployed.of("KMS::Key").items()
    for statement in key["Properties"]["KeyPolicy"]["Statement"]:
        assert statement["Principal"] == ACCOUNT


def test_functions_are_called_by_the_door_and_by_rules_of_this_stack(deployed: Resources) -> None:
    for permission in deployed.of("Lambda::Permission").values():
        properties = permission["Properties"]
        if properties["Principal"] == "*":
            # The streaming door is public, as the other one is; the application checks keys behind both.
            assert properties["FunctionName"]["Ref"].startswith("StreamingLive")
            through_url = (
                properties.get("FunctionUrlAuthType") == "NONE" or properties.get("InvokedViaFunctionUrl") is True
            )
            assert through_url
            continue
        assert properties["Action"] == "lambda:InvokeFunction"
        caller = {"apigateway.amazonaws.com": "ApiGatewayV2::Api", "events.amazonaws.com": "Events::Rule"}
        source = set(_named(properties["SourceArn"]))
        assert source & set(deployed.of(caller[properties["Principal"]])), "anybody's door or rule could call it"


def test_every_trigger_ends_in_dead_letters_or_in_the_next_tick(deployed: Resources) -> None:
    dead_letters = {
        queue["Properties"]["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"][0]
        for queue in deployed.of("SQS::Queue").values()
        if "RedrivePolicy" in queue["Properties"]
    }
    for mapping in deployed.of("Lambda::EventSourceMapping").values():
        properties = mapping["Properties"]
        source = properties["EventSourceArn"]["Fn::GetAtt"][0]
        if deployed.by_id[source]["Type"] == "AWS::DynamoDB::Table":
            dead_letters.add(properties["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0])
        else:
            assert "RedrivePolicy" in deployed.by_id[source]["Properties"]
    kept = {key for key in deployed.of("SQS::Queue") if "DeadLetters" in key}
    assert dead_letters == kept
    scheduled = [one for one in deployed.of("Events::Rule").values() if "ScheduleExpression" in one["Properties"]]
    assert len(scheduled) == 8
    assert all(rule["Properties"]["State"] == "ENABLED" for rule in scheduled)


def test_logs_end_and_versions_of_objects_do(deployed: Resources) -> None:
    assert all(group["Properties"]["RetentionInDays"] in (7, 90) for group in deployed.of("Logs::LogGroup").values())
    _, bucket = deployed.one("S3::Bucket")
    rules = {rule["Id"]: rule for rule in bucket["LifecycleConfiguration"]["Rules"]}
    assert rules["forget-deleted-objects"]["NoncurrentVersionExpiration"]["NoncurrentDays"] in (7, 30)
    assert rules["abort-abandoned-uploads"]["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 2}


def test_the_wal_can_be_brought_back_and_is_not_deleted_by_accident(deployed: Resources) -> None:
    _, wal = deployed.one("DynamoDB::Table", "TablesWal")
    assert wal["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert wal["DeletionProtectionEnabled"] is True
    assert wal["SSESpecification"]["SSEType"] == "KMS"
    key = wal["SSESpecification"]["KMSMasterKeyId"]["Fn::GetAtt"][0]
    assert deployed.by_id[key]["Properties"]["EnableKeyRotation"] is True


def test_secrets_are_generated_and_encrypted_with_the_customer_key(deployed: Resources) -> None:
    for secret in deployed.of("SecretsManager::Secret").values():
        assert "GenerateSecretString" in secret["Properties"]
        assert _named(secret["Properties"]["KmsKeyId"])[0] in deployed.of("KMS::Key")


def _named(value: Any) -> list[str]:
    """Logical ids that a value refers to."""
    match value:
        case {"Ref": str(name)} | {"Fn::GetAtt": [str(name), _]}:
            return [name]
        case dict():
            return [name for inner in value.values() for name in _named(inner)]
        case list():
            return [name for inner in value for name in _named(inner)]
    return []
