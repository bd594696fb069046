"""No function can do more than its verbs need."""

from __future__ import annotations

import pytest

from tests.infra.resources import Resources

FUNCTIONS = ("api", "streaming", "sealer", "indexer")
DATA_SERVICES = {"dynamodb", "s3", "kms", "sqs", "secretsmanager", "logs"}
JOB_SERVICES = {"emr-serverless", "iam"}
TABLES = ("Wal", "Catalog", "Watermarks", "Producers", "Jobs")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_statement_allows_every_action_or_every_resource(resources: Resources, function: str) -> None:
    statements = list(resources.statements(function))
    assert statements
    for statement in statements:
        assert statement.effect == "Allow"
        assert not [action for action in statement.actions if "*" in action]
        assert '"*"' not in statement.resources


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_touch_the_services_that_they_need_and_no_other(resources: Resources, function: str) -> None:
    services = {a.partition(":")[0] for s in resources.statements(function) for a in s.actions}
    assert services <= DATA_SERVICES | (JOB_SERVICES if function == "indexer" else set())


def test_the_streaming_door_may_do_what_the_other_one_may(resources: Resources) -> None:
    for service in sorted(DATA_SERVICES - {"logs"}):
        assert resources.allowed("streaming", service) == resources.allowed("api", service)


def test_the_api_reads_logs_spills_payloads_and_deletes_no_object(resources: Resources) -> None:
    allowed = resources.allowed("api", "s3")
    assert set(allowed) == {"s3:GetObject", "s3:PutObject", "s3:ListBucket"}
    assert _ends(allowed["s3:GetObject"], "/logs/*")
    puts = sorted(allowed["s3:PutObject"])
    assert len(puts) == 2
    assert _ends({puts[0]}, "/logs/*/registry/*"), "the api could overwrite a segment"
    assert _ends({puts[1]}, "/logs/*/wal/*"), "the api could overwrite a segment"


def test_the_sealer_keeps_objects_of_logs_and_cannot_touch_the_bucket_or_old_versions(
    resources: Resources,
) -> None:
    allowed = resources.allowed("sealer", "s3")
    assert set(allowed) == {"s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"}
    for action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject"):
        assert _ends(allowed[action], "/logs/*")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_absent_object_is_seen_as_absent(resources: Resources, function: str) -> None:
    """S3 answers 403 in place of 404 to who may not list, and readers look for the first absent manifest."""
    (listing,) = [s for s in resources.statements(function) if "s3:ListBucket" in s.actions]
    assert listing.condition == "null"


def test_the_api_changes_items_but_has_no_bulk_delete_and_no_scan(resources: Resources) -> None:
    assert _by_table(resources, "api") == {
        "Wal": {"GetItem", "Query", "PutItem", "DeleteItem", "ConditionCheckItem"},
        "Catalog": {"GetItem", "Query", "PutItem", "UpdateItem"},
        "Watermarks": {"GetItem", "UpdateItem", "ConditionCheckItem"},
        "Producers": {"GetItem", "PutItem"},
    }


def test_the_sealer_changes_items_but_no_table_and_has_no_scan(resources: Resources) -> None:
    assert _by_table(resources, "sealer") == {
        "Wal": {
            *("GetItem", "Query", "PutItem", "DeleteItem", "BatchWriteItem", "ConditionCheckItem"),
            *("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams"),
        },
        "Catalog": {"GetItem", "Query", "PutItem", "UpdateItem"},
        "Watermarks": {"GetItem", "PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"},
        "Producers": {"Query", "DeleteItem", "BatchWriteItem"},
    }


def test_the_indexer_reads_logs_and_changes_indexes_and_manifests_alone(resources: Resources) -> None:
    allowed = resources.allowed("indexer", "s3")
    assert set(allowed) == {"s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"}
    gets, puts = sorted(allowed["s3:GetObject"]), sorted(allowed["s3:PutObject"])
    assert _ends({gets[0]}, "/jobs/*") and _ends({gets[1]}, "/logs/*")
    assert (len(gets), len(puts)) == (2, 3)
    assert _ends({puts[0]}, "/jobs/*") and _ends({puts[1]}, "/logs/*/index/*")
    assert _ends({puts[2]}, "/logs/*/manifests/*.json.zst")
    index, merged = sorted(allowed["s3:DeleteObject"])
    assert _ends({index}, "/logs/*/index/*")
    assert _ends({merged}, "/logs/*/segments/*-m*"), "the indexer could delete a sealed segment"


