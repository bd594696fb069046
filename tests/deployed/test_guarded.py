"""The contracts of `/v0` and of feature tables about keys and limits, through a release that has small limits, and keys
for each scope.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.coverage import FEATURES, TOPICS
from tests.conformance.topics.configurations import GUARDED as VARIABLES
from tests.deployed.conftest import open_api, wait_for_snapshot
from tests.deployed.contracts import check_contract, run_contract
from tests.deployed.deploy import Stack, update
from tests.deployed.template import Reduced
from tests.deployed.test_rollback import VARIABLE, next_release


@pytest.fixture(scope="module")
def url(reduced: tuple[Reduced, Reduced], stack: Stack) -> Iterator[str]:
    """Yields where such a release answers."""
    with open_api(stack) as api:
        variables = {**VARIABLES, VARIABLE: f"{VARIABLES[VARIABLE]},{api.key}"}
        update(stack, next_release(reduced[1].template, variables, 4))
        wait_for_snapshot(stack)
        yield api.url


@pytest.mark.timeout(900)
@pytest.mark.parametrize("folder", [TOPICS, FEATURES], ids=lambda folder: str(folder.name))
def test_every_test_of_keys_and_limits_passes_or_is_known_not_to(
    folder: Path, url: str, known_differences: dict[str, dict[str, str]], findings: dict[str, Any]
) -> None:
    suite = f"guarded_{folder.name}"
    known = known_differences.get(suite, {})
    check_contract(suite, known, findings, lambda names: run_contract(folder, url, None, names, guarded=True))
