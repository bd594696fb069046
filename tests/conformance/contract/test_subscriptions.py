"""Subscriptions: what the official suite does not ask. Streams, ids and receivers are each test's own."""

from __future__ import annotations

import base64
import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.conformance.contract.client import JSON, Api, Stream, eventually, expect, given, shown
from tests.conformance.contract.test_scopes import KEYS
from tests.support.emulated_cloud import dev_server

LEASE_MS = 1_000


@dataclass(frozen=True)
class Subscription:
    """One subscription of a server, to streams below a folder of its own."""

    api: Api
    folder: str = field(default_factory=lambda: f"f{uuid.uuid4().hex[:12]}")

    @property
    def id(self) -> str:
        return f"s-{self.folder}"

    @property
    def pool(self) -> Stream:
        """The wake stream."""
        return Stream(self.api, f"pool-{self.folder}")

    def at(self, method: str, sub: str = "", body: object = None, token: str | None = None) -> httpx.Response:
        path = f"/v1/stream/__ds/subscriptions/{self.id}{sub}"
        api = self.api if token is None else self.api.with_key(token)
        return api.request(method, path, JSON, body)

    def put(self, **changes: Any) -> httpx.Response:
        asked = {
            "type": "pull-wake",
            "pattern": f"{self.folder}/*",
            "wake_stream": self.pool.name,
            "lease_ttl_ms": LEASE_MS,
            **changes,
        }
        return self.at("PUT", "", {name: value for name, value in asked.items() if value is not None})

    def hook(self, url: str, **changes: Any) -> httpx.Response:
        return self.put(**{"type": "webhook", "webhook": {"url": url}, "wake_stream": None, **changes})

    def stream(self, name: str = "a", *records: Any) -> Stream:
        """Returns a new stream that the pattern matches; with records, these are in it from the start."""
        stream = Stream(self.api, f"{self.folder}/{name}")
        given(stream.put(JSON, list(records) if records else None))
        return stream

    def show(self) -> dict[str, Any]:
        found: dict[str, Any] = expect(self.at("GET"), 200).json()
        return found

    def acked(self) -> dict[str, str]:
        """Returns the cursor of each link, by path without the folder."""
        return {link["path"].removeprefix(f"{self.folder}/"): link["acked_offset"] for link in self.show()["streams"]}

    def wakes(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = expect(self.pool.read(), 200).json()
        return found

    def generations(self) -> list[int]:
        return [wake["generation"] for wake in self.wakes()]

    def claim(self, worker: str = "worker") -> httpx.Response:
        return self.at("POST", "/claim", {"worker": worker})

    def claimed(self, worker: str = "worker") -> dict[str, Any]:
        found: dict[str, Any] = expect(self.claim(worker), 200).json()
        return found

    def ack(self, wake: Mapping[str, Any], acks: Mapping[str, str] | None = None, **more: Any) -> httpx.Response:
        body = {"wake_id": wake["wake_id"], "generation": wake["generation"], **more}
        if acks is not None:
            body["acks"] = [{"stream": f"{self.folder}/{name}", "offset": offset} for name, offset in acks.items()]
        action, token = ("/ack", wake["token"]) if "token" in wake else ("/callback", wake["callback_token"])
        return self.at("POST", action, body, token)


@pytest.fixture
def sub(api: Api) -> Iterator[Subscription]:
    """Yields a subscription that is not created yet, with its wake stream."""
    own = Subscription(api)
    given(own.pool.put())
    yield own
    given(own.at("DELETE"))


def refused(answer: httpx.Response, status: int, code: str) -> None:
    expect(answer, status)
    assert answer.json()["error"]["code"] == code, shown(answer)


# Receivers.


@dataclass(frozen=True)
class Call:
    """A call of a webhook."""

    path: str
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.raw)
        return found


@dataclass
class Receiver:
    """A server that receives webhooks. It answers as `answer` says: with a status and a body."""

    url: str = ""
    calls: list[Call] = field(default_factory=list)
    answer: Callable[[Call], tuple[int, bytes]] = lambda _: (200, b'{"done":true}')

    def wait(self, count: int) -> list[Call]:
        """Returns the calls, at least so many."""
        return eventually(lambda: list(self.calls), lambda calls: len(calls) >= count)


@contextmanager
def receiver() -> Iterator[Receiver]:
    own = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            call = Call(self.path, {name.lower(): value for name, value in self.headers.items()}, raw)
            own.calls.append(call)
            status, body = own.answer(call)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            if status == 302:
                self.send_header("location", "/elsewhere")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    own.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield own
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as own:
        yield own


