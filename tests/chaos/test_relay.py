"""The small version of `python -m tests.chaos.relay`: routers and watches under HTTP faults and kills keep every law."""

from __future__ import annotations

import pytest

from tests.chaos.relay import CUTS, RelayOptions, run

SMALL = RelayOptions(
    records=600,
    kills=8,
    producers=3,
    watchers=2,
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


def test_the_laws_of_the_relay_hold_under_faults_and_kills(capsys: pytest.CaptureFixture[str]) -> None:
    report = run(SMALL)
    with capsys.disabled():
        print("\n" + report.text())
    assert report.problems() == []
    assert report.pushed == SMALL.records
    assert min(report.kills[kind] for kind in ("api", "dispatcher", "sealer")) >= 2
    assert report.faults.total() > 5
    gaps = {one.topic for sent in report.relayed.watched.values() for one in sent if one.is_gap}
    assert gaps == set(CUTS), "the cap and the TTL have cut"
