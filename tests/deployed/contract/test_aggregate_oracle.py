"""`tests/conformance/contract/test_aggregate_oracle.py` on the deployment."""

from tests.conformance.contract.test_aggregate_oracle import *  # noqa: F403
