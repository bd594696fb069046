"""Aggregates agree with a naive sum over every record, wherever the records stand and however they came there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from headrace import instants
from headrace.errors import Damaged, DeadlineExceeded, InvalidRequest, PayloadTooLarge
from headrace.index import writing
from headrace.objects import keys
from headrace.query.engine import groups
from headrace.query.engine.aggregate import Aggregated, aggregate
from headrace.query.engine.context import Budget
from headrace.query.language import rollup_request
from tests.support.examples import examples
from tests.unit.engine.streams import EVERYTHING, Stream, behind

BUDGET_MS = 60_000
MINUTE, HOUR = 60_000, 3_600_000


def field(kind: str, pointer: dict[int, str], **options: Any) -> dict[str, Any]:
    bindings = [{"version": version, "jsonPointer": place} for version, place in pointer.items()]
    return {"kind": kind, "bindings": bindings, **options}


PARTS = {
    "kind": "summary_parts",
    "countJsonPointer": "/brought/n",
    "sumJsonPointer": "/brought/sum",
    "minJsonPointer": "/brought/min",
    "maxJsonPointer": "/brought/max",
    "histogramJsonPointer": "/brought/buckets",
}


def search(version: int) -> dict[str, Any]:
    moved = {1: "/ms"} if version == 1 else {1: "/ms", 2: "/took"}
    return {
        "primaryTimestampField": "at",
        "fields": {
            "at": field("date", {1: "/at"}, column=True),
            "seen": field("date", {1: "/seen"}, exact=True),
            "service": field("keyword", {1: "/service"}, exact=True, prefix=True, normalizer="lowercase_v1"),
            "status": field("integer", {1: "/status"}, exact=True, column=True),
            "id": field("keyword", {1: "/id"}, exact=True),
            "ms": field("float", moved, aggregatable=True, column=True),
            "note": field("text", {1: "/note"}, analyzer="unicode_word_v1", exists=True, positions=True),
        },
        "rollups": {
            "requests": {
                "dimensions": ["status", "service"],
                "intervals": ["1m", "1h"],
                "measures": {
                    "requests": {"kind": "count"},
                    "latency": {"kind": "summary", "field": "ms", "histogram": "log2_v1"},
                    "plain": {"kind": "summary", "field": "ms"},
                },
            },
            "picky": {
                "timestampField": "seen",
                "include": "NOT service:b",
                "dimensions": ["service"],
                "intervals": ["1m"],
                "measures": {
                    "all": {"kind": "count"},
                    "bad": {"kind": "count", "include": "status:>=500 OR note:slow"},
                },
            },
            "brought": {"intervals": ["1h"], "measures": {"value": PARTS}},
        },
    }


def definition(version: int) -> dict[str, Any]:
    name = "ms" if version == 1 else "took"
    schema = {"type": "object", "required": [name], "properties": {name: {}}}
    if version == 1:
        return {"schema": schema, "search": search(1)}
    lens = {
        "apiVersion": "durable.lens/v1",
        "schema": "s",
        "from": 1,
        "to": 2,
        "ops": [{"op": "rename", "from": "/ms", "to": "/took"}],
    }
    return {"schema": schema, "lens": lens, "search": search(2)}


# What a naive reader knows of a document, whatever the name of the field `ms` was when it was written.


def values(document: dict[str, Any], name: str) -> list[Any]:
    raw = document.get("ms", document.get("took")) if name == "ms" else document.get(name)
    found = []
    for item in flat(raw):
        if name in ("at", "seen", "status"):
            found += [item] if isinstance(item, int) else []
        elif name == "ms":
            found += [float(item)] if isinstance(item, int | float) and abs(item) < 1e308 else []
        elif isinstance(item, str):
            found.append(item.lower() if name == "service" else item)
    return found


def flat(raw: Any) -> list[Any]:
    return [one for item in raw for one in flat(item)] if isinstance(raw, list) else [raw]


QUERIES: dict[str, Any] = {
    "": lambda d: True,
    "service:A": lambda d: "a" in values(d, "service"),
    "service:a AND status:500": lambda d: "a" in values(d, "service") and 500 in values(d, "status"),
    "status:200 status:500": lambda d: {200, 500} <= set(values(d, "status")),
    "status:>=404": lambda d: any(one >= 404 for one in values(d, "status")),
    "service:a OR status:200": lambda d: "a" in values(d, "service") or 200 in values(d, "status"),
    "NOT service:a": lambda d: "a" not in values(d, "service"),
    "service:a*": lambda d: any(one.startswith("a") for one in values(d, "service")),
    "has:note": lambda d: bool(values(d, "note")),
    "note:slow": lambda d: any("slow" in one.split() for one in values(d, "note")),
    'note:"slow disk"': lambda d: any("slow disk" in one for one in values(d, "note")),
    "note:slow note:disk": lambda d: (
        any("slow" in one.split() for one in values(d, "note")) and any("disk" in one for one in values(d, "note"))
    ),
    "id:x1 OR id:x2": lambda d: bool({"x1", "x2"} & set(values(d, "id"))),
}


def log2(value: float) -> int:
    bound = 1
    while bound * 2 <= abs(value):
        bound *= 2
    return bound


def summary(parts: list[tuple[float, float, float, float, dict[str, float]]], has_histogram: bool) -> dict[str, Any]:
    counts: dict[str, float] = {}
    for *_, buckets in parts:
        for name, count in buckets.items():
            counts[name] = counts.get(name, 0) + count
    count, total = sum(part[0] for part in parts), sum(part[1] for part in parts)
    said = {
        "count": count,
        "sum": total if parts else None,
        "min": min((part[2] for part in parts), default=None),
        "max": max((part[3] for part in parts), default=None),
        "avg": total / count if count else None,
    }
    ordered = sorted((float(name), held) for name, held in counts.items() if held > 0)
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        seen, said[name] = 0.0, None
        for bound, held in ordered:
            seen += held
            if seen >= share * sum(counts.values()):
                said[name] = bound
                break
    return {**said, "histogram": counts} if has_histogram and counts else said


def measured(rollup: str, members: list[dict[str, Any]]) -> dict[str, Any]:
    if rollup == "brought":
        parts = [document["brought"] for document in members if "brought" in document]
        return {"value": summary([(p["n"], p["sum"], p["min"], p["max"], p.get("buckets", {})) for p in parts], True)}
    if rollup == "picky":
        bad = [d for d in members if QUERIES["note:slow"](d) or any(one >= 500 for one in values(d, "status"))]
        return {"all": {"count": len(members)}, "bad": {"count": len(bad)}}
    numbers = [found[0] for document in members if len(found := values(document, "ms")) == 1]
    return {
        "latency": summary([(1, one, one, one, {str(log2(one)): 1}) for one in numbers], True),
        "plain": summary([(1, one, one, one, {}) for one in numbers], False),
        "requests": {"count": len(members)},
    }


def contributes(rollup: str, document: dict[str, Any]) -> bool:
    if len(values(document, "seen" if rollup == "picky" else "at")) != 1:
        return False
    if rollup == "brought":
        return True
    if rollup == "picky":
        return len(values(document, "service")) < 2 and "b" not in values(document, "service")
    return len(values(document, "service")) < 2 and len(values(document, "status")) < 2


def naive(documents: list[dict[str, Any]], asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the buckets that the contract asks for."""
    rollup, interval = asked["rollup"], {"1m": MINUTE, "1h": HOUR}[asked["interval"]]
    groups: dict[int, dict[str, list[dict[str, Any]]]] = {}
    for document in documents:
        if not contributes(rollup, document) or not QUERIES[asked.get("q", "")](document):
            continue
        (time,) = values(document, "seen" if rollup == "picky" else "at")
        if asked["from"] <= time < asked["to"]:
            key = {
                name: str(found[0]) if (found := values(document, name)) else None
                for name in sorted(asked.get("group_by", ()))
            }
            text = json.dumps(key, ensure_ascii=False, separators=(",", ":"))
            groups.setdefault(time // interval * interval, {}).setdefault(text, []).append(document)
    return [
        {
            "start": start,
            "end": start + interval,
            "groups": [
                {
                    "key": json.loads(text),
                    "measures": {
                        name: said
                        for name, said in measured(rollup, found[text]).items()
                        if name in asked.get("measures", (name,))
                    },
                }
                for text in sorted(found, key=str.encode)
            ],
        }
        for start, found in sorted(groups.items())
    ]


def ask(stream: Stream, asked: dict[str, Any], *, cold: bool = False) -> Aggregated:
    body = {name: value for name, value in asked.items() if value != ""}
    return aggregate(stream.fresh_engine() if cold else stream.engine, stream.name, body, BUDGET_MS)


def buckets(answer: Aggregated) -> list[dict[str, Any]]:
    found = [json.loads(bucket) for bucket in answer.buckets]
    return [{**one, "start": instants.parse_ms(one["start"]), "end": instants.parse_ms(one["end"])} for one in found]


# Numbers that add up exactly, in any order.
numbers = st.one_of(st.integers(-5, 3000), st.sampled_from([0.5, 2.25, -0.75, 1023.5]))
times = st.one_of(st.integers(-MINUTE, 3 * MINUTE), st.integers(-HOUR, 3 * HOUR), st.just(0), st.just(MINUTE))
brought = st.builds(
    lambda n, low, buckets: {"n": n, "sum": low * n, "min": low, "max": low + 1, "buckets": buckets},
    st.integers(0, 5),
    st.integers(-3, 3),
    st.dictionaries(st.sampled_from(["1", "0.5", "16"]), st.integers(0, 4), max_size=3),
)


def made(single: Any) -> Any:
    """Documents; `single` ones have no arrays, which is what most logs look like."""

    def maybe(one: Any) -> Any:
        return one if single else st.one_of(one, one, one, st.lists(one, max_size=3))

    return st.fixed_dictionaries(
        {
            "at": maybe(st.one_of(times, times, times, st.none() if not single else times)),
            "ms": maybe(st.one_of(numbers, numbers, numbers, st.sampled_from([None, "?", 10**400]))),
        },
        optional={
            "seen": maybe(times),
            "service": maybe(st.sampled_from(["a", "A", "b", "ab", "é", '"', "", None])),
            "status": maybe(st.sampled_from([200, 404, 500, 10**30, None, "x"])),
            "id": maybe(st.sampled_from(["x1", "x2", "x3"])),
            "note": maybe(st.sampled_from(["slow disk", "disk slow", "fast", ""])),
            "brought": brought,
        },
    )


batches = st.one_of(
    st.lists(made(single=True), min_size=1, max_size=8), st.lists(made(single=False), min_size=1, max_size=6)
)
# Mostly records that end in runs: by themselves steps would seldom come in that order.
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), batches),
        st.tuples(st.just("seal"), batches),
        *[st.tuples(st.just("index"), batches, batches, st.integers(1, 2), st.integers(0, 1))] * 4,
        st.tuples(st.sampled_from(["compact", "compact", "evolve"])),
        st.tuples(st.just("fork"), st.floats(0, 1)),
    ),
    min_size=2,
    max_size=8,
)
windows = st.one_of(
    st.tuples(st.sampled_from([-HOUR, 0, MINUTE]), st.sampled_from([2 * MINUTE, HOUR, 4 * HOUR])),
    st.tuples(st.integers(-HOUR, 2 * MINUTE), st.integers(2 * MINUTE + 1, 4 * HOUR)),
)


