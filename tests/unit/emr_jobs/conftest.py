"""One warm Spark for all tests of jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from emr_jobs import session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yields a session with two threads; what is sorted on disk goes to a temporary directory."""
    found = session.local(2, memory="512m", directory=str(tmp_path_factory.mktemp("spark")))
    yield found
    found.stop()
