"""Feature tables of the deployed template: beava's client through API Gateway, the folder called by its queue, the Spark
jobs of back-fills and training sets, which go on by the deployed rule, the relay and the folder alone, and the contract.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import beava as bv
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conformance.contract.client import Api, expect
from tests.conformance.coverage import FEATURES
from tests.deployed.contracts import check_contract, run_contract
from tests.deployed.deploy import Stack
from tests.deployed.flow import Flow
from tests.deployed.job_events import Relayed

FOLD_S = 60
JOBS_S = 180
LABELS = "labels/default/rides.parquet"
T = TypeVar("T")


@bv.event
class Ride:
    """A ride."""

    rider: str
    city: str
    price: float


@bv.table(key="rider")
def Rider(rides: Ride) -> Any:  # noqa: N802 - the client takes names from here
    return rides.group_by("rider").agg(rides=bv.count(window="1d"), spent=bv.sum("price"), last=bv.last("city"))


CITY = {
    "kind": "derivation",
    "name": "City",
    "output_kind": "table",
    "upstreams": ["Ride"],
    "table_primary_key": ["city"],
    "backfill": True,
    "ops": [{"op": "group_by", "keys": ["city"], "agg": {"city_rides": {"op": "count", "params": {}}}}],
}
RIDES = [
    {"rider": "ann", "city": "Rome", "price": 8.5},
    {"rider": "bob", "city": "Oslo", "price": 30.0},
    {"rider": "ann", "city": "Oslo", "price": 4.0},
]
ROWS = {"ann": {"rides": 2, "spent": 12.5, "last": "Oslo"}, "bob": {"rides": 1, "spent": 30.0, "last": "Oslo"}}


@pytest.fixture(scope="module")
def app(warm_api: Api) -> Iterator[bv.App]:
    """Yields beava's client, unmodified, with the deployment's key in its address."""
    client = bv.App(warm_api.url.replace("://", f"://any:{warm_api.key}@"))
    yield client
    client.close()


@pytest.fixture(scope="module")
def seen(app: bv.App, warm_api: Api) -> str:
    """Pushes the rides. Returns `Headrace-As-Of` of an answer that saw the first of them alone."""
    app.register(Ride, Rider)
    app.push("Ride", RIDES[0])
    answer = post(warm_api, "/get", {"table": "Rider", "key": "ann"})
    for ride in RIDES[1:]:
        app.push("Ride", ride)
    return str(answer.headers["headrace-as-of"])


@pytest.fixture(scope="module")
def asked(app: bv.App, seen: str, warm_api: Api, stack: Stack, relayed: Relayed, flow: Flow) -> str:
    """Asks for a back-fill and a training set, whose jobs run while other tests do, as does what becomes of the flow's
    stream. Returns the id of the training set's job.
    """
    post(warm_api, "/register", {"nodes": [CITY]})
    assert app.get("City", "Oslo") == {}, "its rows of before the back-fill"
    now = int(time.time() * 1000)
    labels = {
        "rider": ["ann", "ann", "bob"],
        "event_timestamp": [now, now, now],
        "as_of": [seen, None, None],
        "tip": [1, 2, 3],
    }
    data = io.BytesIO()
    pq.write_table(pa.table(labels), data)
    s3, bucket = stack.emulator.client("s3"), stack.outputs["BucketName"]
    s3.put_object(Bucket=bucket, Key=LABELS, Body=data.getvalue())
    return str(post(warm_api, "/training-set", {"table": "Rider", "labels": LABELS}).json()["job_id"])


def post(api: Api, path: str, body: object) -> Any:
    return expect(api.request("POST", path, {"content-type": "application/json"}, body), 200)


def until(read: Callable[[], T], holds: Callable[[T], bool], within_s: float) -> T:
    deadline = time.monotonic() + within_s
    while not holds(found := read()):
        assert time.monotonic() < deadline, f"not within {within_s} s: {found}"
        time.sleep(0.5)  # polls: the deployment has nothing to wait on
    return found


def test_the_client_reads_what_it_pushed(app: bv.App, seen: str) -> None:
    assert app.get("Rider", "ann") == ROWS["ann"]
    assert app.batch_get([("Rider", "bob"), ("Rider", "nobody")]) == [ROWS["bob"], {}]
    with pytest.raises(Exception, match="unknown_table"):
        app.get("Nothing", "ann")


def test_the_queue_has_the_folder_write_rows(warm_api: Api, seen: str) -> None:
    """A stale read is of the stored rows alone."""
    for rider, row in ROWS.items():
        body = {"table": "Rider", "key": rider, "consistency": "stale"}
        until(lambda body=body: post(warm_api, "/get", body).json(), lambda found, row=row: found == row, FOLD_S)


@pytest.mark.timeout(900)
def test_every_test_of_the_contract_passes_or_is_known_not_to(
    asked: str, warm_api: Api, known_differences: dict[str, dict[str, str]], findings: dict[str, Any]
) -> None:
    known = known_differences["features"]
    check_contract(
        "features", known, findings, lambda names: run_contract(FEATURES, warm_api.url, warm_api.key, names)
    )


@pytest.mark.timeout(2 * JOBS_S)
def test_a_later_table_is_back_filled_and_labels_get_features_as_of_their_time(
    asked: str, app: bv.App, warm_api: Api, stack: Stack, findings: dict[str, Any]
) -> None:
    started = time.monotonic()
    until(lambda: app.get("City", "Oslo"), lambda row: row == {"city_rides": 2}, JOBS_S)
    app.push("Ride", {"rider": "eve", "city": "Oslo", "price": 1.0})
    assert app.get("City", "Oslo") == {"city_rides": 3}

    ended = until(
        lambda: expect(warm_api.get(f"/jobs/{asked}"), 200).json(), lambda found: found["state"] != "running", JOBS_S
    )
    assert ended["state"] == "succeeded", ended
    assert ended["result"]["unmatched"] == 0
    (uri,) = ended["result"]["objects"]
    s3, bucket = stack.emulator.client("s3"), stack.outputs["BucketName"]
    key = uri.removeprefix(f"s3://{bucket}/")
    rows = pq.read_table(io.BytesIO(s3.get_object(Bucket=bucket, Key=key)["Body"].read())).to_pylist()
    assert [{name: row[name] for name in ("tip", "rides", "spent", "last")} for row in rows] == [
        {"tip": 1, "rides": 1, "spent": 8.5, "last": "Rome"},
        {"tip": 2, **ROWS["ann"]},
        {"tip": 3, **ROWS["bob"]},
    ]
    findings["features_jobs_waited_s"] = round(time.monotonic() - started, 1)
