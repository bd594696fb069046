"""Faults that were found in another server of this contract (@prisma/streams-server 0.1.11) and must not be here.

`python -m tests.conformance.contract.peer` runs these laws on that server and records that it breaks them. So they ask for
no more than the law they state, and what they need beforehand counts as preparation (`given`), not as a verdict.
Those of search and of the listing of routing keys are in `test_peer_search_bugs.py`.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.conformance.contract.client import Api, Stream, given, shown
from tests.conformance.contract.shop import field

AT = field("date", "/at", "column", "exists")
OBJECT = {"type": "object"}


def searched(api: Api, name: str, configured: dict[str, Any], schema: Any = None) -> Stream:
    """Returns a stream with one search field beside the timestamp."""
    search = {"primaryTimestampField": "at", "fields": {"at": AT, name: configured}}
    return api.with_schema(schema=OBJECT if schema is None else schema, search=search)


def only(name: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": "string"}},
        "required": [name],
        "additionalProperties": False,
    }


@pytest.mark.sensitive("records are in the tail or in segments")
def test_a_filter_finds_records_from_before_a_rename(api: Api) -> None:
    bindings = [{"version": 1, "jsonPointer": "/old"}, {"version": 2, "jsonPointer": "/new"}]
    stream = searched(api, "f", {**field("keyword", "/old", "exact"), "bindings": bindings}, only("old"))
    given(stream.append([{"old": "x"}, {"old": "y"}]))
    ops = [{"op": "rename", "from": "/old", "to": "/new"}]
    lens = {"apiVersion": "durable.lens/v1", "schema": stream.name, "from": 1, "to": 2, "ops": ops}
    given(stream.define(schema=only("new"), lens=lens))
    given(stream.append([{"new": "x"}]))
    assert given(stream.read(filter="f:x", format="json", offset="-1")).json() == [{"new": "x"}, {"new": "x"}]


def test_has_finds_a_text_field(api: Api) -> None:
    stream = searched(api, "note", field("text", "/note", "exists", analyzer="unicode_word_v1"))
    given(stream.append([{"note": "some words"}, {"other": 1}]))
    answer = given(stream.read(filter="has:note", format="json", offset="-1"))
    assert answer.json() == [{"note": "some words"}]


def test_has_does_not_find_null(api: Api) -> None:
    stream = searched(api, "f", field("keyword", "/f", "exact", "exists"))
    given(stream.append([{"f": None, "n": 1}, {"f": "x", "n": 2}, {"n": 3}]))
    assert [record["n"] for record in given(stream.read(filter="has:f", format="json")).json()] == [2]
    assert [record["n"] for record in given(stream.read(filter="NOT has:f", format="json")).json()] == [1, 3]


@pytest.mark.parametrize("key", ["ключ", "日本", "a\U0001f30a"])
def test_a_key_may_be_any_text(api: Api, key: str) -> None:
    stream = api.with_schema(schema=OBJECT, routingKey={"jsonPointer": "/k", "required": True})
    given(stream.append([{"k": key}, {"k": "other"}]))
    for answer in (stream.read(key=key, format="json"), api.get(f"{stream.path}/pk/{quote(key)}", format="json")):
        assert answer.status_code == 200, shown(answer)
        assert answer.json() == [{"k": key}]


@pytest.mark.sensitive("entity tags must not depend on the process")
def test_the_tag_of_details_is_that_of_the_stream_alone(api: Api) -> None:
    stream, other = api.stream(), api.stream()

    def statuses_while_another_stream_works() -> set[int]:
        tag, seen = stream.quiet(stream.details), set()
        for _ in range(20):
            given(other.append([{"text": "x" * 50_000}]))
            seen.add(stream.details({"If-None-Match": tag}).status_code)
        return seen

    # The stream's own segments may still be on their way in the first rounds.
    assert any(statuses_while_another_stream_works() == {304} for _ in range(4)), "the tag never stood still"


@pytest.mark.sensitive("the end is in memory, in another process or only in the store")
def test_a_page_at_the_tail_is_not_kept_for_ever(api: Api) -> None:
    stream = api.stream()
    given(stream.append([1]))
    first = given(stream.read(offset="-1", format="json"))
    assert "immutable" not in first.headers["cache-control"]
    given(stream.append([2]))
    again = given(stream.read(offset="-1", format="json"))
    assert again.headers["etag"] != first.headers["etag"]


@pytest.mark.sensitive("a process may remember the earlier life")
def test_a_cursor_of_a_deleted_stream_is_not_accepted_by_its_successor(api: Api) -> None:
    stream = api.stream()
    old = given(stream.append([1])).headers["stream-next-offset"]
    given(stream.delete())
    given(stream.put())
    given(stream.append([2]))
    given(stream.append([3]))
    answer = stream.read(offset=old, format="json")
    assert answer.status_code in (400, 410), shown(answer)
