"""Routers and watches (`/v0/routers`, `/v0/watch`) of fake topics, as far as the command line needs them. Nothing is
forwarded. A watch answers what a script says: one connection after the other.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import httpx

from tests.cli.fake_topics import FakeTopics

Fault = Callable[[httpx.Request, Callable[[], httpx.Response]], httpx.Response]


@dataclass
class FakeRelay:
    """`connections` are what the streams of a watch are, one for each GET: text to send, and then the connection is lost if
    the text ends with LOST. `faults` are taken one for each request.
    """

    topics: FakeTopics
    routers: dict[str, dict[str, Any]] = field(default_factory=dict)
    connections: list[str] = field(default_factory=list)
    requests: list[httpx.Request] = field(default_factory=list)
    faults: list[Fault | None] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        fault = self.faults.pop(0) if self.faults else None
        return fault(request, lambda: self.serve(request)) if fault else self.serve(request)

    def serve(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode().partition("?")[0]
        if path == "/v0/watch":
            return self.open(request)
        if path.startswith("/v0/watch/"):
            text = self.connections.pop(0)
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=body(text))
        name = unquote(path.removeprefix("/v0/routers").removeprefix("/"))
        if not name:
            return self.list(request)
        if request.method == "PUT":
            given = json.loads(request.content)
            created = name not in self.routers
            self.routers[name] = {"router": name, **given}
            return httpx.Response(201 if created else 200, json={**self.routers[name], "created": created})
        if request.method == "DELETE":
            return httpx.Response(200, json={"router": name, "deleted": self.routers.pop(name, None) is not None})
        if name not in self.routers:
            return refusal(404, "router_not_found")
        shown = {**self.routers[name], "forwarded_total": 7, "performance": {"server_total_ms": 0.1}}
        return httpx.Response(200, json=shown)

    def list(self, request: httpx.Request) -> httpx.Response:
        params = request.url.params
        rows = [
            {"router": name, **{key: router[key] for key in ("source", "dest", "guarantee")}, "forwarded_total": 7}
            for name, router in sorted(self.routers.items())
            if name.startswith(params.get("prefix", ""))
            and name > params.get("cursor", "")
            and all(router[key] == params[key] for key in ("source", "dest") if key in params)
        ]
        size = int(params["page_size"])
        more = {"next_cursor": rows[size - 1]["router"]} if len(rows) > size else {}
        return httpx.Response(200, json={"routers": rows[:size], **more})

    def open(self, request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)["topics"]
        there = {name: given for name, given in asked.items() if name in self.topics.topics}
        if len(there) < len(asked) and request.url.params.get("lenient") != "true":
            return refusal(404, "topic_not_found")
        shown = {
            name: {
                "from_seq": self.topics.topics[name].head_seq if given.get("tail") else given["from_seq"],
                "head_seq": self.topics.topics[name].head_seq,
                "earliest_seq": 1,
            }
            for name, given in there.items()
        }
        number = sum(request.url.path == "/v0/watch" for request in self.requests)
        answer = {"wid": f"wid_{number}", "stream_url": f"/v0/watch/wid_{number}", "topics": shown}
        return httpx.Response(200, json=answer)


LOST = "\0"


def body(text: str) -> Iterator[bytes]:
    yield text.removesuffix(LOST).encode()
    if text.endswith(LOST):
        raise httpx.ReadError("connection lost")


def event(kind: str, seqs: dict[str, int], data: str) -> str:
    """Returns an event whose id says where the topics are."""
    id_ = base64.urlsafe_b64encode(json.dumps(seqs).encode()).decode().rstrip("=")
    return f"id: {id_}\nevent: {kind}\ndata: {data}\n\n"


def record(topic: str, first: int, last: int) -> str:
    """Returns an event with the records of a topic from one seq to another."""
    records = ",".join(f'{{"$seq":{seq},"$ts":1000,"data":{seq}.0}}' for seq in range(first, last + 1))
    data = f'{{"topic":"{topic}","records":[{records}],"from_seq":{first - 1},"to_seq":{last},"head_seq":9}}'
    return event("record", {topic: last}, data)


def refusal(status: int, code: str) -> httpx.Response:
    return httpx.Response(status, json={"error": {"code": code, "message": code.replace("_", " ")}})
