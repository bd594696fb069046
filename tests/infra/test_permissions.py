"""No function can do more than its verbs need."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from headrace.objects import keys
from headrace.wal.state import random_id
from tests.infra.resources import Resources
from tests.infra.spoken import rows

PAGE = Path(__file__).parents[2] / "docs" / "permissions.md"
FUNCTIONS = ("api", "streaming", "sealer", "indexer", "relay", "folder")
MERGED = f"L/segments/{'?' * 12}-m{'?' * 13}-*"
DATA_SERVICES = {"dynamodb", "s3", "kms", "sqs", "secretsmanager", "logs"}
JOB_SERVICES = {"emr-serverless", "iam"}
TABLES = ("Wal", "Catalog", "Watermarks", "Producers", "Follows", "Sessions", "Features", "Jobs")


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
    own = {"indexer": JOB_SERVICES, "relay": {"execute-api", "lambda"}}
    assert services <= DATA_SERVICES | own.get(function, set())


def test_the_streaming_door_may_do_what_the_other_one_may(resources: Resources) -> None:
    for service in sorted(DATA_SERVICES - {"logs"}):
        assert resources.allowed("streaming", service) == resources.allowed("api", service)


def test_the_api_reads_logs_spills_payloads_and_deletes_no_object(resources: Resources) -> None:
    assert _by_pattern(resources.allowed("api", "s3")) == {
        "s3:GetObject": {"L/*", f"jobs/{'?' * 26}/*.json.zst"},
        "s3:PutObject": {
            *("L/wal/*", "L/registry/*", "L/dead/*", "L/snapshots/*"),
            f"jobs/{'?' * 26}/request.json.zst",
        },
        "s3:ListBucket": {""},
    }


def test_the_sealer_writes_segments_and_manifests_and_purges_all_but_the_marks(resources: Resources) -> None:
    """It can't touch an index, the bucket, or an old version; what says that a log was, and is gone, stays for ever."""
    assert _by_pattern(resources.allowed("sealer", "s3")) == {
        "s3:GetObject": {"L/*"},
        "s3:PutObject": {"L/segments/*", "L/manifests/*", "L/log.json", "L/deleted.json"},
        "s3:DeleteObject": {"L/*/*"},
        "s3:ListBucket": {""},
    }


def test_the_keys_of_objects_fall_under_the_patterns_that_are_meant(resources: Resources) -> None:
    """A star reaches across slashes, so a pattern with one for the id of a log would mean more than it says."""
    log, run = random_id(), "1795262491582-d971f5c33b43"
    # Nonces are text of any kind.
    sealed = keys.segment(log, 1, "mA-m1E-mGHIJ")
    merged = keys.merged_segment(log, sealed, 1795262491582, "n")
    written = {
        "segments": (sealed, keys.segment_keys(sealed)),
        "merged segments": (merged, keys.segment_keys(merged)),
        "manifests": (keys.manifest(log, 1), keys.manifest_page(log, 0, "n")),
        "marks": (keys.description(log), keys.tombstone(log)),
        "payloads": (keys.payload(log, 1, "n"),),
        "definitions": (keys.definition(log, 1, "n"),),
        "runs": (keys.run_descriptor(log, run), keys.run_part(log, run, "kw", 0, "n")),
        "index manifests": (keys.index_manifest(log, 1),),
        "jobs": (keys.job_input(run), keys.job_result(run), f"{keys.job_folder(run)}rows/0.parquet"),
        "requests": (keys.job_request(run),),
    }
    assert _kinds(resources.allowed("api", "s3")["s3:PutObject"], written) == {
        *("payloads", "definitions", "requests")
    }
    assert _kinds(resources.allowed("sealer", "s3")["s3:PutObject"], written) == {
        *("segments", "merged segments", "manifests", "marks")
    }
    assert _kinds(resources.allowed("sealer", "s3")["s3:DeleteObject"], written) == written.keys() - {
        *("marks", "jobs", "requests")
    }
    assert _kinds(resources.allowed("indexer", "s3")["s3:PutObject"], written) == {
        "index manifests",
        "manifests",
        "jobs",
        "requests",
    }
    assert _kinds(resources.allowed("indexer", "s3")["s3:DeleteObject"], written) == {
        *("runs", "index manifests", "merged segments")
    }
    assert _kinds(resources.allowed_to_role("SparkRole")["s3:PutObject"], written) == {
        "runs",
        "merged segments",
        "jobs",
        "requests",
    }


@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_absent_object_is_seen_as_absent(resources: Resources, function: str) -> None:
    """S3 answers 403 in place of 404 to a role that may not list, and readers look for the first absent manifest."""
    (listing,) = [s for s in resources.statements(function) if "s3:ListBucket" in s.actions]
    assert listing.condition == "null"


