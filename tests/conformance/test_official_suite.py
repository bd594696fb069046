"""The official suite is law: every case passes, in each way to run the server.

Each push asks the one that is hardest to pass: instances behind the streaming door that remember nothing and seal all the
time. `--full` asks all.

Set HEADRACE_CONFORMANCE_URL to run it once against a server that is already there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.official_suite import EXPECTED_CASES, HURRIED, Case, SuiteReport, repeat_undecided, run_suite

EXTERNAL_URL = os.environ.get("HEADRACE_CONFORMANCE_URL")
SEALING = ("--seal-records", "20", "--seal-age", "1s")
EACH_PUSH = "three processes that seal all the time"
CONFIGURATIONS = {
    "one process": (),
    EACH_PUSH: ("--api-processes", "3", *SEALING),
    "the streaming door, on instances that forget everything": (
        *("--function-url", "--api-processes", "6", "--cold"),
        *SEALING,
    ),
}


def configurations() -> list[Any]:
    """Returns the parameters of the test."""
    if EXTERNAL_URL:
        return ["a given server"]
    return [pytest.param(name, marks=() if name == EACH_PUSH else pytest.mark.full) for name in CONFIGURATIONS]


@pytest.fixture(params=configurations())
def base_url(request: pytest.FixtureRequest) -> Iterator[str]:
    if EXTERNAL_URL:
        yield EXTERNAL_URL
        return
    from tests.support.emulated_cloud import dev_server
    from tests.support.pipeline import NO_METRICS

    with dev_server(*CONFIGURATIONS[request.param], environment=NO_METRICS) as server:
        yield server.url


@pytest.mark.timeout(900)
def test_every_case_of_the_official_suite_passes(base_url: str) -> None:
    report, repeated = repeat_undecided(run_suite(base_url), lambda names: run_suite(base_url, only=names))
    print(report, *(f"- passed when it was repeated: {name}" for name in repeated), sep="\n")
    assert not report.failed, str(report)
    assert not report.not_run, str(report)
    assert len(report.cases) == EXPECTED_CASES, str(report)


def test_only_undecided_cases_are_repeated_and_at_most_twice() -> None:
    slow, wrong, right = f"slow {HURRIED[0]}", f"wrong {HURRIED[1]}", "right"
    asked: list[list[str]] = []

    def ask(names: list[str]) -> SuiteReport:
        asked.append(names)
        return SuiteReport(tuple(Case(name, "passed" if name == slow else "failed", "404") for name in names))

    first = SuiteReport((*(Case(name, "failed", "404") for name in (slow, wrong, "other")), Case(right, "passed")))
    last, passed = repeat_undecided(first, ask)
    assert asked == [[slow, wrong], [wrong]]
    assert passed == [slow]
    assert [case.name for case in last.failed] == [wrong, "other"]
    assert len(last.cases) == len(first.cases)
