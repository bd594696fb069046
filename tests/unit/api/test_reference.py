"""What `/docs` shows: every operation is told of, and every example of the OpenAPI document is accepted."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import pytest

from functions.api.app import describe
from headrace.settings import Settings
from headrace.subscriptions.rules import Outcome
from headrace.subscriptions.wakes import Call
from tests.unit.api.asgi import JSON, TEXT, Answer, Server

METHODS = ("get", "head", "put", "post", "delete")
SETTINGS = Settings(
    signing_keys="a" * 43,
    base_url="https://api.example/",
    metrics_interval_ms=0,
    live_timeout_ms=10,
    request_timeout_ms=2000,
    sse_seconds=0,
    allow_reset=True,
)
S, SUBSCRIPTION, T = "/v1/stream/", "/v1/stream/__ds/subscriptions/billing", "/v0/topics/"
# Not sent: it opens a WebSocket.
UPGRADES = {"openSocket"}


class Operation(NamedTuple):
    """An operation of the document, with the parameters of its path."""

    id: str
    method: str
    path: str
    spec: Mapping[str, Any]
    parameters: tuple[Mapping[str, Any], ...]

    def examples(self) -> list[tuple[str, Any]]:
        """Returns the examples of its body, each with its content type; one that is empty, if it has none."""
        found: list[tuple[str, Any]] = []
        for content_type, body in self.spec.get("requestBody", {}).get("content", {}).items():
            several = [one["value"] for one in body.get("examples", {}).values()]
            found += [(content_type, one) for one in ([body["example"]] if "example" in body else several)]
        return found or [("", None)]


def resolved(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a part of the document, or what it refers to."""
    if "$ref" not in part:
        return part
    found: Any = describe()
    for name in part["$ref"].removeprefix("#/").split("/"):
        found = found[name]
    return found


OPERATIONS = [
    Operation(
        spec["operationId"],
        method.upper(),
        path,
        {**spec, "requestBody": resolved(spec.get("requestBody", {}))},
        tuple(resolved(one) for one in (*item.get("parameters", ()), *spec.get("parameters", ()))),
    )
    for path, item in describe()["paths"].items()
    for method, spec in item.items()
    if method in METHODS
]
SENT = [
    pytest.param(operation, content_type, example, id=f"{operation.id}-{content_type or 'no body'}-{number}")
    for operation in OPERATIONS
    if operation.id not in UPGRADES
    for number, (content_type, example) in enumerate(operation.examples())
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
def test_every_operation_is_told_of(operation: Operation) -> None:
    known = {tag["name"]: tag["description"] for tag in describe()["tags"]}
    assert all(known.values())
    (tag,) = operation.spec["tags"]
    assert tag in known
    assert re.fullmatch(r"[A-Z].*\.", operation.spec["summary"])
    assert re.fullmatch(r"(?s).+\.", operation.spec["description"])
    assert operation.spec["description"] != operation.spec["summary"]
    for parameter in operation.parameters:
        if parameter["in"] == "path":
            assert "example" in parameter, parameter["name"]
    if operation.spec.get("requestBody", {}).get("required"):
        content = operation.spec["requestBody"]["content"]
        assert {"example", "examples"} & content["application/json"].keys()
        assert content["application/json"]["schema"] not in ({}, {"type": "object"}) or tag in ("streams", "features")


def test_every_tag_has_operations() -> None:
    assert {tag["name"] for tag in describe()["tags"]} == {operation.spec["tags"][0] for operation in OPERATIONS}


def example_of(operation_id: str) -> Any:
    """Returns the example of an operation's JSON body; the first, if it has several."""
    operation = next(one for one in OPERATIONS if one.id == operation_id)
    return next(example for content_type, example in operation.examples() if content_type == "application/json")


class World:
    """A server with what the examples take for granted, made by examples of other operations."""

    def __init__(self) -> None:
        self.server = Server(settings=SETTINGS)
        self.taken: dict[str, Any] = {}  # what only an answer can tell, by the name that examples have for it

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = JSON) -> Answer:
        data = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        answer = self.server(method, path, headers, data)
        assert answer.status < 300, (method, path, answer)
        return answer

    def stream(
        self, name: str = "orders", profile: Mapping[str, Any] | None = None, *, records: bool = False
    ) -> None:
        """Creates a stream; with `records`, it has the schema and the records of the examples."""
        self.ask("PUT", S + name)
        if profile:
            self.ask("POST", f"{S}{name}/_profile", {"profile": profile})
        if records:
            self.ask("POST", f"{S}{name}/_schema", example_of("changeSchema"))
            self.ask("POST", S + name, example_of("appendToStream"))

    def subscription(self, *, is_claimed: bool) -> None:
        """Creates the subscription of the examples, with a record that waits for a worker."""
        self.stream("orders/eu")
        self.ask("PUT", SUBSCRIPTION, example_of("putSubscription"))
        self.ask("POST", f"{S}orders/eu", {"n": 1})
        if is_claimed:
            claim = self.ask("POST", f"{SUBSCRIPTION}/claim", example_of("claim")).json
            self.taken = {"wake_id": claim["wake_id"], "generation": claim["generation"]}
            self.taken["Authorization"] = f"Bearer {claim['token']}"

    def webhook(self) -> None:
        """Creates the other subscription of the examples, and takes what its receiver is told."""
        self.stream("orders/eu")
        operation = next(one for one in OPERATIONS if one.id == "putSubscription")
        self.ask("PUT", SUBSCRIPTION, operation.examples()[1][1])
        self.ask("POST", f"{S}orders/eu", {"n": 1})

        def receive(call: Call) -> Outcome:
            self.taken = {"wake_id": call.wake_id, "generation": call.generation}
            self.taken["Authorization"] = f"Bearer {call.token}"
            return Outcome.ACCEPTED

        self.server.parts.subscriptions().wakes.drive("billing", receive)

    def topic(self, *, is_queue: bool) -> None:
        """Creates the topic of the examples, with records, and a search configuration."""
        self.ask("PUT", f"{T}jobs", example_of("putTopic") if is_queue else {})
        self.ask("POST", f"{T}jobs", example_of("appendRecords"))
        self.ask("PUT", f"{T}jobs/search", example_of("putTopicSearch"))

    def router(self) -> None:
        """Creates the router of the examples."""
        self.ask("PUT", f"/v0/routers/{quote('orders->audit')}", example_of("putRouter"))

    def table(self) -> None:
        """Registers the table of the examples, whose event is searched, and pushes an event."""
        register = json.loads(json.dumps(example_of("registerNodes")))
        register["nodes"][0]["search"] = True
        self.ask("POST", "/register", register)
        self.ask("POST", "/push", example_of("pushEvent"))

    def job(self) -> None:
        """Asks for an export, and remembers its job."""
        self.table()
        self.taken["job_id"] = self.ask("POST", "/snapshot", example_of("snapshotFeatures")).json["job_id"]

    def session(self) -> None:
        """Creates a watch session, and remembers it."""
        self.topic(is_queue=False)
        self.ask("PUT", f"{T}events", {})
        self.taken["wid"] = self.ask("POST", "/v0/watch", example_of("createWatch")).json["wid"]

    def labels(self) -> None:
        """Registers the table, and stores the labels that the example names."""
        self.table()
        self.server.stores.objects.put(example_of("makeTrainingSet")["labels"], b"PAR1")

    def keyed(self) -> None:
        """Creates the stream of the examples with a routing key."""
        self.stream()
        self.ask("POST", f"{S}orders/_schema", {"routingKey": {"jsonPointer": "/customer", "required": True}})
        self.ask("POST", f"{S}orders", example_of("appendToStream"))

    def observed(self) -> None:
        """Creates the streams that are joined."""
        self.stream("api-events", {"kind": "evlog"})
        self.stream("api-spans", {"kind": "otel-traces"})


