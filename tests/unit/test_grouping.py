"""Groups of tests that share something are real: what is named exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.contract.configurations import CONFIGURATIONS
from tests.grouping import FOLDERS, LONGEST_FIRST, group_of

ROOT = Path(__file__).parents[2]


def test_every_named_group_exists() -> None:
    contract = {f"contract: {name}" for name in ("stages", *CONFIGURATIONS)}
    for group in {*LONGEST_FIRST, *FOLDERS} - contract:
        assert (ROOT / group).exists(), group
    assert contract <= set(LONGEST_FIRST)


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("tests/conformance/contract/test_read.py::test_x[cold]", "contract: cold"),
        ("tests/conformance/contract/test_read.py::test_x[one-process-a]", "contract: one-process"),
        ("tests/conformance/contract/test_read.py::test_x[memory-a]", "tests/conformance/contract/test_read.py"),
        ("tests/conformance/contract/test_search_oracle.py::test_x[mixed-2]", "contract: stages"),
        ("tests/conformance/contract/test_search.py::test_x", "contract: stages"),
        ("tests/conformance/contract/test_scopes.py::test_x[a]", "tests/conformance/contract/test_scopes.py"),
        ("tests/infra/test_x.py::test_x", "tests/infra/"),
        ("tests/conformance/topics/test_x.py::test_x[cold]", "tests/conformance/topics/"),
        ("tests/conformance/features/test_x.py::test_x[cold]", "tests/conformance/topics/"),
        ("tests/unit/log/test_x.py::test_x[a::b]", "tests/unit/log/test_x.py"),
    ],
)
def test_a_test_belongs_to_what_it_shares(nodeid: str, group: str) -> None:
    assert group_of(nodeid) == group
