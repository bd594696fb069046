"""What runs hold, without Spark: the same steps, with the frame sorted in this process."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from emr_jobs import compact
from headrace.batch import Record
from headrace.definition import Definition
from headrace.errors import Damaged
from headrace.index import writing
from headrace.index.descriptors import Run, plan_of
from headrace.objects import Objects
from headrace.objects.memory import MemoryObjects
from tests.support import index_runs
from tests.support.examples import examples
from tests.unit.emr_jobs import samples

_records = st.lists(st.tuples(samples.documents, samples.keys_), min_size=1, max_size=14)
_cuts = st.lists(st.integers(1, 5), max_size=3)
_starts = st.sampled_from([0, 65_530, 3 * 65_536 - 2])
_numbers = itertools.count()


def check(objects: Objects, run: Run, found: list[Record], definition: Definition) -> None:
    """Compares a run with what records say."""
    rows = samples.rows_of(objects, run)
    plan = plan_of(definition)
    table = rows.pop("col", None)
    wanted = samples.expected(found, definition)
    if "agg" in rows:
        rows["agg"] = samples.groups_of(rows["agg"])
    assert rows == wanted
    descriptor = samples.descriptor_of(objects, run)
    assert (run.first_offset, run.end_offset) == (found[0].offset, found[-1].offset + 1)
    assert (run.min_time_ms, run.max_time_ms) == (found[0].time_ms, found[-1].time_ms)
    if plan is None:
        assert table is None
        return
    (part,) = descriptor.parts["col"]
    samples.expected_columns(found, definition, plan, pq.read_table(pa.BufferReader(objects.get(part.key))))
    values = samples.values_of(found, definition)
    for field in plan.fields:
        stats, of_field = descriptor.fields[field.name], [one.get(field.name, []) for one in values]
        assert stats.present == sum(bool(one) for one in of_field)
        assert stats.lossy == sum(map(samples.is_lossy, of_field))
        assert stats.column == (field.column != "none")
        if field.terms or field.words:
            assert stats.distinct == samples.distinct(values, field.name)
        singles = [one[0] for one in of_field if one and not samples.is_lossy(one)]
        if field.kind in ("integer", "float", "date") and stats.column:
            assert (stats.least, stats.greatest) == (min(singles, default=None), max(singles, default=None))
    times = [time for one in values for time in one.get("at", [])]
    bounds = (min(times), max(times)) if times else (None, None)
    assert (run.least_timestamp, run.greatest_timestamp) == tuple(map(_held, bounds))


def _held(time: int | None) -> int | None:
    return None if time is None else min(max(time, -(2**63)), 2**63 - 1)


@examples(60)
@given(_records, _cuts, _starts)
def test_a_built_run_holds_what_records_say(given_: list[Any], cuts: list[int], start: int) -> None:
    objects, definition = MemoryObjects(), samples.definition()
    found = samples.records(given_, start)
    key = samples.put_definition(objects, definition)
    segments = samples.put_segments(objects, found, cuts)
    (run,) = index_runs.make(objects, [samples.task("build", "r", definition, key, segments=segments)])
    check(objects, run, found, definition)


@examples(40)
@given(_records, _cuts, _starts, st.integers(1, 3))
def test_compacted_runs_are_one_build(given_: list[Any], cuts: list[int], start: int, pieces: int) -> None:
    objects, definition = MemoryObjects(), samples.definition()
    found = samples.records(given_, start)
    key = samples.put_definition(objects, definition)
    segments = samples.put_segments(objects, found, cuts)
    parts = [segments[at : at + pieces] for at in range(0, len(segments), pieces)]
    runs = index_runs.make(
        objects,
        [samples.task("build", f"r{at}", definition, key, segments=part) for at, part in enumerate(parts)],
    )
    (run,) = index_runs.make(objects, [samples.task("compact", "all", definition, key, inputs=runs)])
    assert run.level == 1
    check(objects, run, found, definition)


def test_large_families_are_split_by_their_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "_RANGE_BYTES", 2000)
    monkeypatch.setattr(writing, "_GROUP_BYTES", dict.fromkeys(("kw", "fts", "lex"), 300))
    objects, definition = MemoryObjects(), samples.definition()
    found = samples.records(
        [({"deep": {"id": f"{row * 7919 % 1000:03}"}, "note": f"w{row}"}, f"k{row}") for row in range(300)]
    )
    key = samples.put_definition(objects, definition)
    segments = samples.put_segments(objects, found, [100, 120])
    runs = index_runs.make(
        objects, [samples.task("build", f"r{at}", definition, key, segments=[one]) for at, one in enumerate(segments)]
    )
    (run,) = index_runs.make(objects, [samples.task("compact", "all", definition, key, inputs=runs)])
    parts = samples.descriptor_of(objects, run).parts
    assert all(len(parts[family]) > 1 for family in ("kw", "fts", "lex"))
    check(objects, run, found, definition)


@examples(20)
@given(_records, st.integers(0, 14))
def test_records_are_read_after_their_lenses(given_: list[Any], boundary: int) -> None:
    objects, definition = MemoryObjects(), samples.definition(promoted_from=boundary)
    documents = [
        ({**(one if isinstance(one, dict) else {}), "memo" if row < boundary else "note": f"memo {row}"}, key)
        for row, (one, key) in enumerate(given_)
    ]
    for row, (one, _) in enumerate(documents):
        one.pop("note" if row < boundary else "memo", None)
    found = samples.records(documents)
    key = samples.put_definition(objects, definition)
    segments = samples.put_segments(objects, found, [])
    (run,) = index_runs.make(objects, [samples.task("build", "r", definition, key, segments=segments)])
    check(objects, run, found, definition)


@examples(20)
@given(st.lists(samples.keys_, min_size=1, max_size=20), _cuts)
def test_a_stream_without_search_has_its_keys(given_: list[str | None], cuts: list[int]) -> None:
    objects, definition = MemoryObjects(), samples.definition(None)
    found = [Record(row, samples.FIRST_MS + row, key, b"\xff") for row, key in enumerate(given_)]  # not even JSON
    segments = samples.put_segments(objects, found, cuts)
    (run,) = index_runs.make(objects, [samples.task("build", "r", definition, "", segments=segments)])
    check(objects, run, found, definition)


def test_a_task_may_be_about_a_part_of_a_segment() -> None:
    objects, definition = MemoryObjects(), samples.definition()
    found = samples.records([({"status": row}, f"k{row}") for row in range(10)])
    key = samples.put_definition(objects, definition)
    whole = samples.task("build", "r", definition, key, segments=samples.put_segments(objects, found, [5]))
    (run,) = index_runs.make(objects, [replace(whole, first_offset=3, end_offset=7)])
    rows = samples.rows_of(objects, run)
    assert [row["_offset"] for row in rows["col"]] == [3, 4, 5, 6]
    assert [row["key"] for row in rows["lex"]] == ["k3", "k4", "k5", "k6"]


@pytest.mark.parametrize("kind", ["first", "middle", "last"])
def test_segments_with_a_gap_make_no_run(kind: str) -> None:
    objects, definition = MemoryObjects(), samples.definition()
    found = samples.records([({"status": row}, None) for row in range(6)])
    key = samples.put_definition(objects, definition)
    whole = samples.task("build", "r", definition, key, segments=samples.put_segments(objects, found, [2, 2]))
    lost = {"first": 0, "middle": 1, "last": 2}[kind]
    rest = tuple(one for row, one in enumerate(whole.segments) if row != lost)
    with pytest.raises(Damaged, match="segments"):
        index_runs.make(objects, [replace(whole, segments=rest)])


def test_a_keyword_with_too_many_values_has_no_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emr_jobs.parts.MAX_DICTIONARY", 3)
    objects, definition = MemoryObjects(), samples.definition()
    found = samples.records([({"service": f"s{row % 3}", "tags": f"t{row % 4}"}, None) for row in range(8)])
    key = samples.put_definition(objects, definition)
    segments = samples.put_segments(objects, found, [3])
    (run,) = index_runs.make(objects, [samples.task("build", "r", definition, key, segments=segments)])
    descriptor = samples.descriptor_of(objects, run)
    assert (descriptor.fields["service"].column, descriptor.fields["tag"].column) == (True, False)
    assert "tag" not in samples.rows_of(objects, run)["col"][0]
