"""Runs the official conformance suite against a server and says what happened to each case."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.node import install_packages

HERE = Path(__file__).parent
SEPARATOR = " > "
EXPECTED_CASES = 338
NO_TIME = (
    "timed out",
    "Error: Property interrupted after 0 tests",
    "Error: Timed out waiting for",  # a webhook or wake has 5 s or 3 s, in which functions start for the first time
)
# They wait 1.5 s of a TTL of 2 s: what renews it has half a second.
HURRIED = ("(sliding window)", "should allow fork to outlive source via TTL renewal")
REPEATS = 2


@dataclass(frozen=True)
class Case:
    """One case: its full name, `passed`, `failed`, `pending` or `skipped`, and the first failure message."""

    name: str
    status: str
    message: str = ""

    @property
    def is_undecided(self) -> bool:
        """It failed because its time was over, or may have: that says something of the machine, and not of the server."""
        return self.status == "failed" and (
            self.message.startswith(NO_TIME) or any(text in self.name for text in HURRIED)
        )


@dataclass(frozen=True)
class SuiteReport:
    """All cases."""

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


def run_suite(
    base_url: str,
    *,
    key: str = "",
    only: Sequence[str] = (),
    case_timeout_s: int = 30,
    timeout_s: float = 600,
) -> SuiteReport:
    """Runs every case, or those named in `only`, against `base_url`, with `key` as bearer if there is one.

    Raises `RuntimeError` when the runner itself could not run.
    """
    environment = {
        "HEADRACE_BASE_URL": base_url,
        "HEADRACE_API_KEY": key,
        "HEADRACE_CASE_TIMEOUT_MS": str(case_timeout_s * 1000),
        "CI": "1",
    }
    # vitest knows a case by all of its titles with a space between them.
    filters = ["-t", "|".join(re.escape(name.replace(SEPARATOR, " ")) for name in only)] if only else []
    install_packages(HERE)
    with tempfile.TemporaryDirectory(prefix="conformance-") as scratch:
        output = Path(scratch) / "report.json"
        done = subprocess.run(
            ["node", "node_modules/vitest/vitest.mjs", "run", "--reporter=json", f"--outputFile={output}", *filters],
            cwd=HERE,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if not output.exists():
            raise RuntimeError(f"vitest wrote no report: exit={done.returncode}\n{done.stdout}\n{done.stderr}")
        report = parse_report(json.loads(output.read_text()))
        return SuiteReport(tuple(case for case in report.cases if case.name in only)) if only else report


def repeat_undecided(report: SuiteReport, ask: Callable[[list[str]], SuiteReport]) -> tuple[SuiteReport, list[str]]:
    """Repeats undecided cases by themselves, at most twice.

    Args:
        ask: runs the cases of these names.

    Returns:
        The report with the last outcome of each case, and the names of those that passed when they were repeated.
    """
    cases = {case.name: case for case in report.cases}
    passed: list[str] = []
    for _ in range(REPEATS):
        undecided = [name for name, case in cases.items() if case.is_undecided]
        if not undecided:
            break
        again = {case.name: case for case in ask(undecided).cases}
        cases |= again
        passed += [name for name, case in again.items() if case.status == "passed"]
    return SuiteReport(tuple(cases.values())), passed


def parse_report(report: dict[str, object]) -> SuiteReport:
    """Returns the cases of a vitest JSON report."""
    files = report["testResults"]
    assert isinstance(files, list)
    cases = [
        Case(
            name=SEPARATOR.join([*result["ancestorTitles"], result["title"]]),
            status=result["status"],
            message=first_line(result.get("failureMessages") or []),
        )
        for file in files
        for result in file["assertionResults"]
    ]
    return SuiteReport(tuple(cases))


def first_line(messages: list[str]) -> str:
    line = messages[0].splitlines()[0] if messages and messages[0] else ""
    return "timed out" if line == "Error: STACK_TRACE_ERROR" else line
