"""The routes of subscriptions: who may use them, what is refused, and the forms of answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from functions.access import parse
from functions.api.streams.subscriptions import SUBSCRIPTIONS
from headrace.settings import Settings
from headrace.subscriptions import errors
from tests.unit.api.asgi import JSON, Answer, Server

ROOT = "/v1/stream/__ds/subscriptions/"
SETTINGS = Settings(signing_keys="a" * 43, base_url="https://api.example/", metrics_interval_ms=0)
PULL = {"type": "pull-wake", "pattern": "orders/*", "wake_stream": "pools/a"}
HOOK = {"type": "webhook", "pattern": "orders/*", "webhook": {"url": "https://hooks.example/x"}}
KEYS = (
    "all,reader:read,orders:read:orders/,both:read+write:orders/|pools/,pools:read+write:pools/,"
    "writer:write:orders/|pools/"
)


@pytest.fixture
def server() -> Server:
    return Server(settings=SETTINGS)


def ask(server: Server, method: str, path: str, body: Any = None, key: str | None = None) -> Answer:
    headers = dict(JSON) if key is None else {**JSON, "Authorization": f"Bearer {key}"}
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    return server(method, ROOT + path, headers, data)


def code(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]["code"]


def claimed(server: Server) -> dict[str, Any]:
    """Returns a claim of subscription `s`, which has one pending record."""
    assert server("PUT", "/v1/stream/orders/1", JSON).status == 201
    assert ask(server, "PUT", "s", PULL).status == 201
    assert server("POST", "/v1/stream/orders/1", JSON, b"{}").status == 204
    answer = ask(server, "POST", "s/claim", {"worker": "w"})
    assert answer.status == 200
    found: dict[str, Any] = answer.json
    return found


def test_every_error_has_its_own_answer() -> None:
    expected = {
        errors.InvalidSubscription("m"): (400, "INVALID_REQUEST"),
        errors.WebhookUrlRejected("m"): (400, "WEBHOOK_URL_REJECTED"),
        errors.TokenInvalid(): (401, "TOKEN_INVALID"),
        errors.NoSubscription("s"): (404, "SUBSCRIPTION_NOT_FOUND"),
        errors.SubscriptionExists("s"): (409, "SUBSCRIPTION_ALREADY_EXISTS"),
        errors.AlreadyClaimed("w", 1): (409, "ALREADY_CLAIMED"),
        errors.NoPendingWork(): (409, "NO_PENDING_WORK"),
        errors.Fenced(): (409, "FENCED"),
        errors.InvalidOffset("m"): (409, "INVALID_OFFSET"),
    }
    own = {one for one in vars(errors).values() if getattr(one, "__module__", "") == errors.__name__}
    assert {type(error) for error in expected} == own
    for error, answer in expected.items():
        told = SUBSCRIPTIONS.response_to(error, "POST")
        assert (told.status_code, json.loads(bytes(told.body))["error"]["code"]) == answer


def test_a_subscription_is_shown_as_it_was_asked_for(server: Server) -> None:
    created = ask(server, "PUT", "s%2Fx", {**PULL, "streams": ["/audit/eu/"], "description": "pool"})
    assert created.status == 201
    assert {**created.json, "created_at": ""} == {
        "id": "s/x",
        "subscription_id": "s/x",
        "type": "pull-wake",
        "pattern": "orders/*",
        "streams": [{"path": "audit/eu", "link_type": "explicit", "acked_offset": "-1"}],
        "wake_stream": "pools/a",
        "lease_ttl_ms": 30_000,
        "created_at": "",
        "status": "active",
        "description": "pool",
    }
    assert created.json["created_at"].endswith("Z")
    assert ask(server, "GET", "s%2Fx").json == created.json
    again = ask(server, "PUT", "s%2Fx", {**PULL, "streams": ["audit/eu", "audit/eu"], "description": "pool"})
    assert (again.status, again.json) == (200, created.json)


def test_a_webhook_says_where_its_keys_are(server: Server) -> None:
    shown = ask(server, "PUT", "s", {**HOOK, "wake_stream": "ignored"}).json
    kid = server("GET", "/v1/stream/__ds/jwks.json").json["keys"][0]["kid"]
    jwks_url = "https://api.example/v1/stream/__ds/jwks.json"
    assert shown["webhook"] == {
        "url": "https://hooks.example/x",
        "signing": {"alg": "ed25519", "kid": kid, "jwks_url": jwks_url},
    }
    assert shown["wake_stream"] is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        {"pattern": "a"},
        {"type": "other", "pattern": "a", "wake_stream": "w"},
        {"type": "pull-wake", "pattern": "a"},
        {"type": "pull-wake", "wake_stream": "w"},
        {"type": "pull-wake", "streams": [], "wake_stream": "w"},
        {"type": "pull-wake", "streams": ["a", "/"], "wake_stream": "w"},
        {"type": "pull-wake", "streams": ["w"], "wake_stream": "w"},
        {"type": "pull-wake", "streams": ["__ds/x"], "wake_stream": "w"},
        {"type": "pull-wake", "streams": "a", "wake_stream": "w"},
        {"type": "pull-wake", "streams": [f"a{n}" for n in range(1_001)], "wake_stream": "w"},
        {"type": "webhook", "pattern": "a"},
        {"type": "webhook", "pattern": "a", "webhook": {}},
        *({**PULL, "pattern": pattern} for pattern in ("a//b", "a/%ff", "a\u0007", "x" * 1_025)),
        *({**PULL, "lease_ttl_ms": lease} for lease in (None, "5", 999, 600_001, True, 1.5)),
        {**PULL, "wake_stream": "__stream_metrics__"},
        {**PULL, "description": "x" * 1_025},
    ],
)
def test_a_malformed_subscription_is_refused(server: Server, body: Any) -> None:
    assert code(ask(server, "PUT", "s", body)) == (400, "INVALID_REQUEST")
    assert ask(server, "GET", "s").status == 404


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example/x",
        "https://10.0.0.1/",
        "https://[::1]/",
        "http://127.0.0.1:1/x",
        "https://u:p@a.example/",
    ],
)
def test_a_webhook_goes_to_the_internet_only(server: Server, url: str) -> None:
    assert code(ask(server, "PUT", "s", {**HOOK, "webhook": {"url": url}})) == (400, "WEBHOOK_URL_REJECTED")


def test_a_server_that_does_not_know_its_url_has_no_webhooks() -> None:
    server = Server(settings=Settings(signing_keys="a" * 43, metrics_interval_ms=0))
    assert code(ask(server, "PUT", "s", HOOK)) == (400, "INVALID_REQUEST")
    assert ask(server, "PUT", "s", PULL).status == 201


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("s", "DELETE, GET, OPTIONS, PUT"),
        ("s/streams", "OPTIONS, POST"),
        ("s/streams/a%2Fb", "DELETE, OPTIONS"),
        *((f"s/{action}", "OPTIONS, POST") for action in ("claim", "callback", "ack", "release")),
    ],
)
def test_other_methods_are_refused_in_plain_text(server: Server, path: str, allowed: str) -> None:
    answer = ask(server, "PATCH", path)
    assert (answer.status, answer.headers["allow"]) == (405, allowed)
    assert answer.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("path", ["", "s/unknown", "s/claim/x", "s/"])
def test_other_paths_are_unknown(server: Server, path: str) -> None:
    assert code(ask(server, "GET", path)) == (404, "SUBSCRIPTION_NOT_FOUND")
    assert code(server_root(server, "other")) == (404, "SUBSCRIPTION_NOT_FOUND")


def server_root(server: Server, path: str) -> Answer:
    return server("GET", f"/v1/stream/__ds/{path}", JSON)


def test_an_id_is_one_encoded_segment_of_bounded_length(server: Server) -> None:
    for bad in ("%zz", "%ff", "x" * 257, "a%00b"):
        assert code(ask(server, "PUT", bad, PULL)) == (400, "INVALID_REQUEST")
    assert ask(server, "PUT", "x" * 256, PULL).status == 201


def test_what_is_refused_first(server: Server) -> None:
    wake = {"wake_id": "w", "generation": 1}
    assert code(ask(server, "POST", "s/ack", b"{")) == (401, "TOKEN_INVALID")
    assert code(ask(server, "POST", "s/ack", b"{", key="t")) == (400, "INVALID_REQUEST")
    assert code(ask(server, "POST", "s/ack", wake, key="t")) == (404, "SUBSCRIPTION_NOT_FOUND")
    claim = claimed(server)
    assert code(ask(server, "POST", "s/callback", wake, key=claim["token"])) == (400, "INVALID_REQUEST")
    assert code(ask(server, "POST", "s/ack", wake, key="t")) == (401, "TOKEN_INVALID")
    bad = {**wake, "acks": [{"stream": "unknown", "offset": "-1"}]}
    assert code(ask(server, "POST", "s/ack", bad, key=claim["token"])) == (409, "FENCED")
    current = {**bad, "wake_id": claim["wake_id"]}
    assert code(ask(server, "POST", "s/ack", current, key=claim["token"])) == (409, "INVALID_OFFSET")


@pytest.mark.parametrize(
    "change",
    [
        {"acks": {}},
        {"acks": [{"stream": "orders/1"}]},
        {"acks": [{"stream": "orders/1", "offset": None}]},
        {"acks": [{"offset": "-1"}]},
        {"generation": "1"},
        {"wake_id": None},
        {"done": "true"},
    ],
)
def test_a_malformed_ack_is_refused(server: Server, change: dict[str, Any]) -> None:
    claim = claimed(server)
    body = {"wake_id": claim["wake_id"], "generation": 1, **change}
    assert code(ask(server, "POST", "s/ack", body, key=claim["token"])) == (400, "INVALID_REQUEST")


def test_a_claim_and_an_ack_have_the_forms_of_the_contract(server: Server) -> None:
    claim = claimed(server)
    assert set(claim) == {"wake_id", "generation", "token", "lease_ttl_ms", "streams"}
    (stream,) = claim["streams"]
    assert set(stream) == {"path", "link_type", "acked_offset", "tail_offset", "has_pending"}
    busy = ask(server, "POST", "s/claim", {"worker": "v"})
    assert (busy.status, busy.json) == (
        409,
        {"error": {"code": "ALREADY_CLAIMED", "current_holder": "w", "generation": 1}},
    )
    acks = [{"path": "/orders/1", "offset": stream["tail_offset"]}]
    body = {"wake_id": claim["wake_id"], "generation": 1, "acks": acks, "done": True}
    done = ask(server, "POST", "s/ack", body, key=claim["token"])
    assert (done.status, done.json) == (200, {"ok": True, "next_wake": False})
    assert code(ask(server, "POST", "s/ack", body, key=claim["token"])) == (409, "FENCED")
    for empty in ({}, {"worker": ""}, {"worker": 1}, b""):
        assert code(ask(server, "POST", "s/claim", empty)) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    ("key", "pattern", "streams", "status"),
    [
        ("all", "**", ["x"], 201),
        ("reader", "orders/*", [], 403),
        ("orders", "orders/*", [], 403),
        ("writer", "orders/*", [], 403),
        ("pools", "orders/*", [], 403),
        ("both", "orders/*", [], 201),
        ("both", "orders/**", [], 403),
        ("both", "*/x", [], 403),
        ("both", "orders/*", ["other"], 403),
        ("both", "", ["orders/1"], 201),
    ],
)
def test_a_key_may_read_all_that_can_match_and_write_the_wake_stream(
    key: str, pattern: str, streams: list[str], status: int
) -> None:
    server = Server(KEYS, SETTINGS)
    assert ask(server, "PUT", "s", {**PULL, "pattern": pattern, "streams": streams}, key=key).status == status
    assert ask(server, "PUT", "s", PULL).status == 401


def test_every_call_with_a_key_is_checked_and_calls_with_a_token_need_none() -> None:
    server = Server(KEYS, SETTINGS)
    assert ask(server, "PUT", "s", PULL, key="all").status == 201
    worker = {"worker": "w"}
    calls = [
        ("GET", "s", None),
        ("DELETE", "s", None),
        ("POST", "s/streams", {"streams": ["orders/1"]}),
        ("DELETE", "s/streams/orders%2F1", None),
        ("POST", "s/claim", worker),
    ]
    for method, path, body in calls:
        assert ask(server, method, path, body).status == 401
        for key in ("reader", "orders", "pools"):
            assert ask(server, method, path, body, key=key).status == 403
    assert ask(server, "POST", "s/streams", {"streams": ["other"]}, key="both").status == 403
    assert ask(server, "POST", "s/streams", {"streams": ["other"]}, key="all").status == 204
    assert ask(server, "GET", "s", key="both").status == 403, "it would show a stream that the key may not know"
    for method, path, body in calls:
        assert ask(server, method, path, body, key="both").status == 403, "it has a stream that the key may not read"
    assert ask(server, "PUT", "s", PULL, key="both").status == 403
    wake = {"wake_id": "w", "generation": 1}
    for action in ("ack", "release"):
        assert code(ask(server, "POST", f"s/{action}", wake)) == (401, "TOKEN_INVALID")
        assert code(ask(server, "POST", f"s/{action}", wake, key="all")) == (401, "TOKEN_INVALID")


def test_what_has_a_wake_token_needs_no_key() -> None:
    server = Server(KEYS, SETTINGS)
    key = {**JSON, "Authorization": "Bearer all"}
    assert server("PUT", "/v1/stream/orders/1", key).status == 201
    assert ask(server, "PUT", "s", PULL, key="all").status == 201
    assert server("POST", "/v1/stream/orders/1", key, b"{}").status == 204
    claim = ask(server, "POST", "s/claim", {"worker": "w"}, key="all").json
    wake = {"wake_id": claim["wake_id"], "generation": 1}
    assert ask(server, "POST", "s/ack", wake, key=claim["token"]).json == {"ok": True, "next_wake": False}
    assert ask(server, "POST", "s/release", wake, key=claim["token"]).status == 204


def test_a_subscription_shows_that_its_key_was_revoked_until_a_put_with_another_one() -> None:
    server = Server(KEYS, SETTINGS)
    key = {**JSON, "Authorization": "Bearer all"}
    for name in ("orders/1", "pools/a"):
        assert server("PUT", f"/v1/stream/{name}", key).status == 201
    assert ask(server, "PUT", "s", PULL, key="both").status == 201
    assert server("POST", "/v1/stream/orders/1", key, b"{}").status == 204
    claim = ask(server, "POST", "s/claim", {"worker": "w"}, key="all").json
    server.parts.access.grants = parse("all").grants
    wake = {"wake_id": claim["wake_id"], "generation": 1, "done": True}
    assert ask(server, "POST", "s/ack", wake, key=claim["token"]).json == {"ok": True, "next_wake": True}
    assert len(server("GET", "/v1/stream/pools/a?offset=-1", key).json) == 1, "the next wake has no record"
    assert ask(server, "GET", "s", key="both").status == 401
    shown = ask(server, "GET", "s", key="all").json
    assert (shown["status"], shown["last_error"]) == (
        "failed", {"code": "unauthorized", "message": "the key was revoked"},
    )  # fmt: skip
    adopted = ask(server, "PUT", "s", PULL, key="all")
    assert (adopted.status, adopted.json["status"], "last_error" in adopted.json) == (200, "active", False)


def test_names_that_do_not_fit_into_one_item_are_refused(server: Server) -> None:
    for size, expected in ((1000, 400), (200, 201)):
        names = [f"{number:03}{'x' * size}" for number in range(1000)]
        assert ask(server, "PUT", "s", {**HOOK, "streams": names}).status == expected
