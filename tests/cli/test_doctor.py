"""`headrace doctor`: what facts mean, and what it says of a server over HTTP."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest
from botocore.exceptions import ClientError
from click.testing import CliRunner

from cli.main import main
from headrace import VERSION
from operators.doctor import cloud, command, rules
from operators.doctor.facts import (
    AlarmFacts,
    BucketFacts,
    Check,
    CloudFacts,
    FailedJobFacts,
    FeatureFacts,
    FollowingFacts,
    JobFacts,
    JobQueueFacts,
    LaneFacts,
    LogFacts,
    QueueFacts,
    RegistryFacts,
    RouterFacts,
    ServerFacts,
    SubscriptionFacts,
    TableFacts,
    VisitFacts,
    WaitingFacts,
    exit_code,
)
from operators.doctor.resources import of_stack

ROOT = Path(__file__).parents[2]
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
URL = "https://api.example.com"

TABLE = TableFacts("wal", "", "ACTIVE", True, True, True, True, True)
WELL = CloudFacts(
    is_emulated=False,
    tables=(TABLE,),
    bucket=BucketFacts("b", "", True, True, True, True),
    needs_customer_key=True,
    queues=(QueueFacts("delay", False, waiting=3, oldest_s=30), QueueFacts("dead", True)),
    logs=(LogFacts("a", 1000), LogFacts("b", None)),
    waiting=(WaitingFacts("l", 1000, 0, ""),),
    jobs=(JobFacts("r", "SUCCESS", 1000),),
    alarms=(AlarmFacts("headrace-dev/x", "OK", ""),),
    following=FollowingFacts(
        visits=(VisitFacts("router", "r", 2 * MINUTE_MS),),
        subscriptions=(
            SubscriptionFacts("hook", "webhook", "failed", 3, MINUTE_MS),
            SubscriptionFacts("pool", "pull-wake", "announced", 0, 30 * MINUTE_MS),
            SubscriptionFacts("long", "pull-wake", "leased", 0, 5 * HOUR_MS),
        ),
        routers=(RouterFacts("r", "a", "b", 9, MINUTE_MS), RouterFacts("full", "a", "c", 9, HOUR_MS, MINUTE_MS)),
        queues=(JobQueueFacts("q", 5, MINUTE_MS, "dead"), JobQueueFacts("idle")),
    ),
    features=FeatureFacts((LaneFacts("ns/Tx", MINUTE_MS),), (RegistryFacts("ns", MINUTE_MS, {"U": HOUR_MS}),)),
)
SERVER = ServerFacts("", (10.0, 2000.0, 12.0), VERSION, 401, 200, 200, False)


def levels(checks: Iterable[Check]) -> dict[str, str]:
    """By name, those that found something."""
    return {check.name: check.level for check in checks if check.level not in ("ok", "skipped")}


def changed(**facts: Any) -> CloudFacts:
    return msgspec.structs.replace(WELL, **facts)


def following(**facts: Any) -> CloudFacts:
    return changed(following=msgspec.structs.replace(WELL.following, **facts))


def features(*lanes: LaneFacts) -> CloudFacts:
    return changed(features=FeatureFacts(lanes))


def registry(**facts: Any) -> CloudFacts:
    return changed(features=FeatureFacts(registries=(RegistryFacts("ns", **facts),)))


def table(**facts: Any) -> CloudFacts:
    return changed(tables=(msgspec.structs.replace(TABLE, **facts),))


def test_a_deployment_that_is_well_has_no_findings() -> None:
    checks = [*rules.server(SERVER, URL, VERSION), *rules.cloud(WELL)]
    assert levels(checks) == {}
    assert exit_code(checks) == 0
    assert {check.level for check in checks} == {"ok"}


@pytest.mark.parametrize(
    ("facts", "name", "level", "said"),
    [
        (table(error="wal-1: not found"), "table wal", "fail", "not found"),
        (table(status="CREATING"), "table wal", "warn", "CREATING"),
        (table(is_protected=False), "table wal", "warn", "deletion protection"),
        (table(is_on_demand=False), "table wal", "warn", "on demand"),
        (table(has_customer_key=False), "table wal", "warn", "customer key"),
        (table(is_recoverable=False), "table wal", "warn", "point-in-time recovery"),
        (table(has_stream=False), "table wal", "fail", "stream"),
        (changed(bucket=BucketFacts("b", error="b: 404")), "bucket", "fail", "404"),
        (changed(bucket=BucketFacts("b", "", False, True, True, True)), "bucket", "fail", "versions"),
        (changed(bucket=BucketFacts("b", "", True, False, False, True)), "bucket", "fail", "encryption"),
        (changed(bucket=BucketFacts("b", "", True, True, False, True)), "bucket", "fail", "customer key"),
        (changed(bucket=BucketFacts("b", "", True, True, True, False)), "bucket", "fail", "public access"),
        (changed(queues=(QueueFacts("d", True, waiting=2),)), "queue d", "fail", "2 messages"),
        (changed(queues=(QueueFacts("d", True, in_flight=1),)), "queue d", "fail", "1 message "),
        (changed(queues=(QueueFacts("q", False, oldest_s=3600),)), "queue q", "warn", "1h"),
        (changed(queues=(QueueFacts("q", False, waiting=10_001),)), "queue q", "warn", "10,001"),
        (changed(queues=(QueueFacts("q", False, error="gone"),)), "queue q", "fail", "gone"),
        (changed(logs=(LogFacts("old", HOUR_MS), LogFacts("new", 1))), "sealing", "fail", "old"),
        (changed(logs=(LogFacts("broken", None, "does not parse"),)), "sealing", "fail", "does not parse"),
        (changed(logs_error="no catalog"), "sealing", "fail", "no catalog"),
        (features(LaneFacts("a", 3 * MINUTE_MS), LaneFacts("b", HOUR_MS)), "folding", "fail", "of b wait for 1h 0s"),
        (
            features(LaneFacts("a", HOUR_MS), LaneFacts("b", 0, ("U: x", "V: y"))),
            "folding",
            "fail",
            "in b: U: x; V: y",
        ),
        (features(LaneFacts("a", error="does not parse")), "folding", "fail", "read a: does not parse"),
        (changed(features=FeatureFacts(logs_error="no catalog")), "folding", "fail", "no catalog"),
        (
            registry(open_ms=4 * MINUTE_MS),
            "registrations",
            "fail",
            "not all lanes of ns have its registration, for 4m",
        ),
        (registry(error="does not parse"), "registrations", "fail", "of ns: does not parse"),
        (
            registry(building_ms={"U": HOUR_MS, "V": 7 * HOUR_MS}),
            "feature jobs",
            "warn",
            "of ns/V is under way for 7h",
        ),
        (
            changed(
                features=FeatureFacts(failed=(FailedJobFacts("1", "asof", "x"), FailedJobFacts("2", "fold", "y")))
            ),
            "feature jobs",
            "warn",
            "job 2 (fold) has failed within a day: y; and 1 other",
        ),
        (changed(features=FeatureFacts(jobs_error="no bucket")), "feature jobs", "fail", "no bucket"),
        (following(visits=(VisitFacts("bell", "w", 4 * MINUTE_MS),)), "relay", "fail", "1 visit overdue"),
        (
            following(routers=(RouterFacts("r", "a", "b", 7, 6 * MINUTE_MS), RouterFacts("s", "a", "c", 1, HOUR_MS))),
            "routers",
            "fail",
            "s is 1 record behind a, for 1h 0s; and 1 other",
        ),
        (
            following(routers=(RouterFacts("r", "a", "b", 7, HOUR_MS, 11 * MINUTE_MS),)),
            "routers",
            "warn",
            "room in b for 11m",
        ),
        (following(routers=(RouterFacts("r", error="does not parse"),)), "routers", "fail", "r: does not parse"),
        (following(routers_error="no catalog"), "routers", "fail", "no catalog"),
        (
            following(subscriptions=(SubscriptionFacts("s", "webhook", "failed", 12, 6 * MINUTE_MS),)),
            "subscriptions",
            "warn",
            "12 calls in 6m",
        ),
        (
            following(subscriptions=(SubscriptionFacts("s", "webhook", "due", 0, 0, "forbidden: no scope"),)),
            "subscriptions",
            "warn",
            "forbidden: no scope",
        ),
        (
            following(subscriptions=(SubscriptionFacts("s", "pull-wake", "announced", 0, 2 * HOUR_MS),)),
            "subscriptions",
            "warn",
            "no worker claims the wake of s for 2h",
        ),
        (following(subscriptions=(SubscriptionFacts("s", error="bad row"),)), "subscriptions", "fail", "s: bad row"),
        (following(queues=(JobQueueFacts("q", 5, HOUR_MS),)), "job queues", "warn", "a job of q waits for 1h"),
        (following(queues=(JobQueueFacts("q", 0, None, "dead", 3),)), "job queues", "warn", "dead holds 3 jobs"),
        (following(queues=(JobQueueFacts("q", error="no leases"),)), "job queues", "fail", "q: no leases"),
        (following(queues_error="no catalog"), "job queues", "fail", "no catalog"),
        (changed(waiting=(WaitingFacts("l", None, 3, "poisoned"),)), "indexing", "warn", "poisoned"),
        (changed(waiting=(WaitingFacts("l", 30 * MINUTE_MS + 1, 0, ""),)), "indexing", "warn", "30m"),
        (changed(waiting_error="no table"), "indexing", "fail", "no table"),
        (changed(job_in_hand_ms=2 * HOUR_MS), "job runs", "warn", "2h"),
        (changed(jobs=None, jobs_error="denied"), "job runs", "warn", "denied"),
        (
            changed(jobs=(JobFacts("r", "SUCCESS", 2000), JobFacts("s", "FAILED", 1000))),
            "job runs",
            "fail",
            "last one FAILED",
        ),
        (
            changed(jobs=(JobFacts("r", "FAILED", 2000), JobFacts("s", "SUCCESS", 1000))),
            "job runs",
            "warn",
            "1 FAILED",
        ),
        (changed(alarms=(AlarmFacts("x-late", "ALARM", "too late"),)), "alarms", "fail", "x-late: too late"),
        (changed(alarms=(), has_alarms=True), "alarms", "warn", "none"),
        (changed(alarms_error="denied"), "alarms", "warn", "denied"),
    ],
)
def test_each_fault_is_one_finding_with_advice_and_a_page(
    facts: CloudFacts, name: str, level: str, said: str
) -> None:
    checks = list(rules.cloud(facts))
    assert levels(checks) == {name: level}
    (found,) = [check for check in checks if check.name == name]
    assert said in found.found
    assert found.advice or name == "job runs"
    assert exit_code(checks) == {"warn": 1, "fail": 2}[level]
    if found.docs:
        page, _, anchor = found.docs.partition("#")
        titles = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_followers_that_can_not_be_read_are_found_twice() -> None:
    """The rows of what is due say of the relay and of subscriptions."""
    facts = following(visits_error="no table")
    assert levels(rules.cloud(facts)) == {"relay": "fail", "subscriptions": "fail"}


def test_a_deployment_without_alarms_misses_none() -> None:
    assert levels(rules.cloud(changed(alarms=()))) == {}


@pytest.mark.parametrize("needed", [False, None])
def test_a_deployment_without_a_key_of_its_own_misses_none(needed: bool | None) -> None:
    lacking = msgspec.structs.replace(TABLE, has_customer_key=False)
    bucket = msgspec.structs.replace(WELL.bucket or BucketFacts(""), has_customer_key=False)
    facts = changed(tables=(lacking,), bucket=bucket, needs_customer_key=needed)
    assert levels(rules.cloud(facts)) == {}


class Stacks:
    """As CloudFormation: a deployment's two stacks, each on a page of its own for each resource."""

    exceptions = SimpleNamespace(ClientError=ClientError)

    def __init__(self, *data: str, application: Sequence[str] | None = ()) -> None:
        self._resources = {"headrace-x-data": ["AWS::S3::Bucket", *data], "headrace-x": application}

    def describe_stacks(self, *, StackName: str) -> Any:  # noqa: N803
        if self._resources[StackName] is None:
            raise ClientError({"Error": {"Message": f"Stack {StackName} does not exist"}}, "DescribeStacks")
        return {"Stacks": [{"Outputs": [{"OutputKey": "BucketName", "OutputValue": "b"}]}]}

    def get_paginator(self, name: str) -> Any:
        assert name == "list_stack_resources"

        def paginate(*, StackName: str) -> Any:  # noqa: N803
            for kind in self._resources[StackName] or ():
                yield {"StackResourceSummaries": [{"ResourceType": kind, "PhysicalResourceId": f"{kind}-1"}]}

        return SimpleNamespace(paginate=paginate)


