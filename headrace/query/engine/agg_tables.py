"""Rows of the family `agg` as they come from Parquet, turned into arrays: which rows are wanted, and what they say.

Tables come as Arrow tables of `families.AGG`; only their own methods are used, so that this needs no import of pyarrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.query.engine.grouping import Block, Entries, Int64s, MeasureBlock, Shape

Mask = NDArray[np.bool_]

_NUMBERS = ("count", "sum", "min", "max")


def starts_of(table: Any) -> Int64s:
    """The start of each row's interval, milliseconds."""
    return _array(table, "start").cast("int64").to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def fragments_of(table: Any) -> list[str]:
    """The rendered groups."""
    return table.column("fragment").to_pylist()  # type: ignore[no-any-return]


def with_dimensions(table: Any, width: int, wanted: Mapping[int, str]) -> Mask:
    """Which rows have these values: by place among the rollup's `width` dimensions, the value in print."""
    codes, texts = _dimensions(table, width)
    matching = np.ones(table.num_rows, bool)
    for place, text in wanted.items():
        matching &= codes[:, place] == (texts.index(text) if text in texts else -2)
    return matching


def block_of(table: Any, shape: Shape, *, dimensions: int, measures: int, kept: Mask | None = None) -> Block:
    """The rows, or those of `kept`, as a block.

    Args:
        dimensions, measures: how many the rollup has.
    """
    rows = np.arange(table.num_rows) if kept is None else np.flatnonzero(kept)
    if shape.dimensions:
        codes, texts = _dimensions(table, dimensions)
        shown = [codes[rows, place] for place in shape.dimensions]
        keys = shape.number_keys(shown, [texts] * len(shown), len(rows))
    else:
        keys = shape.number_keys([], [], len(rows))
    values = _array(table, "measures").flatten()
    numbers = {
        name: values.field(name).to_numpy(zero_copy_only=False).reshape(-1, measures)[rows] for name in _NUMBERS
    }
    places, buckets, counts = _histograms(values.field("histogram"), shape)
    new_row = np.full(table.num_rows, -1, np.int64)
    new_row[rows] = np.arange(len(rows))
    entry_rows = new_row[places // measures]
    blocks = []
    for place in shape.measures:
        own = (places % measures == place) & (entry_rows >= 0)
        histogram = Entries(entry_rows[own], buckets[own], counts[own])
        counts_of, sums, least, greatest = (numbers[name][:, place] for name in _NUMBERS)
        blocks.append(MeasureBlock(counts_of, sums, least, greatest, histogram))
    return Block(starts_of(table)[rows], keys, tuple(blocks))


def _dimensions(table: Any, width: int) -> tuple[NDArray[np.int32], list[str]]:
    """Per row and dimension the number of its text, -1 for none; and the texts."""
    encoded = _array(table, "dimensions").flatten().dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return codes.reshape(-1, width), encoded.dictionary.to_pylist()


def _histograms(lists: Any, shape: Shape) -> tuple[Int64s, Int64s, NDArray[np.float64]]:
    """All buckets of all measures of all rows: the place of each one's measure, its number, and its count."""
    offsets = lists.offsets.to_numpy()
    places = np.repeat(np.arange(len(lists)), np.diff(offsets))
    entries = lists.flatten()
    encoded = entries.field("bucket").dictionary_encode()
    numbers = shape.buckets.of_all(encoded.dictionary.to_pylist())
    return places, numbers[encoded.indices.to_numpy()], entries.field("count").to_numpy()


def _array(table: Any, name: str) -> Any:
    """A column in one piece."""
    return table.column(name).combine_chunks()