def test_the_indexer_writes_no_log_and_has_no_scan(resources: Resources) -> None:
    assert _by_table(resources, "indexer") == {
        "Wal": {"Query"},
        "Catalog": {"Query"},
        "Watermarks": {"GetItem", "UpdateItem"},
        "Jobs": {"GetItem", "PutItem", "DeleteItem", "Query"},
    }


def test_the_indexer_runs_jobs_of_its_application_with_one_role(resources: Resources) -> None:
    application, _ = resources.one("EMRServerless::Application")
    jobs = resources.allowed("indexer", "emr-serverless")
    assert set(jobs) == {"emr-serverless:StartJobRun", "emr-serverless:GetJobRun"}
    for targets in jobs.values():
        (target,) = targets
        assert application in target
    (lent,) = [s for s in resources.statements("indexer") if "iam:PassRole" in s.actions]
    (role,) = lent.resources
    assert "SparkRole" in role
    assert "emr-serverless.amazonaws.com" in lent.condition


def test_a_job_reads_logs_writes_runs_and_merged_segments_and_can_publish_or_delete_nothing(
    resources: Resources,
) -> None:
    allowed = resources.allowed_to_role("SparkRole")
    assert set(allowed) == {
        *("s3:GetObject", "s3:PutObject", "s3:ListBucket"),
        *("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"),
        *("kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo"),
    }
    puts = sorted(allowed["s3:PutObject"])
    assert len(puts) == 3
    assert _ends({puts[0]}, "/jobs/*") and _ends({puts[1]}, "/logs/*/index/runs/*")
    assert _ends({puts[2]}, "/logs/*/segments/*-m*"), "a job could overwrite a sealed segment"
    code = {target for target in allowed["s3:GetObject"] if "cdk-" in target}
    assert len(code) == 3, "each of what the deployment uploads for it, and nothing else of that bucket"
    assert not any("*" in target for target in code)
    _, role = resources.one("IAM::Role", "SparkRole")
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "emr-serverless.amazonaws.com"}
    assert "aws:SourceAccount" in str(trust["Condition"])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_key_is_used_through_the_stores_only(resources: Resources, function: str) -> None:
    key_statements = [s for s in resources.statements(function) if any(a.startswith("kms:") for a in s.actions)]
    assert key_statements
    for statement in key_statements:
        assert "kms:ViaService" in statement.condition


def test_only_the_api_reads_the_keys_and_only_the_sealer_the_queue(resources: Resources) -> None:
    assert set(resources.allowed("api", "secretsmanager")) == {"secretsmanager:GetSecretValue"}
    assert not resources.allowed("api", "sqs")
    assert not resources.allowed("sealer", "secretsmanager")
    assert "sqs:SendMessage" in resources.allowed("sealer", "sqs")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_only_lambda_assumes_a_role(resources: Resources, function: str) -> None:
    role = resources.function(function)["Role"]["Fn::GetAtt"][0]
    (trust,) = resources.by_id[role]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "lambda.amazonaws.com"}


def _ends(resources: set[str], suffix: str) -> bool:
    (resource,) = resources
    return f', "{suffix}"' in resource or f'"{suffix}"]' in resource


def _by_table(resources: Resources, function: str) -> dict[str, set[str]]:
    """What the function may do, by the table it may do it to; index and stream count as their table."""
    found: dict[str, set[str]] = {}
    for action, targets in resources.allowed(function, "dynamodb").items():
        for target in targets:
            (table,) = [name for name in TABLES if f"Tables{name}" in target]
            found.setdefault(table, set()).add(action.partition(":")[2])
    return found
