"""What of the committed template is billed whether or not anybody comes, and how functions and jobs are sized."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from functions.indexer.runs import submission
from headrace.settings import Settings
from local.template import read_template

_MINUTES = {"minute": 1, "minutes": 1, "hour": 60, "hours": 60, "day": 1440, "days": 1440}
_GIB = re.compile(r"(\d+)g")


def figures() -> dict[str, Any]:
    """Counts of resources, invocations a day, sizes."""
    resources = read_template()["Resources"].values()
    kinds = Counter(resource["Type"] for resource in resources)
    functions = [
        r["Properties"] for r in resources if r["Type"] == "AWS::Lambda::Function" and "Runtime" in r["Properties"]
    ]
    (memory_mb,) = {function["MemorySize"] for function in functions}
    return {
        "keys": kinds["AWS::KMS::Key"],
        "secrets": kinds["AWS::SecretsManager::Secret"],
        "alarms": kinds["AWS::CloudWatch::Alarm"] + kinds["AWS::CloudWatch::CompositeAlarm"],
        "dashboards": kinds["AWS::CloudWatch::Dashboard"],
        "tables": kinds["AWS::DynamoDB::Table"],
        "memory_mb": memory_mb,
        "snapshots": sum(f.get("SnapStart", {}).get("ApplyOn") == "PublishedVersions" for f in functions),
        "schedules_a_day": sum(_a_day(r["Properties"]) for r in resources if r["Type"] == "AWS::Events::Rule"),
        "queues_polled": sum(_polls_queue(r) for r in resources),
        "job": _job(),
    }


def _a_day(rule: dict[str, Any]) -> float:
    """Returns how often a rule's schedule comes round in a day; 0 without one."""
    found = re.fullmatch(r"rate\((\d+) (\w+)\)", rule.get("ScheduleExpression", ""))
    return 1440 / (int(found[1]) * _MINUTES[found[2]]) if found else 0


def _polls_queue(resource: dict[str, Any]) -> bool:
    if resource["Type"] != "AWS::Lambda::EventSourceMapping":
        return False
    return "StartingPosition" not in resource["Properties"]


def _job() -> dict[str, float]:
    """vCPUs and GB of a job run's driver and of each executor."""
    text = submission("job", Settings())["jobDriver"]["sparkSubmit"]["sparkSubmitParameters"]
    asked = dict(re.findall(r"--conf (\S+?)=(\S+)", text))
    overhead = 1 + float(asked["spark.executor.memoryOverheadFactor"])
    return {
        "driver_vcpus": int(asked["spark.driver.cores"]),
        "driver_gb": _gib(asked["spark.driver.memory"]) * 1.1,  # Spark's own factor for a driver
        "executor_vcpus": int(asked["spark.executor.cores"]),
        "executor_gb": _gib(asked["spark.executor.memory"]) * overhead,
    }


def _gib(text: str) -> int:
    found = _GIB.fullmatch(text)
    assert found is not None, text
    return int(found[1])
