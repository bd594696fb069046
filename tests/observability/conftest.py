"""What alarms are judged on: committed captures; with `--full` each stage is run once, when a test first asks for it."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from tests.observability import captures
from tests.observability.captures import Capture
from tests.observability.stages import capture

Staged = Callable[[str], Capture]


@pytest.fixture(scope="session")
def staged(tmp_path_factory: pytest.TempPathFactory, full: bool) -> Staged:
    """Returns a function from the name of an alarm to the capture of its fault, or from `healthy` to that run."""
    if not full:
        return functools.cache(captures.read)
    return functools.cache(lambda name: capture(name, tmp_path_factory.mktemp(name)))
