"""The browser of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.console.world import chromium


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Starts Chromium, once; it ends before other folders' tests, since Playwright occupies the thread's event loop."""
    with chromium() as browser:
        yield browser