def test_the_api_changes_items_but_has_no_bulk_delete_and_no_scan(resources: Resources) -> None:
    assert _by_table(resources, "api") == {
        "Wal": {"Query", "PutItem", "DeleteItem"},
        "Catalog": {"GetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"},
        "Watermarks": {"GetItem", "UpdateItem", "ConditionCheckItem"},
        "Producers": {"GetItem", "PutItem"},
        "Follows": {"GetItem", "Query", "PutItem", "DeleteItem"},
        "Sessions": {"GetItem", "Query", "BatchGetItem", "PutItem", "UpdateItem", "DeleteItem"},
        "Features": {"GetItem", "BatchGetItem"},
    }


def test_the_sealer_changes_items_but_no_table_and_has_no_scan(resources: Resources) -> None:
    assert _by_table(resources, "sealer") == {
        "Wal": {
            *("Query", "PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem"),
            *("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams"),
        },
        "Catalog": {"GetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"},
        "Watermarks": {"GetItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"},
        "Producers": {"Query", "BatchWriteItem"},
        "Follows": {"Query", "BatchWriteItem"},
        "Sessions": {"Query", "UpdateItem", "DeleteItem"},
        "Features": {"GetItem", "Query", "BatchWriteItem"},
    }


def test_the_relay_appends_and_tells_and_deletes_no_object(resources: Resources) -> None:
    assert _by_table(resources, "relay") == {
        "Wal": {
            *("Query", "PutItem", "DeleteItem"),
            *("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams"),
        },
        "Catalog": {"GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query"},
        "Watermarks": {"GetItem", "UpdateItem", "ConditionCheckItem"},
        "Follows": {"GetItem", "Query", "PutItem", "DeleteItem"},
        "Sessions": {"GetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"},
        "Features": {"GetItem"},
    }
    assert _by_pattern(resources.allowed("relay", "s3")) == {
        "s3:GetObject": {"L/*", f"jobs/{'?' * 26}/*.json.zst"},
        "s3:PutObject": {"L/wal/*", "L/registry/*", "L/dead/*", f"jobs/{'?' * 26}/request.json.zst"},
        "s3:ListBucket": {""},
    }


def test_the_folder_writes_rows_and_no_object(resources: Resources) -> None:
    assert _by_table(resources, "folder") == {
        "Wal": {"Query", "PutItem", "DeleteItem"},
        "Catalog": {"GetItem"},
        "Watermarks": {"GetItem", "UpdateItem"},
        "Features": {"GetItem", "Query", "BatchGetItem", "PutItem", "BatchWriteItem"},
    }
    assert _by_pattern(resources.allowed("folder", "s3")) == {
        "s3:GetObject": {"L/*", "jobs/*"},
        "s3:ListBucket": {""},
    }


def test_the_indexer_changes_indexes_and_puts_merged_segments_in_the_place_of_small_ones(
    resources: Resources,
) -> None:
    assert _by_pattern(resources.allowed("indexer", "s3")) == {
        "s3:GetObject": {
            *("L/manifests/*", "L/registry/*", "L/segments/*", "L/wal/*", "L/dead/*", "L/snapshots/*"),
            "L/deleted.json",
            *("L/index/runs/*", "L/index/manifests/*", "jobs/*"),
        },
        "s3:PutObject": {"L/index/manifests/*", "L/manifests/*", "jobs/*"},
        "s3:DeleteObject": {"L/index/runs/*", "L/index/manifests/*", MERGED},
        "s3:ListBucket": {""},
    }


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


def test_a_job_reads_segments_writes_runs_and_can_publish_or_delete_nothing(resources: Resources) -> None:
    allowed = resources.allowed_to_role("SparkRole")
    assert {action for action in allowed if not action.startswith("s3:")} == {"kms:Decrypt", "kms:GenerateDataKey"}
    of_data = {action: {one for one in on if "DataBucket" in one} for action, on in allowed.items()}
    assert _by_pattern({action: on for action, on in of_data.items() if action.startswith("s3:")}) == {
        "s3:GetObject": {"L/segments/*", "L/registry/*", "L/index/runs/*", "L/manifests/*", "labels/*", "jobs/*"},
        "s3:PutObject": {"L/index/runs/*", MERGED, "jobs/*"},
        "s3:ListBucket": {""},
    }
    code = {action: {one for one in on if "-assets-" in one} for action, on in allowed.items()}
    assert {action: len(on) for action, on in code.items() if on} == {"s3:GetObject": 3, "s3:ListBucket": 1}
    assert not any("*" in one for on in code.values() for one in on), "code of other deployments"
    _, role = resources.one("IAM::Role", "SparkRole")
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "emr-serverless.amazonaws.com"}
    assert "aws:SourceAccount" in str(trust["Condition"])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_key_is_used_through_one_store_at_a_time(resources: Resources, function: str) -> None:
    through = {
        re.findall(r"[a-z0-9]+(?=\.\")", s.condition)[0]: set(s.actions)
        for s in resources.statements(function)
        if any(a.startswith("kms:") for a in s.actions)
        if '"kms:ViaService"' in s.condition
    }
    of_any_kind = [s for s in resources.statements(function) if any(a.startswith("kms:") for a in s.actions)]
    assert len(of_any_kind) == len(through)
    reads_keys = function in ("api", "streaming", "relay")
    assert through.keys() == {"dynamodb", "s3"} | ({"secretsmanager"} if reads_keys else set())
    writes_objects = function != "folder"
    assert through["s3"] == {"kms:Decrypt"} | ({"kms:GenerateDataKey"} if writes_objects else set())
    assert through.get("secretsmanager", {"kms:Decrypt"}) == {"kms:Decrypt"}


