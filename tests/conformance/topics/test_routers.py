"""Routers (§ 6), and what they change of topics (§ 1.4, § 4.5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.conformance.topics.client import Server, Topic, answered, at_once, eventually, prepared, refused
from tests.conformance.topics.configurations import LIMITS

DEFAULTS = {
    "preserve_node": True, "preserve_tag": True, "filter": None, "allow_cycle": False, "guarantee": "at_least_once",
}  # fmt: skip


@dataclass(frozen=True)
class Router:
    """A router by its name."""

    server: Server
    name: str

    @property
    def path(self) -> str:
        return "/v0/routers/" + quote(self.name, safe="")

    def by(self, key: str | None) -> Router:
        return Router(self.server.with_key(key), self.name)

    def put(self, source: str, dest: str, **members: object) -> httpx.Response:
        return self.server.send("PUT", self.path, {"source": source, "dest": dest, **members})

    def show(self) -> httpx.Response:
        return self.server.get(self.path)

    def remove(self) -> httpx.Response:
        return self.server.send("DELETE", self.path)

    def now(self) -> dict[str, Any]:
        return answered(self.show())


def router_of(source: Topic, dest: Topic) -> Router:
    """Returns the router between two topics, by the conventional name; it need not exist."""
    return Router(source.server, f"{source.name}->{dest.name}")


def routed(source: Topic, dest: Topic, **members: object) -> Router:
    """Creates a router to prepare a test, and returns it."""
    router = router_of(source, dest)
    prepared(router.put(source.name, dest.name, **members), 201)
    return router


def arrives(dest: Topic, *data: object) -> list[dict[str, Any]]:
    """Waits until a topic has exactly these data, and returns its records."""
    eventually(dest.data, lambda found: found == list(data))
    records: list[dict[str, Any]] = dest.page(include_tags=True, limit=1000)["records"]
    return records


def caught_up(router: Router) -> None:
    """Waits until a router has looked at all of its source."""
    eventually(router.now, lambda now: now["lag"] == 0)


@pytest.fixture
def ends(server: Server) -> tuple[Topic, Topic]:
    """Returns two topics that do not exist yet."""
    return server.unused(), server.unused()


# What PUT, GET, DELETE and the list answer.


def test_a_router_is_put_once(server: Server, ends: tuple[Topic, Topic]) -> None:
    source, dest = ends
    router = router_of(source, dest)
    first = answered(router.put(source.name, dest.name), 201)
    del first["performance"]
    assert first == {
        "router": router.name, "created": True, "source": source.name, "dest": dest.name, **DEFAULTS,
    }  # fmt: skip
    again = answered(router.put(source.name, dest.name))
    assert again["created"] is False
    changed = answered(router.put(source.name, dest.name, preserve_tag=False, guarantee="exactly_once"))
    assert (changed["created"], changed["preserve_tag"], changed["guarantee"]) == (False, False, "exactly_once")
    now = router.now()
    assert (now["preserve_tag"], now["guarantee"], now["forwarded_total"]) == (False, "exactly_once", 0)


def test_topics_are_created_for_a_router(ends: tuple[Topic, Topic]) -> None:
    source, dest = ends
    routed(source, dest)
    assert source.now()["head_seq"] == dest.now()["head_seq"] == 0


def test_a_destination_is_not_created_if_not_asked(ends: tuple[Topic, Topic]) -> None:
    source, dest = ends
    router = router_of(source, dest)
    refused(router.put(source.name, dest.name, create_dest=False), 404, "topic_not_found")
    refused(router.show(), 404, "router_not_found")
    assert not source.exists()
    prepared(dest.put(), 201)
    answered(router.put(source.name, dest.name, create_dest=False), 201)


@pytest.mark.parametrize(
    "body",
    [
        {}, {"source": "a"}, {"dest": "b"}, {"source": "a", "dest": "a"}, {"source": "a/b", "dest": "c"},
        {"source": "a", "dest": "b", "filter": ["tag", "Glob", "x"]}, {"source": "a", "dest": "b", "filter": ["tag"]},
        {"source": "a", "dest": "b", "filter": ["node", "Eq", "x"]}, {"source": "a", "dest": "b", "guarantee": "no"},
    ],
    ids=str,
)  # fmt: skip
def test_a_body_that_is_wrong_is_refused(server: Server, body: object) -> None:
    router = Router(server, server.unused().name)
    refused(server.send("PUT", router.path, body), 400, "invalid_request")
    refused(router.show(), 404, "router_not_found")


def test_a_name_has_its_characters(server: Server, ends: tuple[Topic, Topic]) -> None:
    for name in ("-a", ">a", "a b", "ä", "a/b", "a" * 256):
        refused(Router(server, name).put(ends[0].name, ends[1].name), 400, "invalid_request")
    answered(Router(server, f"{ends[0].name}:A.b_c->d>").put(ends[0].name, ends[1].name), 201)


def test_an_absent_router_is_deleted_already(server: Server) -> None:
    router = Router(server, server.unused().name)
    refused(router.show(), 404, "router_not_found")
    answer = answered(router.remove())
    del answer["performance"]
    assert answer == {"router": router.name, "deleted": False}


def test_a_router_is_not_repointed(server: Server, ends: tuple[Topic, Topic]) -> None:
    source, dest = ends
    router, other = routed(source, dest), server.unused()
    for moved in ((other.name, dest.name), (source.name, other.name)):
        error = refused(router.put(*moved), 409, "topic_exists_incompatible")
        assert error["detail"]["reason"] == "router_repoint_forbidden"
    assert router.now()["dest"] == dest.name


def test_routers_are_listed_by_name_source_and_destination(server: Server) -> None:
    prefix = server.unused().name
    names = [f"{prefix}.{letter}" for letter in "abcdx"]
    a, b, c, d, x = (Topic(server, name) for name in names)
    for source, dest in ((a, c), (a, b), (x, d)):
        routed(source, dest)

    def listed(**params: object) -> list[str]:
        found = answered(server.get("/v0/routers", prefix=prefix, **params))["routers"]
        for one in found:
            assert set(one) == {"router", "source", "dest", "guarantee", "forwarded_total"}
        return [one["router"].replace(prefix + ".", "") for one in found]

    assert listed() == ["a->b", "a->c", "x->d"]
    assert listed(source=a.name) == ["a->b", "a->c"]
    assert listed(dest=c.name) == ["a->c"]
    assert listed(source=x.name, dest=c.name) == []
    for params in ({}, {"source": a.name}):
        seen: list[str] = []
        cursor: dict[str, object] = {}
        while True:
            page = answered(server.get("/v0/routers", prefix=prefix, page_size=1, **params, **cursor))
            seen += [one["router"].replace(prefix + ".", "") for one in page["routers"]]
            if "next_cursor" not in page:
                break
            cursor = {"cursor": page["next_cursor"]}
        assert seen == listed(**params)


# What is refused for the sake of the graph.


def test_a_cycle_is_refused_with_its_path(server: Server) -> None:
    a, b, c = (server.unused() for _ in range(3))
    routed(a, b)
    routed(b, c)
    router = router_of(c, a)
    error = refused(router.put(c.name, a.name), 409, "router_cycle")
    assert error["detail"]["cycle"] == [c.name, a.name, b.name, c.name]
    refused(router.show(), 404, "router_not_found")
    answered(router.put(c.name, a.name, allow_cycle=True), 201)


def test_of_routers_that_close_a_cycle_at_once_one_is_refused(ends: tuple[Topic, Topic]) -> None:
    a, b = ends
    puts: list[Callable[[], httpx.Response]] = [
        lambda: router_of(a, b).put(a.name, b.name),
        lambda: router_of(b, a).put(b.name, a.name),
    ]
    assert sorted(answer.status_code for answer in at_once(puts)) == [201, 409]


def test_a_topic_is_fed_by_one_other(server: Server, ends: tuple[Topic, Topic]) -> None:
    source, dest = ends
    routed(source, dest)
    other = server.unused()
    error = refused(router_of(other, dest).put(other.name, dest.name), 409, "topic_exists_incompatible")
    assert error["detail"]["reason"] == "router_dest_fan_in"
    assert not other.exists()


def test_a_destination_takes_direct_writes_too(ends: tuple[Topic, Topic]) -> None:
    source, dest = ends
    routed(source, dest)
    dest.filled("own")
    source.filled("copied")
    arrives(dest, "own", "copied")


# What is copied.


def test_what_comes_after_the_put_is_copied_in_order(server: Server) -> None:
    source, dest = server.topic().filled("before"), server.unused()
    router = routed(source, dest)
    source.filled(*range(20), node="origin", tag="t", meta={"m": 1})
    records = arrives(dest, *range(20))
    assert [record["$seq"] for record in records] == list(range(1, 21))
    for record in records:
        assert (record["$node"], record["$tag"], record["meta"]) == ("origin", "t", {"m": 1})
    assert eventually(router.now, lambda now: now["lag"] == 0)["forwarded_total"] == 20
    assert answered(server.get("/v0/routers", dest=dest.name))["routers"][0]["forwarded_total"] == 20


def test_node_and_tag_are_cleared_if_asked(ends: tuple[Topic, Topic]) -> None:
    source, dest = ends
    routed(source, dest, preserve_node=False, preserve_tag=False)
    source.filled("a", node="origin", tag="t", meta={"m": 1})
    (record,) = arrives(dest, "a")
    assert record.keys() == {"$seq", "$ts", "data", "meta"}


def test_each_destination_gets_a_copy(server: Server) -> None:
    source, dests = server.topic(), [server.unused() for _ in range(5)]
    for dest in dests:
        routed(source, dest)
    source.filled("a", "b")
    for dest in dests:
        arrives(dest, "a", "b")


@pytest.mark.parametrize(
    ("filter_", "shown", "expected"),
    [
        ("x:1", ["tag", "Eq", "x:1"], ["b"]),
        (["tag", "Eq", "x:1"], ["tag", "Eq", "x:1"], ["b"]),
        (["tag", "Glob", "x:*"], ["tag", "Glob", "x:*"], ["b", "c"]),
    ],
    ids=["bare", "Eq", "Glob"],
)
def test_a_filter_copies_what_it_says(
    ends: tuple[Topic, Topic], filter_: object, shown: object, expected: list[object]
) -> None:
    source, dest = ends
    router = routed(source, dest, filter=filter_)
    assert router.now()["filter"] == shown
    source.filled("a").filled("b", tag="x:1").filled("c", tag="x:2").filled("d", tag="y")
    caught_up(router)
    assert dest.data() == expected


def test_a_changed_filter_holds_for_what_follows(ends: tuple[Topic, Topic]) -> None:
    source, dest = ends
    router = routed(source, dest, filter="x")
    source.filled("a", tag="y")
    caught_up(router)
    answered(router.put(source.name, dest.name, filter="y"))
    source.filled("b", tag="x").filled("c", tag="y")
    caught_up(router)
    assert dest.data() == ["c"]


def test_a_chain_of_routers_carries_records_on(server: Server) -> None:
    a, b, c = (server.unused() for _ in range(3))
    routed(a, b)
    routed(b, c)
    a.filled("x", node="origin")
    (record,) = arrives(c, "x")
    assert record["$node"] == "origin"


def test_a_node_never_gets_back_what_it_wrote(ends: tuple[Topic, Topic]) -> None:
    source, dest = ends
    routed(source, dest)
    source.filled("mine", node="n1").filled("other", node="n2")
    arrives(dest, "mine", "other")
    assert dest.data(node="n1") == ["other"]


def test_a_permitted_cycle_ends(ends: tuple[Topic, Topic]) -> None:
    a, b = ends
    routers = routed(a, b, allow_cycle=True), routed(b, a, allow_cycle=True)
    a.filled("x")

    def lags() -> list[int]:
        return [router.now()["lag"] for router in routers] + [router.now()["lag"] for router in routers]

    eventually(lags, lambda found: not any(found))
    assert 1 <= b.now()["head_seq"] <= a.now()["head_seq"] <= 16


def test_a_copy_says_where_it_is_from_if_asked(ends: tuple[Topic, Topic]) -> None:
    source, dest = ends
    routed(source, dest, guarantee="exactly_once")
    source.filled("a", meta={"m": 1}).filled("b")
    stamps = []
    for record in arrives(dest, "a", "b"):
        stamp = record["meta"].pop("_topics_router")
        stamps.append(stamp["idempotency_key"])
        assert (stamp["source_topic"], stamp["source_seq"]) == (source.name, record["$seq"])
    assert len(set(stamps)) == 2


def test_a_queue_can_be_fed(server: Server) -> None:
    source, queue = server.topic(), server.queue()
    routed(source, queue)
    source.filled("job")
    (job,) = eventually(queue.jobs, bool)
    assert job["data"] == "job"


def test_a_full_destination_holds_its_router_and_loses_nothing(server: Server) -> None:
    source, dest = server.topic(), server.topic(discard="reject", cap_records=2)
    router = routed(source, dest)
    source.filled(1, 2, 3, 4, 5)
    arrives(dest, 1, 2)
    now = eventually(router.now, lambda now: now["blocked_since"] is not None)
    assert (now["forwarded_total"], now["lag"]) == (2, 3)
    answered(dest.erase(before_seq=3))
    arrives(dest, 3, 4)
    answered(dest.erase(before_seq=5))
    arrives(dest, 5)
    assert eventually(router.now, lambda now: now["blocked_since"] is None)["lag"] == 0


def test_a_destination_that_discards_makes_room(server: Server) -> None:
    source, dest = server.topic(), server.topic(cap_records=2)
    routed(source, dest)
    source.filled(*range(10))
    arrives(dest, 8, 9)


def test_what_a_source_lost_is_a_tombstone_of_the_destination(server: Server) -> None:
    source, dest = server.topic(cap_records=2), server.unused()
    router = routed(source, dest)
    source.filled(*range(50))  # one write: 48 of them are gone before a router sees any
    caught_up(router)
    page = dest.page()
    assert page["tombstone"]["reason"] == "source_trim"
    assert page["tombstone"]["gap_from"] == 1
    assert [record["data"] for record in page["records"]] == [48, 49]
    assert page["earliest_seq"] > page["tombstone"]["gap_to"]
    assert dest.page(page["tombstone"]["gap_to"])["tombstone"] is None


# What ends it.


def test_a_deleted_router_copies_no_more(ends: tuple[Topic, Topic]) -> None:
    source, dest = ends
    router = routed(source, dest)
    source.filled("a")
    arrives(dest, "a")
    assert answered(router.remove())["deleted"] is True
    refused(router.show(), 404, "router_not_found")
    source.filled("b")
    routed(source, dest)
    source.filled("c")
    arrives(dest, "a", "c")


def test_a_deleted_topic_takes_its_routers_with_it(server: Server) -> None:
    a, b, c, d = (server.unused() for _ in range(4))
    routers = [routed(a, b), routed(b, c), routed(b, d)]
    answer = answered(b.remove())
    assert (answer["deleted"], answer["routers_removed"]) == (True, sorted(one.name for one in routers))
    for router in routers:
        refused(router.show(), 404, "router_not_found")
    routed(a, c)  # it is fed by nobody any more


def test_a_topic_is_deleted_while_routers_are_made(server: Server) -> None:
    source = server.topic()
    others = [server.unused() for _ in range(4)]
    puts = [lambda other=other: router_of(source, other).put(source.name, other.name) for other in others]
    *_, gone = at_once([*puts, source.remove])
    assert answered(gone)["deleted"] is True
    left = {one["router"] for one in answered(server.get("/v0/routers", source=source.name))["routers"]}
    assert left.isdisjoint(gone.json()["routers_removed"])
    assert bool(left) <= source.exists()


# Keys and limits.


@pytest.fixture
def guarded_router(guarded: Server) -> Router:
    """Returns a router between two topics of a server with keys."""
    return routed(guarded.unused(), guarded.unused())


def test_routes_of_routers_need_their_scopes(guarded: Server, guarded_router: Router) -> None:
    now = guarded_router.now()
    routes: list[tuple[str, Callable[[Router], httpx.Response]]] = [
        ("admin", lambda router: router.put(now["source"], now["dest"])),
        ("read", lambda router: router.show()),
        ("read", lambda router: router.server.get("/v0/routers")),
        ("delete", lambda router: router.remove()),
    ]
    keys = {"reader": {"read"}, "writer": {"write"}, "admin": {"admin"}, "worker": {"read", "write"}}
    for scope, send in routes:
        refused(send(guarded_router.by(None)), 401, "unauthorized")
        for key, scopes in {**keys, "deleter": {"delete"}}.items():
            if scope in scopes:
                answered(send(guarded_router.by(key)))
            else:
                refused(send(guarded_router.by(key)), 403, "forbidden")


def test_a_key_with_prefixes_routes_only_within_them(guarded: Server, guarded_router: Router) -> None:
    bound = guarded.with_key("bound")
    inside, outside = bound.unused("mine."), guarded.unused("other.")
    router = Router(bound, "mine.r")
    refused(router.put(inside.name, outside.name), 403, "forbidden")
    refused(router.put(outside.name, inside.name), 403, "forbidden")
    refused(Router(bound, "r").put(inside.name, "mine.b"), 403, "forbidden")
    assert not inside.exists()
    answered(router.put(inside.name, "ours:b"), 201)
    refused(guarded_router.by("bound").show(), 403, "forbidden")
    refused(guarded_router.by("bound").remove(), 403, "forbidden")
    crossing = Router(guarded, "mine.crossing")
    prepared(crossing.put(inside.name, outside.name), 201)
    refused(crossing.by("bound").show(), 403, "forbidden")
    listed = answered(bound.get("/v0/routers"))["routers"]
    assert [one["router"] for one in listed] == ["mine.r"]


def test_a_server_has_so_many_routers(guarded: Server) -> None:
    source = guarded.topic()
    routers = [routed(source, guarded.unused()) for _ in range(LIMITS["max_routers"])]
    dest = guarded.unused()
    more = router_of(guarded.unused(), dest)
    answer = more.put(more.name.partition("->")[0], dest.name)
    error = refused(answer, 429, "throttled")
    assert (error["detail"]["limit"], error["detail"]["max"]) == ("max_routers", LIMITS["max_routers"])
    assert int(answer.headers["retry-after"]) >= 0
    assert not dest.exists() and not Topic(guarded, more.name.partition("->")[0]).exists()
    answered(routers[0].put(source.name, routers[0].now()["dest"], preserve_tag=False))
    answered(routers[0].remove())
    answered(more.put(more.name.partition("->")[0], dest.name), 201)
