"""Searches, rule by rule: early ends, budgets, forks, lenses, time that is over, objects that are gone."""

from __future__ import annotations

from typing import Any

import pytest

from emr_jobs import merge
from headrace.errors import Damaged, InvalidRequest, NotFound
from headrace.index.fetching import run
from headrace.index.job import Task
from headrace.index.manifest import IndexManifestStore
from headrace.manifest import merging
from headrace.objects import keys
from headrace.query.engine import sources, units
from headrace.query.engine.context import Budget
from headrace.query.engine.search import _Search, search
from headrace.query.language import grammar
from headrace.streams.values import CreateRequest, ForkRequest
from headrace.streams.verbs import Streams
from headrace.wal.state import Cursor, first_slot
from headrace.wal.state import encode_cursor as encode
from tests.unit.engine.world import CONFIG, JSON, NAME, Stream
from tests.unit.search.samples import field


def events(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Documents that differ."""
    return [
        {
            "at": f"2026-01-01T00:{n // 60:02d}:{n % 60:02d}Z",
            "service": ["Billing", "auth", "Edge"][n % 3],
            "code": f"id-{n:05d}",
            "status": 200 + n % 5,
            "message": f"request {n} done" + (" slowly" if n % 7 == 0 else ""),
        }
        for n in range(start, start + count)
    ]


RENAMED_FROM: dict[str, Any] = {
    "primaryTimestampField": "at",
    "fields": {
        "at": field("date", "/at", "exact", "column", "exists", "sortable"),
        "user": field("keyword", "/user", "exact", "prefix", "exists", "sortable"),
    },
}


def schema(name: str) -> dict[str, Any]:
    """Of documents with a time and one more text."""
    properties = {"at": {"type": "string"}, name: {"type": "string"}}
    return {"type": "object", "properties": properties, "required": ["at", name], "additionalProperties": False}


def found(answer: Any) -> list[int]:
    """Offsets of the hits."""
    return [hit.candidate.offset for hit in answer.hits]


@pytest.fixture
def stream() -> Stream:
    """Four segments of fifty, each with a run."""
    stream = Stream()
    for start in range(0, 200, 50):
        stream.append(events(50, start))
        stream.seal()
    stream.index()
    return stream


def test_a_page_of_the_newest_opens_no_older_runs(stream: Stream) -> None:
    answer = stream.search("service:billing", size=5, explain=True)
    assert found(answer) == [198, 195, 192, 189, 186]
    assert (answer.total, answer.exact) == (33, False)  # of two runs
    assert answer.explained is not None
    assert answer.explained["runs"] == {"considered": 4, "opened": 2}


def test_a_unique_value_is_asked_of_all_runs_at_once(stream: Stream) -> None:
    answer = stream.search("code:id-00003", explain=True)
    assert found(answer) == [3]
    assert (answer.total, answer.exact) == (1, True)
    assert answer.explained is not None
    rounds = answer.explained["gets"]
    assert len(rounds) == 3, "descriptors, terms, the record"
    families = [{one["family"] for one in each["ranges"]} for each in rounds]
    assert families == [{"descriptor"}, {"kw"}, {"segment"}]


def test_a_second_search_opens_nothing_again(stream: Stream) -> None:
    engine = stream.engine()
    asked = {"q": "status:204", "sort": ["at:asc"], "explain": True}
    search(engine, NAME, asked)
    again = search(engine, NAME, asked)
    assert again.explained is not None
    assert sum(each["gets"] for each in again.explained["gets"]) == 0


def test_the_tail_is_found_at_once(stream: Stream) -> None:
    stream.append(events(3, 200))
    answer = stream.search("code:id-00201")
    assert found(answer) == [201]
    assert (answer.coverage.complete, answer.scanned_tail, answer.exact) == (True, 3, True)


def test_segments_over_the_budget_are_left_out_and_said(stream: Stream) -> None:
    for start in range(200, 260, 10):
        stream.append(events(10, start))
        stream.seal()
    answer = search(stream.engine(budget=Budget(segments=2)), NAME, {"q": "status:200", "size": 500})
    members = answer.coverage.members(str)
    assert answer.scanned_segments == 2
    assert (members["complete"], members["mode"]) == (False, "published")
    assert members["visible_through_offset"] == "200"
    assert members["possible_missing_events_upper_bound"] == members["possible_missing_sealed_rows"] == 40
    assert members["possible_missing_uploaded_segments"] == 4
    assert members["oldest_omitted_append_at"] is not None
    assert not answer.exact
    assert found(answer) == [n for n in range(259, -1, -1) if n % 5 == 0 and not 200 <= n < 240]


def test_a_budget_of_bytes_takes_the_newest_segments(stream: Stream) -> None:
    for start in range(200, 220, 10):
        stream.append(events(10, start))
        stream.seal()
    answer = search(stream.engine(budget=Budget(payload_bytes=1500)), NAME, {"q": "has:code", "size": 1})
    assert found(answer) == [219]
    answer = search(stream.engine(budget=Budget(payload_bytes=1500)), NAME, {"q": "code:id-00205"})
    assert found(answer) == []
    assert answer.coverage.members(str)["possible_missing_sealed_rows"] == 10


def test_time_that_is_over_gives_what_there_is(stream: Stream) -> None:
    answer = stream.search("status:200", timeout_ms=0)
    assert answer.timed_out
    assert (answer.hits, answer.total, answer.exact) == ([], 0, False)
    members = answer.coverage.members(str)
    assert (members["complete"], members["possible_missing_events_upper_bound"]) == (False, 200)
    assert (members["possible_missing_sealed_rows"], members["possible_missing_uploaded_segments"]) == (200, 4)


def test_a_timeout_counts_what_is_left_of_every_kind(stream: Stream) -> None:
    stream.compact()
    for start in (200, 210):
        stream.append(events(10, start))
        stream.seal()
    stream.append(events(5, 220))
    for asked in ({"q": "status:200"}, {"q": "status:200", "sort": ["code:asc"]}, {"q": 'message:"request done"'}):
        members = stream.search(**asked, timeout_ms=0).coverage.members(str)  # type: ignore[arg-type]
        assert members["possible_missing_uploaded_segments"] == 6, "four in a run, two without one"
        assert members["possible_missing_sealed_rows"] == 220
        assert members["possible_missing_wal_rows"] == 5
        assert members["possible_missing_events_upper_bound"] == 225


@pytest.mark.parametrize("stage", ["tail", "segment", "run"])
@pytest.mark.parametrize(
    "q",
    [
        " ".join(f"message:w{number}" for number in range(100)),
        " OR ".join(f"NOT message:w{number}" for number in range(100)),
        'message:"' + " ".join(["request"] * 100) + '"',
    ],
)
def test_a_search_stops_soon_after_its_time_wherever_it_is(
    monkeypatch: pytest.MonkeyPatch, stage: str, q: str
) -> None:
    stream = Stream()
    stream.append([{**one, "message": "request done"} for one in events(30)])
    if stage != "tail":
        stream.seal()
    if stage == "run":
        stream.index()
    asked = {"q": q, "sort": ["_score:desc"]}
    whole = search(stream.engine(), NAME, asked)
    assert not whole.timed_out
    checks = 0

    def late(_: _Search) -> bool:
        nonlocal checks
        checks += 1
        return checks > 20

    monkeypatch.setattr(_Search, "_late", late)
    answer = search(stream.engine(), NAME, asked)
    assert answer.timed_out
    assert checks < 30, "each check after the first that fails is before more work"
    assert (answer.exact, answer.coverage.complete) == (False, False)
    assert len(answer.hits) <= len(whole.hits)


def test_hits_are_shown_while_there_is_time(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[int] = []
    score = _Search._score
    monkeypatch.setattr(_Search, "_score", lambda self, one: score(self, shown.append(one.offset) or one))  # type: ignore[func-returns-value]
    monkeypatch.setattr(_Search, "_late", lambda self: len(shown) >= 3)
    answer = stream.search("message:request", size=10)
    assert (len(answer.hits), len(shown), answer.timed_out, answer.exact) == (3, 3, True, False)


def test_an_old_index_manifest_is_read_again_if_its_objects_are_gone(stream: Stream) -> None:
    engine = stream.engine()
    assert found(search(engine, NAME, {"q": "code:id-00003"})) == [3]
    engine = stream.engine()
    engine.sources.snapshot(NAME)  # knows the four runs
    stream.compact()
    log_id = stream.logs.head(NAME).log_id
    newest = IndexManifestStore(stream.stores.objects).newest(log_id)
    for retired in newest.retired:
        stream.stores.objects.delete(list(stream.stores.objects.list(keys.run(log_id, retired.run.id))))
    assert found(search(engine, NAME, {"q": "code:id-00003"})) == [3]


@pytest.mark.parametrize("is_told", [True, False])
def test_an_old_manifest_is_read_again_if_its_segments_were_merged(is_told: bool) -> None:
    """`is_told`: the watermark names the generation that merged them."""
    stream = Stream()
    for start in range(0, 20, 5):
        stream.append(events(5, start))
        stream.seal()
    engine = stream.engine()
    before = found(search(engine, NAME, {"q": "service:auth", "size": 50}))
    log_id = stream.logs.head(NAME).log_id
    store = stream.stores.manifests()
    manifest = store.newest(log_id, None, 0)
    assert manifest is not None
    parts = manifest.open_page
    task = Task("merge", log_id, "r", 0, "", 0, 20, "", JSON, parts)
    made = merge.merge_segments(stream.stores.objects, task, 0, lambda: "x")
    successor = merging.merged(manifest, parts, made, manifest.created_ms)
    assert successor is not None
    assert store.publish(successor)
    if is_told:
        place = (successor.end_slot, successor.end_offset, successor.sealed_bytes)
        stream.stores.watermarks.publish(log_id, successor.generation, *place)
    stream.stores.objects.delete([key for one in parts for key in (one.key, keys.segment_keys(one.key))])
    answer = search(engine, NAME, {"q": "service:auth", "size": 50})
    assert found(answer) == before
    assert answer.coverage.complete


def test_a_run_that_is_gone_for_good_is_damage(stream: Stream) -> None:
    log_id = stream.logs.head(NAME).log_id
    stream.stores.objects.delete([key for key in stream.stores.objects.list(keys.index(log_id)) if "/kw-" in key])
    with pytest.raises(Damaged):
        stream.search("code:id-00003")


def test_a_rename_changes_the_plan_and_loses_no_hit() -> None:
    stream = Stream(RENAMED_FROM, schema=schema("user"))
    stream.append([{"at": "2026-01-01T00:00:00Z", "user": f"U{n}"} for n in range(20)])
    stream.seal()
    stream.index()
    assert found(stream.search("user:U3")) == [3]
    rename = {"op": "rename", "from": "/user", "to": "/account"}
    lens = {"apiVersion": "durable.lens/v1", "schema": NAME, "from": 1, "to": 2, "ops": [rename]}
    moved = {**RENAMED_FROM["fields"]["user"], "bindings": [{"version": 2, "jsonPointer": "/account"}]}
    fields = {**RENAMED_FROM["fields"], "user": moved}
    stream.update({"schema": schema("account"), "lens": lens, "search": {**RENAMED_FROM, "fields": fields}})
    stream.append([{"at": "2026-01-01T00:00:00Z", "account": f"U{n}"} for n in range(20)])
    for stage in ("scanned", "segments", "runs", "compacted"):
        answer = stream.search("user:U3", explain=True)
        assert found(answer) == [23, 3], stage
        assert [hit.document.value["account"] for hit in answer.hits] == ["U3", "U3"]
        if stage == "scanned":
            assert answer.families == ()
            stream.seal()
        elif stage == "segments":
            stream.index()
        elif stage == "runs":
            assert answer.families == ("kw",)
            stream.compact()


def test_a_fork_uses_the_runs_of_its_source(stream: Stream) -> None:
    logs = Streams(stream.stores)
    logs.create("fork", CreateRequest(fork=ForkRequest(NAME)))
    stream.append(events(5, 500), name="fork")
    stream.append(events(5, 200))  # of the source alone
    answer = search(stream.engine(), "fork", {"q": "has:code", "size": 500, "explain": True})
    assert found(answer) == [*range(204, -1, -1)]
    assert answer.explained is not None and answer.explained["runs"]["opened"] == 4
    assert {hit.document.value["code"] for hit in answer.hits if hit.candidate.offset >= 200} == {
        f"id-{n:05d}" for n in range(500, 505)
    }


def test_a_fork_with_another_configuration_scans(stream: Stream) -> None:
    logs = Streams(stream.stores)
    logs.create("fork", CreateRequest(fork=ForkRequest(NAME)))
    stream.update(
        {"search": {**CONFIG, "fields": {**CONFIG["fields"], "more": field("keyword", "/m", "exact")}}}, "fork"
    )
    answer = search(stream.engine(), "fork", {"q": "code:id-00003", "explain": True})
    assert found(answer) == [3]
    assert answer.explained is not None and answer.explained["runs"]["considered"] == 0


def test_a_change_of_the_configuration_leaves_old_runs_unused(stream: Stream) -> None:
    stream.update({"search": {**CONFIG, "fields": {**CONFIG["fields"], "more": field("keyword", "/m", "exact")}}})
    answer = stream.search("code:id-00003", explain=True)
    assert found(answer) == [3]
    assert (answer.scanned_segments, answer.families) == (4, ())
    stream.index()
    assert stream.search("code:id-00003").families == ("kw",)


def test_a_prefix_of_thousands_of_terms() -> None:
    stream = Stream()
    stream.append([{"at": n, "code": f"Key-{n:05d}"} for n in range(3000)] + [{"at": 1, "code": "key-1"}])
    stream.seal()
    stream.index()
    answer = stream.search("code:Key-*", size=500)
    assert (answer.total, answer.exact) == (3000, True)
    assert found(answer) == [*range(2999, 2499, -1)]


def test_bm25_prefers_rare_words_and_short_texts(stream: Stream) -> None:
    stream = Stream()
    stream.append([{"at": 0, "message": "common " * 5}] * 30)
    stream.append([{"at": 0, "message": "common rare"}, {"at": 0, "message": "common rare and much more than that"}])
    expected = [30, 31]
    for stage in ("tail", "segments", "runs"):
        answer = stream.search("message:common-rare OR message:rare OR message:common", sort=["_bm25:desc"], size=2)
        assert found(answer) == expected, stage
        scores = [hit.candidate.key[0] for hit in answer.hits]
        assert scores[0] > scores[1] > 0
        if stage == "tail":
            first = scores
        assert scores == pytest.approx(first)
        if stage == "tail":
            stream.seal()
        elif stage == "segments":
            stream.index()


def test_what_a_search_refuses(stream: Stream) -> None:
    for asked in (
        {},
        {"q": 5},
        {"q": ""},
        {"q": "nothing.like.it:1"},
        {"q": "contains:x"},
        {"q": "has:at", "size": 0},
        {"q": "has:at", "size": 501},
        {"q": "has:at", "size": True},
        {"q": "has:at", "sort": "at:asc"},
        {"q": "has:at", "sort": ["at:up"]},
        {"q": "has:at", "sort": ["message"]},
        {"q": "has:at", "sort": [""]},
        {"q": "has:at", "timeout_ms": -1},
        {"q": "has:at", "timeout_ms": "1"},
        {"q": "has:at", "explain": "yes"},
        {"q": "has:at", "search_after": {}},
        {"q": "has:at", "search_after": []},
        {"q": "has:at", "search_after": ["not an offset"]},
        {"q": "has:at", "sort": ["status:asc"], "search_after": ["x", "-1"]},
        {"q": "has:at", "track_total_hits": True},
        {"q": "has:at", "highlight": {}},
        {"q": "has:at", "streams": ["a", "b"]},
    ):
        with pytest.raises(InvalidRequest):
            search(stream.engine(), NAME, asked)
    with pytest.raises(NotFound):
        search(stream.engine(), "nobody", {"q": "has:at"})


def test_a_stream_without_fields_can_not_be_searched(stream: Stream) -> None:
    stream.logs.create("plain", CreateRequest(content_type="text/plain"))
    stream.logs.create("bare", CreateRequest(content_type=JSON))
    for name in ("plain", "bare"):
        with pytest.raises(InvalidRequest):
            search(stream.engine(), name, {"q": "has:at"})


def test_the_expected_number_of_hits_decides_on_waves(stream: Stream) -> None:
    head = stream.logs.head(NAME)
    runs = IndexManifestStore(stream.stores.objects).newest(head.log_id).runs
    engine = stream.engine()
    descriptor = run(engine.runs.open(runs[0]), engine.ranges.fetches()).descriptor
    config = stream.logs.definition(NAME).search
    assert config is not None

    def expected(text: str) -> float:
        return units.expected(grammar.parse_query(text, config), descriptor)

    assert expected("code:id-00003") == 1
    assert expected("service:auth") == pytest.approx(50 / 3)
    assert expected("service:auth code:id-00003") == 1
    assert expected("service:auth OR code:id-00003") == pytest.approx(50 / 3 + 1)
    assert expected("message:done") == 50


def test_an_order_of_time_asks_only_runs_that_can_be_on_the_page(stream: Stream) -> None:
    answer = stream.search("has:code", sort=["at:desc"], size=5, explain=True)
    assert found(answer) == [199, 198, 197, 196, 195]
    assert answer.explained is not None and answer.explained["runs"]["opened"] == 2
    assert not answer.exact
    answer = stream.search("has:code", sort=["at:asc"], size=5, explain=True)
    assert found(answer) == [0, 1, 2, 3, 4]
    assert answer.explained is not None and answer.explained["runs"]["opened"] == 2


def test_a_record_without_a_time_comes_first_descending_and_last_ascending() -> None:
    stream = Stream()
    for start in range(0, 200, 50):
        stream.append([*events(49, start), {"code": f"none-{start}"}] if start == 50 else events(50, start))
        stream.seal()
    stream.index()
    answer = stream.search("has:code", sort=["at:desc"], size=3)
    assert found(answer) == [99, 199, 198]
    answer = stream.search("code:none-* OR code:id-00199", sort=["at:asc"], size=3)
    assert found(answer) == [199, 99]


def test_a_fork_in_the_middle_of_a_run_sees_only_what_it_inherits(stream: Stream) -> None:
    head = stream.logs.head(NAME)
    logs = Streams(stream.stores)
    logs.create("fork", CreateRequest(fork=ForkRequest(NAME, at=Cursor(head.incarnation, 70))))
    stream.append(events(2, 900), name="fork")
    answer = search(stream.engine(), "fork", {"q": "has:code", "size": 500, "sort": ["at:asc"]})
    assert found(answer) == [*range(72)]
    assert (answer.total, answer.exact) == (72, True)
    assert answer.hits[-1].document.value["code"] == "id-00901"


def test_a_fork_of_a_tail_sees_it(stream: Stream) -> None:
    stream.append(events(10, 200))
    head = stream.logs.head(NAME)
    logs = Streams(stream.stores)
    logs.create("fork", CreateRequest(fork=ForkRequest(NAME, at=Cursor(head.incarnation, 205))))
    stream.append(events(2, 900), name="fork")
    answer = search(stream.engine(), "fork", {"q": "code:id-002* OR code:id-009*", "size": 500})
    assert found(answer) == [*range(206, 199, -1)]


def test_another_incarnation_s_place_is_refused(stream: Stream) -> None:
    after = ["00000000000000000040000000"]
    search(stream.engine(), NAME, {"q": "has:at", "search_after": after})
    later = [encode(5, 3)]
    with pytest.raises(InvalidRequest):
        search(stream.engine(), NAME, {"q": "has:at", "search_after": later})


def test_a_tail_that_is_too_large_is_left_out_from_its_beginning(stream: Stream, monkeypatch: Any) -> None:
    for start in range(200, 260, 10):
        stream.append(events(10, start))
    monkeypatch.setattr(sources, "TAIL_BYTES", 3000)
    answer = stream.search("has:code", size=500)
    members = answer.coverage.members(str)
    missing = members["possible_missing_wal_rows"]
    assert 0 < missing < 60
    assert members["possible_missing_events_upper_bound"] == missing
    assert members["visible_through_offset"] == "200"
    assert found(answer) == [*range(259, 199 + missing, -1), *range(199, -1, -1)]


def test_records_published_while_a_snapshot_is_made_are_in_it(stream: Stream) -> None:
    stream.append(events(5, 200))
    stream.append(events(5, 205))
    log_id = stream.logs.head(NAME).log_id
    wal: Any = stream.stores.wal
    read = wal.read
    late: list[int] = []

    def read_late(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("descending") and "limit" not in kwargs and not late:
            late.append(1)
            stream.seal()
            wal.remove(log_id, [first_slot(200)])  # the newest entry stays
        return read(*args, **kwargs)

    wal.read = read_late
    try:
        answer = stream.search("code:id-0020*", size=20)
    finally:
        del wal.read
    assert late
    assert found(answer) == [*range(209, 199, -1)]
