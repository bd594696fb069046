"""Merging segments: the same records byte for byte, from checked objects, and never from others."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pyspark.sql import SparkSession

from emr_jobs import job, merge, segments
from headrace.batch import Record
from headrace.errors import Damaged
from headrace.index.job import Task
from headrace.objects import Objects, keys
from headrace.objects.memory import MemoryObjects
from headrace.segment import keypage, reader, writer
from headrace.segment.descriptor import Segment
from tests.support.builders import batch_of
from tests.support.examples import examples
from tests.unit.emr_jobs import samples
from tests.unit.emr_jobs.directory import DirectoryDoor, DirectoryObjects

LOG = samples.LOG
PLANNED_MS = samples.CREATED_MS

records = st.lists(
    st.tuples(st.binary(max_size=60), st.none() | st.text(max_size=4), st.integers(0, 3)), min_size=2, max_size=40
)


def put(objects: Objects, records_: list[Record], number: int, *, text: bool = False) -> Segment:
    built = writer.build(records_[0].offset, batch_of(records_), text=text, log_id=LOG)
    key = keys.segment(LOG, number, "n")
    objects.put(key, built.data)
    objects.put(keys.segment_keys(key), built.key_page)
    return built.describe(number, key)


def task_of(parts: tuple[Segment, ...], content_type: str = "application/octet-stream") -> Task:
    return Task("merge", LOG, "r", 0, "", parts[0].first_offset, parts[-1].end_offset, "", content_type, parts)


def log(given_: list[tuple[bytes, str | None, int]], first: int = 7) -> list[Record]:
    found, time_ms = [], samples.FIRST_MS
    for row, (data, key, wait) in enumerate(given_):
        time_ms += wait
        found.append(Record(first + row, time_ms, key, data))
    return found


@examples(40)
@given(records, st.data())
def test_any_records_come_back_as_they_were(given_: list[tuple[bytes, str | None, int]], data: st.DataObject) -> None:
    objects, whole = MemoryObjects(), log(given_)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), min_size=1)))
    bounds = [0, *cuts, len(whole)]
    parts = tuple(put(objects, whole[a:b], n) for n, (a, b) in enumerate(pairwise(bounds)))
    found = merge.merge_segments(objects, task_of(parts), PLANNED_MS, lambda: "x")
    assert segments.read_records(objects, found) == batch_of(whole)
    assert reader.read_data(objects, found, 7, 10**6, 10**9) == [record.data for record in whole]
    for key in {record.key for record in whole if record.key is not None}:
        assert reader.rows_of_key(objects, found, key) == [one.offset for one in whole if one.key == key]
    page = keypage.decode(
        objects.get(keys.segment_keys(found.key)), sha256=found.keys_sha256, count=len(whole), source="k"
    )
    assert [run.time_ms for run in page.times for _ in range(run.count)] == [record.time_ms for record in whole]
    assert keys.planned_ms(found.key) == keys.planned_ms(keys.segment_keys(found.key)) == PLANNED_MS
    assert keys.planned_ms(parts[0].key) is None


def test_text_stays_text_and_what_is_none_is_merged_as_bytes() -> None:
    objects = MemoryObjects()
    whole = log([(b'{"a":1}', None, 0), (b'{"b":"\xc3\xa4"}', "k", 1), (b"\xff", None, 1)])
    parts = (put(objects, whole[:1], 0, text=True), put(objects, whole[1:2], 1, text=True))
    found = merge.merge_segments(objects, task_of(parts, "application/json"), PLANNED_MS, lambda: "x")
    assert objects.get(found.key) == writer.build(7, batch_of(whole[:2]), text=True, log_id=LOG).data
    mixed = (*parts, put(objects, whole[2:], 2, text=True))
    found = merge.merge_segments(objects, task_of(mixed, "application/json"), PLANNED_MS, lambda: "y")
    assert segments.read_records(objects, found) == batch_of(whole)


def test_every_column_is_merged() -> None:
    objects = MemoryObjects()
    whole = [
        one._replace(node="n" if row < 4 else "m", meta=b"{}" if row > 5 else None, hops=row % 2)
        for row, one in enumerate(log([(b"x%d" % row, f"k{row % 3}", 1) for row in range(12)]))
    ]
    parts = tuple(put(objects, whole[at : at + 3], at // 3) for at in range(0, 12, 3))
    assert [one.meta is None for one in parts] == [True, True, False, False]
    found = merge.merge_segments(objects, task_of(parts), PLANNED_MS, lambda: "x")
    assert segments.read_records(objects, found) == batch_of(whole)


def test_what_is_not_what_was_published_is_never_merged() -> None:
    objects, whole = MemoryObjects(), log([(b"a", "k", 0), (b"bb", None, 1), (b"ccc", "k", 2)])
    parts = tuple(put(objects, [record], number) for number, record in enumerate(whole))
    wrong = (
        task_of((parts[0], parts[2])),
        replace(task_of(parts), first_offset=6),
        replace(task_of(parts), end_offset=11),
        task_of(parts[:1]),
        task_of((parts[0], replace(parts[1], sha256="0" * 64), parts[2])),
        task_of((parts[0], replace(parts[1], payload_bytes=3), parts[2])),
        task_of((parts[0], replace(parts[1], max_time_ms=parts[1].max_time_ms + 1), parts[2])),
    )
    for one in wrong:
        with pytest.raises(Damaged):
            merge.merge_segments(objects, one, PLANNED_MS, lambda: "x")
    data = objects.get(parts[1].key)
    objects.put(parts[1].key, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(Damaged):
        merge.merge_segments(objects, task_of(parts), PLANNED_MS, lambda: "x")
    objects.delete([parts[1].key])
    with pytest.raises(Damaged, match="missing"):
        merge.merge_segments(objects, task_of(parts), PLANNED_MS, lambda: "x")
    assert not [key for key in objects.list("logs/") if "-m" in key]


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_job_run_merges_beside_its_other_tasks(spark: SparkSession, tmp_path: Path) -> None:
    objects = DirectoryObjects(str(tmp_path))
    whole = log([(b"x%d" % row, f"k{row % 2}", 1) for row in range(40)], first=0)
    parts = tuple(put(objects, whole[at : at + 4], at // 4) for at in range(0, 40, 4))
    built = samples.task("build", "run", samples.definition(None), "", segments=parts)
    bad = replace(task_of((parts[0], replace(parts[1], sha256="0" * 64))), run_id="bad")
    key = samples.put_input(objects, "job", built, replace(task_of(parts), run_id="good"), bad)
    result = job.run(spark, DirectoryDoor(str(tmp_path)), key)
    assert set(result.runs) == {"run"}
    assert [(one.run_id, one.damaged) for one in result.failures] == [("bad", True)]
    assert segments.read_records(objects, result.merged["good"]) == batch_of(whole)
