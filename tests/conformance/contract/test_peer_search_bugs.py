"""Faults of search and of the listing of keys that were found in another server of this contract, and must not be here.

They show when records are in segments that are indexed: so these laws wait for that, here and there. As in
`test_peer_bugs.py`, they ask for no more than the law they state, and preparation is no verdict.

One fault that was found is none by the contract: a record without the field of a summary counts for nothing in its rollup,
not even for a count.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.contract.client import Api, SetupFailed, Stream, eventually, given, shown
from tests.conformance.contract.shop import field
from tests.conformance.contract.stages import JOB_S, SEGMENT

BEGINNINGS = ("ab", "Ab", "aB", "AB", "a-b", "a_b", "àb", "B", "b")
KEYS = [f"{begin}{number}" for begin in BEGINNINGS for number in range(7)]
AT = field("date", "/at", "column", "exists")
OBJECT = {"type": "object"}
SEARCH = {
    "primaryTimestampField": "at",
    "fields": {
        "at": AT,
        "name": field("keyword", "/name", "exact", "prefix", "exists"),
        "exact": field("keyword", "/exact", "exact"),
        "number": field("integer", "/number", "column", "exists"),
    },
}
NULLS, VALUES = [f"null{n}" for n in range(5)], [f"value{n}" for n in range(5)]
WITH_NULL: list[dict[str, Any]] = [
    *({"name": name, "exact": None, "number": None, "key": "null"} for name in NULLS),
    *({"name": name, "exact": "x", "number": 1, "key": "value"} for name in VALUES),
]


def only(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


def indexed(stream: Stream) -> Stream:
    """Waits until every sealed segment is covered by every index."""

    def is_indexed(found: dict[str, Any]) -> bool:
        segments = found["segments"]["uploaded_count"]
        covered = [family["covered_segment_count"] for family in found["search_families"]]
        keys = found["routing_key_lexicon"]
        if keys["configured"]:
            covered.append(keys["indexed_segment_count"])
        return segments >= 2 and set(covered) == {segments}

    try:
        eventually(lambda: given(stream.index_status()).json(), is_indexed, within_s=JOB_S)
    except AssertionError as exc:
        raise SetupFailed(str(exc)[:1000]) from exc
    return stream


@pytest.fixture(scope="session")
def plain(roomy: Api) -> Stream:
    """Records with names and keys of mixed case, a thousand terms with one beginning, and null."""
    stream = roomy.with_schema(schema=OBJECT, search=SEARCH, routingKey={"jsonPointer": "/key", "required": False})
    records: list[dict[str, Any]] = [{"name": f"{key}.{n}", "key": key} for n in range(3) for key in KEYS]
    records += WITH_NULL
    records += [{"name": f"term{n:05d}", "key": "term"} for n in range(2 * SEGMENT - len(records))]
    for first in range(0, 2 * SEGMENT, SEGMENT // 2):
        given(stream.append(records[first : first + SEGMENT // 2]))
    return indexed(stream)


@pytest.fixture(scope="session")
def renamed(roomy: Api) -> Stream:
    """Records from before and after a lens that renames a searched field."""
    bindings = [{"version": 1, "jsonPointer": "/old"}, {"version": 2, "jsonPointer": "/new"}]
    name = {**field("keyword", "/old", "exact", "prefix"), "bindings": bindings}
    search = {"primaryTimestampField": "at", "fields": {"at": AT, "name": name}}
    stream = roomy.with_schema(schema=only("old"), search=search)
    given(stream.append([{"old": f"v{n % (SEGMENT // 4)}"} for n in range(SEGMENT)]))
    ops = [{"op": "rename", "from": "/old", "to": "/new"}]
    lens = {"apiVersion": "durable.lens/v1", "schema": stream.name, "from": 1, "to": 2, "ops": ops}
    given(stream.define(schema=only("new"), lens=lens))
    given(stream.append([{"new": f"v{n % (SEGMENT // 4)}"} for n in range(SEGMENT)]))
    return indexed(stream)


def names(stream: Stream, q: str, member: str = "name") -> list[str]:
    """Returns `member` of each record that a search finds (at most 500), sorted."""
    answer = stream.search(q=q, size=500)
    assert answer.status_code == 200, shown(answer)
    return sorted(hit["source"][member] for hit in answer.json()["hits"])


@pytest.mark.parametrize("begin", BEGINNINGS)
def test_a_prefix_finds_every_case_and_no_other(plain: Stream, begin: str) -> None:
    expected = sorted(f"{key}.{n}" for n in range(3) for key in KEYS if key.startswith(begin))
    assert names(plain, f'name:"{begin}*"') == expected


def test_a_prefix_may_match_more_than_a_thousand_terms(plain: Stream) -> None:
    assert len(names(plain, "name:term*")) == 500


def test_a_search_finds_records_from_before_a_rename(renamed: Stream) -> None:
    assert names(renamed, "name:v7", "new") == ["v7"] * 8


@pytest.mark.parametrize("name", ["exact", "number"])
def test_a_search_for_has_does_not_find_null_in_an_index(plain: Stream, name: str) -> None:
    assert names(plain, f"has:{name}") == VALUES
    some = " OR ".join(f"name:{value}" for value in NULLS + VALUES)
    assert names(plain, f"NOT has:{name} AND ({some})") == NULLS


@pytest.mark.parametrize("name", ["exact", "number"])
def test_a_search_for_has_does_not_find_null_in_the_tail(roomy: Api, name: str) -> None:
    stream = roomy.with_schema(schema=OBJECT, search=SEARCH)
    given(stream.append(WITH_NULL))
    eventually(lambda: given(stream.search(q="has:name")).json()["coverage"]["complete"], bool)
    assert names(stream, f"has:{name}") == VALUES
    assert names(stream, f"NOT has:{name}") == NULLS


@pytest.mark.parametrize("limit", [10, 100])
def test_every_routing_key_is_listed(plain: Stream, limit: int) -> None:
    found: list[str] = []
    page: dict[str, Any] = {"next_after": ""}
    for _ in range(20):
        after = {"after": page["next_after"]} if page["next_after"] else {}
        page = given(plain.routing_keys(limit=str(limit), **after)).json()
        found += page["keys"]
        if page["next_after"] is None:
            break
    assert sorted(found) == sorted([*KEYS, "null", "term", "value"])
