"""Exports of feature tables: training sets say what `/get` said at the time, snapshots what it says for every entity."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from emr_jobs import asof, events, exports, states
from emr_jobs.events import Grouping, Lane, Row
from headrace.errors import InvalidRequest, StoreTimeout
from headrace.features.errors import FeatureNotFound, JobNotFound, TableNotFound
from headrace.features.exports import Request
from headrace.features.jobs import SnapshotInput
from headrace.features.rows import parse_as_of
from headrace.jobs import load_request
from tests.unit.emr_jobs import features
from tests.unit.emr_jobs.directory import DirectoryObjects
from tests.unit.emr_jobs.exporting import LABELS, Answer, Shop, expected, features_in, traffic
from tests.unit.features.pipeline import documents
from tests.unit.features.world import NS, event, table, tx

# Spark's client leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

USERS = ("a", "b", "c|d", "é", "nobody")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs jobs in this process."""
    monkeypatch.setattr(events, "run_pass", features.run_pass)


def every(name: str = "U") -> dict[str, Any]:
    """Returns a table with every operator, and the event's fields that they need."""
    node = table(name, keys=["s"])
    node["ops"][0]["agg"] = features.aggregations()
    return node


def every_event() -> dict[str, Any]:
    return event(fields=features.FIELDS, optional=list(features.FIELDS), cold_after_ms=3_000_000)


def every_data(rng: random.Random) -> dict[str, Any]:
    return {
        "f": rng.choice([rng.uniform(-5, 120), 2.5, None]),
        "i": rng.choice([rng.randrange(-5, 50), 2**63 - 1, None]),
        "s": rng.choice([*USERS[:4], None]),
        "b": rng.choice([True, False, None]),
        "lat": rng.choice([rng.uniform(-80, 80), None]),
        "lon": rng.uniform(-170, 170),
    }


def user(rng: random.Random) -> dict[str, Any]:
    return tx(rng.choice(USERS[:4]), rng.choice([1.5, 2.0, -3.25]), rng.randrange(9))


def key_of(answer: Answer) -> str:
    return str(answer.key[0])


def put_answers(shop: Shop, answers: list[Answer], **more: Any) -> None:
    columns = {"label": list(range(len(answers))), "s": [key_of(one) for one in answers], **more}
    shop.put_labels({**columns, "event_timestamp": [one.now_ms for one in answers]})


def keys_of(*users: str) -> list[list[str]]:
    return [[one] for one in users]


def test_spark_says_what_get_said_at_the_time(spark: SparkSession, tmp_path: Path) -> None:
    """Every operator; half of the labels have the header of their answer, half have the time alone."""
    shop = Shop(tmp_path, every_event(), every(), spark=spark)
    found = traffic(shop, 80, every_data, keys_of(*USERS))
    answers = [answer for answer, _ in found]
    texts = [None if is_last and number % 2 else answer.text for number, (answer, is_last) in enumerate(found)]
    assert None in texts
    put_answers(shop, answers, as_of=texts)
    result, rows = shop.training_set()
    names = list(features.aggregations())
    assert features_in(rows, names) == expected(answers, names)
    assert rows["label"].to_pylist() == list(range(len(answers)))
    assert result.counted[0].events == 80
    assert {str(rows.schema.field(name).type) for name in ("count", "mean", "has_seen", "top_k")} == {
        "int64",
        "double",
        "bool",
        "string",
    }

    result, rows = shop.snapshot()
    assert rows.num_rows == 4
    now = {key_of(one): one.row for one in shop.ask(*keys_of(*USERS)) if one.row}
    assert {row["s"]: row for row in rows.select(["s"]).to_pylist()}.keys() == now.keys()
    shown = dict(zip(rows["s"].to_pylist(), features_in(rows, names), strict=True))
    assert shown == now
    gc.collect()  # that garbage here, and not in another test


