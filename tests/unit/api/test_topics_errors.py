"""The errors that the door itself answers on `/v0`: each has the contract's form and code, and those of streams theirs."""

from __future__ import annotations

import math
from dataclasses import replace
from types import ModuleType

import pytest

from functions.access import Access, parse
from functions.api.context import assemble
from functions.api.door.errors import at_shutdown
from functions.api.topics.calls import TOPICS
from headrace.clock import check_deadline
from headrace.errors import (
    Conflict,
    Damaged,
    Gone,
    HeadraceError,
    InvalidRequest,
    LimitReached,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    PayloadTooLarge,
    RequestTimeout,
    StoreError,
    StoreThrottled,
    StoreTimeout,
)
from headrace.memory import memory_stores
from headrace.routers import errors as of_routers
from headrace.routers.errors import FanIn, Repointed, RouterCycle, RouterNotFound
from headrace.settings import Settings
from headrace.topics import errors as of_topics
from headrace.topics.errors import (
    BatchTooLarge,
    Incompatible,
    NotAQueue,
    NotEmpty,
    RecordTooLarge,
    Routed,
    TopicFull,
    TopicNotFound,
)
from tests.support.faults import Faulty
from tests.unit.api.asgi import Answer, Server
from tests.unit.api.topics import ROOT, T, append, ask, code

ERRORS: list[tuple[Exception, str, int, str]] = [
    (InvalidRequest("x"), "PUT", 400, "invalid_request"),
    (BatchTooLarge("x"), "POST", 400, "batch_too_large"),
    (RecordTooLarge("x"), "POST", 400, "record_too_large"),
    (PayloadTooLarge("x"), "POST", 413, "payload_too_large"),
    (NotFound("x"), "GET", 404, "topic_not_found"),
    (TopicNotFound("x"), "GET", 404, "topic_not_found"),
    (Gone("x"), "GET", 410, "gone"),
    (Conflict("x"), "PUT", 409, "conflict"),
    (Incompatible("x"), "PUT", 409, "topic_exists_incompatible"),
    (NotEmpty("x"), "DELETE", 409, "topic_not_empty"),
    (Routed("x"), "DELETE", 409, "topic_routed"),
    (RouterNotFound("x"), "GET", 404, "router_not_found"),
    (RouterCycle("x", ["a", "b", "a"]), "PUT", 409, "router_cycle"),
    (FanIn("x", "y"), "PUT", 409, "topic_exists_incompatible"),
    (Repointed("x", "y", "z"), "PUT", 409, "topic_exists_incompatible"),
    (NotAQueue("x"), "POST", 409, "not_a_queue"),
    (TopicFull("x", {}), "POST", 422, "topic_full"),
    (Overloaded("x"), "POST", 429, "throttled"),
    (LimitReached("max_topics", 3), "PUT", 429, "throttled"),
    (StoreThrottled("x"), "POST", 429, "throttled"),
    (OutcomeUnknown(), "POST", 408, "outcome_unknown"),
    (StoreTimeout("x"), "POST", 408, "outcome_unknown"),
    (StoreTimeout("x"), "GET", 503, "not_ready"),
    (StoreError("x"), "POST", 503, "not_ready"),
    (RequestTimeout(), "GET", 408, "request_timeout"),
    (Damaged("x"), "GET", 500, "internal"),
    (ZeroDivisionError("x"), "GET", 500, "internal"),
]


@pytest.mark.parametrize("module", [of_topics, of_routers])
def test_no_error_of_topics_is_forgotten(module: ModuleType) -> None:
    kinds = {kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__}
    assert kinds == {type(error) for error, *_ in ERRORS if type(error).__module__ == module.__name__}


@pytest.mark.parametrize(("error", "method", "status", "name"), ERRORS)
def test_every_error_has_its_code(error: Exception, method: str, status: int, name: str) -> None:
    answer = TOPICS.response_to(error, method)
    assert code(Answer(answer.status_code, dict(answer.headers), bytes(answer.body))) == (status, name)
    assert ("retry-after" in answer.headers) == (status in (429, 503))
    assert answer.headers["cache-control"] == "no-store"


def test_a_refusal_for_load_says_when_to_come_again() -> None:
    def detail(error: HeadraceError) -> object:
        answer = TOPICS.response_to(error, "POST")
        return Answer(429, {}, bytes(answer.body)).json["error"]["detail"]

    assert detail(Overloaded("x", retry_after_s=3)) == {"retry_after_ms": 3000}
    assert detail(LimitReached("max_topics", 3)) == {"limit": "max_topics", "max": 3}


