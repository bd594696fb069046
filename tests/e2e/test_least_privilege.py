"""Each role may do what its processes do, and nothing else: the calls of a complete workload against the policies.

The emulator's door answers AccessDenied to what a policy does not allow, so everything below also fails where a
permission is missing.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.log.stores import Stores
from headrace.objects import keys
from headrace.tables import parts
from headrace.tables.catalog import row_item
from headrace.tables.slots import Limit, take
from headrace.tables.unborn import buried
from headrace.topics.values import TOPICS
from local.access import Policies, is_allowed, noted, uses
from local.deployment import Deployment
from local.environment import client
from local.template import read_template
from tests.chaos.rest import stores_of
from tests.conformance.topics.client import Server
from tests.conformance.topics.sockets import opened
from tests.e2e.feature_life import live_with_features, run_in_role
from tests.e2e.test_indexing import Indexed, eventually
from tests.support.emulated_cloud import DevServer, dev_server
from tests.support.pipeline import NO_METRICS, Pipeline

# It waits for some twenty Spark jobs and as many sweeps: 170 CPU s, and three times as many beside other tests.
pytestmark = pytest.mark.full
JSON = {"Content-Type": "application/json"}
# The policies of the streaming door and of sockets are the api's, statement by statement
# (`tests/infra/test_permissions.py`): each is evidence.
ROLES = {
    "api": "api",
    "streaming": "api",
    "sockets": "api",
    "sealer": "sealer",
    "indexer": "indexer",
    "spark": "spark",
    "relay": "relay",
    "folder": "folder",
    "webhook": "webhook",
}
SHORT_AGES = {
    **NO_METRICS,
    "HEADRACE_INDEX_RETIRE_AGE_MS": "1000",
    "HEADRACE_REQUEST_COUNTS_MS": "300",
    "HEADRACE_MERGE_SEGMENTS": "4",
    "HEADRACE_MERGE_AGE_MS": "1000",
    "HEADRACE_MERGE_RETIRE_MS": "2000",
}
SPILLING = {**NO_METRICS, "HEADRACE_SPILL_BYTES": "60"}  # events of queues, too, which are less than 200 bytes each
LEASE_MS = 600_000  # no lease ends while a test runs, so that what is held never fits into the state

# What no process of ours ever asks for: AWS does it in the role's name, out of our sight.
BY_LAMBDA_LOGS = "Lambda itself writes what a function prints"
BY_LAMBDA_POLLS = "Lambda's poller of an event source mapping acts in the role of the function"
BY_EMR = "EMR Serverless fetches a job's code before the job runs"
DONE_BY_AWS = {
    **{
        (role, "WriteOwnLog", action): BY_LAMBDA_LOGS
        for role in ("api", "sealer", "indexer", "relay", "folder", "webhook")
        for action in ("logs:CreateLogStream", "logs:PutLogEvents")
    },
    **{
        (role, sid, f"dynamodb:{action}"): BY_LAMBDA_POLLS
        for role in ("sealer", "relay")
        for sid, actions in (
            ("ReadStream", ("DescribeStream", "GetRecords", "GetShardIterator")),
            ("FindStream", ("ListStreams",)),
        )
        for action in actions
    },
    **{
        (role, sid, f"sqs:{action}"): BY_LAMBDA_POLLS
        for role, sid in (
            ("sealer", "DelayedQueue"),
            ("indexer", "IndexQueue"),
            ("relay", "RelayQueue"),
            ("folder", "FoldQueue"),
        )
        for action in ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")
    },
    **{(role, "StreamDeadLetters", "sqs:SendMessage"): BY_LAMBDA_POLLS for role in ("sealer", "relay")},
    ("spark", "ReadOwnCode", "s3:GetObject"): BY_EMR,
    ("spark", "SeeOwnCode", "s3:ListBucket"): BY_EMR,
}

Part = tuple[str, str, str, int]
"""Role, statement, action, and which of the statement's resources."""


@dataclass
class Evidence:
    """What was seen of the calls that processes made in their roles."""

    granted: set[Part] = field(default_factory=set)
    used: set[Part] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    calls: int = 0

    def add(self, policies: Policies, record: Path) -> None:
        """Evaluates every recorded call once more, against the statements of its role."""
        for role, statements in policies.roles.items():
            for statement in statements:
                for action in statement.actions:
                    self.granted |= {(who(role), statement.sid, action, n) for n in range(len(statement.resources))}
        for one in noted(record):
            statements = policies.roles[one.role]
            self.calls += 1
            if not (one.allowed and is_allowed(statements, one.call)):
                self.refused.append(f"{who(one.role)}: {one.call.action} on {one.call.resource}")
            for statement in statements:
                self.used |= {
                    (who(one.role), use.sid, use.action, statement.resources.index(use.resource))
                    for use in uses(statement, one.call)
                }


