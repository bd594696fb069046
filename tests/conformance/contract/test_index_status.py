"""`_index_status`: how far segments, manifest and indexes of a stream are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.contract.client import JSON, Api, Stream, eventually, expect, refused
from tests.conformance.contract.shop import SCHEMA, SEARCH

pytestmark = pytest.mark.sensitive("only some servers seal, and entity tags must not depend on the process")

LAG = {"lag_segments", "lag_ms"}
INDEX = {
    "configured",
    "indexed_segment_count",
    *LAG,
    "bytes_at_rest",
    "object_count",
    "active_run_count",
    "retired_run_count",
    "fully_indexed_uploaded_segments",
    "updated_at",
}
EXACT = (INDEX - {"configured"}) | {"name", "kind", "stale_configuration"}
FAMILY = {
    "family",
    "fields",
    "plan_generation",
    "covered_segment_count",
    "contiguous_covered_segment_count",
    *LAG,
    "bytes_at_rest",
    "object_count",
    "stale_segment_count",
    "fully_indexed_uploaded_segments",
    "updated_at",
}
MANIFEST = {
    "generation",
    "uploaded_generation",
    "last_uploaded_at",
    "last_uploaded_etag",
    "last_uploaded_size_bytes",
}


def status(stream: Stream) -> dict[str, Any]:
    found: dict[str, Any] = expect(stream.index_status(), 200).json()
    return found


@pytest.fixture
def searched(api: Api) -> Stream:
    return api.with_schema(schema=SCHEMA, search=SEARCH, routingKey={"jsonPointer": "/id", "required": False})


def test_it_has_every_part(searched: Stream) -> None:
    found = status(searched)
    parts = "stream profile segments manifest routing_key_index routing_key_lexicon exact_indexes bundled_companions "
    assert {*parts.split(), "search_families"} <= set(found)
    assert found["stream"] == searched.name
    assert found["profile"] == "generic"
    assert set(found["segments"]) >= {"total_count", "uploaded_count"}
    assert set(found["manifest"]) >= MANIFEST
    assert set(found["routing_key_index"]) >= INDEX
    assert set(found["routing_key_lexicon"]) >= INDEX
    assert set(found["bundled_companions"]) >= {"object_count", "bytes_at_rest", "fully_indexed_uploaded_segments"}


def test_it_covers_every_configured_field(searched: Stream) -> None:
    found = status(searched)
    exact = {name for name, field in SEARCH["fields"].items() if field.get("exact")}
    assert {entry["name"] for entry in found["exact_indexes"]} == exact
    for entry in found["exact_indexes"]:
        assert set(entry) >= EXACT
        assert entry["kind"] == SEARCH["fields"][entry["name"]]["kind"]
        assert entry["stale_configuration"] in (True, False)
    families = {entry["family"]: entry for entry in found["search_families"]}
    assert {"col", "fts"} <= set(families)
    for entry in families.values():
        assert set(entry) >= FAMILY
        assert entry["contiguous_covered_segment_count"] <= entry["covered_segment_count"]
    assert set(families["col"]["fields"]) == {name for name, field in SEARCH["fields"].items() if field.get("column")}


def test_numbers_of_bytes_are_texts(searched: Stream) -> None:
    found = status(searched)
    parts = [found["routing_key_index"], found["routing_key_lexicon"], found["bundled_companions"]]
    for part in (*parts, *found["exact_indexes"], *found["search_families"]):
        assert part["bytes_at_rest"].isdigit(), part
    for part in (*parts[:2], *found["exact_indexes"], *found["search_families"]):
        assert isinstance(part["lag_segments"], int), part
        assert part["lag_ms"] is None or part["lag_ms"].isdigit(), part


def test_a_stream_without_configuration_has_no_indexes(stream: Stream) -> None:
    found = status(stream)
    assert found["routing_key_index"]["configured"] is False
    assert found["routing_key_lexicon"]["configured"] is False
    assert found["exact_indexes"] == []
    assert found["search_families"] == []


def test_a_routing_key_is_configured_when_the_schema_has_one(searched: Stream) -> None:
    assert status(searched)["routing_key_index"]["configured"] is True
    assert status(searched)["routing_key_lexicon"]["configured"] is True


def test_an_empty_stream_has_no_segments(stream: Stream) -> None:
    found = status(stream)
    assert found["segments"] == {**found["segments"], "total_count": 0, "uploaded_count": 0}


def test_it_shows_segments_and_manifest_as_they_are_written(api: Api) -> None:
    stream = api.stream()
    expect(stream.append(list(range(25))), 204)
    if not api.seals:
        found = status(stream)
        assert found["segments"]["uploaded_count"] == 0
        return
    found = eventually(lambda: status(stream), lambda found: found["segments"]["uploaded_count"] > 0)
    assert found["segments"]["total_count"] >= found["segments"]["uploaded_count"] == 1
    manifest = found["manifest"]
    assert manifest["generation"] >= manifest["uploaded_generation"] >= 1
    assert int(manifest["last_uploaded_size_bytes"]) > 0
    assert manifest["last_uploaded_at"]
    assert manifest["last_uploaded_etag"]


def test_a_changed_field_is_stale_until_it_is_built_again(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA, search=SEARCH)
    expect(stream.append([{"id": f"r{n}", "code": "a"} for n in range(25)]), 204)
    stream.settle()
    code = {**SEARCH["fields"]["code"], "normalizer": "lowercase_v1"}
    changed = {**SEARCH, "fields": {**SEARCH["fields"], "code": code}}
    expect(stream.define(search=changed), 200)
    entries = {entry["name"]: entry for entry in status(stream)["exact_indexes"]}
    assert isinstance(entries["code"]["stale_configuration"], bool)
    if entries["code"]["indexed_segment_count"] == 0:
        return  # nothing was built with the old configuration, or nothing is built yet
    assert entries["code"]["stale_configuration"] is True


def test_it_can_only_be_read(stream: Stream) -> None:
    for method in ("POST", "PUT", "DELETE"):
        refused(stream.at(method, "/_index_status", JSON, b"{}"), 405)


def test_an_unknown_stream_is_404(api: Api) -> None:
    refused(api.unused().index_status(), 404)


def test_it_is_conditional(stream: Stream) -> None:
    tag = stream.quiet(stream.index_status)
    answer = expect(stream.index_status({"If-None-Match": tag}), 304)
    assert answer.content == b""
    assert answer.headers["etag"] == tag
    expect(stream.index_status({"If-None-Match": 'W/"other"'}), 200)


def test_a_wait_for_a_change_of_it_ends_with_the_change(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA)
    tag = stream.quiet(stream.index_status)
    expect(stream.define(search=SEARCH), 200)
    answer = expect(stream.index_status({"If-None-Match": tag}, live="long-poll", timeout="4s"), 200)
    assert answer.json()["exact_indexes"]
    assert answer.headers["etag"] != tag


def test_a_wait_without_a_change_answers_304(stream: Stream) -> None:
    tag = stream.quiet(stream.index_status)
    expect(stream.index_status({"If-None-Match": tag}, live="true", timeout="100ms"), 304)
