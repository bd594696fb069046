"""Runs the official conformance suite against a server and says what happened to each case."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.node import install_packages

HERE = Path(__file__).parent
SUBSCRIPTION_GROUP = "Reserved subscription APIs"
EXPECTED_CASES = 332


@dataclass(frozen=True)
class Case:
    """One case: its full name, `passed`, `failed`, `pending` or `skipped`, and the first failure message."""

    name: str
    status: str
    message: str = ""


@dataclass(frozen=True)
class SuiteReport:
    """All cases outside the subscription group."""

    cases: tuple[Case, ...]

    def count(self, status: str) -> int:
        return Counter(case.status for case in self.cases)[status]

    @property
    def failed(self) -> tuple[Case, ...]:
        return tuple(case for case in self.cases if case.status == "failed")

    @property
    def not_run(self) -> tuple[Case, ...]:
        return tuple(case for case in self.cases if case.status not in ("passed", "failed"))

    def __str__(self) -> str:
        head = (
            f"{len(self.cases)} cases: {self.count('passed')} passed, "
            f"{len(self.failed)} failed, {len(self.not_run)} not run"
        )
        lines = [f"- {case.status}: {case.name}\n    {case.message}" for case in (*self.failed, *self.not_run)]
        return "\n".join([head, *lines])


def run_suite(base_url: str, *, timeout_s: float = 600) -> SuiteReport:
    """Runs every case against `base_url`; raises `RuntimeError` when the runner itself could not run."""
    install_packages(HERE)
    with tempfile.TemporaryDirectory(prefix="conformance-") as scratch:
        output = Path(scratch) / "report.json"
        done = subprocess.run(
            ["node", "node_modules/vitest/vitest.mjs", "run", "--reporter=json", f"--outputFile={output}"],
            cwd=HERE,
            env={**os.environ, "HEADRACE_BASE_URL": base_url, "CI": "1"},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if not output.exists():
            raise RuntimeError(f"vitest wrote no report: exit={done.returncode}\n{done.stdout}\n{done.stderr}")
        return parse_report(json.loads(output.read_text()))


def parse_report(report: dict[str, object]) -> SuiteReport:
    """The cases of a vitest JSON report, without the subscription group."""
    files = report["testResults"]
    assert isinstance(files, list)
    cases = [
        Case(
            name=" > ".join([*result["ancestorTitles"], result["title"]]),
            status=result["status"],
            message=first_line(result.get("failureMessages") or []),
        )
        for file in files
        for result in file["assertionResults"]
        if SUBSCRIPTION_GROUP not in result["ancestorTitles"]
    ]
    return SuiteReport(tuple(cases))


def first_line(messages: list[str]) -> str:
    line = messages[0].splitlines()[0] if messages and messages[0] else ""
    return "timed out" if line == "Error: STACK_TRACE_ERROR" else line
