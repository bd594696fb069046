"""A server of topics and queues (`/v0/topics/…`), small enough to be read. It keeps the exact text of data, tells the time
by a clock of the test, and can be told to fail.

`FakeTopics` answers requests, for a client without a network; `serve` puts it behind a port, with streams of `/work`.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import unquote

import httpx
import msgspec

DEFAULTS: dict[str, Any] = {
    "type": "log", "ttl_ms": 0, "cap_records": 0, "cap_bytes": 0, "discard": "old", "durability": "disk",
    "priority": None, "auto_priority": True, "auto_create": True, "idempotency_window_ms": 120_000,
    "dedupe_node": True, "lease_ms": 30_000, "claim_jitter_ms": 0, "max_deliveries": 0, "dead_letter": None,
    "leases_durable": False,
}  # fmt: skip

Fault = Callable[[httpx.Request, Callable[[], httpx.Response]], httpx.Response]


class Refusal(Exception):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.answer = httpx.Response(status, json={"error": {"code": code, "message": code.replace("_", " ")}})


class Sent(msgspec.Struct):
    """A record as a client sends it."""

    data: msgspec.Raw
    tag: str | None = None
    node: str | None = None
    meta: dict[str, Any] | None = None


class Write(msgspec.Struct):
    records: list[Sent]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None


@dataclass
class Record:
    seq: int
    ts: int
    sent: Sent
    node: str | None

    def shown(self, *, tags: bool) -> dict[str, Any]:
        members = {
            "$seq": self.seq,
            "$ts": self.ts,
            "$node": self.node,
            "$tag": self.sent.tag if tags else None,
            "meta": self.sent.meta,
        }
        return {**{name: value for name, value in members.items() if value is not None}, "data": self.sent.data}


@dataclass
class Lease:
    id: str
    node: str
    deadline_ms: int


@dataclass
class Delivery:
    """One delivery of a job: to which node, under which lease, how often it was delivered, and when."""

    seq: int
    node: str
    lease_id: str
    deliveries: int
    at_ms: int


@dataclass
class Topic:
    config: dict[str, Any]
    records: dict[int, Record] = field(default_factory=dict)
    head_seq: int = 0
    evict_floor: int = 1
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    leases: dict[int, Lease] = field(default_factory=dict)
    deliveries: dict[int, int] = field(default_factory=dict)
    ready_at: dict[int, int] = field(default_factory=dict)
    dead_lettered: int = 0


@dataclass
class FakeTopics:
    """`faults` are taken one for each request whose path ends with `faulty`: None lets it through."""

    now_ms: Callable[[], int] = lambda: int(time.time() * 1000)
    topics: dict[str, Topic] = field(default_factory=dict)
    requests: list[httpx.Request] = field(default_factory=list)
    faults: list[Fault | None] = field(default_factory=list)
    faulty: str = ""
    streams: bool = True
    """Whether `/work` is there; without it the path is unknown."""
    deliveries: list[Delivery] = field(default_factory=list)
    acked: list[tuple[int, str]] = field(default_factory=list)
    nacked: list[tuple[int, int]] = field(default_factory=list)
    dropped: int = 0
    """How often all streams were cut off."""
    open_streams: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    closed: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.streams_ended = threading.Condition(self.lock)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        with self.lock:
            self.requests.append(request)
            meant = request.url.path.endswith(self.faulty)
            fault = self.faults.pop(0) if self.faults and meant else None
        return fault(request, lambda: self.serve(request)) if fault else self.serve(request)

    def serve(self, request: httpx.Request) -> httpx.Response:
        with self.lock:
            try:
                return self.route(request)
            except Refusal as refusal:
                return refusal.answer

    def route(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode().partition("?")[0].removeprefix("/v0/topics").removeprefix("/")
        name, _, action = path.partition("/")
        name = unquote(name)
        if not name:
            return self.list_topics(request)
        if request.method == "PUT":
            return self.put(name, json.loads(request.content))
        if request.method == "POST" and not action:
            return self.append(name, request)
        if request.method == "DELETE":
            return answer(topic=name, deleted=self.topics.pop(name, None) is not None, routers_removed=[])
        topic = self.topics.get(name)
        if topic is None:
            raise Refusal(404, "topic_not_found")
        if request.method == "GET" and not action:
            return answer(**self.state(name, topic))
        if action == "work":
            return self.work(name, topic, request)
        given = json.loads(request.content)
        if action == "diff":
            return self.diff(name, topic, given)
        if action == "delete":
            return self.erase(name, topic, given)
        if topic.config["type"] != "queue":
            raise Refusal(409, "not_a_queue")
        if action == "claim":
            lease_ms = given.get("lease_ms") or topic.config["lease_ms"]
            jobs = self.lease(name, topic, given["node"], given.get("max", 1), lease_ms)
            return answer(topic=name, claimed=jobs, count=len(jobs), ready=len(self.ready(topic)))
        return self.settle(name, topic, action, given)

    def list_topics(self, request: httpx.Request) -> httpx.Response:
        params = request.url.params
        names = [
            n for n in sorted(self.topics) if n.startswith(params.get("prefix", "")) and n > params.get("cursor", "")
        ]
        size = int(params.get("page_size", 100))
        rows = [self.state(name, self.topics[name]) for name in names[:size]]
        shown = [{k: row[k] for k in ("topic", "type", "head_seq", "earliest_seq", "count", "bytes")} for row in rows]
        return answer(topics=shown, next_cursor=names[size - 1] if len(names) > size else None)

    def put(self, name: str, config: dict[str, Any]) -> httpx.Response:
        topic = self.topics.get(name)
        created = topic is None
        if topic is None:
            topic = self.topics[name] = Topic({})
        elif config.get("type", "log") != topic.config["type"]:
            raise Refusal(409, "topic_exists_incompatible")
        topic.config = {**DEFAULTS, **config}
        return answer(201 if created else 200, topic=name, created=created, config=topic.config)

    def append(self, name: str, request: httpx.Request) -> httpx.Response:
        write = msgspec.json.decode(request.content, type=Write)
        topic = self.topics.get(name)
        if topic is None:
            if write.create is False:
                raise Refusal(404, "topic_not_found")
            topic = self.topics[name] = Topic(dict(DEFAULTS))
        deduped = write.idempotency_key in topic.keys
        if write.idempotency_key is not None and deduped:
            first, last = topic.keys[write.idempotency_key]
        else:
            first = topic.head_seq + 1
            for sent in write.records:
                self.add(topic, sent, sent.node or write.node)
            last = topic.head_seq
            if write.idempotency_key is not None:
                topic.keys[write.idempotency_key] = (first, last)
        return answer(topic=name, first_seq=first, last_seq=last, head_seq=topic.head_seq, deduped=deduped)

    def add(self, topic: Topic, sent: Sent, node: str | None) -> None:
        topic.head_seq += 1
        topic.records[topic.head_seq] = Record(topic.head_seq, self.now_ms(), sent, node)

    def state(self, name: str, topic: Topic) -> dict[str, Any]:
        state = {
            "topic": name, "type": topic.config["type"], "head_seq": topic.head_seq,
            "earliest_seq": min(topic.records, default=topic.head_seq + 1), "next_seq": topic.head_seq + 1,
            "count": len(topic.records), "bytes": sum(len(bytes(r.sent.data)) for r in topic.records.values()),
            "config": topic.config, "effective_priority": 0, "last_write_ts": 1000, "last_read_ts": None,
        }  # fmt: skip
        if topic.config["type"] == "queue":
            counts = {"ready": len(self.ready(topic)), "in_flight": self.in_flight(topic)}
            state["queue"] = {**counts, "dead_lettered": topic.dead_lettered}
        return state

    def diff(self, name: str, topic: Topic, given: dict[str, Any]) -> httpx.Response:
        start = given.get("from_seq", 0)
        earliest = min(topic.records, default=topic.head_seq + 1)
        tombstone = None
        if start + 1 < topic.evict_floor:
            tombstone = {"gap_from": start + 1, "gap_to": earliest - 1, "reason": "cap", "missed_estimate": 1}
        records, next_seq = list[dict[str, Any]](), start
        for seq in sorted(topic.records):
            if seq > start and len(records) < min(given.get("limit", 256), 3):
                next_seq = seq
                if topic.records[seq].node is None or topic.records[seq].node not in given.get("node", []):
                    records.append(topic.records[seq].shown(tags=given.get("include_tags", False)))
        if not any(seq > next_seq for seq in topic.records):
            next_seq = topic.head_seq
        return answer(
            topic=name, records=records, next_from_seq=next_seq, head_seq=topic.head_seq, earliest_seq=earliest,
            caught_up=next_seq == topic.head_seq, tombstone=tombstone, lag=topic.head_seq - next_seq,
        )  # fmt: skip

    def erase(self, name: str, topic: Topic, given: dict[str, Any]) -> httpx.Response:
        before, seqs = given.get("before_seq", topic.head_seq + 1), given.get("seqs", topic.records.keys())
        kind, text = given["match"][1:] if "match" in given else ("", "")

        def matches(tag: str | None) -> bool:
            if not kind:
                return True
            return tag is not None and (tag == text if kind == "Eq" else tag.startswith(text.removesuffix("*")))

        gone = [
            seq for seq, record in topic.records.items() if seq < before and seq in seqs and matches(record.sent.tag)
        ]
        for seq in gone:
            del topic.records[seq]
        state = self.state(name, topic)
        return answer(
            deleted=len(gone), **{k: state[k] for k in ("topic", "earliest_seq", "head_seq", "count", "bytes")}
        )

    def ready(self, topic: Topic) -> list[int]:
        now = self.now_ms()
        return [
            seq
            for seq in sorted(topic.records)
            if not (seq in topic.leases and topic.leases[seq].deadline_ms > now) and topic.ready_at.get(seq, 0) <= now
        ]

    def in_flight(self, topic: Topic) -> int:
        return sum(seq in topic.records and lease.deadline_ms > self.now_ms() for seq, lease in topic.leases.items())

    def lease(self, name: str, topic: Topic, node: str, most: int, lease_ms: int) -> list[dict[str, Any]]:
        jobs = list[dict[str, Any]]()
        now = self.now_ms()
        for seq in self.ready(topic):
            if len(jobs) == most:
                break
            count = topic.deliveries.get(seq, 0) + 1
            if topic.config["dead_letter"] and 0 < topic.config["max_deliveries"] < count:
                self.bury(name, topic, seq, count - 1)
                continue
            topic.deliveries[seq] = count
            lease_id = "lease_" + hashlib.sha256(f"{name} {seq} {count}".encode()).hexdigest()[:12]
            topic.leases[seq] = Lease(lease_id, node, now + lease_ms)
            self.deliveries.append(Delivery(seq, node, lease_id, count, now))
            shown = topic.records[seq].shown(tags=True)
            jobs.append({"lease_id": lease_id, "deadline": now + lease_ms, "deliveries": count, **shown})
        return jobs

    def bury(self, name: str, topic: Topic, seq: int, deliveries: int) -> None:
        """Moves a job to the dead-letter topic."""
        record = topic.records.pop(seq)
        meta = {
            **(record.sent.meta or {}),
            "$dead_letter_from": name,
            "$dead_letter_deliveries": str(deliveries),
            "$dead_letter_src_seq": str(seq),
        }
        letters = self.topics.setdefault(topic.config["dead_letter"], Topic(dict(DEFAULTS)))
        self.add(letters, Sent(record.sent.data, record.sent.tag, None, meta), record.node)
        topic.dead_lettered += 1

    def settle(self, name: str, topic: Topic, action: str, given: dict[str, Any]) -> httpx.Response:
        now, seqs = self.now_ms(), given["seqs"]
        ids = given.get("lease_ids") or [None] * len(seqs)
        done, skipped, deadlines = list[int](), list[int](), dict[str, int]()
        for seq, lease_id in zip(seqs, ids, strict=True):
            lease = topic.leases.get(seq)
            is_held = lease is not None and lease.node == given["node"] and lease.deadline_ms > now
            if lease is None or not is_held or seq not in topic.records or lease_id not in (None, lease.id):
                skipped.append(seq)
                continue
            done.append(seq)
            if action == "ack":
                self.acked.append((seq, lease.id))
                del topic.records[seq], topic.leases[seq]
            elif action == "nack":
                self.nacked.append((seq, given.get("delay_ms", 0)))
                del topic.leases[seq]
                topic.ready_at[seq] = now + given.get("delay_ms", 0)
            else:
                lease.deadline_ms = deadlines[str(seq)] = now + given["lease_ms"]
        counts = {"ready": len(self.ready(topic)), "in_flight": self.in_flight(topic)}
        participle = {"ack": "acked", "nack": "nacked", "extend": "extended"}[action]
        return answer(topic=name, **{participle: len(done)}, skipped=skipped, deadlines=deadlines, **counts)

    def work(self, name: str, topic: Topic, request: httpx.Request) -> httpx.Response:
        if not self.streams:
            raise Refusal(404, "not_found")
        headers = {"content-type": "text/event-stream"}
        return httpx.Response(200, headers=headers, content=self.pushed(name, topic, request))

    def pushed(self, name: str, topic: Topic, request: httpx.Request) -> Iterator[bytes]:
        """Yields the events of a `/work` stream; releases what it delivered when its reader goes."""
        params = request.url.params
        node, most = params["node"], int(params.get("max", 1))
        lease_ms = int(params.get("lease_ms", topic.config["lease_ms"]))
        delivered, dropped = dict[int, str](), self.dropped
        with self.lock:
            self.open_streams += 1
        yield b"retry: 2000\n\n: hb 1\n\n"
        try:
            while not self.closed.wait(0.005) and self.dropped == dropped and self.topics.get(name) is topic:
                with self.lock:
                    held = [seq for seq, id in delivered.items() if self.holds(topic, seq, id)]
                    jobs = self.lease(name, topic, node, most - len(held), lease_ms)
                    delivered = {seq: delivered[seq] for seq in held} | {job["$seq"]: job["lease_id"] for job in jobs}
                for job in jobs:
                    yield b"id: %d\nevent: job\ndata: %s\n\n" % (
                        job["$seq"],
                        msgspec.json.encode({"topic": name, **job}),
                    )
                if not jobs:
                    yield b": hb 1\n\n"  # tells whether the reader is still there
        finally:
            with self.lock:
                for seq, id in delivered.items():
                    if self.holds(topic, seq, id):
                        del topic.leases[seq]
                self.open_streams -= 1
                self.streams_ended.notify_all()

    def wait_for_streams(self) -> None:
        """Waits until the server has seen that the readers of all streams are gone."""
        with self.streams_ended:
            assert self.streams_ended.wait_for(lambda: self.open_streams == 0, 10)

    def holds(self, topic: Topic, seq: int, lease_id: str) -> bool:
        lease = topic.leases.get(seq)
        return (
            seq in topic.records and lease is not None and lease.id == lease_id and lease.deadline_ms > self.now_ms()
        )


def answer(status: int = 200, **members: Any) -> httpx.Response:
    body = msgspec.json.encode({**members, "performance": {"server_total_ms": 0.1}})
    return httpx.Response(status, headers={"content-type": "application/json"}, content=body)


class _Handler(BaseHTTPRequestHandler):
    """Hands requests of a port to the fake server."""

    protocol_version = "HTTP/1.1"
    server: Any

    def do(self) -> None:
        if self.server.fake.closed.is_set():  # kept alive from before the end
            self.close_connection = True
            return
        size = int(self.headers.get("content-length", 0))
        url = f"http://{self.headers['host']}{self.path}"
        request = httpx.Request(self.command, url, headers=dict(self.headers), content=self.rfile.read(size))
        try:
            answered = self.server.fake(request)
        except httpx.TransportError:  # a fault that loses the answer
            self.close_connection = True
            return
        try:
            self.write(answered)
        except OSError:
            self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do  # noqa: N815

    def write(self, answered: httpx.Response) -> None:
        content_type = answered.headers.get("content-type", "text/plain")
        is_stream = content_type == "text/event-stream"
        self.send_response(answered.status_code)
        for name, value in {**answered.headers, "content-type": content_type}.items():
            if name not in ("content-length", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header(*(("connection", "close") if is_stream else ("content-length", str(len(answered.content)))))
        self.end_headers()
        if not is_stream:
            self.wfile.write(answered.content)
            return
        self.close_connection = True
        events = answered.stream
        assert isinstance(events, httpx.SyncByteStream)
        try:
            for chunk in events:
                self.wfile.write(chunk)
        finally:
            events.close()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Fake(Protocol):
    """Answers requests until it is closed."""

    closed: threading.Event

    def __call__(self, request: httpx.Request) -> httpx.Response: ...


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, fake: Fake, port: int) -> None:
        self.fake = fake
        super().__init__(("127.0.0.1", port), _Handler)


@contextmanager
def serve(fake: Fake, port: int = 0) -> Iterator[str]:
    """Runs the fake server on a loopback port, and yields its URL."""
    server = _Server(fake, port)
    fake.closed.clear()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        fake.closed.set()
        server.shutdown()
        server.server_close()
        thread.join()