def who(role: str) -> str:
    """`SealerRole37ED8F51` is the sealer's."""
    (name,) = (name for start, name in ROLES.items() if role.lower().startswith(f"{start}role"))
    return name


@contextmanager
def observed(
    evidence: Evidence, record: Path, *options: str, environment: dict[str, str], runs_jobs: bool = False
) -> Iterator[DevServer]:
    """Yields a `headrace dev`; adds its calls to `evidence` at the end."""
    with dev_server(*options, "--record", str(record), environment=environment, runs_jobs=runs_jobs) as server:
        yield server
        deployment = Deployment.from_json(Path(server.state["deployment"]).read_bytes())
        evidence.add(deployment.policies, record)


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Does everything that Headrace does, once; most of it waits, so all of it at the same time."""
    found = Evidence()
    folder = tmp_path_factory.mktemp("calls")
    with ThreadPoolExecutor() as pool:
        for part in [
            pool.submit(one, found, folder / f"{one.__name__}.jsonl") for one in (whole_life, topics, what_is_rare)
        ]:
            part.result()
    return found


def whole_life(found: Evidence, record: Path) -> None:
    """Everything from the first append to the end of a log, with all that follows it, in seconds."""
    ages = ("--seal-age", "1s", "--index-age", "1s", "--index-segments", "1", "--compact-fanout", "2")
    ages += ("--state-age", "500ms", "--trim-age", "6s", "--sweep-every", "4s")
    with (
        observed(found, record, *ages, environment=SHORT_AGES, runs_jobs=True) as server,
        ThreadPoolExecutor() as pool,
    ):
        leave_topic(server)
        leave_slot(server)
        for part in [pool.submit(one, server) for one in (live_with_followers, live_with_features, live)]:
            part.result()


def topics(found: Evidence, record: Path) -> None:
    """Nothing is trimmed here: what was sealed is also in the write-ahead log, where the indexer reads it first."""
    with observed(found, record, "--seal-age", "1s", environment=SPILLING) as server:
        live_in_topics(server)


def what_is_rare(found: Evidence, record: Path) -> None:
    """What happens only with keys from secrets, and with so few connections."""
    keys_secret, signing_secret = (
        f"arn:aws:secretsmanager:us-east-1:123456789012:secret:{secret_name(start)}"
        for start in ("AdminKey", "SigningKey")
    )
    environment = {
        **NO_METRICS,
        "HEADRACE_API_KEYS_SECRET": keys_secret,
        "HEADRACE_SIGNING_KEYS_SECRET": signing_secret,
        "HEADRACE_MAX_SSE_CONNECTIONS": "1",
    }
    with observed(found, record, "--sweep-every", "1h", environment=environment) as server:
        meet_what_is_rare(server)


def live(server: DevServer) -> None:
    """The life of streams: written, sealed, trimmed, searched, indexed, forked, closed, expired, deleted, purged."""
    with httpx.Client(base_url=f"{server.url}/v1/stream/", timeout=30) as http:
        doomed = [*make_fork_of_deleted(http), make_doomed(server, http)]
        orders = Indexed(server, http, "orders")
        assert http.put("large", json={"text": secrets.token_hex(200_000)}, headers=JSON).status_code == 201
        unborn = leave_unborn(orders)
        assert http.post(
            "orders/_schema", json={"routingKey": {"jsonPointer": "/status", "required": True}}
        ).is_success
        for _ in range(5):
            orders.append()
            search(http, "orders")
            # Each batch is a segment of its own, and four of them are merged.
            eventually(lambda: orders.pipeline.of("orders").published == orders.end, "orders is not sealed")
        before = {run.id for run in orders.wait_until_indexed().runs}
        search(http, "orders")
        orders.rebuild()
        orders.wait_until_indexed(lambda index: not before & {run.id for run in index.runs})
        eventually(lambda: not orders.index().retired, "replaced runs stay")
        eventually(lambda: len(sealed_segments(orders)) < 4, "small segments are not merged, or stay")
        # The newest entry, what the log was, and that it has ended: all else goes, the trim age after the end.
        logs = [orders.pipeline.log_id(name) for name in doomed]
        eventually(lambda: all(len(orders.pipeline.entries(log)) == 1 for log in logs), "ended logs are not purged")
        left = {f"logs/{log}/{name}" for log in logs for name in ("log.json", "deleted.json")}
        eventually(
            lambda: {key for log in logs for key in orders.pipeline.keys(f"logs/{log}/")} <= left, "objects stay"
        )
        eventually(lambda: len(orders.pipeline.entries(orders.log_id)) == 1, "sealed entries are not trimmed")
        assert len(http.get("orders").json()) == 25
        with stores_of(server.state) as stores:  # a purge that still runs would remove the orphan
            eventually(lambda: logs[0] not in set(stores.wal.unpurged(stores.clock.now_ms())), "purge is not over")
        orphan = keys.merged_segment(logs[0], keys.segment(logs[0], 0, "n"), 0, "n")
        orders.pipeline.client("s3").put_object(Bucket=orders.pipeline.settings["HEADRACE_BUCKET"], Key=orphan)
        run_in_role(server, "indexer", "tests.e2e.late_indexer", orders.log_id, logs[0])
        eventually(lambda: not orders.pipeline.keys(f"logs/{unborn}/"), "what a create left that failed stays")
    with stores_of(server.state) as stores:
        now_ms = stores.clock.now_ms()
        eventually(lambda: not list(stores.wal.unpurged(now_ms)), "what is purged last stays, or the topic")


def live_in_topics(server: DevServer) -> None:
    """The life of topics and queues: written under keys, deleted by tag, claimed, acked, streamed, listed, sealed."""
    with httpx.Client(base_url=f"{server.url}/v0/topics/", timeout=30) as http:

        def ask(path: str, **body: object) -> dict[str, Any]:
            answer = http.post(path, json=body)
            assert answer.is_success, answer.text
            found: dict[str, Any] = answer.json()
            return found

        records = [{"data": number, "tag": f"t{number % 2}"} for number in range(600)]
        for _ in range(2):
            ask("notes", records=records, idempotency_key="first")
        ask("notes/delete", match="t1")  # so many runs that they are an object
        assert len(ask("notes/diff")["records"]) == 256
        assert http.get("notes").is_success
        assert http.get("../topics").is_success
        assert http.put("jobs", json={"type": "queue", "dead_letter": "dead", "max_deliveries": 1}).is_success
        ask("jobs", records=records)
        with http.stream("GET", "jobs/work", params={"node": "w", "max": 2}) as stream:
            lines = stream.iter_lines()
            assert next(line for line in lines if line.startswith("id:"))
        for number in range(40):
            node = f"{number}-{'w' * 60}"
            claimed = ask("jobs/claim", node=node, max=3, lease_ms=LEASE_MS)["claimed"]
            ask("jobs/ack", node=node, seqs=[claimed[1]["$seq"]])
            ask("jobs/nack", node=node, seqs=[claimed[0]["$seq"]])
    with stores_of(server.state) as stores:
        rows = {name: stores.catalog.get(TOPICS, name) for name in ("notes", "jobs")}
        logs = [log.log_id for row in rows.values() if row is not None for log in row.logs]
        eventually(lambda: all(is_sealed(stores, log) for log in logs), "topics are not sealed")
    for name, least in (("notes", "300"), ("jobs", "40")):
        run_in_role(server, "indexer", "tests.e2e.dead_finder", Pipeline(server).log_id(name), least)


def live_with_followers(server: DevServer) -> None:
    """What the relay tells: a router's destination, a watch of many topics, a socket, a subscription."""
    with httpx.Client(base_url=f"{server.url}/v0/", timeout=30) as http:
        large = {"data": secrets.token_hex(40_000)}
        assert http.put("routers/copy", json={"source": "copied", "dest": "copies"}).is_success
        watched = {f"watched-{number}": {} for number in range(10)}
        for topic in (*watched, "copied"):
            assert http.post(f"topics/{topic}", json={"records": [large] * 2}).is_success
        eventually(lambda: http.get("topics/copies").json()["head_seq"], "nothing is copied")
        session = http.post("watch", json={"topics": watched})
        assert session.is_success, session.text
        with http.stream("GET", session.json()["stream_url"].removeprefix("/v0/")) as stream:
            lines = stream.iter_lines()
            assert http.post("topics/watched-3", json={"records": [{"data": "rung"}]}).is_success
            assert next(line for line in lines if "rung" in line)
        with opened(Server(server.url, http)) as socket:
            socket.subscribe("copied")
            socket.until(lambda message: message["op"] == "record")
        assert http.delete("topics/copied").is_success  # and its router
    with httpx.Client(base_url=f"{server.url}/v1/stream/", timeout=30) as http:
        assert http.put("wakes", headers=JSON).status_code == 201
        pulled = {"type": "pull-wake", "pattern": "work/*", "wake_stream": "wakes"}
        assert http.put("__ds/subscriptions/pulled", json=pulled).is_success
        assert http.put("work/1", json=[1], headers=JSON).status_code == 201
        eventually(lambda: http.get("wakes").json(), "nobody is woken")
        assert http.delete("work/1").is_success
        left = "__ds/subscriptions/pulled"
        eventually(lambda: not http.get(left).json()["streams"], "a deleted stream is still linked")
        assert http.delete("__ds/subscriptions/pulled").is_success


