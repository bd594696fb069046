"""`tests/conformance/contract/test_aggregate.py` on the deployment."""

from tests.conformance.contract.test_aggregate import *  # noqa: F403
