"""The entry point, with the bucket behind an S3 client."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest
from moto import mock_aws

from emr_jobs import job, main, session, stores, verify
from emr_jobs.stores import S3Door
from headrace.errors import Damaged, StoreTimeout
from headrace.index.job import JobResult
from headrace.objects import keys, packed
from tests.unit.emr_jobs import here, samples

ARGUMENTS = ["--bucket", "bucket", "--input", keys.job_input("j")]


@pytest.fixture(autouse=True)
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Door]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr(job, "run_pass", here.run_pass)
    monkeypatch.setattr(session, "tune", lambda spark: spark)
    stores.open_bucket.cache_clear()
    with mock_aws():
        door = S3Door("bucket")
        door.open()._client.create_bucket(Bucket="bucket")  # type: ignore[attr-defined]
        yield door
    stores.open_bucket.cache_clear()


def put_job(door: S3Door) -> None:
    objects, definition = door.open(), samples.definition()
    found = samples.records([({"status": row, "at": row}, f"k{row}") for row in range(5)])
    key = samples.put_definition(objects, definition)
    segments = samples.put_segments(objects, found, [3])
    samples.put_input(objects, "j", samples.task("build", "r", definition, key, segments=segments))


def test_it_does_the_job_that_its_arguments_name(bucket: S3Door) -> None:
    put_job(bucket)
    main.run(None, ARGUMENTS)  # type: ignore[arg-type]
    key = keys.job_result("j")
    result = packed.decode(bucket.open().get(key), JobResult, key)
    assert (set(result.runs), result.failures) == ({"r"}, ())
    assert result.runs["r"].created_ms == samples.CREATED_MS


def test_it_verifies_what_was_done(bucket: S3Door, capsys: pytest.CaptureFixture[str]) -> None:
    put_job(bucket)
    main.run(None, ARGUMENTS)  # type: ignore[arg-type]
    main.run(None, [*ARGUMENTS, "--verify"])  # type: ignore[arg-type]
    key = f"{keys.JOBS}j/verified.json.zst"
    (verdict,) = packed.decode(bucket.open().get(key), verify.Verified, key).runs
    assert (verdict.problem, verdict.rows["col"]) == ("", 5)
    assert "log-1 r kw: " in capsys.readouterr().err


def test_a_job_without_input_fails_as_a_whole() -> None:
    with pytest.raises(Damaged, match="job input is missing"):
        main.run(None, ARGUMENTS)  # type: ignore[arg-type]


def test_the_entry_point_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main.parser().parse_args(["--help"])
    assert stopped.value.code == 0
    assert "--input" in capsys.readouterr().out


def test_a_door_can_be_sent_to_workers_and_is_opened_once() -> None:
    door = S3Door("b", "http://127.0.0.1:1")
    assert pickle.loads(pickle.dumps(door)) == door
    assert stores.open_bucket(door) is stores.open_bucket(pickle.loads(pickle.dumps(door)))


def test_patience_ends() -> None:
    pauses: list[float] = []
    calls = 0

    def fail() -> None:
        nonlocal calls
        calls += 1
        raise StoreTimeout("made to fail")

    with pytest.raises(StoreTimeout):
        stores.retry(fail, sleep=pauses.append)
    assert calls == 4
    assert pauses == [0.2, 0.4, 0.8]
