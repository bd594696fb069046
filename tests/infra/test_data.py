"""Nothing that holds records can be lost, read or left unencrypted by accident."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk.assertions import Match, Template

from infra.environments import DEV, PROD
from tests.infra.resources import Resources
from tests.infra.synths import synthesize

DATA = ("DynamoDB::Table", "S3::Bucket", "KMS::Key", "SecretsManager::Secret")

TABLES: dict[str, dict[str, Any]] = {
    "Wal": {"HASH": ("log_id", "S"), "RANGE": ("slot", "N")},
    "Catalog": {"HASH": ("bucket", "S"), "RANGE": ("name", "S")},
    "Watermarks": {"HASH": ("log_id", "S")},
    "Producers": {"HASH": ("log_id", "S"), "RANGE": ("producer", "S")},
    "Follows": {"HASH": ("log_id", "S"), "RANGE": ("id", "S")},
    "Sessions": {"HASH": ("id", "S"), "RANGE": ("part", "S")},
    "Features": {"HASH": ("id", "S"), "RANGE": ("part", "S")},
    "Jobs": {"HASH": ("id", "S")},
}


@pytest.mark.parametrize("environment", [DEV.name, PROD.name])
def test_data_survives_the_stack_in_every_environment(environment: str) -> None:
    resources = Resources.parse(synthesize(environment, customer_key=True))
    for kind in DATA:
        for resource in resources.of(kind).values():
            assert resource["DeletionPolicy"] == "Retain"
            assert resource["UpdateReplacePolicy"] == "Retain"
    for table in resources.of("DynamoDB::Table").values():
        assert table["Properties"]["DeletionProtectionEnabled"] is True


def test_every_table_can_be_recovered_and_uses_the_customer_key(resources: Resources) -> None:
    key, _ = resources.one("KMS::Key")
    tables = resources.of("DynamoDB::Table")
    assert len(tables) == len(TABLES)
    for table in tables.values():
        properties = table["Properties"]
        assert properties["BillingMode"] == "PAY_PER_REQUEST"
        assert properties["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
        assert properties["SSESpecification"] == {
            "SSEEnabled": True,
            "SSEType": "KMS",
            "KMSMasterKeyId": {"Fn::GetAtt": [key, "Arn"]},
        }


@pytest.mark.parametrize("table", TABLES)
def test_tables_have_the_keys_of_the_design(resources: Resources, table: str) -> None:
    _, properties = resources.one("DynamoDB::Table", f"Tables{table}")
    types = {a["AttributeName"]: a["AttributeType"] for a in properties["AttributeDefinitions"]}
    keys = {k["KeyType"]: (k["AttributeName"], types[k["AttributeName"]]) for k in properties["KeySchema"]}
    assert keys == TABLES[table]


def test_the_wal_streams_new_images(resources: Resources) -> None:
    _, wal = resources.one("DynamoDB::Table", "TablesWal")
    assert wal["StreamSpecification"] == {"StreamViewType": "NEW_IMAGE"}


def test_what_is_to_be_purged_is_found_without_a_scan(resources: Resources) -> None:
    _, wal = resources.one("DynamoDB::Table", "TablesWal")
    (index,) = wal["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "purge"
    assert [key["AttributeName"] for key in index["KeySchema"]] == ["purge_shard", "committed"]
    assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}


def test_expiry_is_found_without_a_scan(resources: Resources) -> None:
    _, catalog = resources.one("DynamoDB::Table", "TablesCatalog")
    index = {one["IndexName"]: one for one in catalog["GlobalSecondaryIndexes"]}["expiry"]
    assert [key["AttributeName"] for key in index["KeySchema"]] == ["expiry_shard", "expires_at_ms"]
    assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}


def test_living_names_are_listed_past_those_that_have_ended(resources: Resources) -> None:
    _, catalog = resources.one("DynamoDB::Table", "TablesCatalog")
    index = {one["IndexName"]: one for one in catalog["GlobalSecondaryIndexes"]}["living"]
    assert [key["AttributeName"] for key in index["KeySchema"]] == ["living_in", "name"]
    assert index["Projection"] == {"ProjectionType": "ALL"}


def test_logs_that_are_due_for_indexing_are_found_without_a_scan(resources: Resources) -> None:
    _, jobs = resources.one("DynamoDB::Table", "TablesJobs")
    (index,) = jobs["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "due"
    assert [key["AttributeName"] for key in index["KeySchema"]] == ["due_queue", "due_ms"]
    assert index["Projection"] == {"ProjectionType": "ALL"}


def test_followers_that_must_be_visited_are_found_without_a_scan(resources: Resources) -> None:
    _, follows = resources.one("DynamoDB::Table", "TablesFollows")
    (index,) = follows["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "due"
    assert [key["AttributeName"] for key in index["KeySchema"]] == ["due_shard", "due_ms"]
    assert index["Projection"] == {"ProjectionType": "ALL"}


def test_slots_whose_deadline_has_passed_are_found_with_what_they_count(resources: Resources) -> None:
    _, sessions = resources.one("DynamoDB::Table", "TablesSessions")
    (index,) = sessions["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "expiry"
    assert [key["AttributeName"] for key in index["KeySchema"]] == ["expiry_shard", "expires_at_ms"]
    assert index["Projection"] == {"ProjectionType": "ALL"}


def test_only_rows_of_producers_followers_sessions_and_features_can_be_removed_by_dynamodb(
    resources: Resources,
) -> None:
    expiring = {
        key: table["Properties"]["TimeToLiveSpecification"]
        for key, table in resources.of("DynamoDB::Table").items()
        if "TimeToLiveSpecification" in table["Properties"]
    }
    assert len(expiring) == 4
    for table in ("Producers", "Follows", "Sessions", "Features"):
        (specification,) = (one for key, one in expiring.items() if table in key)
        assert specification == {"AttributeName": "expires_at", "Enabled": True}


def test_the_bucket_is_versioned_private_and_encrypted_with_the_customer_key(resources: Resources) -> None:
    key, _ = resources.one("KMS::Key")
    _, bucket = resources.one("S3::Bucket")
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    assert bucket["PublicAccessBlockConfiguration"] == {
        "BlockPublicAcls": True,
        "BlockPublicPolicy": True,
        "IgnorePublicAcls": True,
        "RestrictPublicBuckets": True,
    }
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {
        "SSEAlgorithm": "aws:kms",
        "KMSMasterKeyID": {"Fn::GetAtt": [key, "Arn"]},
    }


def test_the_bucket_refuses_plain_http(template: Template) -> None:
    template.has_resource_properties(
        "AWS::S3::BucketPolicy",
        {
            "PolicyDocument": {
                "Statement": Match.array_with(
                    [
                        Match.object_like(
                            {
                                "Effect": "Deny",
                                "Action": "s3:*",
                                "Principal": {"AWS": "*"},
                                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                            }
                        )
                    ]
                )
            }
        },
    )


def test_no_lifecycle_rule_touches_a_current_object_of_a_log(resources: Resources) -> None:
    _, bucket = resources.one("S3::Bucket")
    rules = bucket["LifecycleConfiguration"]["Rules"]
    (of_jobs,) = [rule for rule in rules if "ExpirationInDays" in rule]
    assert of_jobs["Prefix"] == "jobs/"
    said = set().union(*(rule for rule in rules if rule is not of_jobs))
    assert said == {
        "Id",
        "Status",
        "NoncurrentVersionExpiration",
        "ExpiredObjectDeleteMarker",
        "AbortIncompleteMultipartUpload",
    }
    assert all(rule["Status"] == "Enabled" for rule in rules)


def test_the_key_rotates(resources: Resources) -> None:
    _, key = resources.one("KMS::Key")
    assert key["EnableKeyRotation"] is True
