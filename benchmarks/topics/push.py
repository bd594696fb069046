"""The loads of what an append sets off: frames of a watch, and copies that routers make."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import orjson

from benchmarks.live import ARRIVAL_TIMEOUT_S, GAP_S, Arrivals
from benchmarks.result import Result, percentile
from benchmarks.topics.loads import Client, at_once, scratch_topic, write_body
from benchmarks.wire import Connection, LoadFailed, Server

_CREATORS = 8
_POLL_S = 0.1
_FAN_OUT_TIMEOUT_S = 300.0
_ROOT = "/v0"


@contextmanager
def scratch_topics(server: Server, topics: int) -> Iterator[list[str]]:
    """Yields the names of new topics, which begin with the same letters, and are deleted afterwards."""
    prefix = f"benchmark-{uuid.uuid4().hex[:8]}-"
    names = [f"{prefix}{number:04}" for number in range(topics)]

    def each(method: str) -> None:
        def work(client: Client, creator: int) -> list[float]:
            for name in names[creator::_CREATORS]:
                client.ask(method, name, body={} if method == "PUT" else None)
            return []

        at_once(server, _CREATORS, work)

    each("PUT")
    try:
        yield names
    finally:
        each("DELETE")


def watch(server: Server, *, topics: int, count: int) -> Result:
    """Appends `count` records, one after another, to topics in turn, all of which one stream watches. A latency is the time
    from when an append was sent to when the stream had its record.
    """
    arrivals, is_over = Arrivals(), threading.Event()
    client, latencies, acks = Client(server), list[float](), list[float]()

    def read(path: str) -> None:
        connection = Connection(server)
        try:
            while not is_over.is_set():
                for line in connection.event_lines(path, {}):
                    if line.startswith(b'data: {"topic":') and b'"records":' in line:
                        records = orjson.loads(line[6:])["records"]
                        arrivals.received(orjson.dumps([one["data"] for one in records]))
        except Exception as error:  # noqa: BLE001 (a thread's failure is the load's failure)
            if not is_over.is_set():
                arrivals.failed(error)
        finally:
            connection.close()

    with scratch_topics(server, topics) as names:
        asked = {"topics": {name: {"tail": True} for name in names}}
        answer = client.connection.request(
            "POST", f"{_ROOT}/watch", body=orjson.dumps(asked), content_type="application/json"
        )
        thread = threading.Thread(target=read, args=(orjson.loads(answer.body)["stream_url"],), daemon=True)
        thread.start()
        time.sleep(1.0)  # the stream has begun, and waits
        for number in range(count + 1):
            sent = time.perf_counter()
            took, _ = client.timed("POST", names[number % topics], "", write_body(number, 1))
            arrived = arrivals.wait_for(number)
            if number:  # the first one warms the connections up
                latencies.append((arrived - sent) * 1000)
                acks.append(took)
            time.sleep(GAP_S)
        is_over.set()
    client.connection.close()
    thread.join(ARRIVAL_TIMEOUT_S)
    notes = {"ack_p50_ms": percentile(acks, 50)}
    load = f"append to frame, {topics:,} topic{'s' if topics > 1 else ''}"
    return Result(
        load, len(latencies), 0, sum(latencies) / 1000, latencies, client.connection.busy, notes, paced=True
    )


def fan_out(server: Server, *, destinations: int, count: int) -> Result:
    """Appends `count` records, one after another, to a source from which routers copy to that many destinations. Latencies
    are those of the appends; an operation is a copy. The time ends with the stamp of the last copy: the server must run on
    this machine.
    """
    client = Client(server)
    with scratch_topic(server) as source, scratch_topics(server, destinations) as names:
        prefix = names[0][:-4] if names else ""

        def route(asking: Client, creator: int) -> list[float]:
            for name in names[creator::_CREATORS]:
                body = orjson.dumps({"source": source, "dest": name})
                asking.connection.request(
                    "PUT", f"{_ROOT}/routers/{name}", body=body, content_type="application/json"
                )
            return []

        at_once(server, _CREATORS, route)
        started_ms = time.time() * 1000
        latencies = [client.timed("POST", source, "", write_body(number, 1))[0] for number in range(count)]
        asked = since = time.perf_counter()
        while names and _arrived(client, prefix) < count * destinations:
            if asked - since > _FAN_OUT_TIMEOUT_S:
                raise LoadFailed(f"copies did not arrive in {_FAN_OUT_TIMEOUT_S} s: of={count * destinations}")
            # The question reads every destination: at most a fifth of the time goes to it.
            time.sleep(max(_POLL_S, 4 * (time.perf_counter() - asked)))
            asked = time.perf_counter()

        def stamps(asking: Client, reader: int) -> list[float]:
            pages = [asking.ask("POST", name, "/diff", {"from_seq": count - 1}) for name in names[reader::_CREATORS]]
            return [page["records"][-1]["$ts"] for page in pages]

        stamped, *_ = at_once(server, _CREATORS, stamps)
        copied_ms = max(stamped, default=0.0)
    taken = max(0.0, copied_ms - started_ms) / 1000
    client.connection.close()
    notes = {"operations_per_s": round(count * destinations / taken, 1)} if names else {}
    return Result(
        f"fan-out to {destinations:,}", count, 0, taken, latencies, client.connection.busy, notes, paced=True
    )


def _arrived(client: Client, prefix: str) -> int:
    """Returns how many records the topics have whose names begin with `prefix`."""
    arrived: int = 0
    cursor = ""
    while True:
        params = {"prefix": prefix, "page_size": "200", **({"cursor": cursor} if cursor else {})}
        page = orjson.loads(client.connection.request("GET", f"{_ROOT}/topics", params=params).body)
        arrived += sum(int(topic["head_seq"]) for topic in page["topics"])
        cursor = page.get("next_cursor", "")
        if not cursor:
            return arrived