# Links.


def test_what_is_there_already_is_linked_at_its_tail(sub: Subscription) -> None:
    stream = sub.stream("a", 1, 2)
    expect(sub.put(), 201)
    assert sub.acked() == {"a": stream.head().headers["stream-next-offset"]}
    refused(sub.claim(), 409, "NO_PENDING_WORK")
    assert sub.wakes() == []


def test_a_later_stream_is_linked_by_its_first_append_with_all_that_it_holds(sub: Subscription) -> None:
    expect(sub.put(), 201)
    empty = sub.stream("empty")
    sub.stream("full", 1, 2)
    eventually(sub.acked, lambda acked: acked == {"full": "-1"})
    given(empty.append([1]))
    assert eventually(sub.acked, lambda acked: len(acked) == 2) == {"full": "-1", "empty": "-1"}
    pending = {view["path"] for view in sub.claimed()["streams"] if view["has_pending"]}
    assert pending == {f"{sub.folder}/empty", f"{sub.folder}/full"}


def test_other_streams_are_not_linked(sub: Subscription) -> None:
    expect(sub.put(), 201)
    sub.stream("a/b", 1)
    given(Stream(sub.api, sub.folder).put(JSON, [1]))
    sub.stream("a", 1)
    eventually(sub.acked, lambda acked: "a" in acked)
    assert set(sub.acked()) == {"a"}


def test_a_link_by_name_waits_for_its_stream_and_for_the_next_of_that_name(sub: Subscription) -> None:
    path = f"{sub.folder}/x/y"
    expect(sub.put(pattern=None, streams=[f"/{path}/"]), 201)
    assert sub.acked() == {"x/y": "-1"}
    stream = sub.stream("x/y", 1)
    assert eventually(sub.generations, bool) == [1]
    wake = sub.claimed()
    expect(sub.ack(wake, {"x/y": wake["streams"][0]["tail_offset"]}, done=True), 200)
    given(stream.delete())
    eventually(sub.acked, lambda acked: acked == {"x/y": "-1"})
    given(stream.put(JSON, [1]))
    assert eventually(sub.generations, lambda found: len(found) == 2) == [1, 2]


def test_a_stream_that_is_deleted_is_forgotten_and_its_successor_begins_anew(sub: Subscription) -> None:
    stream = sub.stream("a", *range(5))
    expect(sub.put(), 201)
    given(stream.delete())
    eventually(sub.acked, lambda acked: acked == {})
    given(stream.put(JSON, [1]))
    eventually(sub.acked, lambda acked: acked == {"a": "-1"})
    wake = sub.claimed()
    assert wake["streams"][0]["has_pending"]


def test_a_wake_whose_stream_is_deleted_is_closed_by_a_claim(sub: Subscription) -> None:
    stream = sub.stream()
    expect(sub.put(), 201)
    given(stream.append([1]))
    eventually(sub.generations, lambda found: found == [1])
    given(stream.delete())
    refused(sub.claim(), 409, "NO_PENDING_WORK")
    given(stream.put(JSON, [1]))
    assert eventually(sub.generations, lambda found: len(found) == 2) == [1, 2]


def test_removing_a_name_keeps_what_the_pattern_matches(sub: Subscription) -> None:
    sub.stream("a", 1)
    expect(sub.put(streams=[f"{sub.folder}/a", "other"]), 201)
    cursor = sub.acked()["a"]
    for path in (f"{sub.folder}/a", f"{sub.folder}%2Fa", "other", "never-linked"):
        expect(sub.at("DELETE", f"/streams/{path}"), 204)
    (link,) = sub.show()["streams"]
    assert (link["link_type"], link["acked_offset"]) == ("glob", cursor)


def test_a_close_wakes_nobody_and_an_append_that_closes_does(sub: Subscription) -> None:
    silent, loud = sub.stream("silent"), sub.stream("loud")
    expect(sub.put(), 201)
    given(sub.api.request("POST", silent.path, {"Stream-Closed": "true"}))
    given(sub.api.request("POST", loud.path, {**JSON, "Stream-Closed": "true"}, [1]))
    assert [wake["stream"] for wake in eventually(sub.wakes, bool)] == [f"{sub.folder}/loud"]
    assert [view["has_pending"] for view in sub.claimed()["streams"]] == [True, False]


