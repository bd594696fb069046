"""Feature tables that live in memory, and their exports, run in this process or on Spark."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from emr_jobs import requested
from emr_jobs.stores import Door
from functions.queue import MemoryQueue
from functions.sealer.context import assemble
from functions.sealer.seal import seal
from headrace import jobs
from headrace.features.exports import Exports, Plan, Request
from headrace.features.jobs import ExportResult
from headrace.features.rows import AsOf, write_as_of
from headrace.features.values import GetRequest
from headrace.memory import memory_stores
from headrace.objects import Objects, keys
from headrace.settings import Settings
from tests.support.clocks import ManualClock
from tests.unit.emr_jobs.directory import DirectoryDoor, DirectoryObjects
from tests.unit.features.world import NS, World

LABELS = f"labels/{NS}/l.parquet"


class Answer(NamedTuple):
    """A recorded answer of `/get`: what was asked, when, what the header was, and the row."""

    key: Any
    now_ms: int
    text: str
    row: dict[str, Any]


class Shop:
    """A world whose bucket is a directory, and the exports of its tables."""

    def __init__(self, path: Path, *nodes: dict[str, Any], spark: Any = None) -> None:
        self.spark = spark
        self.door: Door = DirectoryDoor(str(path))
        self.objects: Objects = DirectoryObjects(str(path))
        clock = ManualClock()
        self.world = World(stores=memory_stores(Settings(bucket="b"), clock, objects=self.objects))
        self.world.clock = clock
        self.asked_to_seal: list[str] = []
        self.exports = Exports(self.world.api, self.asked_to_seal.append)
        if nodes:
            self.world.register(*nodes)

    def ask(self, *keys: Any, table: str = "U") -> list[Answer]:
        """Asks for entities, and returns what was answered."""
        found = self.world.api.get(NS, [GetRequest(table, key) for key in keys])
        text = write_as_of(found.as_of)
        return [
            Answer(key, found.as_of.now_ms, text, row)
            for key, row in zip(keys, found.rows, strict=True)
            if isinstance(row, dict)
        ]

    def seal(self) -> None:
        """Does what the sealer is asked for, for what was asked to be sealed."""
        for log_id in self.asked_to_seal:
            seal(assemble(self.world.stores, MemoryQueue()), log_id, force=True)
        self.asked_to_seal.clear()

    def put_labels(self, columns: dict[str, Any], key: str = LABELS) -> None:
        """Writes labels."""
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns), sink)
        self.objects.put(key, sink.getvalue().to_pybytes())

    def run(self, plan: Plan) -> ExportResult:
        """Runs the job that was asked for, once what it reads is sealed."""
        self.seal()
        requested.run(self.spark, self.door, keys.job_request(plan.job_id))
        result = jobs.result(self.objects, plan.job_id, ExportResult)
        assert result is not None
        return result

    def rows(self, result: ExportResult) -> pa.Table:
        """Returns the rows of an export."""
        return pa.concat_tables([pq.read_table(pa.BufferReader(self.objects.get(key))) for key in result.objects])

    def training_set(self, table: str = "U", labels: str = LABELS, **asked: Any) -> tuple[ExportResult, pa.Table]:
        """Makes a training set."""
        result = self.run(self.exports.training_set(Request(NS, table, **asked), labels))
        return result, self.rows(result)

    def snapshot(self, table: str = "U", as_of: AsOf | None = None, **asked: Any) -> tuple[ExportResult, pa.Table]:
        """Makes a snapshot."""
        result = self.run(self.exports.snapshot(Request(NS, table, **asked), as_of))
        return result, self.rows(result)


def traffic(
    shop: Shop, pushes: int, data: Callable[[random.Random], Any], keys: Sequence[Any], lanes: int = 1
) -> list[tuple[Answer, bool]]:
    """Pushes events, folds now and then, and asks for entities in between. Returns the answers, each with whether no later
    event has its stamp.
    """
    rng = random.Random(7)
    found: list[tuple[Answer, bool]] = []
    for number in range(pushes):
        step_s = rng.choice([0, 0, 0.001, 0.7, 60, 4000])
        shop.world.clock.advance(step_s)
        now_ms = shop.world.clock.now_ms()
        found = [(answer, is_last and answer.now_ms < now_ms) for answer, is_last in found]
        shop.world.push(data(rng))
        if rng.random() < 0.4:
            found += [(answer, True) for answer in shop.ask(*rng.sample(list(keys), 2))]
        if not number % 17:
            shop.world.fold(number=number % lanes)
    return found


def expected(answers: Sequence[Answer], names: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the columns of features that these answers must be in a training set."""
    return [{name: answer.row.get(name) for name in names} for answer in answers]


def features_in(found: pa.Table, names: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the features of each row; texts of JSON as values."""
    lists = {name for name in names if pa.types.is_string(found.schema.field(name).type)}
    return [{name: _parsed(row[name]) if name in lists else row[name] for name in names} for row in found.to_pylist()]


def _parsed(text: str | None) -> Any:
    try:
        return None if text is None else orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
