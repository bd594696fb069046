"""A topic whose records are indexed, deleted and scrubbed by real jobs on local Spark, and searched over HTTP meanwhile."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from headrace.log.stores import Stores
from headrace.manifest.manifest import Manifest
from headrace.topics.values import TOPICS
from tests.chaos.rest import stores_of
from tests.e2e.test_indexing import eventually
from tests.support.emulated_cloud import DevServer, dev_server
from tests.support.pipeline import NO_METRICS

OPTIONS = ("--seal-age", "1s", "--state-age", "1s", "--trim-age", "8s", "--index-age", "2s", "--sweep-every", "4s")
pytestmark = pytest.mark.full


@pytest.fixture
def server() -> Iterator[DevServer]:
    with dev_server(*OPTIONS, environment=NO_METRICS, runs_jobs=True) as server:
        yield server


def _manifest(stores: Stores, log_id: str) -> Manifest | None:
    return stores.manifests().newest(log_id, None, 0)


def test_a_topic_is_indexed_searched_and_scrubbed(server: DevServer) -> None:
    with stores_of(server.state) as stores, httpx.Client(base_url=f"{server.url}/v0/topics/", timeout=30) as http:
        records = [{"tag": f"t{n % 3}", "node": f"n{n % 2}", "data": {"n": n}} for n in range(30)]
        assert http.post("orders", json={"records": records}).status_code == 201
        row = stores.catalog.get(TOPICS, "orders")
        assert row is not None

        def search(q: str) -> Any:
            answer = http.post("orders/search", json={"q": q, "size": 100, "sort": ["offset:asc"]})
            assert answer.status_code == 200, answer.text
            return answer.json()

        def found(q: str) -> list[int]:
            return [hit["data"]["n"] for hit in search(q)["hits"]]

        assert found("tag:t1 node:n0") == [n for n in range(30) if n % 3 == 1 and n % 2 == 0]
        eventually(lambda: search("tag:t1")["coverage"]["indexed_segments"] == 1, "it is not indexed")
        assert found("tag:t1") == [n for n in range(30) if n % 3 == 1]
        assert http.post("orders/delete", json={"match": ["tag", "Eq", "t1"]}).json()["deleted"] == 10
        assert found("tag:t1") == []
        assert search("has:ts")["total"] == {"value": 20, "relation": "eq"}

        def scrubbed() -> bool:
            manifest = _manifest(stores, row.log_id)
            return manifest is not None and sum(one.blanked for one in manifest.open_page) == 10

        eventually(scrubbed, "it is not scrubbed")
        manifest = _manifest(stores, row.log_id)
        assert manifest is not None
        table = pq.read_table(io.BytesIO(stores.objects.get(manifest.open_page[0].key))).to_pydict()
        assert table["key"] == [None if n % 3 == 1 else f"t{n % 3}" for n in range(30)]
        assert found("has:ts") == [n for n in range(30) if n % 3 != 1]
        eventually(lambda: search("tag:t2")["coverage"]["indexed_segments"] == 1, "it is not indexed again")
        assert found("tag:t0") == [n for n in range(30) if n % 3 == 0]


def test_timings_of_a_queue_are_indexed(server: DevServer) -> None:
    with httpx.Client(base_url=f"{server.url}/v0/topics/", timeout=30) as http:

        def ask(path: str, **body: Any) -> Any:
            answer = http.post(path, json=body)
            assert answer.status_code in (200, 201), answer.text
            return answer.json()

        def timings() -> Any:
            return ask("work/timings", **{"from": "2020-01-01T00:00:00Z"}, to="2100-01-01T00:00:00Z", interval="1d")

        assert http.put("work", json={"type": "queue"}).status_code == 201
        ask("work", records=[{"data": n} for n in range(20)])
        runs = []
        for node in ("a", "b"):
            jobs = ask("work/claim", node=node, max=10)["claimed"]
            runs.append(ask("work/ack", node=node, seqs=[job["$seq"] for job in jobs[1:]])["acked"])
        assert ask("work/nack", node="a", seqs=[1])["nacked"] == 1
        assert ask("work/claim", node="c", max=9)["count"] == 1
        before = timings()
        eventually(lambda: timings()["coverage"]["index_families_used"] == ["agg"], "it is not indexed")
        assert timings()["coverage"]["scanned_tail_docs"] == 0
        assert timings()["buckets"] == before["buckets"]
        totals = {
            name: sum(bucket[name] for bucket in before["buckets"])
            for name in ("claimed", "acked", "redelivered", "nacked", "expired", "dead")
        }
        assert totals == {
            "claimed": 21,
            "acked": sum(runs),
            "redelivered": 1,
            "nacked": 1,
            "expired": 0,
            "dead": 0,
        }
        assert runs == [9, 9]
        waits = sum(bucket["wait_ms"]["count"] for bucket in before["buckets"])
        attempts = sum(bucket["attempts"]["sum"] for bucket in before["buckets"])
        assert (waits, attempts) == (20, 18)