def test_the_stacks_say_what_a_deployment_has() -> None:
    key, alarm, spark = "AWS::KMS::Key", "AWS::CloudWatch::Alarm", "AWS::EMRServerless::Application"
    dev, prod = (
        of_stack(Stacks(), "headrace-x"),
        of_stack(Stacks(key, application=[alarm, spark, alarm]), "headrace-x"),
    )
    assert (dev.has_customer_key, dev.has_alarms) == (False, False)
    assert (prod.has_customer_key, prod.has_alarms) == (True, True)
    assert prod.settings == {"HEADRACE_BUCKET": "b", "HEADRACE_SPARK_APPLICATION": f"{spark}-1"}
    assert of_stack(Stacks(key, application=None), "headrace-x").has_customer_key is True


@pytest.mark.parametrize(
    ("algorithm", "encrypted", "own_key"), [("AES256", True, False), ("aws:kms", True, True), (None, False, False)]
)
def test_the_encryption_of_a_bucket_is_told_from_its_key(
    algorithm: str | None, encrypted: bool, own_key: bool
) -> None:
    rules_ = [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": algorithm}}] if algorithm else []
    s3 = SimpleNamespace(
        head_bucket=lambda **_: None,
        get_bucket_encryption=lambda **_: {"ServerSideEncryptionConfiguration": {"Rules": rules_}},
        get_public_access_block=lambda **_: {"PublicAccessBlockConfiguration": dict.fromkeys("abcd", True)},
        get_bucket_versioning=lambda **_: {"Status": "Enabled"},
    )
    assert cloud.bucket_facts(s3, "b", is_emulated=False) == BucketFacts("b", "", True, encrypted, own_key, True)


def test_its_ages_are_those_of_the_settings() -> None:
    assert (WELL.seal_age_ms, WELL.index_age_ms) == (300_000, 900_000)


def test_an_emulator_keeps_no_protections_and_no_alarms() -> None:
    lacking = msgspec.structs.replace(TABLE, has_customer_key=False, is_recoverable=False)
    facts = changed(is_emulated=True, tables=(lacking,), bucket=BucketFacts("b"), needs_customer_key=True, alarms=())
    assert levels(rules.cloud(facts)) == {}


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        ({"error": "refused"}, {"server": "fail"}),
        ({"latencies_ms": (1500.0, 1200.0, 5.0)}, {"server": "warn"}),
        ({"version": "9.9.9"}, {"version": "warn"}),
        ({"version": ""}, {"version": "warn"}),
        ({"status_without_key": 200, "status_with_key": None}, {"lock": "fail"}),
        ({"status_without_key": 200, "status_with_key": None, "is_local": True}, {}),
        ({"status_without_key": 503, "status_with_key": 503}, {"lock": "fail", "key": "fail"}),
        ({"status_with_key": None}, {"key": "warn"}),
        ({"status_with_key": 401}, {"key": "fail"}),
        ({"status_with_key": 403, "status_as_admin": 403}, {"key": "warn"}),
        ({"status_as_admin": 403}, {}),
    ],
)
def test_what_a_server_answers(facts: dict[str, Any], found: dict[str, str]) -> None:
    assert levels(rules.server(msgspec.structs.replace(SERVER, **facts), URL, VERSION)) == found


