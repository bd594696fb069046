"""The official suite through the deployed API Gateway and Lambda: every case, but for those that are listed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.conformance.contract.client import Api, expect
from tests.conformance.official_suite import EXPECTED_CASES, SuiteReport, repeat_undecided, run_suite
from tests.deployed.flow import Flow

CASE_TIMEOUT_S = 60


def test_a_request_without_the_key_is_refused(api: Api) -> None:
    expect(api.with_key(None).get("/v1/streams"), 401)
    expect(api.get("/v1/streams"), 200)
    expect(api.with_key(None).get("/health"), 200)


@pytest.mark.timeout(900)
def test_every_case_passes_or_is_known_not_to(
    warm_api: Api, flow: Flow, known_differences: dict[str, dict[str, str]], findings: dict[str, Any]
) -> None:
    known = known_differences["official_suite"]
    started = time.monotonic()

    def ask(names: Sequence[str] = ()) -> SuiteReport:
        return run_suite(warm_api.url, key=warm_api.key or "", only=names, case_timeout_s=CASE_TIMEOUT_S)

    report, again = repeat_undecided(ask(), ask)
    failed = {case.name for case in report.failed}
    findings["official_suite"] = {
        "cases": len(report.cases),
        "passed": len(report.cases) - len(failed),
        "passed_when_repeated": again,
        "seconds": round(time.monotonic() - started, 1),
        "known_differences": known,
    }
    assert len(report.cases) == EXPECTED_CASES, str(report)
    assert not report.not_run, str(report)
    assert failed == set(known), str(report)
