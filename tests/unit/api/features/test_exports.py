"""Exports over HTTP: what is asked for, what it takes, and what became of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from functions.access import Access
from functions.api.context import assemble
from functions.queue import MemoryQueue, Message
from headrace import jobs
from headrace.errors import StoreTimeout
from headrace.features.exports import Request
from headrace.features.jobs import ASOF, SNAPSHOT, AsOfInput, Counted, ExportResult, SnapshotInput
from headrace.features.values import FEATURES
from headrace.jobs import Ended, Progress, Started
from headrace.objects import keys
from headrace.settings import Settings
from tests.unit.api.asgi import Server
from tests.unit.api.features.wire import ask, code, register, serving
from tests.unit.features.backfilling import finish, run_jobs
from tests.unit.features.world import World, event, table, tx

LABELS = "labels/default/l.parquet"
SETTINGS = Settings(metrics_interval_ms=0, bucket="b")


@pytest.fixture
def server() -> Server:
    """Returns a server with one event, and labels that nobody has looked into."""
    server = serving(settings=SETTINGS)
    ask(server, "POST", "/push/Tx", tx())
    server.parts.stores.objects.put(LABELS, b"")
    return server


def asked(server: Server, job_id: str) -> Any:
    """Returns the input of a job."""
    request = jobs.load_request(server.parts.stores.objects, job_id)
    assert request is not None
    return bytes(request.input), request.kind


def test_a_snapshot_is_asked_for(server: Server) -> None:
    before = server.dump()
    plan = ask(server, "POST", "/snapshot", {"table": "U", "dry_run": True}).json
    assert server.dump() == before
    assert plan.keys() == {"as_of", "first_offsets", "segments", "events", "bytes", "estimate"}
    assert (plan["first_offsets"], plan["segments"], plan["events"]) == ({"Tx": 0}, 0, 1)
    assert plan["estimate"]["usd"] > 0
    made = ask(server, "POST", "/snapshot", {"table": "U", "features": ["c"]}).json
    input_, kind = asked(server, made["job_id"])
    assert kind == SNAPSHOT
    found = msgspec.json.decode(input_, type=SnapshotInput)
    assert (found.namespace, found.event, found.table, found.names) == ("default", "Tx", "U", ("c",))
    assert (found.bucket, str(found.now_ms)) == ("b", made["as_of"].partition(";")[0])
    again = ask(server, "POST", "/features/default/snapshot", {"table": "U", "as_of": made["as_of"]}).json
    assert again["as_of"] == made["as_of"]


def test_a_training_set_is_asked_for(server: Server) -> None:
    body = {"table": "U", "labels": LABELS}
    made = ask(server, "POST", "/training-set", body).json
    input_, kind = asked(server, made["job_id"])
    assert kind == ASOF
    assert msgspec.json.decode(input_, type=AsOfInput).labels == (LABELS,)
    assert code(ask(server, "POST", "/training-set", {**body, "labels": "labels/default/x"})) == (
        400,
        "invalid_request",
    )
    assert code(ask(server, "POST", "/training-set", {"table": "U"})) == (400, "invalid_request")
    assert code(ask(server, "POST", "/training-set", {**body, "table": "None"})) == (404, "unknown_table")
    assert code(ask(server, "POST", "/training-set", {**body, "features": ["x"]})) == (404, "feature_not_found")


def test_a_job_is_followed_to_its_end(server: Server) -> None:
    job_id = ask(server, "POST", "/snapshot", {"table": "U"}).json["job_id"]
    objects = server.parts.stores.objects

    def show() -> Any:
        return ask(server, "GET", f"/jobs/{job_id}").json

    found = show()
    assert (found["kind"], found["table"], found["state"], found["result"]) == ("snapshot", "U", "waiting", None)
    jobs.note(objects, keys.job_started(job_id), Started(1, 5, "run"))
    jobs.note(objects, keys.job_progress(job_id), Progress(1, 2, 4))
    found = show()
    assert (found["state"], found["started_ms"], found["done"], found["of"]) == ("running", 5, 2, 4)
    key = f"jobs/{job_id}/rows/0.parquet"
    result = ExportResult(1, (key,), 7, {0: Counted(9, 1, "bad"), 1: Counted(3)}, view="text")
    jobs.note(objects, keys.job_result(job_id), result)
    jobs.note(objects, keys.job_ended(job_id), Ended(1, 9))
    found = show()
    assert (found["state"], found["ended_ms"]) == ("succeeded", 9)
    assert found["result"] == {
        "objects": [f"s3://b/{key}"],
        "rows": 7,
        "unmatched": 0,
        "events": 12,
        "skipped": 1,
        "example": "bad",
        "view": "text",
    }
    for missing in ("/jobs/x", f"/jobs/{job_id}1", f"/features/other/jobs/{job_id}"):
        assert code(ask(server, "GET", missing)) == (404, "job_not_found")


def test_a_back_fill_is_shown_until_its_rows_are_read() -> None:
    world = World(event(), table(), table("All", keys=[]))
    world.push()
    server = Server(parts=assemble(world.stores, Access({}, "*")))
    before = server.dump()
    plan = ask(server, "POST", "/backfill", {"table": "U", "dry_run": True}).json
    assert server.dump() == before
    assert plan["events"] == 1
    job_id = ask(server, "POST", "/backfill", {"table": "U"}).json["job_id"]
    assert ask(server, "POST", "/backfill", {"table": "U"}).json["job_id"] == job_id, "it is under way"
    shown = ask(server, "GET", f"/jobs/{job_id}").json
    assert (shown["kind"], shown["table"], shown["state"]) == ("backfill", "U", "waiting")
    run_jobs(world)
    jobs.note(world.stores.objects, keys.job_ended(job_id), Ended(1, 9))
    shown = ask(server, "GET", f"/jobs/{job_id}").json
    assert (shown["state"], shown["ended_ms"], shown["result"]) == ("running", 0, None), "it is not read"
    finish(world)
    shown = ask(server, "GET", f"/jobs/{job_id}").json
    assert (shown["state"], shown["result"]) == ("succeeded", {"rows": 1, "events": 0, "skipped": 0, "example": ""})
    given_up = ask(server, "POST", "/backfill", {"table": "All"}).json["job_id"]
    register(server, table("All", keys=[], c=("sum", {"field": "n"})), force=True)
    shown = ask(server, "GET", f"/jobs/{given_up}").json
    assert shown["state"] == "failed"
    assert "given up" in shown["reason"]
    assert code(ask(server, "POST", "/backfill", {"table": "Tx"})) == (404, "unknown_table")


def test_a_job_of_another_kind_is_none_of_these(server: Server) -> None:
    job_id = "1700000000000-0123456789ab"
    jobs.ask(server.parts.stores.objects, job_id, "scrub", 5, Counted())
    assert code(ask(server, "GET", f"/jobs/{job_id}")) == (404, "job_not_found")


KEYS = (
    "all,a:admin,ar:admin+read,mine:admin+read:default/U|default/Mine,"
    "both:admin+read:default/U|default/Big|default/Tx"
)


def test_an_export_wants_admin_on_the_table_and_read_on_all_that_it_comes_from() -> None:
    big: dict[str, Any] = {
        "kind": "derivation",
        "name": "Big",
        "output_kind": "event",
        "upstreams": ["Tx"],
        "schema": {"fields": {}},
    }
    big["ops"] = [{"op": "filter", "expr": "(amount > 5)"}]
    server = serving(event(), big, table("U", "Big"), keys=KEYS, settings=SETTINGS)
    for path, body in (("/snapshot", {"table": "U"}), ("/training-set", {"table": "U", "labels": "labels/default/"})):
        for key in ("a", "mine"):
            assert code(ask(server, "POST", path, body, key)) == (403, "forbidden")
        for key in ("all", "ar", "both"):
            assert code(ask(server, "POST", path, {**body, "table": 5}, key)) == (400, "invalid_request")
    job_id = ask(server, "POST", "/snapshot", {"table": "U"}, "both").json["job_id"]
    register(server, table("Other", "Tx"), key="all")
    assert ask(server, "GET", f"/jobs/{job_id}", None, "mine").json["table"] == "U"
    other = ask(server, "POST", "/snapshot", {"table": "Other"}, "all").json["job_id"]
    assert code(ask(server, "GET", f"/jobs/{other}", None, "mine")) == (404, "job_not_found")


def test_the_sealer_is_told_of_what_is_not_sealed_and_its_silence_changes_nothing(server: Server) -> None:
    class Silent(MemoryQueue):
        def send(self, messages: Any, now_ms: int) -> None:
            raise StoreTimeout("no answer")

    stores, queue = server.parts.stores, MemoryQueue()
    for sealer in (queue, Silent(), None):
        exports = assemble(stores, server.parts.access, sealer=sealer).exports()
        plan = exports.snapshot(Request("default", "U"))
        assert jobs.status(stores.objects, plan.job_id)
    row = stores.catalog.get(FEATURES, "default/Tx")
    assert row is not None
    assert queue.waiting == [Message("seal", row.log_id, force=True)]