def answering(respond: Callable[[httpx.Request], httpx.Response]) -> ServerFacts:
    ticks = iter(range(100))
    return command.ask_server(URL, "k", transport=httpx.MockTransport(respond), monotonic=lambda: next(ticks) / 100)


def test_facts_come_from_single_requests() -> None:
    seen: list[tuple[str, str | None]] = []

    def respond(request: httpx.Request) -> httpx.Response:
        seen.append((request.url.path, request.headers.get("authorization")))
        if request.url.path == "/health":
            return httpx.Response(200, headers={"Headrace-Version": "1.2.3"})
        return httpx.Response(200 if "authorization" in request.headers else 401)

    facts = answering(respond)
    assert facts.latencies_ms == pytest.approx([10.0] * 5)
    assert msgspec.structs.replace(facts, latencies_ms=()) == ServerFacts("", (), "1.2.3", 401, 200, 200, False)
    assert seen[5:] == [("/v1/streams", None), ("/v1/streams", "Bearer k"), ("/v1/server/_details", "Bearer k")]
    assert all(sent is None for _, sent in seen[:6])


def test_no_answer_and_a_bad_one_are_facts() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused")

    assert answering(refuse).error == "connection refused"
    assert answering(lambda _: httpx.Response(502)).error == "GET /health: status 502"


def test_nobody_there_is_a_finding_and_not_an_error() -> None:
    result = CliRunner().invoke(
        main, ["doctor", "--url", "http://127.0.0.1:9", "--json"], env={"HEADRACE_WAL_TABLE": ""}
    )
    assert result.exit_code == 2
    checks = {check["name"]: check["level"] for check in json.loads(result.stdout)["checks"]}
    assert checks == {"server": "fail", "AWS": "skipped"}


def test_a_state_file_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "dev.json"
    path.write_text("{}")
    result = CliRunner().invoke(main, ["doctor", "--state-file", str(path)])
    assert result.exit_code == 2
    assert "not a state file" in result.stderr


def test_the_release_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
