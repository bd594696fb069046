"""One emulated cloud for each test module: starting it takes two seconds, so laws about it share it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.local.small_template import write_template
from tests.support.emulated_cloud import Cloud, emulated_cloud


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Hardened moto with the small template deployed."""
    template = write_template(tmp_path_factory.mktemp("cloud"), handler="tests.local.test_dispatcher.handler")
    with emulated_cloud(template) as cloud:
        yield cloud
