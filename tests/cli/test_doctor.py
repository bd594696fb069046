"""`headrace doctor`: what facts mean, and what it says of a server over HTTP."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from click.testing import CliRunner

from cli.main import main
from headrace import VERSION
from operators.doctor import command, rules
from operators.doctor.facts import (
    AlarmFacts,
    BucketFacts,
    Check,
    CloudFacts,
    JobFacts,
    LogFacts,
    QueueFacts,
    ServerFacts,
    TableFacts,
    WaitingFacts,
    exit_code,
)

ROOT = Path(__file__).parents[2]
HOUR_MS = 3_600_000
URL = "https://api.example.com"

TABLE = TableFacts("wal", "", "ACTIVE", True, True, True, True, True)
WELL = CloudFacts(
    is_emulated=False,
    tables=(TABLE,),
    bucket=BucketFacts("b", "", True, True, True),
    queues=(QueueFacts("delay", False, waiting=3, oldest_s=30), QueueFacts("dead", True)),
    logs=(LogFacts("a", 1000), LogFacts("b", None)),
    waiting=(WaitingFacts("l", 1000, 0, ""),),
    jobs=(JobFacts("r", "SUCCESS", 1000),),
    alarms=(AlarmFacts("headrace-dev/x", "OK", ""),),
)
SERVER = ServerFacts("", (10.0, 2000.0, 12.0), VERSION, 401, 200, 200, False)


def levels(checks: Iterable[Check]) -> dict[str, str]:
    """By name, those that found something."""
    return {check.name: check.level for check in checks if check.level not in ("ok", "skipped")}


def changed(**facts: Any) -> CloudFacts:
    return msgspec.structs.replace(WELL, **facts)


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
        (changed(bucket=BucketFacts("b", "", False, True, True)), "bucket", "fail", "versions"),
        (changed(bucket=BucketFacts("b", "", True, True, False)), "bucket", "fail", "public access"),
        (changed(queues=(QueueFacts("d", True, waiting=2),)), "queue d", "fail", "2 messages"),
        (changed(queues=(QueueFacts("d", True, in_flight=1),)), "queue d", "fail", "1 message "),
        (changed(queues=(QueueFacts("q", False, oldest_s=3600),)), "queue q", "warn", "1h"),
        (changed(queues=(QueueFacts("q", False, waiting=10_001),)), "queue q", "warn", "10,001"),
        (changed(queues=(QueueFacts("q", False, error="gone"),)), "queue q", "fail", "gone"),
        (changed(logs=(LogFacts("old", HOUR_MS), LogFacts("new", 1))), "sealing", "fail", "old"),
        (changed(logs=(LogFacts("broken", None, "does not parse"),)), "sealing", "fail", "does not parse"),
        (changed(logs_error="no catalog"), "sealing", "fail", "no catalog"),
        (changed(waiting=(WaitingFacts("l", None, 3, "poisoned"),)), "indexing", "warn", "poisoned"),
        (changed(waiting=(WaitingFacts("l", HOUR_MS, 0, ""),)), "indexing", "warn", "1h"),
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


def test_a_deployment_without_alarms_misses_none() -> None:
    assert levels(rules.cloud(changed(alarms=()))) == {}


def test_an_emulator_keeps_no_protections_and_no_alarms() -> None:
    lacking = msgspec.structs.replace(TABLE, has_customer_key=False, is_recoverable=False)
    facts = changed(is_emulated=True, tables=(lacking,), bucket=BucketFacts("b"), alarms=())
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
