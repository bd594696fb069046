"""`_details`: everything about one stream, conditional, and a wait for its changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from tests.conformance.contract.client import JSON, Api, Stream, eventually, expect, refused
from tests.conformance.contract.shop import SCHEMA, SEARCH
from tests.conformance.contract.test_long_poll import soon

pytestmark = pytest.mark.sensitive("only some servers seal, and entity tags must not depend on the process")

SUMMARY = {
    *(
        "name",
        "content_type",
        "profile",
        "created_at",
        "updated_at",
        "expires_at",
        "ttl_seconds",
        "stream_seq",
        "closed",
    ),
    *("epoch", "next_offset", "sealed_through", "uploaded_through", "segment_count", "uploaded_segment_count"),
    *("pending_rows", "pending_bytes", "total_size_bytes", "wal_rows", "wal_bytes", "last_append_at"),
    "last_segment_cut_at",
}
OBJECT_STORAGE = {
    *("total_bytes", "segments_bytes", "indexes_bytes", "manifest_and_meta_bytes", "manifest_bytes"),
    *("schema_registry_bytes", "segment_object_count", "routing_index_object_count", "routing_lexicon_object_count"),
    *("exact_index_object_count", "bundled_companion_object_count"),
}
LOCAL_STORAGE = {
    *(
        "total_bytes",
        "wal_retained_bytes",
        "pending_tail_bytes",
        "pending_sealed_segment_bytes",
        "segment_cache_bytes",
    ),
    *("routing_index_cache_bytes", "exact_index_cache_bytes", "lexicon_index_cache_bytes", "companion_cache_bytes"),
    "sqlite_shared_total_bytes",
}
REQUESTS = {"puts", "reads", "gets", "heads", "lists", "deletes"}
ARTIFACTS = {
    *("manifest", "schema_registry", "segment", "bundled_companion"),
    *("routing_index", "routing_key_lexicon", "exact_index"),
}


def details(stream: Stream) -> dict[str, Any]:
    found: dict[str, Any] = expect(stream.details(), 200).json()
    return found


def test_it_has_every_part(stream: Stream) -> None:
    assert {"stream", "profile", "schema", "index_status", "storage", "object_store_requests"} <= set(details(stream))


def test_its_parts_are_those_of_their_own_routes(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA, search=SEARCH)
    stream.quiet(stream.details)
    found = details(stream)
    assert found["profile"] == stream.profile().json()
    assert found["schema"] == stream.registry().json()
    ours, theirs = found["index_status"], stream.index_status().json()
    assert set(ours) == set(theirs)
    for part in ("stream", "profile", "segments", "manifest"):
        assert ours[part] == theirs[part]


def test_the_summary_is_whole(stream: Stream) -> None:
    summary = details(stream)["stream"]
    assert set(summary) >= SUMMARY
    assert summary["name"] == stream.name
    assert summary["content_type"] == "application/json"
    assert summary["profile"] == "generic"
    assert summary["closed"] in (False, 0)
    assert summary["expires_at"] is None
    assert summary["ttl_seconds"] is None
    assert isinstance(summary["epoch"], int)
    assert (summary["next_offset"], summary["sealed_through"], summary["uploaded_through"]) == ("0", "-1", "-1")
    assert datetime.fromisoformat(summary["created_at"]).tzinfo is not None


def test_the_summary_follows_the_head(stream: Stream) -> None:
    expect(stream.append([1, 22, 333], {"Stream-Seq": "s1"}), 204)
    summary = details(stream)["stream"]
    assert summary["next_offset"] == "3"
    assert summary["total_size_bytes"] == "6"
    assert summary["stream_seq"] == "s1"
    assert datetime.fromisoformat(summary["last_append_at"]).tzinfo is not None
    expect(stream.at("POST", "", {"Stream-Closed": "true"}), 204)
    assert details(stream)["stream"]["closed"] in (True, 1)


def test_the_summary_shows_the_end_of_life(api: Api) -> None:
    stream = api.unused()
    expect(stream.put({**JSON, "Stream-TTL": "1h"}), 201)
    summary = details(stream)["stream"]
    assert summary["ttl_seconds"] in (3600, "3600")
    assert datetime.fromisoformat(summary["expires_at"]) > datetime.fromisoformat(summary["created_at"])


def test_the_summary_shows_what_is_sealed(api: Api) -> None:
    stream = api.stream()
    expect(stream.append(["x"] * 25), 204)
    stream.settle()
    summary = details(stream)["stream"]
    sealed, uploaded = int(summary["sealed_through"]), int(summary["uploaded_through"])
    if api.seals:
        assert sealed == uploaded == 24
        assert summary["segment_count"] == summary["uploaded_segment_count"] == 1
        assert int(summary["pending_rows"]) == 0
        assert datetime.fromisoformat(summary["last_segment_cut_at"]).tzinfo is not None
    else:
        assert sealed == uploaded == -1
        assert summary["segment_count"] == 0
        assert int(summary["pending_rows"]) == 25
        assert int(summary["wal_rows"]) == 25
        assert int(summary["pending_bytes"]) == 75


def test_storage_says_what_is_kept_where(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA, search=SEARCH)
    expect(stream.append([{"id": "r0"}] * 25), 204)
    stream.settle()
    storage = details(stream)["storage"]
    assert set(storage["object_storage"]) >= OBJECT_STORAGE
    assert set(storage["local_storage"]) >= LOCAL_STORAGE
    assert set(storage["companion_families"]) >= {f"{family}_bytes" for family in ("col", "fts", "agg", "mblk")}
    sizes = [value for part in storage.values() for name, value in part.items() if name.endswith("bytes")]
    assert all(isinstance(size, str) and size.isdigit() for size in sizes)
    kept = storage["object_storage"]
    assert int(kept["total_bytes"]) >= int(kept["segments_bytes"]) + int(kept["manifest_and_meta_bytes"])
    if api.seals:
        assert kept["segment_object_count"] == 1
        assert int(kept["segments_bytes"]) > 0
        assert int(kept["manifest_bytes"]) > 0
    else:
        assert kept["segment_object_count"] == 0
        assert int(storage["local_storage"]["wal_retained_bytes"]) > 0


def test_requests_to_the_object_store_are_counted_by_artifact(api: Api) -> None:
    stream = api.stream()
    expect(stream.append(["x"] * 25), 204)
    stream.settle()
    if api.seals:
        eventually(lambda: int(details(stream)["object_store_requests"]["puts"]), lambda puts: puts >= 2)
    requests = details(stream)["object_store_requests"]
    assert set(requests) >= REQUESTS | {"by_artifact"}
    assert all(requests[name].isdigit() for name in REQUESTS)
    artifacts = {entry["artifact"]: entry for entry in requests["by_artifact"]}
    assert set(artifacts) & ARTIFACTS
    assert sum(int(entry["puts"]) for entry in artifacts.values()) == int(requests["puts"])
    if api.seals:
        assert int(artifacts["segment"]["puts"]) >= 1
        assert int(artifacts["manifest"]["puts"]) >= 1


def test_it_can_only_be_read(stream: Stream) -> None:
    for method in ("POST", "PUT", "DELETE"):
        refused(stream.at(method, "/_details", JSON, b"{}"), 405)


def test_an_unknown_stream_is_404(api: Api) -> None:
    refused(api.unused().details(), 404)


def test_an_answer_has_an_entity_tag_and_is_not_stored(stream: Stream) -> None:
    answer = expect(stream.details(), 200)
    assert answer.headers["etag"].startswith('W/"')
    assert "no-store" in answer.headers["cache-control"]


def test_it_is_conditional(stream: Stream) -> None:
    tag = stream.quiet(stream.details)
    answer = expect(stream.details({"If-None-Match": tag}), 304)
    assert answer.content == b""
    assert answer.headers["etag"] == tag
    expect(stream.append([1]), 204)
    again = expect(stream.details({"If-None-Match": tag}), 200)
    assert again.headers["etag"] != tag


CHANGES: dict[str, Callable[[Stream], object]] = {
    "append": lambda stream: stream.append([{"id": "r"}]),
    "schema": lambda stream: stream.define(search=SEARCH),
    "profile": lambda stream: stream.set_profile("state-protocol"),
    "close": lambda stream: stream.at("POST", "", {"Stream-Closed": "true"}),
}


@pytest.mark.parametrize(("change", "live"), list(zip(CHANGES, ["true", "long-poll"] * 2, strict=True)))
def test_a_wait_ends_with_a_visible_change(api: Api, change: str, live: str) -> None:
    stream = api.with_schema(schema=SCHEMA)
    tag = stream.quiet(stream.details)
    began = time.monotonic()
    with soon(CHANGES[change], stream):
        answer = expect(stream.details({"If-None-Match": tag}, live=live, timeout="4s"), 200)
    assert time.monotonic() - began < 3
    assert answer.headers["etag"] != tag


def test_a_wait_ends_with_progress_of_segments(api: Api) -> None:
    stream = api.stream()
    stream.quiet(stream.details)
    expect(stream.append(["x"] * 25), 204)
    tag = expect(stream.details(), 200).headers["etag"]
    if not api.seals:
        expect(stream.details({"If-None-Match": tag}, live="true", timeout="200ms"), 304)
        return

    def sealed() -> int:
        nonlocal tag
        answer = stream.details({"If-None-Match": tag}, live="true", timeout="2s")
        if answer.status_code == 304:
            return 0
        tag = answer.headers["etag"]
        return int(answer.json()["stream"]["segment_count"])

    assert int(details(stream)["stream"]["segment_count"]) or eventually(sealed, lambda count: count > 0)


@pytest.mark.parametrize("timeout", [{"timeout": "300ms"}, {"timeout_ms": "300"}])
def test_a_wait_without_a_change_ends_at_its_timeout(stream: Stream, timeout: dict[str, str]) -> None:
    tag = stream.quiet(stream.details)
    began = time.monotonic()
    answer = expect(stream.details({"If-None-Match": tag}, live="true", **timeout), 304)
    assert 0.25 < time.monotonic() - began < 2
    assert answer.headers["etag"] == tag


def test_a_wait_for_another_tag_is_answered_at_once(stream: Stream) -> None:
    began = time.monotonic()
    expect(stream.details({"If-None-Match": 'W/"other"'}, live="true", timeout="4s"), 200)
    expect(stream.details(live="true", timeout="4s"), 200)
    assert time.monotonic() - began < 2


def test_a_malformed_wait_is_refused(stream: Stream) -> None:
    refused(stream.details(live="maybe"), 400)
    refused(stream.details(live="true", timeout="soon"), 400)


def test_a_wait_ends_when_the_stream_is_deleted(stream: Stream) -> None:
    tag = stream.quiet(stream.details)
    with soon(stream.delete):
        refused(stream.details({"If-None-Match": tag}, live="true", timeout="4s"), 404)