def is_sealed(stores: Stores, log: str) -> bool:
    """Returns whether everything that a log holds is published."""
    newest = stores.wal.newest(log)
    return newest is not None and stores.watermarks.get(log).end_slot > newest.slot


def leave_topic(server: DevServer) -> None:
    """Deletes a topic, which is purged."""
    with httpx.Client(base_url=f"{server.url}/v0/topics/", timeout=30) as http:
        assert http.post("gone", json={"records": [{"data": 1}]}).is_success
        assert http.delete("gone").is_success


def leave_slot(server: DevServer) -> None:
    """Leaves the slot of an open stream whose process died, and waits until the sweep has freed it."""
    with stores_of(server.state) as stores:
        now_ms = stores.clock.now_ms()
        slot = parts.Part(parts.SLOT, secrets.token_hex(16), expires_ms=now_ms)
        assert take(stores.sessions, slot, [Limit("limit", "streams", 10)], now_ms) is not None
        eventually(lambda: not list(stores.sessions.expired(now_ms)), "an expired slot is not freed")


def make_doomed(server: DevServer, http: httpx.Client) -> str:
    """Makes a stream with something of everything and deletes it; returns its name."""
    assert http.put("doomed", headers={**JSON, "Stream-TTL": "1h"}).status_code == 201
    assert http.post(
        "doomed/_profile", json={"profile": {"kind": "state-protocol", "touch": {"enabled": True}}}
    ).is_success
    for number in range(10):  # more than a log's state remembers
        headers = {**JSON, "Producer-Id": f"p{number}", "Producer-Epoch": "0", "Producer-Seq": "0"}
        change = {"type": "todo", "key": str(number), "headers": {"operation": "insert"}, "value": {"done": False}}
        assert http.post("doomed", json=change, headers=headers).is_success
    headers = {**JSON, "Producer-Id": "p0", "Producer-Epoch": "0", "Producer-Seq": "0"}
    assert http.post("doomed", json={}, headers=headers).status_code == 204, "a repeat of the first producer"
    template = {"entity": "todo", "fields": [{"name": "done", "encoding": "bool"}]}
    activated = http.post("doomed/touch/templates/activate", json={"templates": [template]})
    assert activated.is_success, activated.text
    large = {**change, "value": {"text": secrets.token_hex(200_000)}}
    assert http.post("doomed", json=large, headers=JSON).is_success
    assert len(http.get("doomed").json()) == 11
    eventually(lambda: Pipeline(server).of("doomed").published == 11, "doomed is not sealed, with its payload")
    assert http.delete("doomed").status_code == 204
    return "doomed"


