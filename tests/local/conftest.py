"""What tests of the emulator share. One emulated cloud for each module: starting it takes two seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from local.machine.database import Database
from tests.local.small_template import write_template
from tests.support.emulated_cloud import Cloud, emulated_cloud
from tests.support.machine import machine_folder


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Hardened moto with the small template deployed."""
    template = write_template(tmp_path_factory.mktemp("cloud"), handler="tests.local.test_dispatcher.handler")
    with emulated_cloud(template) as cloud:
        yield cloud


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yields an empty folder for a single machine."""
    with machine_folder() as folder:
        yield folder


@pytest.fixture
def database(folder: Path) -> Database:
    """Returns the database of a single machine."""
    return Database(folder)
