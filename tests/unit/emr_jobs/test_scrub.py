"""Scrubbing a segment, and reading fields that are bound to the columns of records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pyspark.sql import SparkSession

from emr_jobs import columns, extract, job, merge, segments, verify
from headrace.definition import COLUMN_FIELDS, built_in
from headrace.errors import Damaged
from headrace.index.descriptors import plan_of
from headrace.objects.memory import MemoryObjects
from headrace.query.language import canonical
from headrace.query.language.canonical import RecordColumns, SearchConfig
from headrace.segment import reader
from tests.support.builders import batch_of
from tests.support.examples import examples
from tests.unit.emr_jobs import samples
from tests.unit.emr_jobs.directory import DirectoryDoor, DirectoryObjects
from tests.unit.emr_jobs.test_merge import PLANNED_MS, log, put, task_of

CONFIG = SearchConfig(primary_timestamp_field="ts", fields=COLUMN_FIELDS)
texts = st.none() | st.text(max_size=4)
# Of a JSON log: no data is empty.
rows = st.lists(st.tuples(st.binary(min_size=1, max_size=60), texts, st.integers(0, 3)), min_size=1, max_size=40)


@examples(40)
@given(rows, st.data())
def test_of_the_removed_records_nothing_but_the_time_is_left_and_of_the_others_everything(
    given_: list[tuple[bytes, str | None, int]], data: st.DataObject
) -> None:
    objects = MemoryObjects()
    whole = [
        one._replace(
            node=data.draw(texts), meta=data.draw(st.none() | st.just(b"{}")), hops=data.draw(st.integers(0, 2))
        )
        for one in log(given_)
    ]
    dead = data.draw(st.sets(st.integers(7, 6 + len(whole)), min_size=1))
    part = put(objects, whole, 3)
    flat = tuple(bound for offset in sorted(dead) for bound in (offset, offset + 1))
    task = replace(task_of((part,)), dead=flat)
    found = merge.merge_segments(objects, task, PLANNED_MS, lambda: "x")
    blank = [
        one._replace(key=None, data=b"", node=None, meta=None, hops=0) if one.offset in dead else one for one in whole
    ]
    assert segments.read_records(objects, found) == batch_of(blank)
    assert (found.number, found.blanked, found.count) == (3, len(dead), len(whole))
    assert reader.read_data(objects, found, 7, 10**6, 10**9) == [one.data for one in blank]
    right = put(objects, blank, 4)
    assert reader.key_page(objects, found) == reader.key_page(objects, right)
    assert merge.compare_segments(objects, task, found) == (len(whole), "")
    assert merge.compare_segments(objects, replace(task, dead=()), found)[1] != ""
    again = merge.merge_segments(objects, replace(task_of((found,)), dead=flat), PLANNED_MS, lambda: "y")
    assert again.blanked == len(dead), "what is blank stays so, and counts once"


def test_one_segment_is_a_task_only_if_it_is_scrubbed() -> None:
    objects = MemoryObjects()
    part = put(objects, log([(b"a", "k", 0), (b"b", None, 1)]), 0)
    with pytest.raises(Damaged):
        merge.merge_segments(objects, task_of((part,)), PLANNED_MS, lambda: "x")


def test_what_was_scrubbed_stays_counted_in_a_merge() -> None:
    objects = MemoryObjects()
    whole = log([(b"a", "k", 0), (b"b", "k", 1), (b"c", "k", 1)])
    first, second = put(objects, whole[:2], 0), put(objects, whole[2:], 1)
    first = merge.merge_segments(objects, replace(task_of((first,)), dead=(7, 8)), PLANNED_MS, lambda: "x")
    both = merge.merge_segments(objects, task_of((first, second)), PLANNED_MS, lambda: "y")
    assert (both.blanked, both.payload_bytes) == (1, 2)


@given(st.lists(st.tuples(texts, texts, st.integers(0, 2**40)), max_size=12), st.sampled_from(sorted(COLUMN_FIELDS)))
def test_columns_of_records_are_read_as_record_by_record(
    found: list[tuple[str | None, str | None, int]], name: str
) -> None:
    own: dict[str, list[Any]] = {
        canonical.KEY: [one[0] for one in found],
        canonical.NODE: [one[1] for one in found],
        canonical.TIME: [one[2] for one in found],
    }
    naive = [canonical.values(CONFIG, 1, None, None, RecordColumns(*one)).get(name, []) for one in found]
    column = columns.read(CONFIG, 1, [None] * len(found), name, own)
    assert column.rows.tolist() == [row for row, values in enumerate(naive) for _ in values]
    assert list(column.values) == [value for values in naive for value in values]


def test_a_run_of_columns_parses_no_data_and_has_nothing_of_blank_records() -> None:
    definition = built_in("columns")
    assert definition is not None
    keys, nodes = pa.array(["a", None, "b"], pa.string()), pa.array([None, None, "n"], pa.string())
    records = segments.Records(5, keys, [b"no JSON", b"", b"1"], nodes, pa.array([1, 2, 3], pa.int64()))
    found = extract.extract(records, definition, plan_of(definition))
    assert found.col is not None
    assert found.col.to_pydict() == {
        "_offset": [5, 6, 7],
        "node": [None, None, "n"],
        "tag": ["a", None, "b"],
        "ts": [_time(1), None, _time(3)],
    }
    assert (found.counts.least_timestamp, found.counts.greatest_timestamp) == (1, 3)


def _time(ms: int) -> Any:
    return pa.scalar(ms, pa.timestamp("ms", "UTC")).as_py()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_job_run_scrubs_and_indexes_columns_and_what_it_made_verifies(spark: SparkSession, tmp_path: Path) -> None:
    objects = DirectoryObjects(str(tmp_path))
    whole = [
        one._replace(node=f"n{row % 3}")
        for row, one in enumerate(log([(b'"x%d"' % row, f"k{row % 2}", 1) for row in range(40)], first=0))
    ]
    parts = tuple(put(objects, whole[at : at + 20], at // 20) for at in range(0, 40, 20))
    definition = built_in("columns")
    assert definition is not None
    plan = plan_of(definition)
    assert plan is not None
    build = replace(samples.task("build", "run", definition, "columns", segments=parts), plan=plan.hash)
    scrub = replace(task_of(parts[:1], "application/json"), run_id="scrub", dead=(0, 3, 7, 9))
    key = samples.put_input(objects, "job", build, scrub)
    door = DirectoryDoor(str(tmp_path))
    result = job.run(spark, door, key)
    assert (set(result.runs), set(result.merged), result.failures) == ({"run"}, {"scrub"}, ())
    assert result.merged["scrub"].blanked == 5
    verified = verify.run(spark, door, key)
    assert [one.problem for one in verified.runs] == ["", ""]
    assert verified.runs[1].records == 20