BY_TAG = {
    "streams": lambda world: world.stream(records=True),
    "schemas": lambda world: world.stream(),
    "search": lambda world: world.stream(records=True),
    "waits": lambda world: world.stream(profile=example_of("changeProfile")["profile"]),
    "subscriptions": lambda world: world.subscription(is_claimed=False),
    "inspection": lambda world: world.stream(records=True),
    "topics": lambda world: world.topic(is_queue=False),
    "queues": lambda world: world.topic(is_queue=True),
    "routers": World.router,
    "watch": World.session,
    "features": World.table,
}
BEFORE = {
    "createStream": lambda world: None,
    "putTopic": lambda world: None,
    "registerNodes": lambda world: None,
    "putSubscription": lambda world: None,
    "listRoutingKeys": World.keyed,
    "acknowledge": lambda world: world.subscription(is_claimed=True),
    "release": lambda world: world.subscription(is_claimed=True),
    "callback": World.webhook,
    "exportTracesByHeader": lambda world: world.stream("otel-traces", {"kind": "otel-traces"}),
    "exportLogsByHeader": lambda world: world.stream("otel-logs", {"kind": "evlog"}),
    "exportTraces": lambda world: world.stream(profile={"kind": "otel-traces"}),
    "exportLogs": lambda world: world.stream(profile={"kind": "evlog"}),
    "observeRequest": World.observed,
    "observeRequestByBody": World.observed,
    "makeTrainingSet": World.labels,
    "showExport": World.job,
}


@pytest.mark.parametrize(("operation", "content_type", "example"), SENT)
def test_every_example_is_accepted(operation: Operation, content_type: str, example: Any) -> None:
    world = World()
    if content_type == "text/plain" and operation.id == "appendToStream":
        world.ask("PUT", f"{S}orders", headers=TEXT)
    else:
        BEFORE.get(operation.id, BY_TAG.get(operation.spec["tags"][0], lambda _: None))(world)
    path, parameters = operation.path, []
    headers = {"Content-Type": content_type} if content_type else {}
    for one in operation.parameters:
        name = one["name"]
        value = world.taken.get(name, one.get("example"))
        if value is None:
            assert not one["required"], name
        elif one["in"] == "path":
            path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
        elif one["in"] == "query":
            parameters.append((name, value))
        else:
            headers[name] = str(value)
    body = b""
    if content_type:
        if isinstance(example, dict):
            example = {name: world.taken.get(name, value) for name, value in example.items()}
        body = example.encode() if isinstance(example, str) else json.dumps(example).encode()
    target = f"{path}?{urlencode(parameters)}" if parameters else path
    assert status(world.server, operation.method, target, headers, body) in range(200, 300)


def status(server: Server, method: str, target: str, headers: Mapping[str, str], body: bytes) -> int:
    """Returns the status of an answer, without waiting for the end of one that streams."""

    async def ask() -> tuple[int, bytes]:
        async with server.exchange(method, target, headers, body) as exchange:
            start = await exchange.next(15)
            said = b"" if start["status"] < 300 else (await exchange.next(15)).get("body", b"")
            return start["status"], said

    found, said = asyncio.run(ask())
    assert found < 300, said
    return found
