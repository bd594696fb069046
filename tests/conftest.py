"""Settings of every test, the option `--full`, and the plugins that judge a session and share it between processes."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests import grouping
from tests.budget import Budget
from tests.conformance import coverage
from tests.support.examples import FULL, PUSH, SHARE

# The machine is shared and noisy: how long one example takes says nothing.
settings.register_profile(FULL, deadline=None)
settings.register_profile(PUSH, deadline=None, max_examples=settings().max_examples // SHARE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full", action="store_true", help="every configuration, stage and seed, and tests marked `full`"
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile(FULL if is_full(config) else PUSH)
    config.pluginmanager.register(grouping)
    config.pluginmanager.register(Budget(config))
    for folder, table in coverage.TABLES.items():
        config.pluginmanager.register(coverage.Judge(config, folder, table), f"{coverage.NAME}: {folder.name}")


def is_full(config: pytest.Config) -> bool:
    """Returns whether this run is `--full`: of all tests, not only of those that each push needs."""
    return bool(config.getoption("full"))


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Returns whether this run is `--full`."""
    return is_full(request.config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects tests and parameters marked `full`, unless the run is. Refuses names that differ between the processes
    which share the tests.
    """
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: has an address in its name; give its parameters ids")
    if is_full(config):
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]
