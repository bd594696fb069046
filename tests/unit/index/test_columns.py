"""Columns and groups, written and read: every kind, with and without values."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Damaged
from headrace.index import families, fetching, reading, writing
from headrace.index.fetching import CachedRanges
from headrace.index.parts import Column
from headrace.index.reading import RunReader
from headrace.objects.memory import MemoryObjects
from headrace.query.language.canonical import Kind
from tests.support.examples import examples
from tests.unit.index import samples

VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    "keyword": st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
    | st.sampled_from(["", "a", "B", "é", "𝒂"]),
    "integer": st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3),
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "date": st.integers(-(2**62), 2**62),
    "bool": st.booleans(),
    "text": st.integers(0, 2**31 - 1),
}


def _shown(column: Column) -> list[Any]:
    """Returns the values of a column as they were written."""
    values = column.values.tolist()
    if column.dictionary is not None:
        assert column.dictionary == sorted(set(column.dictionary), key=str.encode)
        values = [column.dictionary[code] if column.dictionary else "" for code in values]
    valid = column.valid.tolist() if column.valid is not None else [True] * len(values)
    return [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]


@st.composite
def tables(draw: st.DrawFn) -> dict[str, tuple[Kind, list[Any]]]:
    count = draw(st.integers(1, 40))
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=6))
    return {
        name: (kind, draw(st.lists(st.none() | VALUES[kind], min_size=count, max_size=count)))
        for name, kind in zip(["a", "a.b", "A", "_x", "offset", "status"], kinds, strict=False)
    }


@examples(80)
@given(content=tables(), most=st.sampled_from([1, 7, 1_000_000]))
def test_columns_of_every_kind_are_read_as_written(content: dict[str, tuple[Kind, list[Any]]], most: int) -> None:
    objects = MemoryObjects()
    count = len(next(iter(content.values()))[1])
    with patch.object(writing, "COLUMN_ROWS", most):
        run = samples.written(objects, {"col": samples.col(70, content)}, first=70, end=70 + count)
    reader = samples.opened(objects, run)
    names = {families.column_name(name, kind): values for name, (kind, values) in content.items()}
    found = fetching.run(reader.columns([*names, "unknown", families.OFFSET]), CachedRanges(objects).fetches())
    assert {name: _shown(column) for name, column in found.items()} == {
        **names,
        families.OFFSET: list(range(70, 70 + count)),
    }


def test_columns_are_numbers_of_their_kind() -> None:
    objects = MemoryObjects()
    content: dict[str, tuple[Kind, list[Any]]] = {
        "k": ("keyword", ["b", None, "a"]),
        "i": ("integer", [1, 2, 3]),
        "f": ("float", [1.5, None, 2]),
        "d": ("date", [1, 2, None]),
        "b": ("bool", [True, None, False]),
        "t": ("text", [3, None, 0]),
    }
    run = samples.written(objects, {"col": samples.col(0, content)}, first=0, end=3)
    found = fetching.run(samples.opened(objects, run).columns(["k", "i", "f", "d", "b", "t#words"]), objects)
    types = {name: column.values.dtype for name, column in found.items()}
    assert types == {"k": np.uint8, "i": np.int64, "f": np.float64, "d": np.int64, "b": bool, "t#words": np.int32}
    assert found["k"].dictionary == ["a", "b"]
    assert found["i"].valid is None


def test_a_million_of_few_values_is_one_small_read() -> None:
    objects = MemoryObjects()
    count = 1_000_000
    levels = pa.array(["error", "info", "warn"]).take(pa.array(np.arange(count) % 3))
    batch = pa.RecordBatch.from_arrays([pa.array(range(count)), levels], names=[families.OFFSET, "level"])
    schema = families.col({"level": "keyword"})
    run = samples.written(objects, {"col": (schema, [batch])}, first=0, end=count)
    fetches = CachedRanges(objects).fetches()
    found = fetching.run(samples.opened(objects, run).columns(["level"]), fetches)
    assert np.array_equal(found["level"].values, np.arange(count) % 3)
    assert (fetches.stats.gets, fetches.stats.rounds) == (1, 1)
    assert fetches.stats.bytes < 300_000


def test_columns_are_kept_up_to_a_bound() -> None:
    objects = MemoryObjects()
    content: dict[str, tuple[Kind, list[Any]]] = {name: ("integer", list(range(1000))) for name in "abc"}
    run = samples.written(objects, {"col": samples.col(0, content)}, first=0, end=1000)
    runs = reading.Runs(decoded_bytes=17_000)
    fetches = CachedRanges(objects, memory_bytes=0).fetches()
    reader = fetching.run(runs.open(run), fetches)
    for name in "abca":  # two fit; when `a` is asked for again it was the one used least recently
        fetching.run(reader.columns([name]), fetches)
    assert fetches.stats.gets == 1 + 4
    fetching.run(reader.columns(["c", "a"]), fetches)
    assert fetches.stats.gets == 1 + 4


def test_a_run_whose_columns_are_too_short_is_damaged() -> None:
    objects = MemoryObjects()
    content: dict[str, tuple[Kind, list[Any]]] = {"a": ("integer", [1, 2, 3])}
    run = samples.written(objects, {"col": samples.col(0, content)}, first=0, end=4)
    with pytest.raises(Damaged, match="other rows"):
        fetching.run(samples.opened(objects, run).columns(["a"]), objects)


GROUPS: list[dict[str, Any]] = [
    {
        "rollup": rollup,
        "interval_ms": interval,
        "start": start * interval,
        "dimensions": [key, None],
        "count": start,
        "measures": [
            {"count": 2.0, "sum": 1.5, "min": None, "max": 3.0, "histogram": [{"bucket": "1", "count": 2.0}]},
            {"count": 2.0, "sum": None, "min": None, "max": None, "histogram": None},
        ],
        "fragment": f'{{"key":"{key}"}}' * 20,
    }
    for rollup in ("a", "b")
    for interval in (1000, 60_000)
    for start in range(-3, 90)
    for key in ("x", "y")
]


@pytest.mark.parametrize("group", [500, 20_000, 2_000_000])
@pytest.mark.parametrize("columns", [("start", "fragment"), ("count", "dimensions", "measures"), families.AGG.names])
def test_groups_are_those_of_a_rollup_in_a_range(group: int, columns: tuple[str, ...]) -> None:
    objects = MemoryObjects()
    batch = pa.RecordBatch.from_pylist(GROUPS, schema=families.AGG)
    with patch.object(writing, "_GROUP_MEMORY", group):
        run = samples.written(objects, {"agg": (families.AGG, [batch])}, first=0, end=9)
    reader = samples.opened(objects, run)
    whole = batch.to_pylist()
    for rollup, interval, start, end in (
        ("a", 1000, 10_000, 20_000),
        ("b", 60_000, -180_000, 60_001),
        ("b", 60_000, -(2**53), 2**53),
        ("a", 1000, 5, 6),
        ("c", 1000, 0, 2**53),
        ("a", 5, 0, 2**53),
    ):
        fetches = CachedRanges(objects).fetches()
        found = fetching.run(reader.groups(rollup, interval, start, end, columns), fetches)
        expected = [
            {name: row[name] for name in columns}
            for row, given in zip(whole, GROUPS, strict=True)
            if (given["rollup"], given["interval_ms"]) == (rollup, interval) and start <= given["start"] < end
        ]
        assert found.column_names == list(columns)
        assert found.to_pylist() == expected
        assert fetches.stats.rounds <= 1


def test_only_row_groups_that_may_hold_it_are_read() -> None:
    objects = MemoryObjects()
    batch = pa.RecordBatch.from_pylist(GROUPS, schema=families.AGG)
    with patch.object(writing, "_GROUP_MEMORY", 20_000):
        run = samples.written(objects, {"agg": (families.AGG, [batch])}, first=0, end=9)
    reader = samples.opened(objects, run)

    def fetched(start: int, end: int) -> int:
        fetches = CachedRanges(objects).fetches()
        fetching.run(reader.groups("a", 1000, start, end, ["fragment"]), fetches)
        return fetches.stats.bytes

    assert fetched(-(2**40), -(2**39)) == 0
    assert 0 < fetched(80_000, 81_000) < fetched(0, 100_000)


def test_a_reader_of_nothing_has_nothing() -> None:
    objects = MemoryObjects()
    run = samples.written(objects, {"kw": (families.KW, []), "agg": (families.AGG, [])}, first=0, end=9)
    reader: RunReader = samples.opened(objects, run)
    assert fetching.run(reader.columns(["a"]), objects) == {}
    assert fetching.run(reader.keys_after(None, 5), objects) == []
    assert fetching.run(reader.groups("a", 1, 0, 5, ["count"]), objects).num_rows == 0
    assert fetching.run(reader.rows_of_key("a"), objects).tolist() == []
