"""`/v1/streams`: living streams in the order of their names."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.conformance.contract.client import JSON, Api, Stream, expect, refused

pytestmark = pytest.mark.sensitive("a process may list from memory what it made itself, or from rows alone")


@pytest.fixture
def family(api: Api) -> list[Stream]:
    """Streams with a common prefix, created in no order."""
    first = api.unused("list").name
    names = [f"{first}.{letter}" for letter in "cBaéD"]
    streams = [Stream(api, name) for name in names]
    for stream in streams:
        expect(stream.put(), 201)
    return sorted(streams, key=lambda stream: stream.name.encode())


def prefix(family: list[Stream]) -> str:
    return family[0].name.rpartition(".")[0] + "."


def test_it_is_an_array_in_the_order_of_names(api: Api, family: list[Stream]) -> None:
    answer = expect(api.get("/v1/streams", prefix=prefix(family)), 200)
    assert answer.headers["content-type"].split(";")[0] == "application/json"
    assert [row["name"] for row in answer.json()] == [stream.name for stream in family]


def test_each_descriptor_says_what_the_stream_is(api: Api) -> None:
    stream = api.unused("described")
    expect(stream.put({**JSON, "Stream-TTL": "1h"}), 201)
    expect(stream.append([1, 2]), 204)
    expect(stream.set_profile("generic"), 200)
    (row,) = expect(api.get("/v1/streams", prefix=stream.name), 200).json()
    assert row["name"] == stream.name
    assert row["profile"] == "generic"
    assert row["next_offset"] == "2"
    assert isinstance(row["epoch"], int)
    assert datetime.fromisoformat(row["created_at"]).tzinfo is not None
    assert datetime.fromisoformat(row["expires_at"]) > datetime.fromisoformat(row["created_at"])
    assert {"sealed_through", "uploaded_through"} <= set(row)


@pytest.mark.parametrize("kind", ["evlog", "metrics", "otel-traces", "state-protocol"])
def test_each_descriptor_shows_the_profile(api: Api, kind: str) -> None:
    stream = api.stream(prefix="profiled")
    expect(stream.set_profile(kind), 200)
    (row,) = expect(api.get("/v1/streams", prefix=stream.name), 200).json()
    assert row["profile"] == kind


def test_it_is_paged_by_name(api: Api, family: list[Stream]) -> None:
    names, after = [], ""
    for _ in range(3):
        page = expect(api.get("/v1/streams", prefix=prefix(family), limit="2", after=after), 200).json()
        names += [row["name"] for row in page]
        after = names[-1]
    assert names == [stream.name for stream in family]
    assert expect(api.get("/v1/streams", prefix=prefix(family), limit="2", after=after), 200).json() == []


def test_it_is_paged_by_rows(api: Api, family: list[Stream]) -> None:
    page = expect(api.get("/v1/streams", prefix=prefix(family), limit="2", offset="3"), 200).json()
    assert [row["name"] for row in page] == [stream.name for stream in family[3:]]


@pytest.mark.parametrize("parameters", [{"limit": "0"}, {"limit": "1001"}, {"limit": "many"}, {"offset": "-1"}])
def test_malformed_parameters_are_refused(api: Api, parameters: dict[str, str]) -> None:
    refused(api.get("/v1/streams", **parameters), 400)


def test_a_page_can_begin_at_any_name(api: Api) -> None:
    whole = expect(api.get("/v1/streams", limit="1000"), 200).json()
    page = expect(api.get("/v1/streams", limit="1", after=whole[-2]["name"]), 200).json()
    assert [row["name"] for row in page] == [whole[-1]["name"]]
    assert len(expect(api.get("/v1/streams"), 200).json()) <= 100
