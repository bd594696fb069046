"""Each stage is run once, when a test first asks for it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.observability.stage import Stage
from tests.observability.stages import FAULTS, healthy

Staged = Callable[[str], Stage]


@pytest.fixture(scope="session")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Staged:
    """The run of a fault by the name of its alarm, or the `healthy` one."""

    @functools.cache
    def run(name: str) -> Stage:
        folder: Path = tmp_path_factory.mktemp(name)
        return {**FAULTS, "healthy": healthy}[name](folder)

    return run
