"""Searches by the columns of records (key, node, append time), and without hidden records: the same answer wherever the
records are.
"""

from __future__ import annotations

import pytest

from headrace.definition import COLUMN_FIELDS, COLUMNS, built_in, key_of
from headrace.errors import InvalidRequest
from headrace.index.descriptors import plan_of
from headrace.json import search_config
from headrace.query.engine.hidden import Hidden
from headrace.query.language.canonical import SearchConfig
from tests.unit.engine.columned import Columned, offsets


def _filled() -> Columned:
    log = Columned()
    log.append([b'{"n": 1}', b'"text"', b"null"], key="orders.new", node="shop-1")
    log.append([b"7"], node="shop-2")
    log.append([b"[]", b"{}"], key="orders.paid", node="shop-2")
    log.append([b'{"n": 2}'], key="Sales")
    log.append([b'{"n": 3}'])
    return log


def _naive(log: Columned, accepts: object) -> list[int]:
    assert callable(accepts)
    return [one.offset for one in log.records if not log.hidden.has(one.offset) and accepts(one)]


QUESTIONS = {
    "tag:orders.new": lambda one: one.key == "orders.new",
    'tag:"Sales"': lambda one: one.key == "Sales",
    "tag:orders.*": lambda one: (one.key or "").startswith("orders."),
    "-tag:orders.new": lambda one: one.key != "orders.new",
    "has:tag": lambda one: one.key is not None,
    "node:shop-2": lambda one: one.node == "shop-2",
    "node:shop-2 tag:orders.paid": lambda one: (one.node, one.key) == ("shop-2", "orders.paid"),
    "ts:>=1700000003000": lambda one: one.time_ms >= 1_700_000_003_000,
    "ts:<1700000003000 -node:shop-2": lambda one: one.time_ms < 1_700_000_003_000 and one.node != "shop-2",
}


@pytest.mark.parametrize("hidden", [(), ((0, 1), (4, 6)), ((1, 3),), ((0, 8),)], ids=str)
def test_columns_are_found_and_hidden_records_are_not_wherever_they_are(hidden: tuple[tuple[int, int], ...]) -> None:
    log = _filled()
    log.hidden = Hidden(hidden)
    for stage in log.stages():
        for q, accepts in QUESTIONS.items():
            expected = _naive(log, accepts)
            answer = log.search(q, sort=["offset:asc"])
            assert (offsets(answer), answer.total, answer.exact) == (expected, len(expected), True), (stage, q)
            by_time = log.search(q, sort=["ts:desc", "offset:desc"], size=2)
            assert offsets(by_time) == expected[::-1][:2], (stage, q)
            assert by_time.total == len(expected), (stage, q)


def test_a_hit_has_the_columns_of_its_record_wherever_it_is() -> None:
    log = _filled()
    for stage in log.stages():
        for hit in log.search("node:shop-1 OR tag:Sales OR ts:>=1700000005000", size=10).hits:
            record = log.records[hit.document.offset]
            assert hit.document.columns == (record.key, record.node, record.time_ms), stage
            assert hit.document.data == record.data


def test_an_answer_from_runs_reads_no_record_that_it_does_not_show() -> None:
    log = _filled()
    assert list(log.stages())[-1] == "runs"
    answer = log.search("tag:orders.*", explain=True)
    assert (answer.scanned_segments, answer.indexed_segments) == (0, 1)
    assert answer.families == ("kw",)


def test_pages_leave_out_nothing_and_repeat_nothing_when_records_between_them_are_hidden() -> None:
    log = _filled()
    for stage in log.stages():
        log.hidden = Hidden()
        first = log.search("has:ts", sort=["offset:asc"], size=3)
        assert offsets(first) == [0, 1, 2], stage
        log.hidden = Hidden([(2, 4)])
        after = [first.cursor(first.hits[-1].candidate.offset + 1)]
        rest = log.search("has:ts", sort=["offset:asc"], size=10, search_after=after)
        assert offsets(rest) == [4, 5, 6, 7], stage


def test_the_built_in_definition_needs_no_object() -> None:
    assert key_of("log", COLUMNS) == "columns"
    definition = built_in("columns")
    assert definition is not None
    plan = plan_of(definition)
    assert plan is not None
    assert [field.name for field in plan.fields] == ["node", "tag", "ts"]
    assert plan.families == ("kw", "lex", "col")
    assert plan.hash == "ec272615670cfe8d"  # it decides what runs of topics hold: a change builds all of them again


def test_a_client_can_bind_no_field_to_a_column() -> None:
    document = SearchConfig(primary_timestamp_field="ts", fields=COLUMN_FIELDS).document()
    assert search_config.parse(document, 1, columns=True).document() == document
    with pytest.raises(InvalidRequest, match="/search/fields/tag/bindings/0/jsonPointer"):
        search_config.parse(document, 1)


def test_a_range_of_hidden_records_is_half_open() -> None:
    hidden = Hidden([(2, 4), (6, 7)])
    assert [offset for offset in range(9) if hidden.has(offset)] == [2, 3, 6]
    assert [hidden.touches(first, end) for first, end in ((0, 2), (0, 3), (3, 4), (4, 6), (4, 7), (7, 99))] == [
        *(False, True, True),
        *(False, True, False),
    ]
    assert not Hidden()