@pytest.mark.usefixtures("here")
def test_labels_keep_their_order_objects_and_columns(tmp_path: Path) -> None:
    """Several objects of labels, some of which ask for nothing that there is."""
    shop = Shop(tmp_path, event(), table())
    found = [answer for answer, is_last in traffic(shop, 40, user, keys_of(*USERS)) if is_last]
    middle = len(found) // 2
    for number, part in enumerate((found[:middle], found[middle:])):
        times = pa.array([one.now_ms * 1000 + 999 for one in part], pa.timestamp("us", "Europe/Berlin"))
        columns: dict[str, list[Any]] = {"user": [key_of(one) for one in part], "weight": [0.5] * len(part)}
        more = {"user": None, "weight": 1.0}, {"user": "a\x00", "weight": 2.0}, {"user": "a", "weight": 3.0}
        for row in more:
            for name, value in row.items():
                columns[name].append(value)
        times = pa.concat_arrays([times, pa.array([0, 0, None], times.type)])
        shop.put_labels({**columns, "event_timestamp": times}, f"labels/{NS}/set/{number}.parquet")
    result, rows = shop.training_set(labels=f"labels/{NS}/set/")
    assert len(result.objects) == 2
    assert (result.rows, result.unmatched) == (len(found) + 6, 6)
    assert rows.column_names == ["user", "weight", "event_timestamp", "c", "s"]
    assert str(rows.schema.field("event_timestamp").type) == "timestamp[us, tz=Europe/Berlin]"
    known = rows.filter(pc.equal(rows["weight"], 0.5))
    assert features_in(known, ["c", "s"]) == expected(found, ["c", "s"])
    assert rows["user"].to_pylist()[middle] is None


@pytest.mark.usefixtures("here")
def test_lanes_are_read_each_by_its_own_offset(tmp_path: Path) -> None:
    shop = Shop(tmp_path, event(lanes=3, lane_key="user"), table())
    found = [answer for answer, _ in traffic(shop, 40, user, keys_of(*USERS), lanes=3)]
    columns = {"user": [key_of(one) for one in found], "event_timestamp": [one.now_ms for one in found]}
    texts = [one.text for one in found]
    beyond = parse_as_of(texts[-1])
    later = ";".join([str(beyond.now_ms), *(f"Tx.{number}=999" for number in range(3))])
    texts[:3] = ["no header", later, str(beyond.now_ms)]
    shop.put_labels({**columns, "as_of": texts})
    result, rows = shop.training_set(names=("s",))
    assert result.unmatched == 3
    assert features_in(rows, ["s"])[3:] == expected(found[3:], ["s"])
    assert features_in(rows, ["s"])[:3] == [{"s": None}] * 3
    assert "c" not in rows.column_names
    result, rows = shop.snapshot()
    assert {row["user"]: row["c"] for row in rows.to_pylist()} == {
        key_of(one): one.row["c"] for one in shop.ask(*keys_of(*USERS)) if one.row
    }


@pytest.mark.usefixtures("here")
def test_a_label_is_answered_under_the_registration_of_its_time(tmp_path: Path) -> None:
    """A feature that came later is null before, one that went is not there, and another key is another table."""
    shop = Shop(tmp_path, event(), table(c="count", gone="count"))
    found = [answer for answer, _ in traffic(shop, 8, user, keys_of(*USERS))]
    shop.world.register(table(c="count", m=("max", {"field": "n"})), force=True)
    found += [answer for answer, _ in traffic(shop, 8, user, keys_of(*USERS))]
    shop.world.register(table(keys=["n"]), force=True)
    found_then = len(found)
    shop.world.push(tx("a"))
    shop.world.register(table(c="count", m=("max", {"field": "n"})), force=True)
    found += [answer for answer, _ in traffic(shop, 8, user, keys_of(*USERS))]
    assert 0 < found_then < len(found)
    columns = {"user": [key_of(one) for one in found], "event_timestamp": [one.now_ms for one in found]}
    shop.put_labels({**columns, "as_of": [one.text for one in found]})
    _, rows = shop.training_set()
    assert features_in(rows, ["c", "m"]) == expected(found, ["c", "m"])

    # As if it had always been as it is now: nothing begins again, and the feature that came is there.
    _, rows = shop.training_set(is_backfilled=True)
    counts = [row["c"] or 0 for row in rows.to_pylist() if row["user"] == "a"]
    assert counts == sorted(counts)
    assert counts[-1] > max(one.row.get("c", 0) for one in found if key_of(one) == "a")
    assert all((row["c"] is None) == (row["m"] is None) for row in rows.to_pylist())


