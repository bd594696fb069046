"""The whole life of a feature table on the emulator, for the tests of what roles may do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq

from functions.fold_queue import Fold, SqsFoldQueue
from functions.queue import Message, SqsQueue
from headrace.features.values import FEATURES, REGISTER
from headrace.tables.catalog import Row
from headrace.tables.features import TABLE, DynamoFeatures
from local.deployment import Deployment
from local.environment import as_role, client
from tests.chaos.rest import stores_of
from tests.e2e.test_indexing import eventually
from tests.support.emulated_cloud import DevServer
from tests.support.pipeline import Pipeline
from tests.unit.features.world import event, table, tx


def live_with_features(server: DevServer) -> None:
    """The life of feature tables: registered, folded, read, searched, reset; a registration that the relay has to end."""
    with httpx.Client(base_url=server.url, timeout=30) as http, stores_of(server.state) as stores:

        def ask(path: str, **body: object) -> Any:
            answer = http.post(path, json=body)
            assert answer.is_success, answer.text
            return answer.json()

        def row_of(name: str) -> Row:
            found = stores.catalog.get(FEATURES, f"default/{name}")
            assert found is not None
            return found

        def found() -> Any:
            return ask("/search", event="Seen", q="user:a")

        rows = stores.tables[TABLE]
        assert isinstance(rows, DynamoFeatures)
        ask("/register", nodes=[event(), table()])
        for user in ("a", "b", "c"):
            ask("/push", event="Tx", data=tx(user))
        log_id = row_of("Tx").log_id

        def folded() -> int:
            mark = rows.mark(log_id)
            return mark.folded if mark is not None else 0

        eventually(lambda: folded() == 3, "events are not folded")
        answers = ask("/batch_get", requests=[{"table": "U", "key": user} for user in "abc"])
        assert [one["c"] for one in answers["results"]] == [1, 1, 1]
        assert ask("/get", table="U", key="a")["c"] == 1
        labels = pa.table({"user": ["a", "z"], "event_timestamp": [stores.clock.now_ms()] * 2})
        stores.objects.put("labels/default/l.parquet", parquet(labels))
        ask("/push", event="Tx", data=tx("y"))  # it is not sealed yet: the api asks for that
        job = f"/jobs/{ask('/training-set', table='U', labels='labels/default/')['job_id']}"
        eventually(lambda: http.get(job).json()["state"] in ("succeeded", "failed"), "the training set is not made")
        (made,) = http.get(job).json()["result"]["objects"]
        key = made.removeprefix(f"s3://{stores.settings.bucket}/")
        assert pq.read_table(pa.BufferReader(stores.objects.get(key)))["c"].to_pylist() == [1, None]
        ask("/register", nodes=[{**table("Late"), "backfill": True}])  # the relay asks for its job
        eventually(lambda: ask("/get", table="Late", key="a").get("c") == 1, "a table is not back-filled")
        ask("/register", nodes=[event("Seen", search=True)])
        for user in ("a", "b", "a"):
            ask("/push", event="Seen", data=tx(user))
        assert found()["total"]["value"] == 2, "in the tail"
        run_in_role(server, "folder", "tests.e2e.late_folder", "drop", log_id)
        run_in_role(server, "", "tests.e2e.late_folder", "open")
        eventually(lambda: stores.catalog.get(FEATURES, "default/Left"), "nobody ends the registration")
        registry = row_of(".registry").log_id
        queue = SqsQueue(client("sqs", server.state["endpoint"]), server.state["outputs"]["RelayQueueUrl"])
        queue.send([Message("visit", registry, followers=(f"{REGISTER}#-",), force=True)], 0)
        # An empty table is computed again, from segments.
        eventually(lambda: len(Pipeline(server).entries(log_id)) == 1, "a lane is not sealed and trimmed")
        while not rows.purge(log_id):
            pass
        folds = SqsFoldQueue(client("sqs", server.state["endpoint"]), server.state["outputs"]["FoldQueueUrl"])
        folds.send([Fold(log_id, "default/Tx", again="emptied")], 0)
        eventually(lambda: folded() == 4, "rows are not computed again")
        eventually(lambda: found()["coverage"]["indexed_segments"], "a lane is not indexed")
        assert found()["total"]["value"] == 2
        ask("/reset")
        eventually(lambda: rows.mark(log_id) is None, "the rows of a lane that is over stay")


def parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


def run_in_role(server: DevServer, function: str, program: str, *arguments: str) -> None:
    """Runs a program against the emulator in the role of a function, or in none. Raises when it fails."""
    deployment = Deployment.from_json(Path(server.state["deployment"]).read_bytes())
    identity = as_role(deployment.role_of(f"functions.{function}.handler.handler"))
    environment = {**os.environ, **server.state["environment"], **identity}
    subprocess.run([sys.executable, "-m", program, *arguments], env=environment, check=True, timeout=60)
