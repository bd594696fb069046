"""A quarter of a million real records: in through the command line, sealed, back byte for byte, queried in place."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import msgspec
import pyarrow.dataset
import pyarrow.fs
import pytest

from tests.node import install_packages
from tests.support.emulated_cloud import DevServer, dev_server
from tests.support.pipeline import NO_METRICS, Pipeline

HERE = Path(__file__).parent
AT_LEAST = 200_000


@pytest.fixture(scope="module")
def flights() -> Path:
    install_packages(HERE)
    return HERE / "node_modules" / "vega-datasets" / "data" / "flights-200k.json"


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    with dev_server("--seal-records", "50000", "--seal-age", "2s", environment=NO_METRICS) as running:
        yield running


def headrace(server: DevServer, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Runs the command line as a user would."""
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "--url", server.url, *arguments], capture_output=True, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode()
    return done


def elements(data: bytes) -> list[bytes]:
    """Returns the exact text of each element of a JSON array."""
    return [bytes(raw) for raw in msgspec.json.decode(data, type=list[msgspec.Raw])]


@pytest.mark.full
def test_real_records_come_back_byte_for_byte_and_are_open_parquet(
    server: DevServer, flights: Path, tmp_path: Path
) -> None:
    original = elements(flights.read_bytes())
    assert len(original) >= AT_LEAST
    headrace(server, "create", "flights")
    summary = json.loads(headrace(server, "append", "flights", "--file", str(flights), "--json").stdout)
    assert summary["records"] == len(original)

    pipeline = Pipeline(server)
    until = time.monotonic() + 60
    while pipeline.of("flights").published < len(original):
        assert time.monotonic() < until, f"not sealed in time: {pipeline.of('flights')}"
        time.sleep(0.5)  # polls the bucket

    output = tmp_path / "flights.jsonl"
    headrace(server, "read", "flights", "--format", "lines", "--output", str(output))
    assert output.read_bytes().splitlines() == original

    log = pipeline.of("flights")
    assert log.segments >= 4
    filesystem = pyarrow.fs.S3FileSystem(
        endpoint_override=pipeline.endpoint.removeprefix("http://"),
        scheme="http",
        access_key=pipeline.settings["AWS_ACCESS_KEY_ID"],
        secret_key=pipeline.settings["AWS_SECRET_ACCESS_KEY"],
        region=pipeline.settings["AWS_REGION"],
    )
    bucket = pipeline.settings["HEADRACE_BUCKET"]
    keys = [f"{bucket}/{key}" for key in pipeline.keys(f"logs/{log.log_id}/segments/") if key.endswith(".parquet")]
    segments = pyarrow.dataset.dataset(sorted(keys), filesystem=filesystem, format="parquet")
    database = duckdb.connect()
    database.register("segments", segments)
    found = database.sql(
        'select count(*), min("offset"), max("offset"), sum((data->>\'$.delay\')::int) from segments'
    ).fetchall()
    delays = sum(json.loads(text)["delay"] for text in original)
    assert found == [(len(original), 0, len(original) - 1, delays)]

    state_file = tmp_path / "state.json"
    state_file.write_text(json.dumps(server.state))
    example = Path(__file__).parents[2] / "docs" / "examples" / "query_bucket.py"
    query = "select count(*) as flights from segments"
    shown = subprocess.run(
        [sys.executable, str(example), str(state_file), "flights", query], capture_output=True, text=True, timeout=60
    )
    assert shown.returncode == 0, shown.stderr
    assert f" {len(original)} " in shown.stdout