@pytest.mark.usefixtures("here")
def test_a_time_is_answered_under_the_registration_of_the_events_before_it(tmp_path: Path) -> None:
    shop = Shop(tmp_path, event(), table(c="count"))
    times = []
    for number in range(3):
        shop.world.clock.advance(10)
        shop.world.push(tx("a"))
        times.append(shop.world.clock.now_ms())
        added: dict[str, Any] = {f"d{one}": "count" for one in range(number + 1)}
        shop.world.register(table(c="count", **added))
    shop.put_labels({"user": ["a"] * 6, "event_timestamp": [*times, *(one - 1 for one in times)]})
    _, rows = shop.training_set()
    assert rows.column_names[2:] == ["c", "d0", "d1", "d2"]
    found = [list(row.values())[2:] for row in rows.to_pylist()]
    assert found == [
        [1, None, None, None],
        [2, 1, None, None],
        [3, 2, 1, None],
        [None, None, None, None],
        [1, None, None, None],
        [2, 1, None, None],
    ]


@pytest.mark.usefixtures("here")
def test_a_snapshot_is_what_every_entity_showed_at_an_offset(tmp_path: Path) -> None:
    shop = Shop(tmp_path, event(cold_after_ms=1000), table(c=("count", {"window": "1h"})), table("G", keys=[]))
    traffic(shop, 30, user, keys_of(*USERS))
    then = shop.ask(*keys_of(*USERS))
    as_of = parse_as_of(then[0].text)
    shop.world.clock.advance(9_000)
    shop.world.push(tx("new"))
    result, rows = shop.snapshot(as_of=as_of)
    assert {row["user"]: row["c"] for row in rows.to_pylist()} == {
        key_of(one): one.row["c"] for one in then if one.row
    }
    assert {at.timestamp() * 1000 for at in rows["event_timestamp"].to_pylist()} == {as_of.now_ms}
    assert {at.timestamp() * 1000 for at in rows["created"].to_pylist()} == {shop.world.clock.now_ms()}
    assert [str(rows.schema.field(name).type) for name in ("event_timestamp", "created")] == [
        "timestamp[ms, tz=UTC]"
    ] * 2
    assert 'path="s3://b/jobs/' in result.view
    compile(result.view, "view", "exec")

    result, rows = shop.snapshot()
    assert rows["user"].to_pylist() == ["new"], "the others are cold"
    _, rows = shop.snapshot("G")
    assert rows.drop_columns(["event_timestamp", "created"]).to_pylist() == [
        {"c": 31, "s": shop.ask([], table="G")[0].row["s"]}
    ]


@pytest.mark.usefixtures("here")
def test_a_snapshot_has_several_objects_if_it_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emr_jobs.snapshot._ROWS", 2)
    monkeypatch.setattr(exports, "BATCH_ROWS", 1)
    shop = Shop(tmp_path, event(), table())
    for name in "abcde":
        shop.world.push(tx(name))
    result, rows = shop.snapshot()
    assert sorted(rows["user"].to_pylist()) == list("abcde")
    assert len(result.objects) == 3