def leave_unborn(stream: Indexed) -> str:
    """Leaves what a create leaves that lost the race for its name after it put its payload; returns the id of its log."""
    log, settings = secrets.token_hex(16), stream.pipeline.settings
    stream.pipeline.client("dynamodb").put_item(
        TableName=settings["HEADRACE_CATALOG_TABLE"], Item=row_item(buried(log, 0))
    )
    stream.pipeline.client("s3").put_object(Bucket=settings["HEADRACE_BUCKET"], Key=keys.payload(log, 0, "n"))
    return log


def make_fork_of_deleted(http: httpx.Client) -> list[str]:
    """Deletes a stream that has a fork, which expires by the sweep; returns both names."""
    assert http.put("source", headers=JSON).status_code == 201
    assert http.post("source", json=[1, 2], headers=JSON).is_success
    fork = {**JSON, "Stream-Forked-From": "/v1/stream/source", "Stream-TTL": "5"}
    assert http.put("branch", headers=fork).status_code == 201
    assert http.post("branch", json=[3], headers={**JSON, "Stream-Closed": "true"}).is_success
    assert http.get("branch").json() == [1, 2, 3]
    assert http.delete("source").status_code == 204
    return ["source", "branch"]


def search(http: httpx.Client, name: str) -> None:
    """What asks runs, segments and the tail."""
    assert http.get(f"{name}/_search", params={"q": "status:s1"}).is_success
    assert http.get(f"{name}/_index_status").is_success
    assert http.get(f"{name}/_details").is_success


