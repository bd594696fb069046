"""`tests/conformance/contract/test_routing_keys.py` on the deployment."""

from tests.conformance.contract.test_routing_keys import *  # noqa: F403