def test_what_can_not_be_exported_is_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path, event(), table(), table("T", keys=["user"], created="count"))
    shop.world.push()
    shop.put_labels({"user": ["a"], "event_timestamp": [1]})
    ask = shop.exports
    early = parse_as_of("1;Tx=0")
    with pytest.raises(TableNotFound):
        ask.snapshot(Request(NS, "Tx"))
    with pytest.raises(TableNotFound):
        ask.training_set(Request("other", "U"), LABELS)
    with pytest.raises(FeatureNotFound):
        ask.snapshot(Request(NS, "U", ["none"]))
    with pytest.raises(InvalidRequest, match="column 'created'"):
        ask.snapshot(Request(NS, "T"))
    with pytest.raises(InvalidRequest, match="offset=2"):
        ask.snapshot(Request(NS, "U"), parse_as_of("1;Tx=2"))
    with pytest.raises(TableNotFound):
        ask.snapshot(Request(NS, "U"), early)
    with pytest.raises(InvalidRequest, match="no such labels"):
        ask.training_set(Request(NS, "U"), LABELS[:-1])
    with pytest.raises(InvalidRequest, match="begin with labels/default/"):
        ask.training_set(Request(NS, "U"), "labels/other/l.parquet")
    assert list(shop.objects.list("jobs/")) == []


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"event_timestamp": [1]}, "no column 'user'"),
        ({"user": ["a"]}, "no column 'event_timestamp'"),
        ({"user": ["a"], "event_timestamp": ["2026"]}, "must be a timestamp"),
        ({"user": ["a"], "event_timestamp": [1], "c": [1]}, "name of the feature 'c'"),
    ],
)
def test_labels_that_do_not_fit_fail_the_job_with_the_reason(tmp_path: Path, columns: Any, reason: str) -> None:
    shop = Shop(tmp_path, event(), table())
    shop.world.push()
    shop.put_labels(columns)
    plan = shop.exports.training_set(Request(NS, "U"), LABELS)
    with pytest.raises(InvalidRequest, match=reason):
        shop.run(plan)
    status = shop.exports.show(NS, plan.job_id).status
    assert (status.state, status.kind) == ("waiting", "asof")  # the indexer says that it ended
    with pytest.raises(JobNotFound):
        shop.exports.show("other", plan.job_id)


@pytest.mark.usefixtures("here")
def test_labels_must_be_there_and_parquet(tmp_path: Path) -> None:
    shop = Shop(tmp_path, event(), table())
    shop.world.push()
    shop.objects.put(LABELS, b"user,event_timestamp")
    with pytest.raises(InvalidRequest, match="no Parquet"):
        shop.run(shop.exports.training_set(Request(NS, "U"), LABELS))
    plan = shop.exports.training_set(Request(NS, "U"), LABELS)
    shop.objects.delete([LABELS])
    with pytest.raises(InvalidRequest, match="missing"):
        shop.run(plan)


def test_a_plan_says_what_is_read_and_asks_to_seal_what_is_not(tmp_path: Path) -> None:
    shop = Shop(tmp_path, event(), table())
    empty = shop.exports.snapshot(Request(NS, "U"), is_dry=True)
    assert (empty.job_id, empty.estimate.events, empty.segments) == ("", 0, 0)
    shop.world.push()
    plan = shop.exports.snapshot(Request(NS, "U"))
    assert (plan.estimate.events, plan.estimate.bytes, plan.segments) == (
        1,
        len(b'{"user":"a","amount":1.0,"n":1}'),
        0,
    )
    assert plan.as_of.lanes == {("Tx", 0): 1}
    assert len(shop.asked_to_seal) == 1
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            shop.seal()

    (source,) = exports.find_segments(shop.door, _sources(shop, plan.job_id), sleep)
    assert (len(waits), source.segments[0].count) == (3, 1)
    sealed = shop.exports.snapshot(Request(NS, "U"))
    assert (sealed.segments, sealed.estimate.bytes) == (1, plan.estimate.bytes)
    assert shop.asked_to_seal == []
    shop.world.push()
    later = shop.exports.snapshot(Request(NS, "U"))
    with pytest.raises(StoreTimeout, match="not sealed"):
        exports.find_segments(shop.door, _sources(shop, later.job_id), lambda _: None)


