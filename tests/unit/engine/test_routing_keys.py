"""Pages of routing keys are exact, wherever the records stand; and what a page was not made from is said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from headrace.errors import Damaged, InvalidRequest, NotFound
from headrace.objects import keys
from headrace.query.engine import routing_keys as engine_keys
from headrace.query.engine.context import Budget
from headrace.query.engine.routing_keys import KeysPage, KeysRequest, routing_keys
from tests.support.examples import examples
from tests.unit.engine.streams import Stream, behind

BUDGET_MS = 60_000
DEFINITION: dict[str, Any] = {
    "schema": {"type": "object"},
    "routingKey": {"jsonPointer": "/k", "required": False},
}
SEARCH = {
    "primaryTimestampField": "at",
    "fields": {"at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}], "column": True}},
}
# Locales put these in other orders than bytes do, and UTF-16 the last two.
KEYS = [
    "",
    "A",
    "B",
    "a",
    "b",
    "a b",
    "a-b",
    "Z",
    "z",
    "é",
    "É",
    "ß",
    "ss",
    "ключ",
    "鍵",
    "￿",
    "\U0001f600",
    "_",
    "0",
    "10",
    "9",
]


def page(stream: Stream, limit: int = 100, after: str | None = None, *, cold: bool = False) -> KeysPage:
    engine = stream.fresh_engine() if cold else stream.engine
    return routing_keys(engine, stream.name, KeysRequest(limit, after), BUDGET_MS)


def held(stream: Stream) -> list[str]:
    keys = {document["k"] for _, document in stream.records if document.get("k") is not None}
    return sorted(keys, key=str.encode)


def document(key: str | None) -> dict[str, Any]:
    return {} if key is None else {"k": key}


batches = st.lists(
    st.one_of(st.none(), st.sampled_from(KEYS), st.text(max_size=3).filter(str.isprintable)), min_size=1, max_size=9
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), batches),
        st.tuples(st.just("seal"), batches),
        st.tuples(st.just("index"), batches, st.integers(1, 2), st.integers(0, 1)),
        st.tuples(st.just("index"), batches, st.integers(1, 2), st.integers(0, 1)),
        st.tuples(st.sampled_from(["compact", "plan"])),
        st.tuples(st.just("fork"), st.floats(0, 1)),
    ),
    min_size=1,
    max_size=8,
)


@examples(80, suppress_health_check=list(HealthCheck))
@given(steps, st.integers(1, 7), st.one_of(st.none(), st.sampled_from(KEYS), st.text(max_size=2)), st.booleans())
def test_pages_hold_every_key_once_and_in_order(taken: list[Any], limit: int, after: str | None, cold: bool) -> None:
    stream = Stream(**DEFINITION)
    runs, state = 0, "plain"
    for step in taken:
        if step[0] in ("append", "seal", "index"):
            stream.append(*map(document, step[1]))
        if step[0] in ("seal", "index"):
            stream.seal()
        if step[0] == "index":
            runs += len(stream.index(span=step[2], skip=step[3]))
        elif step[0] == "compact" and runs:
            stream.compact()
            runs = 1
        elif step[0] == "plan" and state == "plain":
            stream.define(search=SEARCH)  # runs of the plan before serve on
            runs, state = 0, "searched"
        elif step[0] == "fork" and state != "forked":
            stream.fork(round(step[1] * len(stream.records)))
            runs, state = 0, "forked"
    wanted = [key for key in held(stream) if after is None or key.encode() > after.encode()]
    found: list[str] = []
    while True:
        one = page(stream, limit, found[-1] if found else after, cold=cold)
        assert one.coverage.complete
        found += one.keys
        if one.next_after is None:
            break
        assert one.keys[-1] == one.next_after
        assert len(one.keys) == limit
    assert found == wanted


def test_a_page_says_what_it_was_made_from() -> None:
    stream = Stream(**DEFINITION)
    for number in range(3):
        stream.append(document(f"k{number}"))
        stream.seal()
    stream.index(skip=1)
    stream.append(document("k9"), document(None))
    one = page(stream)
    assert one.keys == ["k0", "k1", "k2", "k9"]
    assert one.coverage == (2, 1, 0, 2, 0)
    assert one.timing.runs == 1


def test_segments_beyond_the_budget_are_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_keys, "_MAX_SEGMENTS", 2)
    stream = Stream(**DEFINITION)
    for number in range(5):
        stream.append(document(f"k{number}"))
        stream.seal()
    one = page(stream)
    assert one.keys == ["k3", "k4"]  # the newest
    assert not one.coverage.complete
    assert one.coverage[:3] == (0, 2, 3)
    stream.index()
    assert page(stream).keys == [f"k{number}" for number in range(5)]
    assert page(stream).coverage.complete


def test_when_time_is_over_the_rest_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(**DEFINITION)
    for number in range(12):
        stream.append(document(f"k{number:02}"))
        stream.seal()
    engine = stream.fresh_engine()
    reads = engine_keys.read_key_pages

    def slow(*arguments: Any) -> Any:
        stream.clock.advance(10)
        return reads(*arguments)

    monkeypatch.setattr(engine_keys, "read_key_pages", slow)
    one = routing_keys(engine, "s", KeysRequest(100, None), 5000)
    assert one.keys == [f"k{number:02}" for number in range(4, 12)]
    assert one.coverage.missing_segments == 4


def test_a_fork_shows_no_key_of_records_behind_its_fork_point() -> None:
    stream = Stream(**DEFINITION)
    stream.append(*(document(f"k{number}") for number in range(6)))
    stream.seal()
    stream.index()
    stream.fork(3)
    assert page(stream).keys == ["k0", "k1", "k2"]
    assert page(stream).coverage.complete


def test_keys_that_are_read_again_cost_no_get() -> None:
    stream = Stream(**DEFINITION)
    for number in range(4):
        stream.append(document(f"k{number}"))
        stream.seal()
    stream.index(skip=2)
    first = page(stream)
    objects = stream.world.objects
    calls: list[str] = []
    reads = objects.get_ranges
    objects.get_ranges = lambda ranges: calls.extend(one.key for one in ranges) or reads(ranges)  # type: ignore
    assert page(stream).keys == first.keys
    assert not calls
    assert page(stream, cold=True).keys == first.keys
    assert calls


def test_without_a_routing_key_in_the_schema_there_are_none() -> None:
    with pytest.raises(InvalidRequest):
        page(Stream(schema={"type": "object"}))
    with pytest.raises(InvalidRequest):
        page(Stream())
    with pytest.raises(NotFound):
        routing_keys(Stream(**DEFINITION).engine, "other", KeysRequest(1, None), BUDGET_MS)


def test_the_budget_of_scans_is_not_that_of_keys() -> None:
    stream = Stream(Budget(segments=0), **DEFINITION)
    stream.append(document("a"))
    stream.seal()
    assert page(stream).keys == ["a"]


def test_a_run_that_is_gone_under_an_old_index_manifest_is_looked_for_once_more() -> None:
    stream = Stream(**DEFINITION)
    for number in range(2):
        stream.append(document(f"k{number}"))
        stream.seal()
    (run, *_) = stream.index(span=1)
    engine = behind(stream)
    stream.compact()
    objects = stream.world.objects
    objects.delete(list(objects.list(keys.run(stream.process.logs.head("s").log_id, run.id))))
    assert routing_keys(engine, "s", KeysRequest(9, None), BUDGET_MS).keys == ["k0", "k1"]


def test_a_key_page_that_is_gone_is_an_error_and_no_answer() -> None:
    stream = Stream(**DEFINITION)
    stream.append(document("a"))
    stream.seal()
    objects = stream.world.objects
    objects.delete([key for key in objects.list("") if key.endswith(".keys.zst")])
    with pytest.raises(Damaged):
        page(stream)
