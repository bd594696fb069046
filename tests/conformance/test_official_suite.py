"""The official suite is law: every case outside the subscription group passes, in each way to run the server.

Set HEADRACE_CONFORMANCE_URL to run it once against a server that is already there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.conformance.official_suite import EXPECTED_CASES, run_suite

EXTERNAL_URL = os.environ.get("HEADRACE_CONFORMANCE_URL")
CONFIGURATIONS = {
    "one process": (),
    "three processes that seal all the time": (
        "--api-processes",
        "3",
        "--seal-records",
        "20",
        "--seal-age",
        "1s",
    ),
    "a process that forgets everything": ("--cold",),
    "the streaming door, on instances that forget everything": (
        "--function-url",
        "--api-processes",
        "6",
        "--cold",
        "--seal-records",
        "20",
        "--seal-age",
        "1s",
    ),
}


@pytest.fixture(params=["a given server"] if EXTERNAL_URL else CONFIGURATIONS)
def base_url(request: pytest.FixtureRequest) -> Iterator[str]:
    if EXTERNAL_URL:
        yield EXTERNAL_URL
        return
    from local.emulated_cloud import dev_server

    with dev_server(*CONFIGURATIONS[request.param]) as server:
        yield server.url


@pytest.mark.timeout(900)
def test_every_case_of_the_official_suite_passes(base_url: str) -> None:
    report = run_suite(base_url)
    print(report)
    assert not report.failed, str(report)
    assert not report.not_run, str(report)
    assert len(report.cases) == EXPECTED_CASES, str(report)