def test_a_subscription_has_at_most_a_thousand_streams(sub: Subscription) -> None:
    names = [f"{sub.folder}/never/{n}" for n in range(1_001)]
    refused(sub.put(streams=names), 400, "INVALID_REQUEST")
    expect(sub.put(streams=names[:10]), 201)
    refused(sub.at("POST", "/streams", {"streams": names}), 400, "INVALID_REQUEST")
    assert len(sub.acked()) == 10


# Workers.


@pytest.mark.sensitive("workers race on several processes, and some of these remember nothing")
def test_of_many_workers_one_gets_the_wake(sub: Subscription) -> None:
    stream = sub.stream()
    expect(sub.put(lease_ttl_ms=30_000), 201)
    given(stream.append([1]))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: sub.claim(f"worker-{number}"), range(8)))
    assert sorted(answer.status_code for answer in answers) == [200, *[409] * 7]
    winner = next(answer.json() for answer in answers if answer.status_code == 200)
    errors = [answer.json()["error"] for answer in answers if answer.status_code == 409]
    assert {error["code"] for error in errors} == {"ALREADY_CLAIMED"}
    assert len({error["current_holder"] for error in errors}) == 1
    assert {error["generation"] for error in errors} == {winner["generation"]} == {1}
    assert eventually(sub.generations, bool) == [1]


@pytest.mark.sensitive("the fence must hold on every process")
def test_a_worker_whose_lease_ended_changes_nothing_any_more(sub: Subscription) -> None:
    stream = sub.stream()
    expect(sub.put(), 201)
    tail = given(stream.append([1])).headers["stream-next-offset"]
    late = sub.claimed("late")
    assert eventually(sub.generations, lambda found: 2 in found)[:2] == [1, 2]
    for answer in (
        sub.ack(late),
        sub.ack(late, {"a": tail}, done=True),
        sub.at("POST", "/release", {"wake_id": late["wake_id"], "generation": 1}, late["token"]),
    ):
        refused(answer, 409, "FENCED")
    assert sub.acked()["a"] != tail
    now = sub.claimed("quick")
    assert now["generation"] >= 2
    stolen = {**now, "token": late["token"]}
    refused(sub.ack(stolen, {"a": tail}, done=True), 409, "FENCED")
    expect(sub.ack(now, {"a": tail}, done=True), 200)


def test_a_heartbeat_keeps_the_lease(sub: Subscription) -> None:
    stream = sub.stream()
    expect(sub.put(lease_ttl_ms=3_000), 201)
    given(stream.append([1]))
    wake = sub.claimed()
    ended = threading.Event()
    for _ in range(8):  # 4 s
        ended.wait(0.5)
        assert expect(sub.ack(wake), 200).json() == {"ok": True, "next_wake": False}
    refused(sub.claim("other"), 409, "ALREADY_CLAIMED")
    assert sub.generations() == [1]


def test_done_with_work_left_wakes_again_at_once(sub: Subscription) -> None:
    stream = sub.stream()
    expect(sub.put(), 201)
    first = given(stream.append([1])).headers["stream-next-offset"]
    given(stream.append([2]))
    wake = sub.claimed()
    assert expect(sub.ack(wake, {"a": first}, done=True), 200).json() == {"ok": True, "next_wake": True}
    assert sub.generations() == [1, 2]
    assert sub.acked() == {"a": first}


def test_a_release_keeps_earlier_acks_and_is_announced_again(sub: Subscription) -> None:
    stream = sub.stream()
    expect(sub.put(lease_ttl_ms=30_000), 201)
    first = given(stream.append([1])).headers["stream-next-offset"]
    given(stream.append([2]))
    wake = sub.claimed()
    expect(sub.ack(wake, {"a": first}), 200)
    expect(sub.at("POST", "/release", {"wake_id": wake["wake_id"], "generation": 1}, wake["token"]), 204)
    assert sub.generations() == [1, 2]
    assert sub.acked() == {"a": first}


