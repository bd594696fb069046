"""The contract of `/v0` through the deployed API Gateway and Lambda: every test, but for those that are listed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.conformance.contract.client import Api
from tests.conformance.official_suite import SuiteReport, repeat_undecided
from tests.deployed.topics import run_topics


@pytest.mark.timeout(1200)
def test_every_test_of_topics_passes_or_is_known_not_to(
    warm_api: Api, known_differences: dict[str, dict[str, str]], findings: dict[str, Any]
) -> None:
    known = known_differences["topics"]
    started = time.monotonic()

    def ask(names: Sequence[str] = ()) -> SuiteReport:
        return run_topics(warm_api.url, warm_api.key, names)

    report, again = repeat_undecided(ask(), ask)
    failed = {case.name for case in report.failed}
    findings["topics"] = {
        "tests": len(report.cases),
        "passed": len(report.cases) - len(failed),
        "passed_when_repeated": again,
        "seconds": round(time.monotonic() - started, 1),
        "known_differences": known,
    }
    assert not report.not_run, str(report)
    assert failed == set(known), str(report)
