"""`_routing_keys`: what it takes and what it answers. Pages of every stage are in `test_routing_keys_oracle.py`."""

from __future__ import annotations

import pytest

from tests.conformance.contract.client import JSON, Api, Stream, expect, refused
from tests.conformance.contract.shop import SCHEMA

COVERAGE = {
    "complete",
    "indexed_segments",
    "scanned_uploaded_segments",
    "scanned_local_segments",
    "scanned_wal_rows",
    "possible_missing_uploaded_segments",
    "possible_missing_local_segments",
}
TIMING = {
    "lexicon_run_get_ms",
    "lexicon_decode_ms",
    "lexicon_enumerate_ms",
    "lexicon_merge_ms",
    "fallback_scan_ms",
    "fallback_segment_get_ms",
    "fallback_wal_scan_ms",
    "lexicon_runs_loaded",
}
KEYS = ["b", "B", "a", "A", "é", "ü", "_", "-", "a b", "ключ", "日本", "a\U0001f30a", "ａ", "ab"]
ROUTING_KEY = {"jsonPointer": "/k", "required": False}


@pytest.fixture(scope="session")
def keyed(api: Api) -> Stream:
    """Returns a stream that has each key several times, in segments and in the tail, between records without one."""
    stream = api.with_schema(schema=SCHEMA, routingKey=ROUTING_KEY)
    expect(stream.append([{"k": key} for key in KEYS[:9]] + [{}] * 20), 204)
    stream.settle()
    expect(stream.append([{"k": key} for key in KEYS[5:]]), 204)
    return stream


def test_the_answer_has_every_part(keyed: Stream) -> None:
    found = expect(keyed.routing_keys(), 200).json()
    assert set(found) >= {"stream", "source", "took_ms", "coverage", "timing", "keys", "next_after"}
    assert found["stream"] == keyed.name
    assert found["source"] == {"kind": "routing_key", "name": ""}
    assert isinstance(found["took_ms"], int)
    assert set(found["coverage"]) >= COVERAGE
    assert set(found["timing"]) >= TIMING
    assert all(isinstance(number, int) for number in found["timing"].values())


def test_keys_are_distinct_and_in_the_order_of_their_bytes(keyed: Stream) -> None:
    found = expect(keyed.routing_keys(), 200).json()
    assert found["keys"] == sorted(KEYS, key=str.encode)
    assert found["coverage"]["complete"] is True
    assert found["next_after"] is None


def test_after_is_exclusive(keyed: Stream) -> None:
    assert expect(keyed.routing_keys(after="a"), 200).json()["keys"][0] == "a b"
    assert expect(keyed.routing_keys(after="aa"), 200).json()["keys"][0] == "ab"
    found = expect(keyed.routing_keys(after="\U0010ffff"), 200).json()
    assert (found["keys"], found["next_after"]) == ([], None)


@pytest.mark.sensitive("another process may answer the next page")
def test_next_after_leads_to_the_next_page(keyed: Stream) -> None:
    found, after = [], None
    for _ in range(len(KEYS)):
        page = expect(keyed.routing_keys(limit="3", **({} if after is None else {"after": after})), 200).json()
        found += page["keys"]
        after = page["next_after"]
        if after is None:
            break
        assert after == page["keys"][-1]
        assert len(page["keys"]) == 3
    assert found == sorted(KEYS, key=str.encode)


def test_a_page_has_100_keys_unless_asked_otherwise_and_500_at_most(roomy: Api) -> None:
    stream = roomy.with_schema(schema=SCHEMA, routingKey=ROUTING_KEY)
    expect(stream.append([{"k": f"k{n:04d}"} for n in range(600)]), 204)
    first = expect(stream.routing_keys(), 200).json()
    assert first["keys"] == [f"k{n:04d}" for n in range(100)]
    assert first["next_after"] == "k0099"
    assert len(expect(stream.routing_keys(limit="500"), 200).json()["keys"]) == 500
    rest = expect(stream.routing_keys(limit="500", after="k0499"), 200).json()
    assert (len(rest["keys"]), rest["next_after"]) == (100, None)


@pytest.mark.parametrize("limit", ["0", "-1", "501", "1.5", "many", ""])
def test_a_limit_outside_of_1_to_500_is_refused(keyed: Stream, limit: str) -> None:
    refused(keyed.routing_keys(limit=limit), 400)


def test_it_needs_a_routing_key_in_the_schema(api: Api, stream: Stream, text: Stream) -> None:
    refused(stream.routing_keys(), 400)
    refused(text.routing_keys(), 400)
    refused(api.with_schema(schema=SCHEMA).routing_keys(), 400)
    refused(api.unused().routing_keys(), 404)
    evlog = api.stream()
    expect(evlog.set_profile("evlog"), 200)
    refused(evlog.routing_keys(), 400)


@pytest.mark.sensitive("the tail is in memory, in another process or only in the store")
def test_a_key_is_listed_at_once(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA, routingKey=ROUTING_KEY)
    assert expect(stream.routing_keys(), 200).json()["keys"] == []
    expect(stream.append([{"k": "b"}]), 204)
    assert expect(stream.routing_keys(), 200).json()["keys"] == ["b"]
    expect(stream.append([{"k": "a"}, {"k": "b"}]), 204)
    found = expect(stream.routing_keys(), 200).json()
    assert found["keys"] == ["a", "b"]
    assert found["coverage"]["complete"] is True


def test_keys_from_before_the_routing_key_changed_are_listed(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA, routingKey=ROUTING_KEY)
    expect(stream.append([{"k": "old", "other": "no"}]), 204)
    expect(stream.define(routingKey={"jsonPointer": "/other", "required": False}), 200)
    expect(stream.append([{"k": "no", "other": "new"}]), 204)
    assert expect(stream.routing_keys(), 200).json()["keys"] == ["new", "old"]


def test_it_can_only_be_read(keyed: Stream) -> None:
    for method in ("POST", "PUT", "DELETE"):
        refused(keyed.at(method, "/_routing_keys", JSON, b"{}"), 405)
