"""Job runs on local Spark."""

from __future__ import annotations

import gc
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as functions

from emr_jobs import job, layout, verify
from emr_jobs.layout import Wanted
from headrace.batch import Record
from headrace.objects import keys
from tests.support.examples import examples
from tests.unit.emr_jobs import samples
from tests.unit.emr_jobs.directory import DirectoryDoor, DirectoryObjects
from tests.unit.emr_jobs.test_runs import check

# Spark's client leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collects that garbage here, and not in another test."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bucket")


def events(count: int, seed: int, first_offset: int = 0) -> list[Record]:
    """Records like those of a service's log."""
    rng = random.Random(seed)
    words = [f"w{number}" for number in range(50)]
    given_ = (
        (
            {
                "at": 1_767_323_000_000 + 40 * row,
                "service": rng.choice(["Api", "api", "web", "日本"]),
                "deep": {"id": f"{rng.getrandbits(64):016x}", "title": rng.choice(words)},
                "tags": rng.sample(words, rng.randrange(3)),
                "status": rng.choice([200, 404, 500]),
                "cost": rng.randrange(1, 1000) / 4,
                "ok": rng.random() < 0.9,
                "note": " ".join(rng.choices(words, k=rng.randrange(8))),
            },
            f"key-{rng.randrange(200)}" if rng.random() < 0.9 else None,
        )
        for row in range(count)
    )
    return samples.records(given_, first_offset)


def test_buckets_are_sent_where_spark_sends_them(spark: SparkSession) -> None:
    numbers, counts = [*range(100), 2**31 - 1, 65_537], (1, 2, 7, 200)
    rows = spark.createDataFrame([(number,) for number in numbers], "n int")
    hashed = [functions.pmod(functions.hash("n"), functions.lit(count)) for count in counts]
    for row in rows.select("n", *hashed).collect():
        assert list(row)[1:] == [layout.partition_of(row["n"], count) for count in counts]


def test_large_buckets_have_their_own_partition_and_small_ones_share() -> None:
    mega = 1024 * 1024
    plan = layout.plan([Wanted(task, "kw", 0, b"", weight * mega) for task, weight in enumerate([1, 9, 1, 1, 20, 1])])
    places: dict[int, list[int]] = {}
    for bucket in plan.buckets:
        places.setdefault(layout.partition_of(bucket.id, plan.partitions), []).append(bucket.task)
    assert plan.partitions == 3
    assert sorted(map(sorted, places.values())) == [[0, 2, 3, 5], [1], [4]]
    assert len({bucket.id for bucket in plan.buckets}) == 6


# Not shrunk: an example takes a second, and the same property is tested without Spark.
@examples(3, phases=[Phase.explicit, Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    given_=st.lists(st.tuples(samples.documents, samples.keys_), min_size=1, max_size=14),
    cuts=st.lists(st.integers(1, 5), max_size=3),
)
def test_spark_builds_what_records_say(spark: SparkSession, bucket: Path, given_: list[Any], cuts: list[int]) -> None:
    path = bucket / f"random{next(_numbers)}"
    path.mkdir()
    objects, definition = DirectoryObjects(str(path)), samples.definition()
    found = samples.records(given_, 65_530)
    key = samples.put_definition(objects, definition)
    segments = samples.put_segments(objects, found, cuts)
    task = samples.task("build", "r", definition, key, segments=segments)
    result = job.run(spark, DirectoryDoor(str(path)), samples.put_input(objects, "j", task))
    assert not result.failures
    check(objects, result.runs["r"], found, definition)


def test_a_job_run_serves_many_logs_and_one_that_fails_leaves_the_others(spark: SparkSession, tmp_path: Path) -> None:
    objects, definition, plain = DirectoryObjects(str(tmp_path)), samples.definition(), samples.definition(None)
    key = samples.put_definition(objects, definition)
    found = events(3000, 1, first_offset=64_000)
    segments = samples.put_segments(objects, found, [700, 900, 800])
    whole = samples.task("build", "whole", definition, key, segments=segments)
    halves = [
        samples.task("build", "half0", definition, key, segments=segments[:2]),
        samples.task("build", "half1", definition, key, segments=segments[2:]),
    ]
    other = events(40, 2)
    keyed = samples.task(
        "build", "keyed", plain, "", segments=samples.put_segments(objects, other, [30], "log-2"), log_id="log-2"
    )
    broken = [*events(20, 3), Record(20, samples.FIRST_MS + 20, None, b"{")]
    bad = samples.task(
        "build", "bad", definition, key, segments=samples.put_segments(objects, broken, [], "log-3"), log_id="log-3"
    )
    door = DirectoryDoor(str(tmp_path))
    result = job.run(spark, door, samples.put_input(objects, "j", whole, *halves, keyed, bad))
    assert set(result.runs) == {"whole", "half0", "half1", "keyed"}
    (failure,) = result.failures
    assert (failure.log_id, failure.run_id, failure.damaged) == ("log-3", "bad", True)
    assert "offset=20" in failure.reason
    check(objects, result.runs["whole"], found, definition)
    check(objects, result.runs["half1"], found[1600:], definition)
    check(objects, result.runs["keyed"], other, plain)
    assert job.run(spark, door, keys.job_input("j")).runs == result.runs

    # Compacted they are the whole run again, in parts of its terms if it is large.
    inputs = [result.runs["half0"], result.runs["half1"]]
    merged = samples.task("compact", "merged", definition, key, inputs=inputs)
    result = job.run(spark, door, samples.put_input(objects, "k", merged))
    check(objects, result.runs["merged"], found, definition)

    # And verified, whether they were built or merged; a run that holds something else is found out.
    verdicts = verify.run(spark, door, samples.put_input(objects, "v", whole, keyed, merged, bad)).runs
    assert [one.problem for one in verdicts[:3]] == ["", "", ""]
    assert verdicts[0].rows["col"] == 3000
    assert "run does not exist" in verdicts[3].problem
    forged = samples.task("build", "whole", definition, key, segments=changed_segments(objects, found))
    (verdict,) = verify.run(spark, door, samples.put_input(objects, "w", forged)).runs
    assert "differs between rows" in verdict.problem


def changed_segments(objects: DirectoryObjects, found: list[Record]) -> list[Any]:
    """Segments of almost these records."""
    data = found[1234].data.replace(b'"status":', b'"status":1')
    changed = [*found[:1234], found[1234]._replace(data=data), *found[1235:]]
    return samples.put_segments(objects, changed, [1500], "log-4")
