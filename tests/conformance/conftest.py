"""Remembers what became of each test of the contract, for the law that every sentence has a test that passed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

CONTRACT = Path(__file__).parent / "contract"
OUTCOMES = pytest.StashKey[dict[str, list[str]]]()
JUDGE = "test_coverage.py"


def name_of(nodeid: str) -> str:
    """`test_read.py::test_x` of a test's node id, whatever its parameters; other tests have names that match nothing."""
    path, _, test = nodeid.partition("::")
    return f"{Path(path).name}::{test.partition('[')[0]}"


def pytest_configure(config: pytest.Config) -> None:
    outcomes: dict[str, list[str]] = defaultdict(list)
    config.stash[OUTCOMES] = outcomes


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The judge comes last, whatever else runs."""
    items.sort(key=lambda item: item.path.name == JUDGE)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if item.path.parent != CONTRACT:
        return report
    # A test passed if its call did and nothing around it failed. Expected failures and skips are not passes.
    passed = report.passed and not hasattr(report, "wasxfail")
    if report.when == "call" or not passed:
        item.config.stash[OUTCOMES][name_of(item.nodeid)].append("passed" if passed else report.outcome)
    return report