def test_of_a_refused_ack_nothing_is_done(sub: Subscription) -> None:
    stream, other = sub.stream("a", 1), sub.stream("b")
    expect(sub.put(lease_ttl_ms=30_000), 201)
    before = sub.acked()
    tail = given(stream.append([2])).headers["stream-next-offset"]
    beyond = given(other.append(list(range(9)))).headers["stream-next-offset"]
    wake = sub.claimed()
    start = given(stream.read(offset="-1", format="json")).headers["stream-next-offset"]
    assert start == tail
    for bad in ({"unknown": tail}, {"a": "-1"}, {"a": beyond}, {"a": "0" * 26}, {"a": "x"}):
        refused(sub.ack(wake, {"b": before["b"], **bad}, done=True), 409, "INVALID_OFFSET")
    refused(sub.at("POST", "/ack", {"wake_id": wake["wake_id"], "generation": 1}), 401, "TOKEN_INVALID")
    refused(sub.ack({**wake, "token": "x"}, {"a": tail}), 401, "TOKEN_INVALID")
    for malformed in ({"acks": {}}, {"acks": [{"stream": "a"}]}, {"generation": "1"}, {"done": 1}):
        body = {"wake_id": wake["wake_id"], "generation": 1, **malformed}
        refused(sub.at("POST", "/ack", body, wake["token"]), 400, "INVALID_REQUEST")
    assert sub.acked() == before
    assert expect(sub.ack(wake, {"a": tail, "b": beyond}, done=True), 200).json()["next_wake"] is False


def test_a_deleted_subscription_is_gone_and_its_generation_goes_on(sub: Subscription) -> None:
    stream = sub.stream()
    expect(sub.put(), 201)
    given(stream.append([1]))
    wake = sub.claimed()
    expect(sub.at("DELETE"), 204)
    expect(sub.at("DELETE"), 204)
    for answer in (sub.at("GET"), sub.claim(), sub.ack(wake), sub.at("POST", "/streams", {"streams": ["a"]})):
        refused(answer, 404, "SUBSCRIPTION_NOT_FOUND")
    expect(sub.put(), 201)
    assert sub.acked() == {"a": stream.head().headers["stream-next-offset"]}
    refused(sub.ack(wake), 401, "TOKEN_INVALID")
    given(stream.append([2]))
    assert sub.claimed()["generation"] == 2


def test_the_same_configuration_is_no_conflict_and_another_is(sub: Subscription) -> None:
    first = expect(sub.put(streams=["x", "y"]), 201)
    assert expect(sub.put(streams=["y", "/x", "y"]), 200).json() == first.json()
    for change in ({"lease_ttl_ms": 2_000}, {"description": "x"}, {"pattern": "**"}, {"streams": ["x"]}):
        refused(sub.put(**change), 409, "SUBSCRIPTION_ALREADY_EXISTS")


@pytest.mark.parametrize("lease", [999, 600_001, "1000", 1.5, True])
def test_a_lease_is_an_integer_from_a_second_to_ten_minutes(sub: Subscription, lease: object) -> None:
    refused(sub.put(lease_ttl_ms=lease), 400, "INVALID_REQUEST")


def test_workers_of_several_subscriptions_can_share_a_wake_stream(sub: Subscription) -> None:
    stream, other = sub.stream(), Subscription(sub.api)
    expect(sub.put(), 201)
    expect(other.put(pattern=f"{sub.folder}/**", wake_stream=sub.pool.name), 201)
    given(stream.append([1]))
    woken = eventually(sub.wakes, lambda found: len(found) >= 2)
    assert {wake["subscription_id"] for wake in woken} == {sub.id, other.id}
    assert set(woken[0]) == {"type", "subscription_id", "stream", "generation", "ts"}
    expect(other.at("DELETE"), 204)


# Webhooks.


def verify(api: Api, call: Call) -> None:
    """Raises if a call is not signed by a published key."""
    parts = dict(part.split("=", 1) for part in call.headers["webhook-signature"].split(","))
    keys = {key["kid"]: key for key in expect(api.get("/v1/stream/__ds/jwks.json"), 200).json()["keys"]}
    decoded = [base64.urlsafe_b64decode(text + "==") for text in (keys[parts["kid"]]["x"], parts["ed25519"])]
    Ed25519PublicKey.from_public_bytes(decoded[0]).verify(decoded[1], parts["t"].encode() + b"." + call.raw)


@pytest.mark.sensitive("the relay decides what is sent again, whichever process a callback reaches")
def test_a_failing_webhook_is_sent_again_unchanged_until_it_is_accepted(sub: Subscription, hook: Receiver) -> None:
    stream = sub.stream()
    answers = iter([(500, b""), (302, b""), (410, b'{"done":true}')])
    hook.answer = lambda _: next(answers, (200, b'{"done":true}'))
    expect(sub.hook(hook.url), 201)
    given(stream.append([1]))
    hook.wait(1)
    eventually(sub.show, lambda shown: shown["status"] == "failed")
    given(stream.append([2]))
    calls = hook.wait(4)
    told = [{name: value for name, value in call.body.items() if name != "callback_token"} for call in calls[:4]]
    assert told[0] == told[1] == told[2] == told[3]
    assert len({call.body["callback_token"] for call in calls[:4]}) == 4
    assert {call.path for call in calls} == {"/hook"}
    for call in calls:
        verify(sub.api, call)
    last = hook.wait(5)[4].body
    assert last["generation"] == 2
    eventually(sub.acked, lambda acked: acked == {"a": stream.head().headers["stream-next-offset"]})
    assert sub.show()["status"] == "active"


