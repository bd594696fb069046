"""The queries of docs/analytics.md, run with DuckDB on the bucket, give what the server answers."""

from __future__ import annotations

import importlib.util
import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.conformance.contract.client import Api, Stream, eventually, expect
from tests.support.emulated_cloud import DevServer, dev_server
from tests.support.pipeline import NO_METRICS

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "query_bucket.py"
OPTIONS = ("--seal-records", "500", "--seal-age", "1h", "--index-segments", "1", "--index-age", "1h")
RECORDS = 1500
MINUTE_MS = 60_000
START_MS = 1_767_225_600_000  # 2026-01-01
PATIENCE_S = 240.0

Rows = list[tuple[Any, ...]]


def field(kind: str, pointer: str, *capabilities: str, **more: str) -> dict[str, Any]:
    bindings = [{"version": 1, "jsonPointer": pointer}]
    return {"kind": kind, "bindings": bindings, **dict.fromkeys(capabilities, True), **more}


SEARCH = {
    "primaryTimestampField": "at",
    "fields": {
        "at": field("date", "/at", "column"),
        "service": field("keyword", "/service", "exact", normalizer="lowercase_v1"),
        "status": field("integer", "/status", "exact", "column"),
        "duration": field("float", "/duration", "column", "sortable", "aggregatable"),
        "message": field("text", "/message", analyzer="unicode_word_v1"),
    },
    "rollups": {
        "requests": {
            "dimensions": ["service"],
            "intervals": ["1m"],
            "measures": {
                "latency": {"kind": "summary", "field": "duration", "histogram": "log2_v1"},
                "requests": {"kind": "count"},
            },
        }
    },
}
WHOLE = {
    "rollup": "requests",
    "from": START_MS,
    "to": START_MS + 3_600_000,
    "interval": "1m",
    "group_by": ["service"],
}


def events() -> list[dict[str, Any]]:
    """Returns an hour of requests; durations are quarters, so that sums are exact in any order."""
    luck = random.Random(5)
    return [
        {
            "at": START_MS + luck.randrange(3_600_000),
            "service": luck.choice(["Billing", "billing", "search", "Été", None]),
            "status": luck.choice([200, 200, 200, 404, 500, 503]),
            "duration": luck.randrange(1, 8000) / 4,
            "message": f"request {number} served",
            "customer": luck.choice(["Zoe", "anna", "Anna", "ключ", "日本"]),
        }
        for number in range(RECORDS)
    ]


def queries() -> dict[str, str]:
    """Returns the SQL of the page, by name."""
    page = (ROOT / "docs" / "analytics.md").read_text()
    return dict(re.findall(r"^```sql (\w+)\n(.*?)^```", page, re.MULTILINE | re.DOTALL))


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    with dev_server(*OPTIONS, environment=NO_METRICS, runs_jobs=True) as started:
        yield started


@pytest.fixture(scope="module")
def stream(server: DevServer) -> Iterator[Stream]:
    """Yields a stream that has every record in a segment and an index run."""
    with Api(server.url) as api:
        routing_key = {"jsonPointer": "/customer", "required": True}
        made = api.with_schema(schema={"type": "object"}, search=SEARCH, routingKey=routing_key)
        batch = events()
        for first in range(0, RECORDS, 500):
            expect(made.append(batch[first : first + 500]), 204)

        def covered() -> list[int]:
            status = expect(made.index_status(), 200).json()
            keys = status["routing_key_lexicon"]["indexed_segment_count"]
            return [keys, *(family["covered_segment_count"] for family in status["search_families"])]

        eventually(covered, lambda counts: set(counts) == {3}, within_s=PATIENCE_S)
        yield made


@pytest.fixture(scope="module")
def database(server: DevServer, stream: Stream) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yields a database with the tables that the example makes."""
    spec = importlib.util.spec_from_file_location("query_bucket", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    with example.connect(server.state["environment"], stream.name) as connected:
        yield connected


def by_service(stream: Stream, **more: Any) -> dict[tuple[str, str | None], dict[str, Any]]:
    """Measures by minute and service, from the server."""
    answer = expect(stream.aggregate({**WHOLE, **more}), 200).json()
    assert answer["coverage"]["complete"] is True
    return {
        (bucket["start"], group["key"]["service"]): group["measures"]
        for bucket in answer["buckets"]
        for group in bucket["groups"]
    }


def failures(stream: Stream) -> Rows:
    totals: dict[str | None, int] = {}
    for (_, service), measures in by_service(stream, q="status:>=500").items():
        totals[service] = totals.get(service, 0) + measures["requests"]["count"]
    return sorted(totals.items(), key=nulls_last)


def minutes(stream: Stream) -> Rows:
    rows = [
        (minute, service, numbers["requests"]["count"], *(numbers["latency"][name] for name in ("sum", "min", "max")))
        for (minute, service), numbers in by_service(stream).items()
    ]
    return sorted(rows, key=lambda row: (row[0], nulls_last(row[1:])))


def slowest(stream: Stream) -> Rows:
    hits = expect(stream.search(q="service:billing", sort=["duration:desc"], size=5), 200).json()["hits"]
    records = stream.records()
    return [
        (records.index(hit["source"]), hit["source"]["duration"], hit["source"]["message"]) for hit in hits
    ]  # fmt: skip


def customers(stream: Stream) -> Rows:
    keys = expect(stream.routing_keys(), 200).json()["keys"]
    return [(key, len(stream.records(key=key))) for key in keys]


def percentile(stream: Stream) -> Rows:
    """Returns the 99th percentile and the count, by the server's totals: the least duration that at least 99 % do not
    exceed.
    """

    def total(q: str) -> int:
        answer = expect(stream.search(q=q, size=500), 200).json()
        assert answer["total"]["relation"] == "eq"
        return int(answer["total"]["value"])

    everything = total("service:search")
    durations = sorted(event["duration"] for event in events() if event["service"] == "search")
    for value in durations:
        if total(f"service:search AND duration:<={value}") >= 0.99 * everything:
            return [(value, everything)]
    raise AssertionError("no such value")


def nulls_last(row: tuple[Any, ...]) -> tuple[bool, str]:
    return row[0] is None, row[0] or ""


EXPECTED = {
    "failures": failures,
    "minutes": minutes,
    "slowest": slowest,
    "customers": customers,
    "percentile": percentile,
}


def test_every_query_of_the_page_is_compared() -> None:
    assert list(queries()) == list(EXPECTED)


@pytest.mark.full
@pytest.mark.parametrize("name", EXPECTED)
def test_duckdb_answers_as_the_server_does(stream: Stream, database: duckdb.DuckDBPyConnection, name: str) -> None:
    expected = EXPECTED[name](stream)
    assert len(expected) > (0 if name == "percentile" else 3)
    assert database.sql(queries()[name]).fetchall() == expected


@pytest.mark.full
def test_the_example_runs(server: DevServer, stream: Stream, tmp_path: Path) -> None:
    state_file = tmp_path / "state.json"
    state_file.write_text(json.dumps(server.state))
    query = "select count(*) as indexed from col"
    shown = subprocess.run(
        [sys.executable, str(EXAMPLE), str(state_file), stream.name, query],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert shown.returncode == 0, shown.stderr
    assert f" {RECORDS} " in shown.stdout
