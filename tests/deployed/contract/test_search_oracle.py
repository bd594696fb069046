"""`tests/conformance/contract/test_search_oracle.py` on the deployment."""

from tests.conformance.contract.test_search_oracle import *  # noqa: F403