def test_an_accepted_webhook_without_a_callback_is_sent_as_the_next_wake(sub: Subscription, hook: Receiver) -> None:
    hook.answer = lambda call: (202, b'{"done":"true"}') if call.body["generation"] == 1 else (200, b'{"done":true}')
    stream = sub.stream()
    expect(sub.hook(hook.url), 201)
    given(stream.append([1]))
    calls = hook.wait(2)
    assert [call.body["generation"] for call in calls] == [1, 2]
    assert calls[0].body["wake_id"] != calls[1].body["wake_id"]


def test_a_callback_renews_the_lease_and_ends_the_wake(sub: Subscription, hook: Receiver) -> None:
    hook.answer = lambda _: (200, b"{}")
    stream = sub.stream()
    expect(sub.hook(hook.url, lease_ttl_ms=3_000), 201)
    first = given(stream.append([1])).headers["stream-next-offset"]
    wake = hook.wait(1)[0].body
    given(stream.append([2]))
    pause = threading.Event()
    for _ in range(8):  # 4 s
        pause.wait(0.5)
        expect(sub.ack(wake), 200)
    assert len(hook.calls) == 1
    assert expect(sub.ack(wake, {"a": first}, done=True), 200).json() == {"ok": True, "next_wake": True}
    refused(sub.ack(wake, done=True), 409, "FENCED")
    assert hook.wait(2)[1].body["generation"] == 2
    refused(sub.at("POST", "/ack", {"wake_id": "x", "generation": 1}, "t"), 400, "INVALID_REQUEST")
    refused(sub.claim(), 400, "INVALID_REQUEST")


def test_done_acknowledges_what_was_sent_and_nothing_newer(sub: Subscription, hook: Receiver) -> None:
    stream = sub.stream()

    def answer(call: Call) -> tuple[int, bytes]:
        if call.body["generation"] == 1:
            given(stream.append([2]))
        return 200, b'{"done":true}'

    hook.answer = answer
    expect(sub.hook(hook.url), 201)
    sent = given(stream.append([1])).headers["stream-next-offset"]
    calls = hook.wait(2)
    assert calls[0].body["streams"][0]["tail_offset"] == sent
    assert calls[1].body["streams"][0]["acked_offset"] == sent
    assert calls[1].body["generation"] == 2


def test_after_its_deletion_a_failing_webhook_is_not_called_again(sub: Subscription, hook: Receiver) -> None:
    hook.answer = lambda _: (500, b"")
    stream = sub.stream()
    expect(sub.hook(hook.url), 201)
    given(stream.append([1]))
    hook.wait(1)
    expect(sub.at("DELETE"), 204)
    called = len(hook.calls)
    threading.Event().wait(4)
    assert len(hook.calls) <= called + 1, "one may have been under way"


# Keys.


def test_a_key_is_needed_for_all_but_what_a_wake_token_allows() -> None:
    with dev_server(environment={"HEADRACE_API_KEYS": f"{KEYS},key-reader:read"}) as server, Api(server.url) as plain:
        sub = Subscription(plain.with_key("key-all"))
        anyone, bound, reader = (
            Subscription(plain.with_key(key), sub.folder) for key in (None, "key-bound", "key-reader")
        )
        stream = sub.stream()
        for other, status in ((anyone, 401), (bound, 403), (reader, 403)):
            expect(other.put(), status)
        expect(sub.put(), 201)
        given(stream.append([1]))
        for other, status in ((anyone, 401), (bound, 403), (reader, 403)):
            for answer in (
                other.at("GET"),
                other.claim(),
                other.at("POST", "/streams", {"streams": ["x"]}),
                other.at("DELETE", "/streams/x"),
                other.at("DELETE"),
            ):
                expect(answer, status)
        wake = sub.claimed()
        refused(anyone.at("POST", "/ack", {"wake_id": wake["wake_id"], "generation": 1}), 401, "TOKEN_INVALID")
        expect(anyone.ack(wake), 200)
        assert expect(plain.get("/v1/stream/__ds/jwks.json"), 200).json()["keys"]
