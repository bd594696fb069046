"""The routes of routers: what each of them answers, and whom it refuses."""

from __future__ import annotations

import pytest

from headrace.settings import Settings
from tests.unit.api.asgi import Server
from tests.unit.api.topics import ask, code

R = "/v0/routers/a-%3Eb"
ENDS = {"source": "a", "dest": "b"}
SHOWN = {
    "router": "a->b", "source": "a", "dest": "b", "preserve_node": True, "preserve_tag": True, "filter": None,
    "allow_cycle": False, "guarantee": "at_least_once",
}  # fmt: skip


@pytest.fixture
def server() -> Server:
    return Server()


def test_a_router_is_put_shown_listed_and_deleted(server: Server) -> None:
    answer = ask(server, "PUT", R, ENDS)
    assert answer.status == 201, answer.body
    document = answer.json
    assert document.pop("performance")["server_total_ms"] >= 0
    assert document == {**SHOWN, "created": True}
    again = ask(server, "PUT", R, ENDS)
    assert (again.status, again.json["created"]) == (200, False)
    shown = ask(server, "GET", R).json
    assert {name: value for name, value in shown.items() if name != "performance"} == {
        **SHOWN,
        "forwarded_total": 0,
        "lag": 0,
        "blocked_since": None,
    }
    (listed,) = ask(server, "GET", "/v0/routers").json["routers"]
    assert listed == {"router": "a->b", **ENDS, "guarantee": "at_least_once", "forwarded_total": 0}
    assert ask(server, "DELETE", R).json["deleted"] is True
    assert ask(server, "DELETE", R).json["deleted"] is False
    assert code(ask(server, "GET", R)) == (404, "router_not_found")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("x", ["tag", "Eq", "x"]),
        (["tag", "Eq", "x*"], ["tag", "Eq", "x*"]),
        (["tag", "Glob", "x*"], ["tag", "Glob", "x*"]),
        (None, None),
    ],
)
def test_a_filter_is_shown_as_a_tuple(server: Server, given: object, shown: object) -> None:
    answer = ask(server, "PUT", R, {**ENDS, "filter": given, "guarantee": "exactly_once"})
    assert (answer.json["filter"], answer.json["guarantee"]) == (shown, "exactly_once")


@pytest.mark.parametrize(
    "body",
    [
        {}, {"source": "a"}, {"dest": "b"}, {"source": "a", "dest": "a"}, {"source": "a", "dest": "b>"},
        {**ENDS, "filter": ["tag", "Glob", "x"]}, {**ENDS, "filter": ["node", "Eq", "x"]}, {**ENDS, "filter": 1},
        {**ENDS, "guarantee": "twice"}, {**ENDS, "allow_cycle": 1},
    ],
)  # fmt: skip
def test_a_body_is_checked(server: Server, body: object) -> None:
    assert code(ask(server, "PUT", R, body)) == (400, "invalid_request")


def test_refusals_say_why(server: Server) -> None:
    ask(server, "PUT", R, ENDS)
    cycle = ask(server, "PUT", "/v0/routers/back", {"source": "b", "dest": "a"})
    assert code(cycle) == (409, "router_cycle")
    assert cycle.json["error"]["detail"]["cycle"] == ["b", "a", "b"]
    fan_in = ask(server, "PUT", "/v0/routers/other", {"source": "x", "dest": "b"})
    assert code(fan_in) == (409, "topic_exists_incompatible")
    assert fan_in.json["error"]["detail"]["reason"] == "router_dest_fan_in"
    moved = ask(server, "PUT", R, {"source": "a", "dest": "c"})
    assert moved.json["error"]["detail"]["reason"] == "router_repoint_forbidden"
    absent = ask(server, "PUT", "/v0/routers/no", {"source": "a", "dest": "no", "create_dest": False})
    assert code(absent) == (404, "topic_not_found")


def test_pages_of_a_listing(server: Server) -> None:
    for dest in "bcd":
        ask(server, "PUT", f"/v0/routers/a-%3E{dest}", {"source": "a", "dest": dest})
    first = ask(server, "GET", "/v0/routers?page_size=2").json
    assert [one["router"] for one in first["routers"]] == ["a->b", "a->c"]
    second = ask(server, "GET", f"/v0/routers?page_size=2&cursor={first['next_cursor']}").json
    assert [one["router"] for one in second["routers"]] == ["a->d"]
    assert "next_cursor" not in second
    assert len(ask(server, "GET", "/v0/routers?source=a&dest=c").json["routers"]) == 1
    assert code(ask(server, "GET", "/v0/routers?source=a%20b")) == (400, "invalid_request")


def test_a_deleted_topic_names_its_routers(server: Server) -> None:
    ask(server, "PUT", R, ENDS)
    assert ask(server, "DELETE", "/v0/topics/b").json["routers_removed"] == ["a->b"]


def test_so_many_routers_there_may_be(server: Server) -> None:
    limited = Server(settings=Settings(max_routers=1))
    ask(limited, "PUT", R, ENDS)
    refused = ask(limited, "PUT", "/v0/routers/c", {"source": "c", "dest": "d"})
    assert code(refused) == (429, "throttled")
    assert refused.json["error"]["detail"] == {"limit": "max_routers", "max": 1}
    assert ask(limited, "GET", "/v0/topics/c").status == 404
    assert b"topics_routers 1\n" in ask(limited, "GET", "/v0/metrics").body


def test_scopes_and_prefixes() -> None:
    server = Server(keys="root,read:r,own::t1-,part:r+d:t1-|a")
    ask(server, "PUT", R, ENDS, key="root")
    ask(server, "PUT", "/v0/routers/t1-r", {"source": "t1-a", "dest": "t1-b"}, key="own")
    assert ask(server, "PUT", R, ENDS, key="read").status == 403
    for body in ({"source": "t1-a", "dest": "b"}, {"source": "b", "dest": "t1-b"}):
        assert ask(server, "PUT", "/v0/routers/t1-x", body, key="own").status == 403
    assert ask(server, "GET", R, key="own").status == 403
    assert ask(server, "GET", R, key="part").status == 403  # the name is allowed, and its destination is not
    assert ask(server, "DELETE", R, key="part").status == 403
    assert ask(server, "DELETE", R, key="read").status == 403
    for key, names in (("own", ["t1-r"]), ("part", ["t1-r"]), ("read", ["a->b", "t1-r"])):
        assert [one["router"] for one in ask(server, "GET", "/v0/routers", key=key).json["routers"]] == names


def test_metrics_count_what_a_key_may_touch() -> None:
    server = Server(keys="root,own::t1-")
    ask(server, "PUT", R, ENDS, key="root")
    ask(server, "PUT", "/v0/routers/t1-r", {"source": "t1-a", "dest": "t1-b"}, key="own")
    assert b"topics_routers 2\n" in ask(server, "GET", "/v0/metrics", key="root").body
    assert b"topics_routers 1\n" in ask(server, "GET", "/v0/metrics", key="own").body


@pytest.mark.parametrize(
    ("path", "expected"),
    [("a%2Fb", (400, "invalid_request")), ("a/b", (404, "not_found")), ("%3E", (400, "invalid_request"))],
)
def test_a_path_that_is_no_name_is_refused(server: Server, path: str, expected: tuple[int, str]) -> None:
    assert code(ask(server, "PUT", f"/v0/routers/{path}", ENDS)) == expected
