"""Runs the tests of a contract (`tests/conformance/topics`, `features`) against a deployment, in a pytest of their own, and
says what happened to each.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.conformance.official_suite import Case, SuiteReport, repeat_undecided

ROOT = Path(__file__).parents[2]
NOT_ASKED = "test_websocket.py"  # sockets are at a URL of their own, and have tests of their own
CASE_TIMEOUT_S = 120
# A client's time, or that of a store, was over; or others wrote all the time, on a slow machine.
UNDECIDED = (
    "httpx.ReadTimeout",
    *('"code":"not_ready"', '"code":"outcome_unknown"', '"code":"request_timeout"'),
    "others keep appending",
)
HURRIED = "test_cohort.py::"  # several workers have half a second to join one window
NO_TIME = "timed out"


def check_contract(
    suite: str, known: dict[str, str], findings: dict[str, Any], ask: Callable[[Sequence[str]], SuiteReport]
) -> None:
    """Asserts that the tests of a contract pass, but for those that are known not to; repeats those that had no time.

    Args:
        suite: the name under which the outcome is shown.
        ask: runs the tests of these names; all of them if there are none.
    """
    started = time.monotonic()
    report, again = repeat_undecided(ask(()), ask)
    failed = {case.name for case in report.failed}
    findings[suite] = {
        "tests": len(report.cases),
        "passed": len(report.cases) - len(failed),
        "passed_when_repeated": again,
        "seconds": round(time.monotonic() - started, 1),
        "known_differences": known,
    }
    assert not report.not_run, str(report)
    assert failed == set(known), str(report)


def run_contract(
    folder: Path,
    url: str,
    key: str | None,
    only: Sequence[str] = (),
    *,
    guarded: bool = False,
    timeout_s: float = 900,
) -> SuiteReport:
    """Runs every test of a folder, or those named in `only`, against `url`, with `key` as bearer if there is one. With
    `guarded` these are the tests of keys and limits, which have keys of their own; without it all others.

    Raises `RuntimeError` when pytest itself could not run.
    """
    if guarded:
        environment, marked = {"HEADRACE_CONTRACT_GUARDED_URL": url}, "guarded"
    else:
        environment, marked = {"HEADRACE_CONTRACT_URL": url, "HEADRACE_CONTRACT_KEY": key or ""}, "not guarded"
    asked = sorted({f"{folder / name.partition('[')[0]}" for name in only}) or [str(folder)]
    chosen = ["-m", marked, f"--ignore={folder / NOT_ASKED}"]
    with tempfile.TemporaryDirectory(prefix="contract-") as scratch:
        output = Path(scratch) / "report.xml"
        options = ["-n0", "-q", "-p", "no:cacheprovider", f"--timeout={CASE_TIMEOUT_S}", f"--junit-xml={output}"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *chosen, *asked],
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if not output.exists():
            raise RuntimeError(f"pytest wrote no report: exit={done.returncode}\n{done.stdout}\n{done.stderr}")
        cases = tuple(parse(case) for case in ElementTree.parse(output).iter("testcase"))
    return SuiteReport(tuple(case for case in cases if not only or case.name in only))


def parse(case: ElementTree.Element) -> Case:
    """Returns a test case of a JUnit report, under a name such as `test_diff.py::test_a_page[1]`."""
    name = f"{case.attrib['classname'].rpartition('.')[2]}.py::{case.attrib['name']}"
    bad = next((found for found in case if found.tag in ("failure", "error", "skipped")), None)
    if bad is None:
        return Case(name, "passed")
    message = bad.attrib.get("message", "")
    if bad.tag == "skipped":
        return Case(name, "skipped", message)
    is_undecided = name.startswith(HURRIED) or any(text in message for text in UNDECIDED)
    return Case(name, "failed", f"{NO_TIME}: {message}" if is_undecided else message.partition("\n")[0])
