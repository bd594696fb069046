"""What of the templates is billed whether or not anybody comes, and how functions and jobs are sized."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any

from functions.indexer.runs import submission
from headrace.settings import Settings
from tests.infra.synths import synthesize

_MINUTES = {"minute": 1, "minutes": 1, "hour": 60, "hours": 60, "day": 1440, "days": 1440}
_GIB = re.compile(r"(\d+)g")


def figures(environment: str) -> dict[str, Any]:
    """Counts of resources of a preset, invocations a day, sizes."""
    resources = json.loads(synthesize(environment))["Resources"].values()
    kinds = Counter(resource["Type"] for resource in resources)
    functions = [
        r["Properties"]
        for r in resources
        if r["Type"] == "AWS::Lambda::Function" and "S3Key" in r["Properties"]["Code"]
    ]
    # All but one have the same size: that of webhooks is called by deliveries alone.
    sizes = [function["MemorySize"] for function in functions]
    return {
        "keys": kinds["AWS::KMS::Key"],
        "secrets": kinds["AWS::SecretsManager::Secret"],
        "alarm_metrics": sum(metrics_of(r["Properties"]) for r in resources if r["Type"] == "AWS::CloudWatch::Alarm"),
        "dashboards": kinds["AWS::CloudWatch::Dashboard"],
        "tables": kinds["AWS::DynamoDB::Table"],
        "memory_mb": max(sizes),
        "webhook_memory_mb": min(sizes),
        "snapshots": sum(f.get("SnapStart", {}).get("ApplyOn") == "PublishedVersions" for f in functions),
        "schedules_a_day": sum(_a_day(r["Properties"]) for r in resources if r["Type"] == "AWS::Events::Rule"),
        "queues_polled": sum(_polls_queue(r) for r in resources),
        "job": _job(),
    }


def _a_day(rule: dict[str, Any]) -> float:
    """Returns how often a rule's schedule comes round in a day; 0 without one."""
    found = re.fullmatch(r"rate\((\d+) (\w+)\)", rule.get("ScheduleExpression", ""))
    return 1440 / (int(found[1]) * _MINUTES[found[2]]) if found else 0


def metrics_of(alarm: dict[str, Any]) -> int:
    """Returns how many metrics an alarm looks at. Math itself is not billed."""
    return sum("MetricStat" in query for query in alarm["Metrics"]) if "Metrics" in alarm else 1


def _polls_queue(resource: dict[str, Any]) -> bool:
    if resource["Type"] != "AWS::Lambda::EventSourceMapping":
        return False
    return "StartingPosition" not in resource["Properties"]


def _job() -> dict[str, float]:
    """vCPUs and GB of the workers that a job run starts with: a driver, and so many executors.

    A worker is billed as it was started: its memory with the overhead, in whole GB.
    https://docs.aws.amazon.com/emr/latest/EMR-Serverless-UserGuide/app-behavior.html, supported worker configurations
    """
    text = submission("job", Settings(), "us-east-1")["jobDriver"]["sparkSubmit"]["sparkSubmitParameters"]
    asked = dict(re.findall(r"--conf (\S+?)=(\S+)", text))
    overhead = 1 + float(asked["spark.executor.memoryOverheadFactor"])
    initial = max(
        int(asked.get(name, 3))  # what EMR Serverless takes where nothing is said
        for name in ("spark.dynamicAllocation.initialExecutors", "spark.executor.instances")
    )
    return {
        "driver_vcpus": int(asked["spark.driver.cores"]),
        "driver_gb": math.ceil(_gib(asked["spark.driver.memory"]) * 1.1),  # Spark's own factor for a driver
        "executors": initial,
        "executor_vcpus": int(asked["spark.executor.cores"]),
        "executor_gb": math.ceil(_gib(asked["spark.executor.memory"]) * overhead),
    }


def _gib(text: str) -> int:
    found = _GIB.fullmatch(text)
    assert found is not None, text
    return int(found[1])
