"""Back-fills on Spark: the rows are those that a live table has, byte for byte."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from emr_jobs import events, fold, requested, states
from emr_jobs.events import Grouping, Lane, Row
from headrace import jobs
from headrace.errors import Damaged
from headrace.features.jobs import FoldInput, FoldResult
from headrace.jobs import Progress
from headrace.objects import keys, packed
from tests.unit.emr_jobs import features
from tests.unit.emr_jobs.directory import DirectoryDoor, DirectoryObjects
from tests.unit.emr_jobs.features import document, installed, live, pushed, source
from tests.unit.features.pipeline import documents
from tests.unit.features.pipeline.documents import count, total

# Spark's client leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

JOB = "1700000000000-0123456789ab"


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collects that garbage here, and not in another test."""
    yield
    gc.collect()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs jobs in this process."""
    monkeypatch.setattr(events, "run_pass", features.run_pass)


def run_fold(
    objects: DirectoryObjects, path: Path, *sources: Any, tables: Any = ("U",), spark: Any = None
) -> FoldResult:
    asked = features.request(JOB, "fold", FoldInput(tuple(sources), tuple(tables)))
    return fold.run(spark, DirectoryDoor(str(path)), asked)


def test_spark_folds_what_the_folder_folds(spark: SparkSession, tmp_path: Path) -> None:
    """Every operator, over several segments and tables; asked for as a surface does."""
    objects, records = DirectoryObjects(str(tmp_path)), pushed(600, 1)
    tables = [
        documents.table("U", agg=features.aggregations(), keys=["s"]),
        documents.table("G", agg={"n": count(), "sum": total("f", window="1h")}, keys=()),
        documents.table("W", documents.where("(i > 3)"), agg={"n": count()}, keys=["s", "b"]),
    ]
    found = source(objects, records, [(0, document(*tables))], cuts=[200, 150])
    jobs.ask(objects, JOB, "fold", 7, FoldInput((found,), ("U", "G", "W")))
    requested.run(spark, DirectoryDoor(str(tmp_path)), keys.job_request(JOB))
    result = jobs.result(objects, JOB, FoldResult)
    assert result is not None
    rows = live(found, records)
    assert rows.skipped > 5
    assert (result.counted[0].events, result.counted[0].skipped) == (600, rows.skipped)
    assert "field 'f' must be of type f64" in result.counted[0].example
    assert installed(objects, result) == rows.newest()
    assert {name for name, _ in rows.newest()} == {"U", "G", "W"}

    # Once there is a result, the job does nothing any more.
    listed = list(objects.list("jobs/"))
    requested.run(spark, DirectoryDoor(str(tmp_path)), keys.job_request(JOB))
    assert list(objects.list("jobs/")) == listed


@pytest.mark.usefixtures("here")
def test_only_events_of_the_span_are_folded(tmp_path: Path) -> None:
    objects, records = DirectoryObjects(str(tmp_path)), pushed(90, 2)
    table = documents.table(
        "U", agg={"n": count(), "last": {"op": "last_n", "params": {"field": "i", "n": 9}}}, keys=["s"]
    )
    found = source(objects, records, [(0, document(table))], cuts=[30, 30], span=(17, 71))
    result = run_fold(objects, tmp_path, found)
    assert result.counted[0].events == 54
    assert installed(objects, result) == live(found, records).newest() != {}


@pytest.mark.usefixtures("here")
def test_a_pipeline_that_changes_in_mid_lane_is_followed(tmp_path: Path) -> None:
    """Features that stay go on, one that comes starts empty, one that goes is dropped; a new generation starts again."""
    objects, records = DirectoryObjects(str(tmp_path)), pushed(120, 3, entities=2)
    event = documents.event(fields=features.FIELDS, optional=list(features.FIELDS))
    first = documents.registered(event, documents.table("U", agg={"n": count(), "old": total("f")}, keys=["s"]))
    more = documents.register(
        first, documents.table("U", agg={"n": count(), "new": total("i")}, keys=["s"]), force=True
    )
    other = documents.register(more.registry, documents.table("U", agg={"n": count()}, keys=["s", "b"]), force=True)
    pipelines = [
        (since, documents_of)
        for since, documents_of in zip(
            (20, 55, 90),
            (features.pipeline_of(one, "Txn") for one in (first, more.registry, other.registry)),
            strict=True,
        )
    ]
    generations = [found.tables["U"].generation for _, found in pipelines]
    assert generations[1] != generations[2]
    for end in (50, 85, 120):
        found = source(objects, records, pipelines, cuts=[40], span=(0, end))
        result = run_fold(objects, tmp_path, found)
        rows = live(found, records)
        expected = rows.newest()
        assert installed(objects, result) == expected
        assert bool(expected) == (end == 120)
    kept = [one for one in pipelines if one[0] < 90]
    found = source(objects, records, kept, cuts=[40], span=(0, 85))
    assert installed(objects, run_fold(objects, tmp_path, found)) == live(found, records).newest() != {}


@pytest.mark.usefixtures("here")
def test_lanes_are_folded_each_by_itself(tmp_path: Path) -> None:
    objects = DirectoryObjects(str(tmp_path))
    event = documents.event(fields=features.FIELDS, optional=list(features.FIELDS), lanes=2, lane_key="s")
    made = document(documents.table("U", agg={"n": count(), "sum": total("f")}, keys=["s"]), event=event)
    lanes = []
    for number in range(2):
        records = [
            one._replace(data=one.data.replace(b'"e', b'"%d-' % number).replace("é".encode(), b"%d" % number))
            for one in pushed(50, number)
        ]
        lanes.append((source(objects, records, [(0, made)], number=number), records))
    result = run_fold(objects, tmp_path, *(found for found, _ in lanes))
    assert result.generations == {"U": made.tables["U"].generation}
    for number, (found, records) in enumerate(lanes):
        assert installed(objects, result, number) == live(found, records).newest() != {}


@pytest.mark.usefixtures("here")
def test_parts_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "PART_ROWS", 3)
    objects, records = DirectoryObjects(str(tmp_path)), pushed(80, 4)
    found = source(objects, records, [(0, document(documents.table("U", keys=["s"])))])
    result = run_fold(objects, tmp_path, found)
    assert {part.rows for part in result.parts} <= {1, 2, 3}
    assert len(result.parts) >= 3
    assert installed(objects, result) == live(found, records).newest()


def test_a_hot_key_takes_the_memory_of_its_state_alone(tmp_path: Path) -> None:
    """Its events are folded as they come, and are not kept."""
    objects = DirectoryObjects(str(tmp_path))
    found = source(objects, pushed(1, 5), [(0, document(documents.table("U", agg={"n": count()}, keys=["s"])))])
    body = msgspec.msgpack.encode({"pad": "x" * 1000})
    living = features.Living()

    def rows() -> Iterator[Row]:
        for offset in range(20_000):
            yield Row(1, 0, b"a", offset, offset, None, living.body(body))

    group = next(states.groups(rows(), Grouping(("U",)), {0: Lane(found)}))
    assert not isinstance(group, list)
    states.fold_all(group)
    assert group.entity.state is not None
    assert group.entity.table is not None
    assert group.entity.table.features.read(group.entity.state, 10**13) == {"n": 20_000}
    assert living.most <= 3


@pytest.mark.usefixtures("here")
def test_a_damaged_segment_fails_the_job_and_says_which(tmp_path: Path) -> None:
    objects, records = DirectoryObjects(str(tmp_path)), pushed(30, 6)
    found = source(objects, records, [(0, document(documents.table("U", keys=["s"])))], cuts=[10])
    objects.put(found.segments[1].key, b"other")
    jobs.ask(objects, JOB, "fold", 7, FoldInput((found,), ("U",)))
    requested.stores.open_bucket.cache_clear()
    with pytest.raises(Damaged, match="not the one published"):
        requested.run(None, DirectoryDoor(str(tmp_path)), keys.job_request(JOB))  # type: ignore[arg-type]
    progress = packed.decode(objects.get(keys.job_progress(JOB)), Progress, "")
    assert found.segments[1].key in progress.error
    assert jobs.result(objects, JOB, FoldResult) is None
