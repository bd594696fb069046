"""Rows as stored: equal states give equal bytes, and the header of an answer says exactly what it includes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Damaged, InvalidRequest
from headrace.features.pipeline.compiled import Table, compile_pipeline
from headrace.features.pipeline.registry import pipeline_of
from headrace.features.rows import (
    AsOf,
    decode_row,
    encode_row,
    expires_at,
    is_cold,
    lane_for,
    parse_as_of,
    read_row,
    write_as_of,
)
from tests.unit.features.pipeline import documents
from tests.unit.features.pipeline.documents import count, registered

DAY_MS = 86_400_000


def table(window: str | None, cold_after_ms: int | None = DAY_MS) -> Table:
    params = {} if window is None else {"window": window}
    agg = {"n": count(**params), "s": {"op": "quantile", "params": {"field": "amount", "q": 0.5, **params}}}
    event = documents.event(fields={"user": "str", "amount": "f64"}, cold_after_ms=cold_after_ms)
    return compile_pipeline(pipeline_of(registered(event, documents.table(agg=agg)), "Txn")).tables["U"]


def test_a_row_is_the_same_after_a_round_trip_whatever_its_size() -> None:
    features = table("1d").features
    state = features.new()
    for offset in range(300):
        features.fold(state, {"user": "a", "amount": offset * 1.5}, offset * 60_000, 0, offset)
        data = encode_row(features, state)
        assert features.encode(decode_row(features, data)) == features.encode(state)
        assert encode_row(features, decode_row(features, data)) == data
    assert len(data) < len(features.encode(state))
    for damaged in (data[:-5], b"damaged", b"\x94\x01"):
        with pytest.raises(Damaged):
            decode_row(features, damaged)


def test_an_idle_row_counts_as_absent_only_if_no_feature_remembers_it() -> None:
    windowed, lifetime, kept = table("1h"), table(None), table("1h", None)
    hour_ms = 3_600_000
    for found, cold_ms in ((windowed, hour_ms + DAY_MS), (lifetime, None), (kept, None)):
        state = found.features.new()
        found.features.fold(state, {"user": "a", "amount": 1.0}, 0, 0, 0)
        assert read_row(found, state, 0)["n"] == 1
        last = (cold_ms or 100 * DAY_MS) - 1
        assert read_row(found, state, last) != {}
        assert is_cold(found, 0, last + 1) == (cold_ms is not None)
        assert (read_row(found, state, last + 1) == {}) == (cold_ms is not None)
        assert expires_at(found, 0) == (0 if cold_ms is None else cold_ms // 1000 + 86_400)
    assert read_row(windowed, None, 0) == {}


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)


@given(st.dictionaries(st.tuples(names, st.integers(0, 31)), st.integers(0, 2**62)), st.integers(0, 10**14))
def test_the_header_of_an_answer_is_read_as_it_was_written(lanes: dict[tuple[str, int], int], now_ms: int) -> None:
    as_of = AsOf(now_ms, lanes)
    assert parse_as_of(write_as_of(as_of)) == as_of


@pytest.mark.parametrize(
    "text", ["", "x", "1;", "1;Tx", "1;Tx=", "1;Tx=-1", "1;Tx.=1", "1;1Tx=1", "١;Tx=1", "9" * 16]
)
def test_what_is_no_header_of_an_answer_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_as_of(text)


def test_lanes_are_the_same_for_ever() -> None:
    assert [lane_for(value, 7) for value in ("a", "b", 1, True, "é|%")] == [6, 4, 3, 3, 5]
