"""Search of the events of feature tables: by the fields of the schema and by arrival, in every lane, wherever they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.features.values import lane
from headrace.log.seam import Decision, Draft
from tests.support import index_runs
from tests.unit.api.asgi import Server
from tests.unit.api.features.wire import ask, code, register, serving
from tests.unit.features.world import NS, event, table, tx

USERS = ("ann", "bob", "cy", "dot", "eve", "fay", "gus", "hal")


def serve(lanes: int) -> Server:
    """Returns a server with 24 events of eight users: event n has the amount n / 2."""
    laned = {"lanes": lanes, "lane_key": "user"} if lanes > 1 else {}
    server = serving(event(search=True, **laned), table())
    for n in range(24):
        push(server, USERS[n % 8], n / 2, n)
    return server


def push(server: Server, user: str, amount: float, n: int) -> None:
    assert ask(server, "POST", "/push", {"event": "Tx", "data": tx(user, amount, n)}).status == 200


def search(server: Server, q: str, **asked: Any) -> Any:
    """Searches; the answer's JSON."""
    answer = ask(server, "POST", "/search", {"event": "Tx", "q": q, "size": 100, **asked})
    assert answer.status == 200, answer.body
    return answer.json


def numbers(answer: Any) -> list[int]:
    """Returns the field `n` of each hit."""
    return [hit["data"]["n"] for hit in answer["hits"]]


def stages(server: Server, lanes: int) -> Iterator[str]:
    """Moves the events on: from the tail to segments, and to runs."""
    features = server.parts.features()
    yield "tail"
    for step in (index_runs.sealed, index_runs.index):
        for number in range(lanes):
            step(server.stores, features, lane(NS, "Tx", number))
        features.forget()
        yield step.__name__


@pytest.mark.parametrize("lanes", [1, 3])
def test_events_are_found_by_every_field_of_the_schema(lanes: int) -> None:
    server = serve(lanes)
    first_ms = search(server, "n:0")["hits"][0]["arrived_ms"]
    for stage in stages(server, lanes):
        assert numbers(search(server, "user:bob", sort=["n:asc"])) == [1, 9, 17], stage
        assert numbers(search(server, "user:b* amount:>4", sort=["n:desc"])) == [17, 9], stage
        assert numbers(search(server, "n:>=21", sort=["amount:asc"])) == [21, 22, 23], stage
        assert search(server, f"ts:>={first_ms}")["total"] == {"value": 24, "relation": "eq"}, stage
        assert search(server, "-user:ann")["coverage"]["complete"] is True, stage
    assert "kw" in search(server, "user:ann")["coverage"]["index_families_used"]
    push(server, "bob", 50, 99)
    assert numbers(search(server, "user:bob", sort=["n:asc"])) == [1, 9, 17, 99], "what was acknowledged is found"


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("sort", [None, ["amount:asc"], ["ts:desc"], ["offset:asc"]])
def test_pages_have_each_event_once_in_order(lanes: int, sort: list[str] | None) -> None:
    server = serve(lanes)
    whole = search(server, "has:user", **({"sort": sort} if sort else {}))
    assert sorted(numbers(whole)) == list(range(24))
    for _ in stages(server, lanes):
        hits, after = list[Any](), None
        while True:
            asked = {"size": 5, **({"sort": sort} if sort else {}), **({"search_after": after} if after else {})}
            page = search(server, "has:user", **asked)
            hits += page["hits"]
            after = page["next_search_after"]
            if after is None:
                break
        assert hits == whole["hits"]
    if sort == ["amount:asc"]:
        assert numbers(whole) == list(range(24))


def test_a_hit_says_where_and_when_and_has_the_event_as_it_was_pushed() -> None:
    server = serve(3)
    answer = search(server, "user:ann n:8", explain=True)
    (hit,) = answer["hits"]
    assert hit["data"] == tx("ann", 4.0, 8)
    assert 0 <= hit["lane"] < 3
    assert (answer["event"], answer["timed_out"], answer["next_search_after"]) == ("Tx", False, None)
    assert len(answer["explain"]) == 3
    found = search(server, "has:user")["hits"]
    assert len({(one["lane"], one["offset"]) for one in found}) == 24
    assert len({one["lane"] for one in found if one["data"]["user"] == "ann"}) == 1


def test_events_that_are_no_longer_kept_are_in_no_answer() -> None:
    server = serve(1)
    features = server.parts.features()
    which = lane(NS, "Tx", 0)

    def retain(looks: Sequence[Any], *_: Any) -> Decision:
        return Decision((None,), (Draft(looks[0].log_id, "retain", replace(looks[0].state, floor=10)),))

    features.control(which, lambda controls: controls.find_living(which), retain)
    for stage in stages(server, 1):
        assert numbers(search(server, "has:user", sort=["offset:asc"])) == list(range(10, 24)), stage


def test_an_event_that_is_not_searched_says_so_and_is_searched_once_it_is_registered_so() -> None:
    server = serving()
    push(server, "ann", 1, 1)
    assert code(ask(server, "POST", "/search", {"event": "Tx", "q": "user:ann"})) == (400, "invalid_request")
    assert register(server, event(search=True)).status == 200
    assert numbers(search(server, "user:ann")) == [1], "also what was pushed before"


@pytest.mark.parametrize("name", ["None", ".registry", "U", "x" * 200, "Tx/"])
def test_what_is_no_event_is_not_found(name: str) -> None:
    answer = ask(serving(event(search=True), table()), "POST", "/search", {"event": name, "q": "has:user"})
    assert code(answer) == (404, "event_not_found")


@pytest.mark.parametrize(
    ("lanes", "asked"),
    [
        (1, {"q": "nothing:1"}),
        (1, {"q": "user:"}),
        (1, {"sort": ["user:asc"]}),
        (1, {"search_after": [1, 2, 3]}),
        (2, {"search_after": [None]}),
        (2, {"search_after": "x"}),
        (2, {"search_after": [None, 5]}),
        (1, {"size": 501}),
        (1, {"event": 5}),
    ],
)
def test_what_can_not_be_searched_is_refused(lanes: int, asked: dict[str, Any]) -> None:
    body = {"event": "Tx", "q": "has:user", **asked}
    assert code(ask(serve(lanes), "POST", "/search", body)) == (400, "invalid_request")


def test_a_search_whose_time_is_over_is_a_success_with_what_was_found() -> None:
    answer = search(serve(2), "has:user", timeout_ms=0)
    assert (answer["timed_out"], answer["timeout_ms"], answer["coverage"]["complete"]) == (True, 0, False)
    assert search(serve(2), "has:user", timeout_ms=99_999)["timeout_ms"] == 3000


def test_a_namespace_searches_its_own_events() -> None:
    server = serve(1)
    assert register(server, event(search=True), under="/features/shop").status == 200
    answer = ask(server, "POST", "/features/shop/search", {"event": "Tx", "q": "has:user"})
    assert answer.json["hits"] == []
