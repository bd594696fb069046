from __future__ import annotations

import base64
import hmac

import pytest

from functions import access
from functions.access import ALL, AccessError, Grant, Scope
from functions.refusals import Forbidden, Unauthorized
from tests.unit.api.asgi import TEXT, Server


def test_a_bare_key_may_do_everything() -> None:
    assert access.parse("secret").grant("Bearer secret") == Grant(ALL)
    assert access.parse("secret").grant("Bearer secret").key_id == "2bb80d53", "of its SHA-256 digest"


@pytest.mark.parametrize(
    ("scopes", "expected"),
    [
        ("read", Scope.READ),
        ("rw", Scope.READ | Scope.WRITE),
        ("r+d", Scope.READ | Scope.DELETE),
        ("w+a", Scope.WRITE | Scope.ADMIN),
        ("read+write+delete+admin", ALL),
        ("", ALL),
    ],
)
def test_scopes_are_joined_by_a_plus_sign(scopes: str, expected: Scope) -> None:
    assert access.parse(f"key:{scopes}:a").grant("bearer key") == Grant(expected, ("a",))


def test_prefixes_may_contain_colons() -> None:
    assert access.parse("key:r:tenant42:|shared.").grant("Bearer key").prefixes == ("tenant42:", "shared.")


@pytest.mark.parametrize("text", ["key:reed", "key:read+", "key:READ", ":read", "key::a|", "key::|", "a,a:read"])
def test_a_malformed_entry_refuses_to_start_and_never_shows_the_key(text: str) -> None:
    with pytest.raises(AccessError) as caught:
        access.parse(f"fine,{text}")
    assert "entry=" in str(caught.value)
    assert "key:" not in str(caught.value)


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic key", "Bearer key ", "key"])
def test_anything_but_a_known_key_is_refused(header: str | None) -> None:
    with pytest.raises(Unauthorized):
        access.parse("key").grant(header)


def basic(text: str | bytes) -> str:
    return "Basic " + base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


@pytest.mark.parametrize("text", ["any:key", "key:", "key", ":key", "a b:key"])
def test_a_key_may_come_as_basic_since_clients_make_that_of_a_url(text: str) -> None:
    assert access.parse("key").grant(basic(text)).key_id == access.parse("key").grant("Bearer key").key_id
    assert Server(keys="key")("GET", "/v1/streams", {"authorization": basic(text)}).status == 200


@pytest.mark.parametrize(
    "header", [basic("key:wrong"), basic("wrong"), basic(""), basic(b"\xff:key"), "Basic k-y", "Basic"]
)
def test_a_basic_header_without_a_known_key_is_refused(header: str) -> None:
    with pytest.raises(Unauthorized):
        access.parse("key").grant(header)


def test_every_digest_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []
    real = hmac.compare_digest

    def counting(digest: bytes, presented: bytes) -> bool:
        compared.append(digest)
        return real(digest, presented)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    access.parse("first,second,third").grant("Bearer first")
    assert len(compared) == 3


@pytest.mark.parametrize(
    ("host", "on_lambda", "insecure", "starts"),
    [
        ("127.0.0.1", False, False, True),
        ("::1", False, False, True),
        ("localhost", False, False, True),
        ("0.0.0.0", False, False, False),
        ("example.org", False, False, False),
        ("127.0.0.1", True, False, False),
        ("0.0.0.0", False, True, True),
        ("127.0.0.1", True, True, True),
    ],
)
def test_without_keys_only_loopback_starts(host: str, on_lambda: bool, insecure: bool, starts: bool) -> None:
    def check(keys: str) -> None:
        access.check_exposure(access.parse(keys), host=host, on_lambda=on_lambda, allow_insecure=insecure)

    check("key")
    if starts:
        check("")
    else:
        with pytest.raises(AccessError, match="HEADRACE_API_KEYS"):
            check("")


FOREIGN = [
    {"host": "evil.example"},
    {"host": "evil.example:8787"},
    {"host": "127.0.0.1.evil.example"},
    {"host": "localhost.evil.example:8787"},
    {"host": "127.0.0.1@evil.example"},
    {"host": "192.168.1.7:8787"},
    {"host": "0.0.0.0:8787"},
    {"host": ""},
    {"host": "localhost", "origin": "https://evil.example"},
    {"host": "localhost", "origin": "http://localhost.evil.example:3000"},
    {"host": "localhost", "origin": "null"},
    {"host": "localhost", "origin": "chrome-extension://abcdefgh"},
    {"host": "localhost", "origin": ""},
]
OWN = [
    {"host": "localhost"},
    {"host": "LOCALHOST.:8787"},
    {"host": "127.0.0.1:8787"},
    {"host": "[::1]:8787"},
    {"host": "demo.localhost:8787"},
    {"host": "127.0.0.1:8787", "origin": "http://localhost:5173"},
    {"host": "localhost:8787", "origin": "https://127.0.0.1"},
    {"host": "localhost:8787", "origin": "http://[::1]:3000"},
]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "POST", "DELETE"])
@pytest.mark.parametrize("headers", FOREIGN)
def test_without_keys_a_web_page_of_elsewhere_is_refused(headers: dict[str, str], method: str) -> None:
    server = Server(hosts=())
    server("PUT", "/v1/stream/s", TEXT, b"x")
    before = server.dump()
    answer = server(method, "/v1/stream/s", {**TEXT, **headers}, b"y" if method == "POST" else b"")
    assert answer.status == 403
    if method != "HEAD":
        assert answer.json["error"]["code"] == "forbidden"
        assert "--allow-host" in answer.json["error"]["message"]
    assert server("OPTIONS", "/v1/stream/s", headers).status == 204, "a preflight is no request yet"
    assert server.dump() == before
    assert server("GET", "/v1/stream/s").body == b"x"