def test_a_server_that_stops_says_so() -> None:
    answer = at_shutdown("GET", TOPICS.errors, TOPICS.codes)
    assert code(Answer(answer.status_code, {}, bytes(answer.body))) == (503, "shutting_down")
    assert answer.headers["retry-after"]
    assert at_shutdown("POST", TOPICS.errors, TOPICS.codes).status_code == 408  # it may have written


@pytest.mark.parametrize(
    ("method", "target", "status", "name"),
    [
        ("PATCH", T, 405, "method_not_allowed"),
        ("POST", ROOT, 405, "method_not_allowed"),
        ("GET", f"{T}/diff", 405, "method_not_allowed"),
        ("POST", f"{T}/work", 405, "method_not_allowed"),
        ("PUT", "/v0/health", 405, "method_not_allowed"),
        ("GET", "/v0/nothing", 404, "not_found"),
        ("GET", f"{T}/nothing", 404, "not_found"),
        ("POST", f"{T}/diff/more", 404, "not_found"),
        ("GET", f"{ROOT}/", 400, "invalid_request"),
        ("PUT", f"{ROOT}/-x", 400, "invalid_request"),
        ("PUT", f"{ROOT}/a%2Fb", 400, "invalid_request"),
        ("PUT", f"{ROOT}/a%20b", 400, "invalid_request"),
        ("PUT", f"{ROOT}/%ff", 400, "invalid_request"),
        ("PUT", f"{ROOT}/%", 400, "invalid_request"),
        ("PUT", f"{ROOT}/{'x' * 256}", 400, "invalid_request"),
        ("PUT", f"{ROOT}/é", 400, "invalid_request"),
        ("POST", f"{ROOT}/a%2Fdiff", 400, "invalid_request"),
        ("PUT", "/v0/%74opics/x", 400, "invalid_request"),
    ],
)
def test_paths_that_lead_nowhere(method: str, target: str, status: int, name: str) -> None:
    answer = Server()(method, target)
    assert code(answer) == (status, name)
    assert (status == 405) == ("allow" in answer.headers)


@pytest.mark.parametrize("name", ["diff", "work", "delete", "claim", "topics", "a:b._-9", "x" * 255])
def test_a_topic_may_have_the_name_of_a_resource(name: str) -> None:
    server = Server()
    assert append(server, 1, topic=name).status == 201
    assert ask(server, "GET", f"{ROOT}/{name}").json["topic"] == name


def test_streams_answer_in_their_own_words() -> None:
    server = Server()
    assert server("GET", "/v1/stream/s").json == {
        "error": {"code": "not_found", "message": server("GET", "/v1/stream/s").json["error"]["message"]}
    }
    assert server("PUT", "/v1/stream/%ff").json["error"]["code"] == "bad_request"
    assert server("GET", "/nothing").json["error"]["code"] == "not_found"


def test_a_target_that_is_no_path_is_answered() -> None:
    server = Server()
    assert server("OPTIONS", "*").status == server("OPTIONS", T).status == 204
    assert code(server("GET", "*")) == (404, "not_found")


def test_a_store_that_is_away_is_told_without_details() -> None:
    server = Server()
    append(server, 1)
    stores = server.stores
    wal = Faulty(stores.wal)
    wal.fail("newest", StoreError, times=99)
    away = Server(parts=assemble(replace(stores, wal=wal), Access({}, "*")))
    answer = ask(away, "GET", T)
    assert code(answer) == (503, "not_ready")
    assert b"made to fail" not in answer.body
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize("target", ["/v0/ready", "/v0/metrics"])
def test_counting_topics_has_the_deadline_of_a_request(target: str) -> None:
    sessions = Faulty(memory_stores().sessions)
    sessions.on("counts", check_deadline, times=math.inf)  # as the adapter in DynamoDB does before each call
    stores = replace(memory_stores(Settings(metrics_interval_ms=0)), sessions=sessions)
    assert Server(parts=assemble(stores, parse("", "*")))("GET", target).status == 200
    late = replace(stores, settings=Settings(metrics_interval_ms=0, request_timeout_ms=0))
    answer = Server(parts=assemble(late, parse("", "*")))("GET", target)
    assert code(answer) == (408, "request_timeout")
