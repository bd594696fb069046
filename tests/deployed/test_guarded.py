"""The contract of `/v0` about keys and limits, through a release that has small limits, and keys for each scope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.conformance.official_suite import SuiteReport, repeat_undecided
from tests.conformance.topics.configurations import GUARDED as VARIABLES
from tests.deployed.conftest import open_api, wait_for_snapshot
from tests.deployed.deploy import Stack, update
from tests.deployed.template import Reduced
from tests.deployed.test_rollback import VARIABLE, next_release
from tests.deployed.topics import run_topics


@pytest.mark.timeout(900)
def test_every_test_of_keys_and_limits_passes_or_is_known_not_to(
    reduced: tuple[Reduced, Reduced],
    stack: Stack,
    known_differences: dict[str, dict[str, str]],
    findings: dict[str, Any],
) -> None:
    known = known_differences["guarded_topics"]
    with open_api(stack) as api:
        variables = {**VARIABLES, VARIABLE: f"{VARIABLES[VARIABLE]},{api.key}"}
        update(stack, next_release(reduced[1].template, variables, 4))
        wait_for_snapshot(stack)

        def ask(names: Sequence[str] = ()) -> SuiteReport:
            return run_topics(api.url, None, names, guarded=True)

        report, again = repeat_undecided(ask(), ask)
    failed = {case.name for case in report.failed}
    findings["guarded_topics"] = {
        "tests": len(report.cases),
        "passed": len(report.cases) - len(failed),
        "passed_when_repeated": again,
        "known_differences": known,
    }
    assert not report.not_run, str(report)
    assert failed == set(known), str(report)
