"""The small versions of `python -m tests.chaos.jobs` and, on the same server, of `python -m tests.chaos.features`: queues
and feature tables under HTTP faults and kills keep every law.
"""

from __future__ import annotations

import pytest

from tests.chaos.features import FeatureOptions, FeatureReport, run_rounds
from tests.chaos.jobs import JobOptions, JobReport, run

SMALL = JobOptions(
    jobs=300,
    kills=8,
    producers=3,
    workers=3,
    lease_ms=1_000,
    api_processes=2,
    faults=0.04,
    kill_pause_s=0.3,
    seal_age="1s",
    trim_age="7s",
    sweep_every="10s",
    visibility_s=5,
    limit_s=60,
    rest_s=60,
)
ROUND = FeatureOptions(
    rounds=1, pushes=100, kills=3, pushers=3, readers=1, turns=1, api_processes=2, kill_pause_s=0.3, limit_s=60
)
Reports = tuple[JobReport, FeatureReport]


@pytest.fixture(scope="module")
def reports() -> Reports:
    """What came of both, on one server."""
    features = FeatureReport(ROUND)
    return run(SMALL, then=lambda server, folder: run_rounds(server, features, folder)), features


def test_the_laws_of_queues_hold_under_faults_and_kills(reports: Reports, capsys: pytest.CaptureFixture[str]) -> None:
    report, _ = reports
    with capsys.disabled():
        print("\n" + report.text())
    assert report.problems() == []
    assert report.pushed == SMALL.jobs
    assert report.jobs.buried
    assert min(report.kills[kind] for kind in ("api", "dispatcher", "sealer")) >= 2
    assert report.faults.total() > 20


def test_the_laws_of_feature_tables_hold_under_faults_and_kills(
    reports: Reports, capsys: pytest.CaptureFixture[str]
) -> None:
    _, report = reports
    with capsys.disabled():
        print("\n" + report.text())
    assert report.problems() == []
    assert report.pushes.total() == ROUND.pushes // ROUND.pushers * ROUND.pushers
    assert report.kills["api"] and report.kills["folder"]
