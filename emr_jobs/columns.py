"""Reads the values of one field from many records at once: the same result as `canonical.values`, but faster.

Most fields of most logs hold one string, or one number, or nothing; those are read as columns. If any record holds an
array, each record is read by `canonical.values`. A property test checks that both give equal results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.json import jsontext
from headrace.query.language import canonical
from headrace.query.language.canonical import Binding, Field, SearchConfig, Value

Rows = npt.NDArray[np.int64]

_LEAST, _GREATEST = -(2**63), 2**63 - 1


class Column(NamedTuple):
    """A field's canonical values in a segment's records.

    Attributes:
        rows: the index of the record that each value belongs to; ascending, with repeats where a record has several.
        values: the canonical values, in that order.
        of_record: the value of a record that has one, the list of them if it has several, None if it has none.
        is_lossy: per record, whether the `col` family can't hold its value (several values, or an integer beyond 64
            bits).
    """

    rows: Rows
    values: Sequence[Value]
    of_record: Sequence[Value | list[Value] | None]
    is_lossy: npt.NDArray[np.bool_]


NO_COLUMNS: Mapping[str, Sequence[Any]] = {}


def read(
    config: SearchConfig,
    version: int,
    documents: Sequence[Any],
    name: str,
    own: Mapping[str, Sequence[Any]] = NO_COLUMNS,
) -> Column:
    """Reads the values of a field from records.

    Args:
        config, version: as `canonical.values`.
        documents: the records, promoted by the lenses to that version.
        name: the field's name.
        own: the columns of the records by name (`canonical.COLUMNS`), at least those to which fields are bound.
    """
    field = config.fields[name]
    binding = field.bound_at(version)
    raw = [None] * len(documents) if binding is None else _locate(documents, binding, own)
    kinds = set(map(type, raw))
    if list in kinds:
        only = frozenset({name})
        return _of_lists(field, [canonical.values(config, version, one, only).get(name, []) for one in documents])
    read_one = canonical.reader(field)
    found: list[Any] = raw if _is_canonical(field, kinds) else _read(raw, read_one)
    if NoneType in set(map(type, found)):
        is_there = np.fromiter((one is not None for one in found), np.bool_, len(found))
        rows = np.flatnonzero(is_there)
        values = [one for one in found if one is not None]
    else:
        rows, values = np.arange(len(found)), found
    return Column(rows, values, found, _out_of_range(field, found, len(found)))


def _locate(documents: Sequence[Any], binding: Binding, own: Mapping[str, Sequence[Any]]) -> list[Any]:
    column, path = canonical.place_of(binding)
    return list(own[column]) if column else locate(documents, path)


def locate(documents: Sequence[Any], path: jsontext.Path) -> list[Any]:
    """Returns the value at a path in each document; None if it is null or missing."""
    found = list(documents)
    for depth, key in enumerate(path):
        kinds = set(map(type, found))
        if kinds <= {dict}:
            found = [one.get(key) for one in found]
        elif kinds <= {dict, NoneType}:
            found = [None if one is None else one.get(key) for one in found]
        else:
            rest = path[depth:]
            return [None if (one := jsontext.get(each, rest)) is jsontext.MISSING else one for each in found]
    return found


def _read(raw: list[Any], read_one: Callable[[Any], Value | None]) -> list[Value | None]:
    return [None if one is None else read_one(one) for one in raw]


def _is_canonical(field: Field, kinds: set[type]) -> bool:
    """Returns whether raw values of these types are already canonical, so that they need no conversion."""
    if field.kind == "keyword":
        return field.normalizer != "lowercase_v1" and kinds <= {str, NoneType}
    return kinds <= {_TYPES.get(field.kind, NoneType), NoneType}


# A float that JSON brought is finite.
_TYPES: dict[str, type] = {"integer": int, "date": int, "float": float, "bool": bool}


def _of_lists(field: Field, lists: list[list[Value]]) -> Column:
    counts = np.fromiter(map(len, lists), np.int64, len(lists))
    of_record: list[Value | list[Value] | None] = [
        (one[0] if len(one) == 1 else one) if one else None for one in lists
    ]
    values = list(chain.from_iterable(lists))
    is_lossy = counts > 1
    if field.kind in ("integer", "date"):
        is_lossy |= np.fromiter((any(not _fits(value) for value in one) for one in lists), np.bool_, len(lists))
    return Column(np.repeat(np.arange(len(lists)), counts), values, of_record, is_lossy)


def _out_of_range(field: Field, found: list[Any], count: int) -> npt.NDArray[np.bool_]:
    if field.kind not in ("integer", "date"):
        return np.zeros(count, np.bool_)
    try:
        pa.array(found, pa.int64())
    except (OverflowError, pa.ArrowInvalid):
        return np.fromiter((one is not None and not _fits(one) for one in found), np.bool_, count)
    return np.zeros(count, np.bool_)


def _fits(value: Value) -> bool:
    return isinstance(value, int) and _LEAST <= value <= _GREATEST


def typed(column: Column, type_: pa.DataType) -> pa.Array:
    """Converts a field's values to an Arrow array for `col`, one value per record; null where a record has no value or
    its value is lossy.

    Args:
        type_: the column's type (`headrace.index.families`); for a text field an int32, the number of words.
    """
    values: Sequence[Any] = column.of_record
    if column.is_lossy.any():
        lossy = set(np.flatnonzero(column.is_lossy).tolist())
        values = [None if row in lossy else one for row, one in enumerate(values)]
    if pa.types.is_dictionary(type_):
        return pc.dictionary_encode(pa.array(values, pa.string())).cast(type_)
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).cast(type_)
    if pa.types.is_int32(type_):
        values = [None if one is None else len(one) for one in values]
    return pa.array(values, type_)


class Printed(NamedTuple):
    """The distinct texts of a sequence, and which text is at each place.

    Attributes:
        texts: sorted as bytes, each once.
        codes: for each place of the sequence, an index into `texts`.
    """

    texts: pa.Array  # binary
    codes: npt.NDArray[np.int32]


def printed(values: Sequence[Value]) -> Printed:
    """Converts canonical values of one kind other than text to their printed form, as distinct sorted texts and
    codes.
    """
    texts: Sequence[Any] = values
    if values and not isinstance(values[0], str):
        texts = [canonical.text(value) for value in values]  # type: ignore[arg-type]
    return in_order(texts)


def in_order(texts: Sequence[str]) -> Printed:
    """Returns the distinct texts in byte order, and for each input text its index among them."""
    encoded = pc.dictionary_encode(pa.array(texts, pa.string()))
    unique = encoded.dictionary.cast(pa.binary())
    order = pc.sort_indices(unique).to_numpy()
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    return Printed(unique.take(pa.array(order)), ranks[encoded.indices.to_numpy()] if len(texts) else ranks[:0])
