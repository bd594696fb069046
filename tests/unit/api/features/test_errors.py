"""The errors of feature tables: each has the contract's form and code, says whether something may have been written, and is
JSON whatever happens.
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace as replace_setting

from functions.access import Access
from functions.api.context import Context, assemble
from functions.api.features import calls
from functions.api.features.calls import (
    FEATURES,
    MAX_WRITE_BYTES,
    ChangeUnknown,
    JobUnknown,
    KeyNotFound,
    NameNotFound,
)
from functions.refusals import Forbidden, Unauthorized
from headrace.errors import (
    Damaged,
    HeadraceError,
    InvalidRequest,
    LimitReached,
    NewerFormat,
    OutcomeUnknown,
    Overloaded,
    PayloadTooLarge,
    RequestTimeout,
    StoreError,
    StoreThrottled,
    StoreTimeout,
)
from headrace.features import errors as of_features
from headrace.features.errors import (
    Behind,
    CodedRefusal,
    EventNotFound,
    EventRefused,
    FeatureNotFound,
    ForceRequired,
    JobNotFound,
    KeyRefused,
    RegistrationError,
    ResetDisabled,
    Stopped,
    TableNotFound,
    Unfolded,
    WrongLane,
)
from headrace.features.values import MAX_READ
from headrace.log.stores import Stores
from headrace.memory import memory_stores
from headrace.tables.marks import Mark, Stop
from tests.support.faults import Faulty
from tests.unit.api.asgi import TEXT, Answer, Server, http_scope
from tests.unit.api.features.wire import SETTINGS, ask, code, get, refusal, register, serving
from tests.unit.features.world import event, rows_of, table, tx

DIFF: dict[str, Any] = {"additive": [], "destructive": [{"kind": "agg_removal"}], "already_present": []}
ERRORS: list[tuple[Exception, str, int, str]] = [
    (CodedRefusal("invalid_json_body", "x"), "/push", 400, "invalid_json_body"),
    (EventRefused("unknown_field_v0", "x"), "/push", 400, "unknown_field_v0"),
    (EventNotFound("x"), "/push", 404, "event_not_found"),
    (Unfolded("x", 1), "/push", 429, "overloaded"),
    (Overloaded("x"), "/push", 429, "overloaded"),
    (WrongLane("x"), "/push", 409, "conflict"),
    (LimitReached("max_deduped_events", 90), "/push", 429, "throttled"),
    (StoreThrottled("x"), "/push", 429, "overloaded"),
    (OutcomeUnknown(), "/push", 408, "outcome_unknown"),
    (StoreTimeout("x"), "/push", 408, "outcome_unknown"),
    (StoreTimeout("x"), "/push/get", 408, "outcome_unknown"),
    (StoreError("x"), "/push", 503, "unavailable"),
    (PayloadTooLarge("x"), "/push", 413, "payload_too_large"),
    (InvalidRequest("x"), "/get", 400, "invalid_request"),
    (TableNotFound("x"), "/get", 404, "unknown_table"),
    (JobNotFound("x"), "/jobs/x", 404, "job_not_found"),
    (FeatureNotFound("x", ["y"]), "/get", 404, "feature_not_found"),
    (KeyRefused("x"), "/get", 404, "key_parse_failure"),
    (NameNotFound("x"), "/get/x/y", 404, "feature_not_found"),
    (KeyNotFound(), "/get/x/y", 404, "key_not_found"),
    (Behind("x", 1), "/get", 503, "unavailable"),
    (Stopped("x", "y"), "/get", 503, "table_stopped"),
    (StoreTimeout("x"), "/get", 503, "unavailable"),
    (StoreTimeout("x"), "/features/ns/batch_get", 503, "unavailable"),
    (RequestTimeout(), "/batch_get", 408, "request_timeout"),
    (NewerFormat("x", 2, 1), "/get", 503, "unavailable"),
    (Damaged("x"), "/get", 500, "internal_error"),
    (ZeroDivisionError("x"), "/get", 500, "internal_error"),
    (ResetDisabled(), "/reset", 403, "reset_disabled_in_production"),
    (ChangeUnknown(), "/reset", 503, "wal_unavailable"),
    (JobUnknown(), "/backfill", 408, "outcome_unknown"),
    (RegistrationError("invalid_window", "nodes[0]", "x"), "/register", 400, "invalid_window"),
    (ForceRequired(DIFF), "/register", 409, "force_required"),
    (ChangeUnknown(), "/register", 503, "wal_unavailable"),
    (Unauthorized(), "/register", 401, "unauthorized"),
    (Forbidden("x"), "/features/ns/register", 403, "forbidden"),
    (LimitReached("max_inflight_per_key", 1), "/register", 429, "throttled"),
    (Damaged("x"), "/register", 500, "internal_error"),
]


def answer_to(error: Exception, target: str) -> Answer:
    """Returns the response to a request that ended with an error, as the door builds it."""
    scope = http_scope("POST", target, {})
    answer = FEATURES.response_to(error, "GET" if FEATURES.only_asks(scope) else "POST", scope)
    return Answer(answer.status_code, dict(answer.headers), bytes(answer.body))


@pytest.mark.parametrize("module", [of_features, calls])
def test_no_error_of_feature_tables_is_forgotten(module: ModuleType) -> None:
    kinds = {
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, HeadraceError) and kind.__module__ == module.__name__
    }
    assert kinds == {type(error) for error, *_ in ERRORS if type(error).__module__ == module.__name__}


@pytest.mark.parametrize(("error", "target", "status", "name"), ERRORS)
def test_every_error_has_its_code(error: Exception, target: str, status: int, name: str) -> None:
    answer = answer_to(error, target)
    assert (answer.status, answer.json["error"]["code"]) == (status, name)
    if target.endswith("/register"):
        assert set(answer.json) == {"error", "registry_version"}
        assert answer.json["error"]["reason"]
    else:
        assert code(answer) == (status, name)
    assert ("retry-after" in answer.headers) == (status in (429, 503) and not isinstance(error, Stopped))
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"].startswith("application/json")


def test_what_may_have_been_written_is_said() -> None:
    for error, target in ((StoreTimeout("x"), "/push"), (OutcomeUnknown(), "/push/Tx/batch")):
        assert "may have been written" in answer_to(error, target).json["error"]["message"]
    assert "may have been written" in answer_to(ChangeUnknown(), "/register").json["error"]["reason"]


def test_a_server_that_stops_says_what_may_have_been_written() -> None:
    for target, status, name in (
        ("/register", 503, "wal_unavailable"),
        ("/features/ns/reset", 503, "wal_unavailable"),
        ("/push", 408, "outcome_unknown"),
        ("/push/register", 408, "outcome_unknown"),
        ("/snapshot", 408, "outcome_unknown"),
    ):
        answer = FEATURES.at_shutdown("POST", http_scope("POST", target, {}))
        assert (answer.status_code, Answer(0, {}, bytes(answer.body)).json["error"]["code"]) == (status, name)
    asking = FEATURES.at_shutdown("GET", http_scope("POST", "/get", {}))  # the door's word for a POST that only asks
    assert asking.status_code == 503
    assert asking.headers["retry-after"]


def test_errors_of_registrations_have_the_version_and_the_place() -> None:
    server = serving()
    assert register(server, {"kind": "stream", "name": "T"}).json == {
        "error": {
            "code": "unsupported_node_kind",
            "path": "nodes[0].T.kind",
            "reason": "kind must be 'event' or 'derivation', not 'stream'; tables are derivations with output_kind 'table'",
        },
        "registry_version": 1,
    }
    for body in (b"", b"{", b"[]", b"null", b'{"nodes":null}', b'{"nodes":{}}', b'{"descriptors":[]}', b"\xff"):
        answer = ask(server, "POST", "/register", body)
        assert refusal(answer) == (400, "invalid_registration", "<body>")
        assert answer.json["registry_version"] == 1
    bad = table("V", "Nope")
    assert refusal(register(server, bad)) == (400, "invalid_registration", "nodes[0].upstreams[0]")
    assert refusal(register(server, event(), under="/features/-x"))[:2] == (400, "invalid_request")


def test_a_registration_must_be_declared_as_json_and_nothing_else_must() -> None:
    server = serving()
    expected = (
        b'{"error":{"code":"unsupported_media_type","path":"/register","reason":"expected application/json"},'
        b'"registry_version":0}'
    )
    for kind in ("text/plain", "application/x-www-form-urlencoded", "nonsense", ""):
        answer = server("POST", "/register", {"content-type": kind}, b'{"nodes":[]}')
        assert (answer.status, answer.body) == (415, expected)
    assert (
        server("POST", "/register", {"content-type": "Application/JSON; charset=utf-8"}, b'{"nodes":[]}').status
        == 200
    )
    assert server("POST", "/push/Tx", TEXT, b'{"user":"a","amount":1,"n":1}').status == 200
    assert server("POST", "/get", TEXT, b'{"table":"U","key":"a"}').json == {"c": 1, "s": 1.0}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "invalid_json_body"),
        (b"{", "invalid_json_body"),
        (b'{"event":"Tx","data":{"user":"\\ud800"}}', "invalid_json_body"),
        (b'{"event":"Tx","data":NaN}', "invalid_json_body"),
        (b"[" * 5000, "invalid_json_body"),
        (b'[{"event":"Tx"}]', "missing_event_name_in_body"),
        (b"1", "missing_event_name_in_body"),
        (b'{"data":{}}', "missing_event_name_in_body"),
        (b'{"event":"","data":{}}', "missing_event_name_in_body"),
        (b'{"event":7,"data":{}}', "missing_event_name_in_body"),
        (b'{"event":"Tx"}', "invalid_event"),
        (b'{"event":"Tx","data":[]}', "invalid_event"),
        (b'{"event":"Tx","data":{"user":"a","amount":1}}', "invalid_event"),
        (b'{"event":"Tx","data":{"user":"a","amount":1,"n":1,"x":1}}', "unknown_field_v0"),
        (b'{"event":"Tx","data":{"user":"a","amount":1,"n":1,"event_time":1}}', "unknown_field_event_time_v0"),
        (b'{"event":"Tx","data":{"user":"a\\tb","amount":1,"n":1}}', "control_character_in_string"),
    ],
)
def test_what_is_wrong_with_a_push(body: bytes, expected: str) -> None:
    server = serving()
    before = server.dump()
    assert code(ask(server, "POST", "/push", body)) == (400, expected)
    assert server.dump() == before


@pytest.mark.parametrize("name", ["No", "Big", "U", ".registry", "Tx/x", "a b", "x" * 200, "é"])
def test_only_registered_events_take_pushes(name: str) -> None:
    big = {"kind": "derivation", "name": "Big", "output_kind": "event", "upstreams": ["Tx"], "ops": [], "schema": {}}
    server = serving(event(), big, table())
    assert code(ask(server, "POST", "/push", {"event": name, "data": tx()})) == (404, "event_not_found")


def test_too_much_is_413() -> None:
    server = serving()
    for target in ("/push", "/push/Tx", "/push/Tx/batch"):
        assert code(ask(server, "POST", target, b" " * (MAX_WRITE_BYTES + 1))) == (413, "payload_too_large")
    answer = ask(server, "POST", "/register", b" " * (MAX_WRITE_BYTES + 1))
    assert (answer.status, answer.json["error"]["code"]) == (413, "payload_too_large")
    too_many = b'{"requests":[%s]}' % b",".join([b'{"table":"U","key":"a"}'] * (MAX_READ + 1))
    assert code(ask(server, "POST", "/batch_get", too_many)) == (413, "payload_too_large")
    assert code(ask(server, "POST", "/batch_get", b" " * 6_000_001)) == (413, "payload_too_large")
    assert code(ask(server, "POST", "/push/Tx/batch", [{}] * 10_001)) == (413, "payload_too_large")


def test_an_answer_that_is_too_large_is_413() -> None:
    server = serving(event(), table("Texts", last=("last_n", {"field": "user", "n": 900}), keys=[]))
    ask(server, "POST", "/push/Tx/batch", [tx("x" * 900)] * 900)
    body = {"requests": [{"table": "Texts", "key": ""}] * 10}
    assert code(ask(server, "POST", "/batch_get", body)) == (413, "payload_too_large")
    assert ask(server, "POST", "/batch_get", {"requests": body["requests"][:2]}).status == 200


@pytest.mark.parametrize("under", ["", "/features/ns"])
@pytest.mark.parametrize(
    ("method", "target"),
    [
        *(("GET", f"/{name}") for name in ("register", "push", "get", "batch_get", "ping", "reset", "push/Tx/batch")),
        *(("POST", target) for target in ("/registry", "/ready", "/get/U/a")),
        *((method, "/push") for method in ("PUT", "DELETE", "PATCH", "PROPFIND")),
    ],
)
def test_another_method_is_405_in_the_contract_s_form(under: str, method: str, target: str) -> None:
    answer = Server(settings=SETTINGS)(method, under + target)
    assert answer.status == 405
    expected = {"code": "method_not_allowed", "method": method, "path": under + target}
    assert answer.json == {"error": expected}
    assert "OPTIONS" in answer.headers["allow"]


@pytest.mark.parametrize(
    ("target", "status", "name"),
    [
        ("/push_many", 404, "not_found"),
        ("/push/Tx/other", 404, "not_found"),
        ("/mget", 404, "not_found"),
        ("/features/ns", 404, "not_found"),
        ("/features/ns/nothing", 404, "not_found"),
        ("/features//push", 404, "not_found"),
        ("/%70ush", 400, "invalid_request"),
        ("/push/a%2Fbatch", 400, "invalid_request"),
        ("/features/-x/push", 400, "invalid_request"),
        ("/features/%ff/push", 400, "invalid_request"),
        ("/features/a%20b/push", 400, "invalid_request"),
        (f"/features/{'x' * 65}/push", 400, "invalid_request"),
        ("/push/%ff", 400, "invalid_request"),
        ("/push/%zz", 400, "invalid_request"),
    ],
)
def test_paths_that_lead_nowhere(target: str, status: int, name: str) -> None:
    answer = ask(serving(), "POST", target, tx())
    assert (answer.status, answer.json["error"]["code"]) == (status, name)


def on(stores: Stores, **ports: Any) -> Server:
    """Returns another process on the same stores, but for some."""
    return Server(parts=_context(replace(stores, **ports)))


def _context(stores: Stores) -> Context:
    return assemble(stores, Access({}, "*"))


def test_a_push_whose_answer_is_lost_may_have_been_written() -> None:
    server = serving()
    wal = Faulty(server.stores.wal)
    other = on(server.stores, wal=wal, settings=replace_setting(SETTINGS, append_timeout_ms=100))
    ask(other, "POST", "/push/Tx", tx())
    wal.fail("commit", after=True)
    wal.fail("commit", call=2, times=math.inf)  # so that the process never learns that it was
    lost = ask(other, "POST", "/push/Tx", tx())
    assert code(lost) == (408, "outcome_unknown")
    assert get(server) == {"c": 2, "s": 2.0}


def test_a_store_that_is_away_is_told_without_details() -> None:
    server = serving()
    wal = Faulty(server.stores.wal)
    wal.fail("newest", StoreError, times=99)
    wal.fail("read", StoreError, times=99)
    other = on(server.stores, wal=wal)
    for target, body in (("/get", {"table": "U", "key": "a"}), ("/push/Tx", tx()), ("/ping", {})):
        answer = ask(other, "POST", target, body)
        assert code(answer) == (503, "unavailable"), target
        assert b"made to fail" not in answer.body
    answer = ask(other, "POST", "/register", b"{")
    assert refusal(answer) == (400, "invalid_registration", "<body>")
    assert answer.json["registry_version"] == 0


def test_a_dry_run_whose_store_fails_has_changed_nothing() -> None:
    server = serving()
    wal = Faulty(server.stores.wal)
    wal.fail("newest", StoreError, times=99)
    wal.fail("read", StoreError, times=99)
    body = {"nodes": [table("Other")], "dry_run": True}
    answer = ask(on(server.stores, wal=wal), "POST", "/register", body)
    assert (answer.status, answer.json["error"]["code"]) == (408, "request_timeout")


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_registration_that_dies_half_way_may_take_effect_and_can_be_repeated(call: int) -> None:
    stores = memory_stores(SETTINGS)
    wal = Faulty(stores.wal)
    server = on(stores, wal=wal)
    wal.fail("commit", StoreError, call=call)
    answer = register(server, event(), table())
    if answer.status != 200:
        assert answer.status == 503
        assert answer.json["error"]["code"] == "wal_unavailable"
        assert answer.json["error"]["path"] == "/register"
        assert answer.headers["retry-after"]
        answer = register(server, event(), table())
    assert answer.json["registry_version"] == 1
    assert answer.json["registered_descriptors"] == ["Tx", "U"]
    assert ask(server, "POST", "/push/Tx", tx()).status == 200
    assert get(server) == {"c": 1, "s": 1.0}


def test_a_table_that_has_stopped_is_told_for_itself() -> None:
    server = serving(event(), table(), table("V", c2="count"))
    ask(server, "POST", "/push/Tx", tx())
    log_id = server.parts.features().head("default/Tx").log_id
    stop = Stop("U.1.0", 0, "it fails")
    assert rows_of(server.stores).put_mark(Mark(log_id, 0, generations=("U.1.0", "V.1.0"), stopped=(stop,)))
    fresh = on(server.stores)
    assert code(ask(fresh, "POST", "/get", {"table": "U", "key": "a"})) == (503, "table_stopped")
    body = {"requests": [{"table": "U", "key": "a"}, {"table": "V", "key": "a"}]}
    stopped, living = ask(fresh, "POST", "/batch_get", body).json["results"]
    assert stopped["error"]["code"] == "table_stopped"
    assert living == {"c2": 1}
