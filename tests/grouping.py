"""Groups of tests that share servers, a Spark session or synthesized templates, so that one process asks all of a group.

`pytest -n 4` starts four processes. Each takes a group at a time, in the order of `LONGEST_FIRST`, then in that of files.
When a group ends, so does what it shares: an idle server still costs a twentieth of a core.
"""

from __future__ import annotations

import re

import pytest
from _pytest.runner import runtestprotocol
from xdist.remote import Producer
from xdist.scheduler.loadscope import LoadScopeScheduling

CONTRACT = "tests/conformance/contract/"
CONFIGURATION = re.compile(r"\[(one-process|three-processes|cold)\b")
ALONE = ("test_backpressure.py", "test_scopes.py")  # of the contract, each with a server of its own
FOLDERS = (
    *("tests/clients/", "tests/conformance/features/", "tests/conformance/topics/", "tests/deployed/"),
    *("tests/infra/", "tests/observability/", "tests/unit/emr_jobs/"),
)
SHARING = {"tests/conformance/features/": "tests/conformance/topics/"}  # their servers are those of another folder
LONGEST_FIRST = (
    "contract: stages",
    "contract: three-processes",
    "tests/conformance/topics/",
    "tests/docs/test_commands.py",
    "tests/e2e/test_merging.py",
    "tests/conformance/test_official_suite.py",
    "tests/e2e/test_indexing.py",
    "tests/infra/",
    "tests/unit/emr_jobs/",
    "tests/e2e/test_real_data.py",
    "tests/e2e/test_duckdb_on_index.py",
    "tests/chaos/test_chaos.py",
    "tests/e2e/test_contention.py",
    "tests/e2e/test_doctor.py",
    "contract: cold",
    "tests/e2e/test_recover.py",
    "contract: one-process",
    "tests/simulation/test_simulation.py",
    "tests/local/test_sandbox.py",
    "tests/simulation/test_mutants.py",
    "tests/clients/",
    "tests/local/test_dev.py",
    "tests/unit/indexer/test_crashes.py",
    "tests/observability/",
)


def group_of(nodeid: str) -> str:
    """Returns the name of the group that a test belongs to: a server of the contract, a folder, or the test's file."""
    path = nodeid.partition("::")[0]
    if path.startswith(CONTRACT) and not path.endswith(ALONE) and "[memory" not in nodeid:
        configuration = CONFIGURATION.search(nodeid)
        return f"contract: {configuration[1] if configuration else 'stages'}"
    folder = next((folder for folder in FOLDERS if path.startswith(folder)), path)
    return SHARING.get(folder, folder)


class ByGroup(LoadScopeScheduling):
    """The scheduler of pytest-xdist that keeps modules together, with our groups in place of modules."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByGroup:
    config.option.loadscopereorder = False  # not by the number of tests
    return ByGroup(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Brings the groups into their order, where several processes share the tests."""
    if not hasattr(config, "workerinput"):
        return
    order = {group: place for place, group in enumerate(LONGEST_FIRST)}
    for item in items:
        order.setdefault(group_of(item.nodeid), len(order))
    items.sort(key=lambda item: order[group_of(item.nodeid)])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Ends the fixtures of the whole session, too, with the last test of a group."""
    if not hasattr(item.config, "workerinput"):  # one process alone asks tests in the order of files
        return None
    if nextitem is None or group_of(nextitem.nodeid) == group_of(item.nodeid):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    runtestprotocol(item, nextitem=None)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
