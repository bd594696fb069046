"""Feature tables of `headrace dev`: an event gets into its row by relay, queue and folder, though the folder is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import httpx
import pytest

from headrace.aws import aws_stores
from headrace.features.values import FEATURES
from headrace.log.stores import Stores
from headrace.settings import Settings
from headrace.tables.features import TABLE, DynamoFeatures
from headrace.tables.marks import Mark
from local.environment import REGION
from tests.support.emulated_cloud import DevServer, dev_server
from tests.support.pipeline import NO_METRICS
from tests.unit.features.world import event, table, tx


def stores_of(server: DevServer, patch: pytest.MonkeyPatch) -> Stores:
    for name, value in server.state["environment"].items():
        patch.setenv(name, value)
    settings = Settings.from_environment(server.state["environment"])
    return aws_stores(settings, REGION, dynamodb_timeout_s=10, s3_read_timeout_s=10)


def eventually(is_so: Callable[[], bool], what: str, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, what
        time.sleep(0.1)  # polls the table


@pytest.mark.timeout(180)
def test_events_get_into_rows_by_themselves_also_after_the_folder_was_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with dev_server(environment=NO_METRICS) as server, httpx.Client(base_url=server.url, timeout=30) as http:
        stores = stores_of(server, monkeypatch)
        features = stores.tables[TABLE]
        assert isinstance(features, DynamoFeatures)
        nodes = [event(), table(s=("sum", {"field": "amount"}))]
        assert http.post("/register", json={"nodes": nodes}).status_code == 200
        row = stores.catalog.get(FEATURES, "default/Tx")
        assert row is not None

        def mark() -> Mark:
            return features.mark(row.log_id) or Mark(row.log_id, 0)

        def push(user: str, amount: float) -> None:
            assert http.post("/push", json={"event": "Tx", "data": tx(user, amount)}).status_code == 200

        def read(user: str) -> object:
            return http.post("/get", json={"table": "U", "key": user}).json()

        push("a", 1.5)
        push("b", 4)
        push("a", 2)
        eventually(lambda: mark().folded == 3, "the events are not folded")
        assert {one.key.entity: one.as_of for one in features.rows(row.log_id, mark().generations[0])} == {
            "a": 3,
            "b": 3,
        }
        assert read("a") == {"s": 3.5}
        folder = next(pid for name, pid in server.state_now()["functions"].items() if name.startswith("Folder"))
        os.kill(folder, signal.SIGKILL)
        push("a", 4)
        assert read("a") == {"s": 7.5}, "what is not folded is read from the lane"
        eventually(lambda: mark().folded == 4, "the events after the death are not folded")
        assert read("a") == {"s": 7.5}
