"""The contract of `/v0` through the deployed API Gateway and Lambda: every test, but for those that are listed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.contract.client import Api
from tests.conformance.coverage import TOPICS
from tests.deployed.contracts import check_contract, run_contract


@pytest.mark.timeout(1200)
def test_every_test_of_topics_passes_or_is_known_not_to(
    warm_api: Api, known_differences: dict[str, dict[str, str]], findings: dict[str, Any]
) -> None:
    known = known_differences["topics"]
    check_contract("topics", known, findings, lambda names: run_contract(TOPICS, warm_api.url, warm_api.key, names))
