"""What `_index_status` and `_details` say of index runs. Runs cover offsets; the documents tell of segments."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from msgspec.structs import replace

from functions.api.context import assemble
from functions.api.streams.inspection import inspector as inspectors
from headrace.index import descriptors
from headrace.index import manifest as manifests
from headrace.index.descriptors import Family, Run
from headrace.index.manifest import IndexManifest, IndexManifestStore
from tests.unit.api.asgi import JSON, Answer, Server
from tests.unit.api.test_inspection import SCHEMA, S, define, details, other_process, seal_now

NOW_MS = 1_900_000_000_000
BUILT = "2030-03-17T17:46:40.000Z"
SIZES: dict[Family, int] = {"kw": 1000, "lex": 200, "fts": 300, "col": 40, "agg": 5}


@pytest.fixture
def server() -> Server:
    return Server()


class Log:
    """A stream of which every segment holds `per_segment` records, one second apart, and its index manifest."""

    def __init__(self, server: Server, segments: int, per_segment: int = 2, *, has_schema: bool = True) -> None:
        self.server = server
        self.per_segment = per_segment
        server("PUT", S, JSON)
        if has_schema:
            define(server, SCHEMA)
        self.records = 0
        for _ in range(segments):
            self.append()
            seal_now(server)
        logs = server.parts.logs()
        head = logs.head("s")
        self.log_id = head.log_id
        self.plan = descriptors.hash_of(logs.definition_of(head))
        self.store = IndexManifestStore(server.stores.objects)
        self.manifest = manifests.empty(self.log_id)

    def append(self) -> None:
        for _ in range(self.per_segment):
            stamp = f"2030-01-01T00:00:{self.records:02d}Z"
            self.server("POST", S, {**JSON, "stream-timestamp": stamp}, b'{"k":"a"}')
            self.records += 1

    def run(self, first: int, end: int, plan: str | None = None, level: int = 0) -> Run:
        return Run(
            id=f"{first}-{end}-{level}-{plan}",
            level=level,
            plan=plan or self.plan,
            first_offset=first,
            end_offset=end,
            min_time_ms=0,
            max_time_ms=0,
            least_timestamp=None,
            greatest_timestamp=None,
            sizes=SIZES,
            descriptor=f"logs/{self.log_id}/index/runs/{first}/run.msgpack.zst",
            sha256="",
            size=7,
            created_ms=NOW_MS,
            objects=dict.fromkeys(SIZES, 2),
        )

    def publish(self, *runs: Run) -> IndexManifest:
        self.manifest = manifests.with_runs(self.manifest, runs, NOW_MS, plan=self.plan)
        assert self.store.publish(self.manifest)
        return self.manifest

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.server("GET", S + "/_index_status").json
        return found


def test_covered_segments_are_counted_from_offsets(server: Server) -> None:
    log = Log(server, segments=5)
    log.publish(log.run(0, 4), log.run(6, 8))  # the third segment is not covered, nor the fifth
    log.append()
    found = log.status
    families = {family["family"]: family for family in found["search_families"]}
    assert set(families) == {"exact", "col", "fts", "agg"}
    for family in families.values():
        assert (family["covered_segment_count"], family["contiguous_covered_segment_count"]) == (3, 2)
        assert (family["lag_segments"], family["lag_ms"]) == (
            2,
            "7000",
        )  # the third begins at 4 s, the newest is at 11 s
        assert (family["stale_segment_count"], family["fully_indexed_uploaded_segments"]) == (0, False)
        assert family["updated_at"] == BUILT
    assert {name: (one["bytes_at_rest"], one["object_count"]) for name, one in families.items()} == {
        "exact": ("2000", 4),
        "col": ("80", 4),
        "fts": ("600", 4),
        "agg": ("10", 4),
    }
    for part in (found["routing_key_index"], found["routing_key_lexicon"], *found["exact_indexes"]):
        assert (part["indexed_segment_count"], part["lag_segments"], part["lag_ms"]) == (3, 2, "7000")
        assert (part["active_run_count"], part["retired_run_count"], part["updated_at"]) == (2, 0, BUILT)
        assert part["fully_indexed_uploaded_segments"] is False
    assert found["routing_key_index"]["bytes_at_rest"] == "400"
    assert [index["stale_configuration"] for index in found["exact_indexes"]] == [False, False]
    assert found["bundled_companions"] == {
        "object_count": 16,
        "bytes_at_rest": "2690",
        "fully_indexed_uploaded_segments": False,
    }


@pytest.mark.parametrize(("objects", "lag"), [(1, (1, "1000", False)), (0, (0, None, True))])
def test_keys_of_records_are_told_of_though_no_schema_has_one(
    server: Server, objects: int, lag: tuple[int, str | None, bool]
) -> None:
    log = Log(server, segments=2, has_schema=False)
    log.publish(replace(log.run(0, 2), sizes={"lex": 200 * objects}, objects={"lex": objects}))
    for name in ("routing_key_index", "routing_key_lexicon"):
        part = log.status[name]
        assert (part["configured"], part["indexed_segment_count"], part["object_count"]) == (False, 1, objects)
        assert (part["lag_segments"], part["lag_ms"], part["fully_indexed_uploaded_segments"]) == lag


def test_everything_is_covered(server: Server) -> None:
    log = Log(server, segments=3)
    log.publish(log.run(0, 6))
    found = log.status
    for part in (found["routing_key_index"], *found["exact_indexes"], *found["search_families"]):
        assert (part["lag_segments"], part["lag_ms"], part["fully_indexed_uploaded_segments"]) == (0, None, True)
    assert found["bundled_companions"]["fully_indexed_uploaded_segments"] is True
    assert not any(index["stale_configuration"] for index in found["exact_indexes"])


def test_a_segment_that_a_run_covers_in_part_is_not_covered(server: Server) -> None:
    log = Log(server, segments=2)
    log.publish(log.run(0, 3))
    (family, *_) = log.status["search_families"]
    assert (family["covered_segment_count"], family["lag_segments"], family["lag_ms"]) == (1, 1, "1000")


def test_two_runs_cover_a_segment_together(server: Server) -> None:
    log = Log(server, segments=2)
    log.publish(log.run(0, 1), log.run(1, 4))
    (family, *_) = log.status["search_families"]
    assert family["covered_segment_count"] == 2


def test_runs_of_an_older_plan_serve_routing_keys_alone(server: Server) -> None:
    log = Log(server, segments=2)
    log.publish(log.run(0, 4))
    search: Any = SCHEMA["search"]
    changed = {"search": {**search, "fields": {"t": search["fields"]["t"]}}}
    define(server, changed)
    found = log.status
    assert found["routing_key_index"]["fully_indexed_uploaded_segments"] is True
    (index,) = found["exact_indexes"]
    assert (index["name"], index["stale_configuration"], index["indexed_segment_count"]) == ("t", True, 0)
    assert (index["active_run_count"], index["bytes_at_rest"], index["updated_at"]) == (0, "1000", None)
    for family in found["search_families"]:
        assert (family["covered_segment_count"], family["stale_segment_count"]) == (0, 2)

    log.plan = descriptors.hash_of(server.parts.logs().definition("s"))
    log.publish(log.run(0, 2))  # a new run for the first segment: the second one is still built as it was configured
    (index,) = log.status["exact_indexes"]
    assert (index["stale_configuration"], index["indexed_segment_count"]) == (True, 1)
    log.publish(log.run(2, 4))
    (index,) = log.status["exact_indexes"]
    assert (index["stale_configuration"], index["active_run_count"], index["retired_run_count"]) == (False, 2, 1)


def test_what_was_never_built_is_not_stale(server: Server) -> None:
    """A run of routing keys alone says nothing of search fields."""
    log = Log(server, segments=2)
    assert not any(index["stale_configuration"] for index in log.status["exact_indexes"])
    log.publish(replace(log.run(0, 4, plan=descriptors.NONE), sizes={"lex": 9}, objects={"lex": 1}))
    found = log.status
    assert found["routing_key_index"]["fully_indexed_uploaded_segments"] is True
    assert not any(index["stale_configuration"] for index in found["exact_indexes"])
    assert {family["stale_segment_count"] for family in found["search_families"]} == {0}
    assert found["bundled_companions"]["object_count"] == 0


def test_replaced_runs_take_room_until_they_are_removed(server: Server) -> None:
    log = Log(server, segments=2)
    log.publish(log.run(0, 2), log.run(2, 4))
    log.publish(log.run(0, 4, level=1))
    (index, *_) = log.status["exact_indexes"]
    assert (index["active_run_count"], index["retired_run_count"], index["bytes_at_rest"]) == (1, 2, "3000")
    retired = [one.run.id for one in log.manifest.retired]
    log.manifest = manifests.without(log.manifest, retired, NOW_MS)
    assert log.store.publish(log.manifest)
    (index, *_) = log.status["exact_indexes"]
    assert (index["active_run_count"], index["retired_run_count"], index["bytes_at_rest"]) == (1, 0, "1000")


def test_details_count_every_byte_of_the_indexes_once(server: Server) -> None:
    log = Log(server, segments=2)
    before = details(server)["storage"]["object_storage"]
    log.publish(log.run(0, 2), log.run(2, 4))
    log.publish(log.run(0, 4, level=1))
    found = details(server)
    stored = found["storage"]["object_storage"]
    key = max(server.stores.objects.list(f"logs/{log.log_id}/index/manifests/"))
    indexes = 3 * (sum(SIZES.values()) + 7) + len(server.stores.objects.get(key))
    assert stored["indexes_bytes"] == str(indexes)
    assert int(stored["total_bytes"]) == int(before["total_bytes"]) + indexes
    counts = {name: value for name, value in stored.items() if name.endswith("_count")}
    assert counts == {
        "segment_object_count": 2,
        "routing_index_object_count": 6,
        "routing_lexicon_object_count": 6,
        "exact_index_object_count": 6,
        "bundled_companion_object_count": 24,
    }
    assert found["storage"]["companion_families"] == {
        "exact_bytes": "3000",
        "col_bytes": "120",
        "fts_bytes": "900",
        "agg_bytes": "15",
        "mblk_bytes": "0",
    }
    assert found["index_status"] == log.status


def test_coverage_goes_on_past_sealed_manifest_pages(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.manifest.manifest.PAGE_SEGMENTS", 2)
    log = Log(server, segments=7)
    ranges = {(0, 14): (7, 7), (0, 8): (4, 4), (2, 12): (5, 0), (0, 6): (3, 3), (4, 5): (0, 0)}
    for (first, end), expected in ranges.items():
        run = replace(log.run(first, end), id=f"{first}-{end}")
        manifest = replace(log.manifest, generation=log.manifest.generation + 1, runs=(run,))
        assert log.store.publish(manifest)
        log.manifest = manifest
        for process in (server, other_process(server)):
            (family, *_) = process("GET", S + "/_index_status").json["search_families"]
            assert (family["covered_segment_count"], family["contiguous_covered_segment_count"]) == expected, (
                first,
                end,
            )


def test_a_stream_without_runs_costs_no_read_of_segments(server: Server) -> None:
    Log(server, segments=2)
    counts: list[str] = []
    objects = server.stores.objects
    fresh = other_process(server)
    original = type(objects).get

    def get(self: Any, key: str) -> bytes:
        counts.append(key)
        return original(self, key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(objects), "get", get)
        fresh("GET", S + "/_index_status")
    assert not [key for key in counts if "/segments/" in key]
    assert len([key for key in counts if "/manifests/" in key and "/index/" not in key]) == 1


# Tags, and waiting.


@pytest.mark.parametrize("resource", ["/_details", "/_index_status"])
def test_a_new_run_changes_the_tag_on_every_process(server: Server, resource: str) -> None:
    log = Log(server, segments=2)
    other = other_process(server)
    tags = {process("GET", S + resource).headers["etag"] for process in (server, other)}
    log.publish(log.run(0, 2))
    after = {process("GET", S + resource).headers["etag"] for process in (server, other)}
    assert len(tags) == len(after) == 1
    assert tags != after


@pytest.mark.parametrize("resource", ["/_details", "/_index_status"])
def test_a_wait_ends_when_a_run_is_published(server: Server, resource: str) -> None:
    log = Log(server, segments=2)
    tag = server("GET", S + resource).headers["etag"]

    async def wait() -> tuple[Answer, float]:
        waiting = asyncio.ensure_future(server.ask("GET", f"{S}{resource}?live=true", {"if-none-match": tag}))
        await asyncio.sleep(0.15)
        assert not waiting.done()
        await asyncio.to_thread(log.publish, log.run(0, 4))
        began = time.monotonic()
        return await waiting, time.monotonic() - began

    answer, took_s = asyncio.run(wait())
    assert (answer.status, took_s < 1.5) == (200, True)
    assert answer.headers["etag"] != tag


def test_a_wait_looks_at_the_index_now_and_then(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with each look at the stream: a GET is not free."""
    log = Log(server, segments=1)
    inspector = assemble(server.stores, server.parts.access).inspector()
    asked: list[str] = []
    monkeypatch.setattr(IndexManifestStore, "load", lambda self, log_id, number: asked.append(log_id))
    monkeypatch.setattr(inspectors, "AGE_S", 3600)
    for _ in range(3):
        inspector.version("s")
    assert asked == [log.log_id]
    monkeypatch.setattr(inspectors, "AGE_S", 0)
    inspector.version("s")
    assert len(asked) == 2


def test_documents_are_json(server: Server) -> None:
    log = Log(server, segments=1)
    log.publish(log.run(0, 2))
    assert json.loads(server("GET", S + "/_details").body) == details(server)