def meet_what_is_rare(server: DevServer) -> None:
    """Keys from the secret, a stream that expires under a reader, one slot only, and late writers."""
    endpoint = server.state["endpoint"]
    secret = client("secretsmanager", endpoint).get_secret_value(SecretId=secret_name())["SecretString"]
    bearer = {"Authorization": f"Bearer {secret}"}
    with httpx.Client(base_url=f"{server.url}/v1/", timeout=30, headers=bearer) as http:
        assert http.put("stream/brief", headers={**JSON, "Stream-TTL": "1"}).status_code == 201
        assert http.put("stream/brief-too", headers={**JSON, "Stream-TTL": "1"}).status_code == 201
        time.sleep(1.1)  # longer than their TTL
        assert http.get("stream/brief").status_code == 404
        run_in_role(server, "relay", "tests.e2e.late_follower", "brief-too")
        assert http.get("streams").is_success
        jobs = f"{server.url}/v0/topics/jobs"
        assert http.put(jobs, json={"type": "queue"}).is_success
        with http.stream("GET", f"{jobs}/work?node=first") as stream:
            lines = stream.iter_lines()  # held: a stream whose iterator is dropped is closed
            assert next(lines)
            assert http.get(f"{jobs}/work?node=second").status_code == 429
        with opened(
            Server(server.url, http, secret)
        ) as socket:  # at each push the relay asks for what the key allows
            assert socket.publish("pushed", 1)["op"] != "error"
            socket.subscribe("pushed")
            socket.until(lambda message: message["op"] == "record")
        be_called(http)
    for function in ("api", "sealer", "relay", "folder"):
        log = secrets.token_hex(16)
        run_in_role(server, "", "tests.e2e.late_writer", log, "meanwhile")
        run_in_role(server, function, "tests.e2e.late_writer", log, "late")


def be_called(http: httpx.Client) -> None:
    """Has a webhook posted to this process, signed with the key from the secret."""
    called = threading.Event()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = b'{"done":true}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            called.set()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with HTTPServer(("127.0.0.1", 0), Receiver) as receiver:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{receiver.server_port}/hook"
        asked = {"type": "webhook", "pattern": "hooked/*", "webhook": {"url": url}}
        answer = http.put("stream/__ds/subscriptions/hook", json=asked)
        assert answer.is_success, answer.text
        assert http.get("stream/__ds/jwks.json").json()["keys"]
        assert http.put("stream/hooked/1", json=[1], headers=JSON).status_code == 201
        assert called.wait(60), "no webhook came"
        receiver.shutdown()


def sealed_segments(stream: Indexed) -> list[str]:
    """Keys of segments that the sealer wrote; a merge takes them away in the end."""
    found = stream.pipeline.keys(keys.segments(stream.log_id))
    return [key for key in found if key.endswith(".parquet") and keys.planned_ms(key) is None]


def secret_name(start: str = "AdminKey") -> str:
    """Returns the logical id of a secret, which the emulator uses as its name; by default of that with the API keys."""
    resources = read_template()["Resources"]
    secrets_ = [name for name, part in resources.items() if part["Type"] == "AWS::SecretsManager::Secret"]
    (name,) = (name for name in secrets_ if name.startswith(start))
    return name


def test_no_call_is_refused(evidence: Evidence) -> None:
    assert evidence.calls > 100
    assert evidence.refused == []


def test_every_permission_is_used(evidence: Evidence) -> None:
    """What no process of ours uses is what AWS uses in the role's name, exactly."""
    never = evidence.granted - evidence.used
    print(*sorted(never), sep="\n")  # which resource of a statement
    unused = {(role, sid, action) for role, sid, action, _ in never}
    assert unused == DONE_BY_AWS.keys()
