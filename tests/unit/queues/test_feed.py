"""What a decision reads of the jobs log."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.batch import Record
from headrace.errors import Overloaded
from headrace.log.requests import JSON
from headrace.log.seam import Look
from headrace.queues.feed import Ahead, Feed
from headrace.tables.catalog import Row
from headrace.topics.values import TOPICS
from headrace.wal.state import LogConfig, LogState


def test_a_job_that_was_dropped_since_the_look_is_no_job_of_another_offset() -> None:
    jobs = Look(Row("log", LogConfig(TOPICS, "q", 0, JSON, 0)), LogState(next_offset=9))
    feed = Feed(jobs, 0, Ahead())

    class Rows:
        def page(self, *_: object) -> list[Record]:
            return [Record(7, 0, None, b"{}"), Record(8, 0, None, b"{}")]

    rows: Any = Rows()
    with pytest.raises(Overloaded):
        feed.at(5, 2, jobs, rows)
    found = feed.at(7, 1, jobs, rows)
    assert found is not None and found.offset == 7
