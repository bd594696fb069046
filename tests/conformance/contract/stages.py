"""The places where records can be while they are asked for: each a stream on one server, with all that was appended.

    tail         nothing is sealed
    sealed       one segment, not indexed
    indexed      two segments under one index run
    compacted    four segments, two runs merged into one
    mixed        two segments indexed, one sealed, the rest in the tail
    renamed ...  the same with a lens half-way that renames two searched fields; `renamed-indexed` was indexed before it

Each push asks every question of the stage in `ASKED_FULLY`, which has records in every place, and a question of each test
on the others; `--full` asks every question everywhere.

The server seals after a number of records and indexes after a number of segments, never after a time: so a stream stays
where it is. Each stage proves from `_index_status` that its records are where it says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import pytest

from tests.conformance.contract.client import Api, Stream, eventually, expect, given
from tests.oracle import records
from tests.oracle.values import Config, Document
from tests.support.emulated_cloud import dev_server

SEGMENT = 1200  # records: nine in ten have a `ref` with R, so that `R*` meets more than 1,024 terms in each
BATCH = SEGMENT // 4
JOB_S = 240.0  # a Spark session starts within it, on a slow machine that does other things, too
ARGUMENTS = (
    *("--seal-records", str(SEGMENT), "--seal-age", "1h"),
    *("--index-segments", "2", "--index-age", "1h", "--compact-fanout", "2"),
)


class Plan(NamedTuple):
    """What a stage appends, in quarters of a segment, and where it must arrive.

    Attributes:
        first: appended at once.
        later: appended when the first segments are indexed, or else at once; after the lens if there is one.
        is_renamed: there is a lens between them.
        segments: sealed in the end.
        indexed: segments that are covered by runs in the end.
        is_one_run: they are covered by one run.
    """

    first: int
    later: int = 0
    is_renamed: bool = False
    segments: int = 0
    indexed: int = 0
    is_one_run: bool = False


PLANS = {
    "tail": Plan(3),
    "sealed": Plan(4, segments=1),
    "indexed": Plan(8, segments=2, indexed=2, is_one_run=True),
    "compacted": Plan(8, 8, segments=4, indexed=4, is_one_run=True),
    "mixed": Plan(8, 5, segments=3, indexed=2),
    "renamed-tail": Plan(2, 1, is_renamed=True),
    "renamed-sealed": Plan(2, 2, is_renamed=True, segments=1),
    "renamed-indexed": Plan(8, 8, is_renamed=True, segments=4, indexed=4),
}
ASKED_FULLY = ("mixed",)


class Stage:
    """One stream in one stage."""

    segment_records = SEGMENT

    def __init__(self, api: Api, name: str) -> None:
        self.name = name
        self.plan = PLANS[name]
        self._number = 0
        self._is_settled = False
        self.stream: Stream = api.with_schema(
            schema=records.schema(1), search=records.search_of(1), routingKey=records.ROUTING_KEY
        )

    @property
    def config(self) -> Config:
        """The search configuration in force."""
        return records.search_of(1 + self.plan.is_renamed)

    @cached_property
    def documents(self) -> list[Document]:
        """Every record as the schema in force has it."""
        appended = records.records(0, self._number)
        return [records.renamed(record) for record in appended] if self.plan.is_renamed else appended

    def fill(self) -> None:
        """Appends what comes first."""
        self._append(self.plan.first)

    def settle(self) -> Stage:
        """Appends what comes later, and waits until the records are where the plan wants them."""
        if self._is_settled:
            return self
        self._is_settled, plan = True, self.plan
        if plan.indexed and plan.later:
            self._wait(segments=2, indexed=2)
        if plan.is_renamed:
            lens = records.lens(self.stream.name)
            given(self.stream.define(schema=records.schema(2), search=records.search_of(2), lens=lens))
        self._append(plan.later)
        if plan.indexed and plan.is_renamed:
            self._leave_none_behind()
        self._wait(self.plan.segments, self.plan.indexed, is_one_run=plan.is_one_run)
        return self

    def _leave_none_behind(self) -> None:
        """Fills one more segment if a job began between the seals of the last two, so that the last is alone, too few for
        a job of its own. The lens made all older ones due, so a job may begin with any number of them.
        """
        plan = self.plan

        def holds(found: dict[str, Any]) -> bool:
            covered = found["routing_key_lexicon"]["indexed_segment_count"]
            return found["segments"]["uploaded_count"] == plan.segments and covered >= plan.indexed - 1

        found = eventually(self.status, holds, within_s=JOB_S)
        if found["routing_key_lexicon"]["indexed_segment_count"] < plan.indexed:
            self._append(SEGMENT // BATCH)
            self.plan = plan._replace(segments=plan.segments + 1, indexed=plan.indexed + 1)

    def _append(self, batches: int) -> None:
        for _ in range(batches):
            batch = records.records(self._number, BATCH)
            shaped = (
                [records.renamed(record) for record in batch] if self.plan.is_renamed and self._is_settled else batch
            )
            given(self.stream.append(shaped))
            self._number += len(batch)

    def status(self) -> dict[str, Any]:
        """Of its indexes."""
        found: dict[str, Any] = expect(self.stream.index_status(), 200).json()
        return found

    def _wait(self, segments: int, indexed: int, *, is_one_run: bool = False) -> None:
        def holds(found: dict[str, Any]) -> bool:
            keys = found["routing_key_lexicon"]
            families = [family["covered_segment_count"] for family in found["search_families"]]
            return (
                found["segments"]["uploaded_count"] == segments
                and {keys["indexed_segment_count"], *families} == {indexed}
                and (keys["active_run_count"] == 1 or not is_one_run)
            )

        eventually(self.status, holds, within_s=JOB_S)


def filled(api: Api, names: Iterable[str] = PLANS) -> dict[str, Stage]:
    """Stages on a server that seals and indexes as `ARGUMENTS` say; each is settled when it is first asked for."""
    made = {name: Stage(api, name) for name in names}
    for stage in made.values():
        stage.fill()
    return made


@contextmanager
def stages(*, on_data: bool) -> Iterator[dict[str, Stage]]:
    """Yields every stage by its name, all on one server that they have to themselves. `on_data` is as of `dev_server`."""
    with dev_server(*ARGUMENTS, runs_jobs=True, on_data=on_data) as server, Api(server.url) as api:
        yield filled(api)


def leave_to_full(items: Iterable[pytest.Item], asked_fully: Collection[str]) -> None:
    """Marks `full` all questions but one of each test on each stage that is not in `asked_fully`."""
    sampled: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        asked = getattr(item, "callspec", None)
        stage = asked.params.get("stage") if asked else None
        if stage in PLANS and stage not in asked_fully:
            sampled[item.nodeid.partition("[")[0], stage].append(item)
    for (_, stage), questions in sampled.items():
        # Another question on each stage, so that most of them are asked somewhere else than in `asked_fully`.
        asked_here = list(PLANS).index(stage) % len(questions)
        for item in questions[:asked_here] + questions[asked_here + 1 :]:
            item.add_marker("full")
