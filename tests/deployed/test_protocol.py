"""The official suite through the deployed API Gateway and Lambda: every case, but for those that are listed."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conformance.contract.client import Api, expect
from tests.conformance.official_suite import EXPECTED_CASES, SuiteReport, repeat_undecided, run_suite
from tests.deployed.flow import Flow

KNOWN = Path(__file__).parent / "known_differences.toml"
INSTANCES = 16  # as many as the suite's most concurrent case calls at once
WAIT_MS = 15_000  # longer than it takes to call them all
WARM_S = 240
CASE_TIMEOUT_S = 60


def known() -> dict[str, str]:
    """Names of the cases that cannot pass here, with the reason."""
    cases: Sequence[dict[str, str]] = tomllib.loads(KNOWN.read_text())["case"]
    return {case["name"]: case["reason"] for case in cases}


def warm(api: Api) -> None:
    """Starts as many instances of the function as the suite needs: a cold start is CPU time that a case may not have."""
    with Api(api.url, key=api.key, http=httpx.Client(timeout=WARM_S, trust_env=False)) as patient:
        stream = patient.stream()
        end = stream.end

        def wait(_: int) -> None:
            stream.read(live="long-poll", offset=end, timeout_ms=str(WAIT_MS))

        with ThreadPoolExecutor(INSTANCES) as pool:
            list(pool.map(wait, range(INSTANCES)))


def test_a_request_without_the_key_is_refused(api: Api) -> None:
    expect(api.with_key(None).get("/v1/streams"), 401)
    expect(api.get("/v1/streams"), 200)
    expect(api.with_key(None).get("/health"), 200)


@pytest.mark.timeout(900)
def test_every_case_passes_or_is_known_not_to(api: Api, flow: Flow, findings: dict[str, Any]) -> None:
    warm(api)
    started = time.monotonic()

    def ask(names: Sequence[str] = ()) -> SuiteReport:
        return run_suite(api.url, key=api.key or "", only=names, case_timeout_s=CASE_TIMEOUT_S)

    report, again = repeat_undecided(ask(), ask)
    failed = {case.name for case in report.failed}
    findings["official_suite"] = {
        "cases": len(report.cases),
        "passed": len(report.cases) - len(failed),
        "passed_when_repeated": again,
        "seconds": round(time.monotonic() - started, 1),
        "known_differences": known(),
    }
    assert len(report.cases) == EXPECTED_CASES, str(report)
    assert not report.not_run, str(report)
    assert failed == set(known()), str(report)
