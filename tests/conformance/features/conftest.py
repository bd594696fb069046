"""The namespaces that tests ask for; their servers are in `tests/conformance/conftest.py`."""

from __future__ import annotations

import pytest

from tests.conformance.features.client import Namespace, unused
from tests.conformance.topics.client import Server


@pytest.fixture
def space(server: Server) -> Namespace:
    """Returns a namespace in which nothing is registered."""
    return unused(server)


@pytest.fixture(scope="module")
def shared(server: Server) -> Namespace:
    """Returns a namespace for the tests of one module that change nothing, or use names of their own."""
    return unused(server)
