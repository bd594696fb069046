"""`tests/conformance/contract/test_routing_keys_oracle.py` on the deployment."""

from tests.conformance.contract.test_routing_keys_oracle import *  # noqa: F403
