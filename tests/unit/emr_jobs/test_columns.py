"""Values read as columns are those that are read record by record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emr_jobs import columns
from headrace.index import families
from headrace.json import jsontext
from headrace.query.language import canonical
from tests.unit.emr_jobs import samples

SEARCH = samples.definition().search
assert SEARCH is not None
FIELDS = sorted(SEARCH.fields)


@given(st.lists(samples.documents, max_size=12), st.sampled_from(FIELDS))
def test_columns_say_what_records_say(documents: list[Any], name: str) -> None:
    assert SEARCH is not None
    naive = [canonical.values(SEARCH, 1, document).get(name, []) for document in documents]
    column = columns.read(SEARCH, 1, documents, name)
    assert column.rows.tolist() == [row for row, values in enumerate(naive) for _ in values]
    flat = [value for values in naive for value in values]
    assert list(map(repr, column.values)) == list(map(repr, flat))
    assert column.is_lossy.tolist() == list(map(samples.is_lossy, naive))
    shown = [value if isinstance(value, list) else [] if value is None else [value] for value in column.of_record]
    assert list(map(repr, shown)) == list(map(repr, naive))


@given(st.lists(samples.documents, max_size=12), st.sampled_from(FIELDS))
def test_a_column_of_a_run_holds_what_it_can(documents: list[Any], name: str) -> None:
    assert SEARCH is not None
    kind = SEARCH.fields[name].kind
    type_ = families.col({name: kind}).types[1]
    naive = [canonical.values(SEARCH, 1, document).get(name, []) for document in documents]
    found = columns.typed(columns.read(SEARCH, 1, documents, name), type_)
    wanted = [
        None if not values or samples.is_lossy(values) else len(values[0]) if kind == "text" else values[0]  # type: ignore[arg-type]
        for values in naive
    ]
    assert (found.cast(pa.int64()) if kind == "date" else found).to_pylist() == wanted


@given(st.lists(samples.documents, max_size=8), st.sampled_from(["", "/a", "/deep/id", "/tags/0", "/tags/1/0"]))
def test_places_are_found_where_pointers_lead(documents: list[Any], text: str) -> None:
    path = jsontext.parse_pointer(text)
    naive = [None if (one := jsontext.get(each, path)) is jsontext.MISSING else one for each in documents]
    assert repr(columns.locate(documents, path)) == repr(naive)


@pytest.mark.parametrize(
    ("values", "texts", "codes"),
    [
        ([], [], []),
        (["b", "a", "b", ""], [b"", b"a", b"b"], [2, 1, 2, 0]),
        (["\U0001f600", "ﬀ"], ["ﬀ".encode(), "\U0001f600".encode()], [1, 0]),  # by bytes, not by UTF-16
        ([0.0, -0.0, 1.5], [b"0", b"1.5"], [0, 0, 1]),
        ([10, 9], [b"10", b"9"], [0, 1]),
        ([True, False], [b"false", b"true"], [1, 0]),
    ],
)
def test_values_in_print_are_sorted_as_bytes(values: list[Any], texts: list[bytes], codes: list[int]) -> None:
    printed = columns.printed(values)
    assert printed.texts.to_pylist() == texts
    assert printed.codes.tolist() == codes
    assert printed.codes.dtype == np.int32
