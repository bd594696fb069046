"""`tests/conformance/contract/test_search.py` on the deployment."""

from tests.conformance.contract.test_search import *  # noqa: F403