@pytest.mark.parametrize("headers", OWN)
def test_without_keys_programs_and_pages_of_this_machine_are_served(headers: dict[str, str]) -> None:
    server = Server(hosts=())
    assert server("PUT", "/v1/stream/s", {**TEXT, **headers}).status == 201
    assert server("OPTIONS", "/v1/stream/s", headers).status == 204


def test_without_keys_hosts_can_be_allowed() -> None:
    assert access.parse_hosts(" Demo, fd00::1,", allow_insecure=True) == {"demo", "fd00::1"}
    some, everybody = (
        access.parse("", access.parse_hosts(text, allow_insecure=insecure))
        for text, insecure in [("demo", False), ("", True)]
    )
    for server in (some, everybody):
        server.check_sender("demo:8787", "http://DEMO")
        server.check_sender(None, None)  # no browser
    everybody.check_sender("evil.example", "null")
    with pytest.raises(Forbidden):
        some.check_sender("evil.example", None)
    with pytest.raises(AccessError, match="not a host name"):
        access.parse_hosts("http://demo", allow_insecure=False)


@pytest.mark.parametrize("headers", FOREIGN)
def test_with_keys_the_key_decides_and_the_page_does_not(headers: dict[str, str]) -> None:
    server = Server(KEYS)
    assert server("PUT", "/v1/stream/s", {**TEXT, **headers}, key="all").status == 201
    assert server("GET", "/v1/stream/s", headers).status == 401
    assert server("OPTIONS", "/v1/stream/s", headers).status == 204


def test_listing_covers_each_name_once() -> None:
    grant = Grant(ALL, ("b", "a", "ab", "c"))
    assert grant.within("") == ["a", "b", "c"]
    assert grant.within("ab") == ["ab"]
    assert grant.within("abc") == ["abc"]
    assert grant.within("x") == []


KEYS = "all,reader:read,writer:write,deleter:delete,admin:admin,mine:r+w+d+a:my.|our"


@pytest.mark.parametrize(
    ("method", "needs"),
    [("GET", "reader"), ("HEAD", "reader"), ("POST", "writer"), ("DELETE", "deleter"), ("PUT", "admin")],
)
def test_each_route_needs_its_scope(method: str, needs: str) -> None:
    server = Server(KEYS)
    server("PUT", "/v1/stream/s", TEXT, key="all")
    for key in ("reader", "writer", "deleter", "admin"):
        answer = server(method, "/v1/stream/s", TEXT, b"x" if method == "POST" else b"", key=key)
        assert (answer.status != 403) == (key == needs), (key, answer)
        if answer.status == 403 and method != "HEAD":
            assert answer.json["error"]["code"] == "forbidden"


@pytest.mark.parametrize("target", ["/v1/stream/s", "/v1/streams", "/nowhere"])
def test_without_a_key_there_is_nothing_to_see(target: str) -> None:
    answer = Server(KEYS)("GET", target)
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json["error"]["code"] == "unauthorized"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_liveness_the_document_and_preflights_need_no_key() -> None:
    assert Server(KEYS)("GET", "/health").status == 200
    assert Server(KEYS)("GET", "/openapi.json").status == 200
    assert Server(KEYS)("OPTIONS", "/v1/stream/s").status == 204


def test_a_prefix_is_a_boundary_for_names_sources_and_listings() -> None:
    server = Server(KEYS)
    for name in ("my.a", "our", "other"):
        assert server("PUT", f"/v1/stream/{name}", TEXT, key="all").status == 201
    assert server("GET", "/v1/stream/my.a", key="mine").status == 200
    assert server("GET", "/v1/stream/my%2Ea", key="mine").status == 200
    assert server("GET", "/v1/stream/other", key="mine").status == 403
    assert server("PUT", "/v1/stream/my.f", {"stream-forked-from": "/v1/stream/other"}, key="mine").status == 403
    assert [row["name"] for row in server("GET", "/v1/streams", key="mine").json] == ["my.a", "our"]
    assert [row["name"] for row in server("GET", "/v1/streams?prefix=o", key="mine").json] == ["our"]


def test_a_fork_needs_read_on_its_source() -> None:
    server = Server(KEYS)
    server("PUT", "/v1/stream/s", TEXT, key="all")
    fork = {"stream-forked-from": "/v1/stream/s"}
    assert server("PUT", "/v1/stream/f", fork, key="admin").status == 403
    assert server("PUT", "/v1/stream/f", fork, key="all").status == 201


def test_what_keys_protect_is_private_to_caches() -> None:
    server = Server(KEYS)
    server("PUT", "/v1/stream/s", TEXT, b"x", key="all")
    assert server("GET", "/v1/stream/s", key="reader").headers["cache-control"] == "private, no-cache"


def test_a_key_is_found_again_by_its_id_until_it_is_revoked() -> None:
    keys = access.parse("one:read:mine.,two")
    held = keys.grant("Bearer one")
    assert keys.grant_of(held.key_id) == held
    with pytest.raises(Unauthorized):
        access.parse("two").grant_of(held.key_id)
    with pytest.raises(Unauthorized):
        keys.grant_of("")
    assert access.parse("").grant_of(held.key_id) == Grant()


def test_an_id_of_two_keys_is_that_of_none() -> None:
    twins = {b"1": Grant(Scope.READ, key_id="12345678"), b"2": Grant(key_id="12345678")}
    with pytest.raises(Unauthorized):
        access.Access(twins).grant_of("12345678")