def test_only_the_api_reads_the_keys_and_each_worker_its_own_queue(resources: Resources) -> None:
    assert set(resources.allowed("api", "secretsmanager")) == {"secretsmanager:GetSecretValue"}
    assert not resources.allowed("sealer", "secretsmanager")

    def queues(function: str, action: str) -> set[str]:
        return {
            re.findall(r"Queues(\w+?)[0-9A-F]{8}", target)[0]
            for target in resources.allowed(function, "sqs").get(f"sqs:{action}", ())
        }

    assert set(resources.allowed("api", "sqs")) == {"sqs:SendMessage"}
    assert queues("api", "SendMessage") == {"Relay", "Delay"}
    assert queues("sealer", "SendMessage") == {"Delay", "StreamDeadLetters"}
    assert queues("folder", "SendMessage") == {"Fold"}
    assert queues("relay", "SendMessage") == {"Relay", "RelayStreamDeadLetters", "Fold"}
    received = {function: queues(function, "ReceiveMessage") for function in FUNCTIONS}
    assert {function: names for function, names in received.items() if names} == {
        "sealer": {"Delay"},
        "indexer": {"Index"},
        "relay": {"Relay"},
        "folder": {"Fold"},
    }


def test_the_relay_reads_keys_alone_and_calls_the_function_that_posts_webhooks_alone(
    resources: Resources,
) -> None:
    actions = set(resources.allowed("relay", "secretsmanager"))
    ((calls, functions),) = resources.allowed("relay", "lambda").items()
    assert (actions, calls) == ({"secretsmanager:GetSecretValue"}, "lambda:InvokeFunction")
    assert ["WebhookLive" in one for one in functions] == [True]


def test_the_function_that_posts_webhooks_may_write_its_log_and_nothing_else(resources: Resources) -> None:
    assert [statement.sid for statement in resources.statements("webhook")] == ["WriteOwnLog"]
    variables = resources.function("webhook")["Environment"]["Variables"]
    assert {name for name in variables if name.startswith("HEADRACE_")} == {"HEADRACE_STACK"}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_only_lambda_assumes_a_role(resources: Resources, function: str) -> None:
    role = resources.function(function)["Role"]["Fn::GetAtt"][0]
    (trust,) = resources.by_id[role]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "lambda.amazonaws.com"}


def test_the_page_on_permissions_has_each_statement_as_it_is(resources: Resources) -> None:
    """The reason is behind it, and is for a person to check."""
    lines = [
        line
        for line in PAGE.read_text().splitlines()
        if re.match(r"\| (api|streaming|sockets|sealer|indexer|relay|folder|webhook|job|versions|canary) \|", line)
    ]
    said = [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines]
    assert [row[:4] for row in said] == [
        (role, f"`{sid}`", actions, on) for role, sid, actions, on in rows(resources)
    ]
    assert all(len(row) == 5 and len(row[4]) > 5 for row in said)


def _by_pattern(allowed: dict[str, set[str]]) -> dict[str, set[str]]:
    """Returns what is allowed on the data bucket: keys as patterns, with `L` for a log; empty for the bucket itself."""
    return {action: {_pattern(target) for target in targets} for action, targets in allowed.items()}


def _pattern(target: str) -> str:
    match json.loads(target):
        case {"Fn::GetAtt": [bucket, "Arn"]}:
            assert bucket.startswith("DataBucket")
            return ""
        case {"Fn::Join": ["", [{"Fn::GetAtt": [bucket, "Arn"]}, str(key)]]}:
            assert bucket.startswith("DataBucket")
            return key.removeprefix("/").replace(f"logs/{'?' * 32}", "L")
    raise AssertionError(f"not of the data bucket: {target}")


def _kinds(targets: set[str], written: dict[str, tuple[str, ...]]) -> set[str]:
    """Returns the kinds of objects that the patterns match. Fails if they match only some of a kind's keys."""
    patterns = [_pattern(target).replace("L/", f"logs/{'?' * 32}/") for target in targets]
    meant = {kind: [any(fnmatchcase(key, one) for one in patterns) for key in all] for kind, all in written.items()}
    assert all(len(set(said)) == 1 for said in meant.values()), meant
    return {kind for kind, said in meant.items() if all(said)}


def _by_table(resources: Resources, function: str) -> dict[str, set[str]]:
    """Returns what the function may do, by the table it may do it to; index and stream count as their table."""
    found: dict[str, set[str]] = {}
    for action, targets in resources.allowed(function, "dynamodb").items():
        for target in targets:
            (table,) = [name for name in TABLES if f"Tables{name}" in target]
            found.setdefault(table, set()).add(action.partition(":")[2])
    return found