@st.composite
def requests(draw: Any) -> dict[str, Any]:
    rollup = draw(st.sampled_from(["requests", "requests", "picky", "brought"]))
    start, end = draw(windows)
    dimensions = {"requests": ["service", "status"], "picky": ["service"], "brought": []}[rollup]
    measures = {"requests": ["latency", "plain", "requests"], "picky": ["all", "bad"], "brought": ["value"]}[rollup]
    asked = {
        "rollup": rollup,
        "from": start,
        "to": end,
        "interval": draw(st.sampled_from({"requests": ["1m", "1h"], "picky": ["1m"], "brought": ["1h"]}[rollup])),
        "q": draw(st.one_of(st.just(""), st.sampled_from(sorted(QUERIES)))),
        "group_by": draw(st.one_of(st.just(dimensions), st.lists(st.sampled_from(dimensions or [None]), unique=True)))
        if dimensions
        else [],
    }
    if draw(st.booleans()):
        asked["measures"] = draw(st.lists(st.sampled_from(measures), min_size=1, unique=True))
    return asked


@pytest.fixture(autouse=True, scope="module")
def _small_row_groups() -> Iterator[None]:
    """Row groups that a dozen groups fill."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "_GROUP_MEMORY", 2000)
        yield


def append(stream: Stream, documents: list[dict[str, Any]], state: dict[str, Any]) -> None:
    moved = "took" if state["version"] == 2 else "ms"
    stream.append(*({moved if name == "ms" else name: one for name, one in made.items()} for made in documents))


def take(stream: Stream, step: tuple[Any, ...], state: dict[str, Any]) -> None:
    kind = step[0]
    if kind in ("append", "seal", "index"):
        append(stream, step[1], state)
    if kind in ("seal", "index"):
        stream.seal()
    if kind == "index":
        append(stream, step[2], state)
        stream.seal()
        state["runs"] += len(stream.index(span=step[3], skip=step[4]))
    elif kind == "compact":
        if state["runs"]:
            stream.compact()
            state["runs"] = 1
    elif kind == "evolve":
        if state["version"] == 1 and not state["forked"]:
            stream.define(**definition(2))
            state.update(version=2, runs=0)
    elif kind == "fork" and not state["forked"] and stream.records:
        stream.fork(round(step[1] * len(stream.records)))
        state.update(forked=True, runs=0)


@examples(60, suppress_health_check=list(HealthCheck))
@given(steps, st.lists(requests(), min_size=1, max_size=6), st.booleans())
def test_an_aggregate_is_the_sum_over_every_record(taken: list[Any], asked: list[dict[str, Any]], cold: bool) -> None:
    stream = Stream(**definition(1))
    state: dict[str, Any] = {"version": 1, "runs": 0, "forked": False}
    for number, step in enumerate(taken):
        take(stream, step, state)
        if number % 3 == 1:
            check(stream, asked[0], cold)
    for one in asked:
        check(stream, one, cold)


def check(stream: Stream, asked: dict[str, Any], cold: bool) -> None:
    answer = ask(stream, asked, cold=cold)
    assert buckets(answer) == naive([document for _, document in stream.records], asked)
    assert answer.coverage.complete


def a_stream(budget: Budget = EVERYTHING, batches: int = 3) -> Stream:
    """Batches of four records in as many segments: two services, a minute each batch."""
    stream = Stream(budget, **definition(1))
    for number in range(batches):
        at = number * MINUTE
        stream.append(
            {"at": at, "ms": 1.5, "service": "a", "status": 200},
            {"at": at + 1, "ms": 100, "service": "a", "status": 200},
            {"at": at + 2, "ms": 7, "service": "b", "status": 500},
            {"at": at + 30_000, "ms": 900, "status": 200},
        )
        stream.seal()
    return stream


ASKED: dict[str, Any] = {"rollup": "requests", "from": 0, "to": HOUR, "interval": "1m"}
WHOLE = {**ASKED, "group_by": ["service", "status"]}


def test_whole_groups_of_one_run_are_shown_as_they_were_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = a_stream()
    wanted = buckets(ask(stream, WHOLE))
    assert stream.index()

    def never(*_: Any) -> str:
        raise AssertionError("rendered")

    monkeypatch.setattr(rollup_request, "group", never)
    answer = ask(stream, WHOLE)
    assert buckets(answer) == wanted == naive([document for _, document in stream.records], WHOLE)
    assert (answer.used_rollups, answer.families, answer.indexed_segments) == (True, ("agg",), 3)
    assert (answer.scanned_segments, answer.scanned_tail_documents) == (0, 0)
    stream.append({"at": 10 * MINUTE, "ms": 1})
    with pytest.raises(AssertionError, match="rendered"):
        ask(stream, WHOLE)


def test_intervals_that_two_runs_share_are_summed_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = a_stream()
    stream.append({"at": MINUTE, "ms": 2, "service": "a", "status": 200})
    stream.seal()
    stream.index(span=3)
    rendered: list[str] = []
    render = rollup_request.group
    monkeypatch.setattr(rollup_request, "group", lambda key, measures: rendered.append(key) or render(key, measures))
    assert buckets(ask(stream, WHOLE)) == naive([document for _, document in stream.records], WHOLE)
    assert len(rendered) == 3  # the groups of minute 1


def test_what_is_left_out_is_said() -> None:
    stream = a_stream(Budget(segments=1), batches=4)
    answer = ask(stream, ASKED)
    assert [bucket["start"] for bucket in buckets(answer)] == [3 * MINUTE]
    members = answer.coverage.members(str)
    assert (members["complete"], members["mode"]) == (False, "published")
    assert members["possible_missing_events_upper_bound"] == members["possible_missing_sealed_rows"] == 12
    assert members["possible_missing_uploaded_segments"] == 3
    assert (answer.scanned_segments, answer.indexed_segments) == (1, 0)
    stream.index(skip=2)
    answer = ask(stream, ASKED)
    assert answer.coverage.members(str)["possible_missing_uploaded_segments"] == 1
    stream.index()
    answer = ask(stream, ASKED)
    assert answer.coverage.complete
    assert answer.coverage.newest_timestamp == 3 * MINUTE + 30_000


def test_an_answer_explains_itself_when_asked() -> None:
    stream = a_stream()
    stream.index()
    assert ask(stream, ASKED).explain is None
    asked = {**ASKED, "from": 1, "to": 2 * MINUTE + 5, "explain": True}
    said = ask(stream, asked, cold=True).explain
    assert said is not None
    assert said["plan"] == {
        "aligned": [MINUTE, 2 * MINUTE],
        "edges": [[1, MINUTE], [2 * MINUTE, 2 * MINUTE + 5]],
        "by_groups": True,
        "rendered": False,
    }
    assert said["runs"]["considered"] == len(said["runs"]["opened"]) == 1
    families = {one["family"] for found in said["gets"] for one in found["ranges"]}
    assert families == {"descriptor", "agg", "col"}
    assert len(said["gets"]) == 2, "the descriptor, then everything else at once"
    asked_again = ask(stream, asked)
    ask_cached = ask(stream, asked).explain
    assert asked_again.explain is not None
    assert ask_cached is not None
    assert sum(found["gets"] for found in ask_cached["gets"]) == 0


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        # Each of the three minutes has three groups: a and 200, b and 500, none and 200.
        (WHOLE, {"groups": 9, "columns": 0, "records": 0}),
        (ASKED, {"groups": 9, "columns": 0, "records": 0}),
        ({**WHOLE, "q": "service:a"}, {"groups": 3, "columns": 0, "records": 0}),
        ({**ASKED, "q": "service:b"}, {"groups": 3, "columns": 0, "records": 0}),
        # The minutes at the ends are cut off: three records of the first, two of the last.
        ({**WHOLE, "from": 1, "to": 2 * MINUTE + 2}, {"groups": 3, "columns": 5, "records": 0}),
        ({**WHOLE, "from": 1, "to": MINUTE}, {"groups": None, "columns": 3, "records": 0}),
        ({**ASKED, "q": "status:>=500"}, {"groups": None, "columns": 3, "records": 0}),
        ({**ASKED, "q": "service:a service:b"}, None),
    ],
)
def test_an_explanation_says_what_each_run_answered_with(asked: dict[str, Any], told: dict[str, Any] | None) -> None:
    stream = a_stream()
    (run,) = stream.index()
    said = ask(stream, {**asked, "explain": True}).explain
    assert said is not None
    assert said["runs"]["opened"] == ([{"id": run.id, "level": 0, **told}] if told else [])


def test_an_explanation_counts_records_that_columns_can_not_tell_about() -> None:
    stream = a_stream()
    stream.append({"at": 5, "ms": [1, 2], "service": "a", "status": 200})
    stream.seal()
    stream.index()
    (opened,) = ask(stream, {**WHOLE, "from": 1, "to": MINUTE, "explain": True}).explain["runs"]["opened"]  # type: ignore[index]
    assert (opened["groups"], opened["columns"], opened["records"]) == (None, 3, 1)


def test_runs_outside_of_the_window_are_not_opened() -> None:
    stream = a_stream()
    stream.index(span=1)
    said = ask(stream, {**ASKED, "from": MINUTE, "to": 2 * MINUTE, "explain": True}).explain
    assert said is not None
    assert (said["runs"]["considered"], len(said["runs"]["opened"])) == (3, 1)


def test_a_query_that_no_group_can_meet_has_no_buckets() -> None:
    stream = a_stream()
    stream.index()
    answer = ask(stream, {**ASKED, "q": "service:a service:b"})
    assert (answer.buckets, answer.coverage.complete) == ([], True)


def test_a_run_that_is_gone_under_an_old_index_manifest_is_looked_for_once_more() -> None:
    stream = a_stream()
    (run, *_) = stream.index(span=1)
    wanted = buckets(ask(stream, ASKED))
    engine = behind(stream)
    stream.compact()
    objects = stream.world.objects
    objects.delete(list(objects.list(keys.run(stream.process.logs.head("s").log_id, run.id))))
    assert buckets(aggregate(engine, "s", ASKED, BUDGET_MS)) == wanted


def test_a_run_that_is_damaged_is_an_error_and_no_answer() -> None:
    stream = a_stream()
    (run,) = stream.index()
    objects = stream.world.objects
    for key in list(objects.list(keys.run(stream.process.logs.head("s").log_id, run.id))):
        if "/agg-" in key:
            objects.put(key, objects.get(key)[:40])
    with pytest.raises(Damaged):
        ask(stream, ASKED)


def test_time_is_looked_at_between_records() -> None:
    stream = a_stream()
    with pytest.raises(DeadlineExceeded):
        aggregate(stream.engine, "s", ASKED, 0)


@pytest.mark.parametrize(
    "body", [{}, {**ASKED, "rollup": "no"}, {**ASKED, "interval": "2m"}, [], {**ASKED, "q": "x:1"}]
)
def test_a_request_that_makes_no_sense_is_refused(body: Any) -> None:
    with pytest.raises(InvalidRequest):
        aggregate(a_stream().engine, "s", body, BUDGET_MS)


def test_a_stream_without_rollups_has_no_aggregates() -> None:
    with pytest.raises(InvalidRequest):
        aggregate(Stream().engine, "s", ASKED, BUDGET_MS)


@pytest.mark.parametrize(("limit", "asked"), [("MAX_PRINTED_BYTES", WHOLE), ("MAX_GROUPS", ASKED)])
def test_an_answer_that_would_fill_the_memory_is_refused(
    monkeypatch: pytest.MonkeyPatch, limit: str, asked: dict[str, Any]
) -> None:
    stream = a_stream()
    stream.index()
    monkeypatch.setattr(groups, limit, 2)
    with pytest.raises(PayloadTooLarge, match="coarser interval"):
        ask(stream, asked)


def test_long_windows_are_read_some_intervals_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = a_stream(batches=5)
    stream.index()
    wanted = naive([document for _, document in stream.records], WHOLE)
    monkeypatch.setattr(groups, "_INTERVALS", 2)
    assert buckets(ask(stream, WHOLE)) == wanted
    assert buckets(ask(stream, ASKED)) == naive([document for _, document in stream.records], ASKED)
    said = ask(stream, {**WHOLE, "explain": True}, cold=True).explain
    assert said is not None
    assert (
        len(said["gets"]) == 4
    )  # the descriptor, and three times two minutes: nothing is asked for beyond the records