def _sources(shop: Shop, job_id: str) -> Any:
    request = load_request(shop.objects, job_id)
    assert request is not None
    return msgspec.json.decode(request.input, type=SnapshotInput).sources


def test_a_hot_key_with_labels_takes_the_memory_of_its_state_alone(tmp_path: Path) -> None:
    """Its events and labels are read as they come, and answered one by one."""
    objects = DirectoryObjects(str(tmp_path))
    found = features.source(
        objects,
        features.pushed(1, 5),
        [(0, features.document(documents.table("U", agg={"n": documents.count()}, keys=["s"])))],
    )
    lanes = {0: Lane(found)}
    living = features.Living()
    event_body = msgspec.msgpack.encode({"pad": "x" * 1000})

    def rows() -> Iterator[Row]:
        for offset in range(10_000):
            yield Row(1, 0, b"a", offset, offset, None, living.body(event_body))
            yield Row(1, -1, b"a", offset, 2**63 - 1, offset, living.body(msgspec.msgpack.encode([offset, offset])))

    group = next(states.groups(rows(), Grouping(("U",)), lanes))
    assert not isinstance(group, list)
    seen = 0
    for label, body in asof.answers(group, ("s",), {"n": "i64"}):
        assert body == msgspec.msgpack.encode([label + 1])
        seen += 1
    assert seen == 10_000
    assert living.most <= 3


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_ten_thousand_labels_over_a_million_events(spark: SparkSession, tmp_path: Path) -> None:
    """Recorded live, with one hot key: minutes of work. Prints what each part takes."""
    node = table(
        c="count",
        s=("sum", {"field": "amount", "window": "1h"}),
        m=("max", {"field": "n", "window": "24h"}),
        u=("n_unique", {"field": "n"}),
        q=("quantile", {"field": "amount", "q": 0.9, "window": "1h"}),
        e=("ewma", {"field": "amount", "half_life": "10m"}),
        top=("top_k", {"field": "n", "k": 3}),
        last=("last_n", {"field": "amount", "n": 4}),
    )
    shop, rng, answers, began = Shop(tmp_path, event(), node, spark=spark), random.Random(3), [], time.perf_counter()
    for number in range(1_000):
        shop.world.clock.advance(rng.choice([0.001, 1, 60]))
        users = ["hot" if rng.random() < 0.3 else f"u{rng.randrange(2_000)}" for _ in range(1_000)]
        shop.world.api.push(NS, "Tx", [tx(one, rng.uniform(0, 500), rng.randrange(2_000)) for one in users])
        if number % 10 == 9:
            shop.world.fold()
        answers += shop.ask(*([one] for one in ["hot", "nobody", *rng.sample(users, 8)]))
        if number % 100 == 99:  # as the sealer would have
            shop.exports.snapshot(Request(NS, "U"))
            shop.seal()
    texts = [answer.text if number % 2 else None for number, answer in enumerate(answers)]
    columns = {"user": [key_of(one) for one in answers], "event_timestamp": [one.now_ms for one in answers]}
    shop.put_labels({**columns, "as_of": texts})
    names = ["c", "s", "m", "u", "q", "e", "top", "last"]
    print(f"live: {time.perf_counter() - began:.1f} s")
    began = time.perf_counter()
    result, rows = shop.training_set()
    print(f"training set: {time.perf_counter() - began:.1f} s")
    assert (result.rows, result.counted[0].events) == (10_000, 1_000_000)
    assert features_in(rows, names) == expected(answers, names)
    began = time.perf_counter()
    result, rows = shop.snapshot()
    print(f"snapshot: {time.perf_counter() - began:.1f} s")
    found = dict(zip(rows["user"].to_pylist(), features_in(rows, names), strict=True))
    users = sorted(found)
    for start in range(0, len(users), 1_000):
        for answer in shop.ask(*([one] for one in users[start : start + 1_000])):
            assert found[key_of(answer)] == answer.row
