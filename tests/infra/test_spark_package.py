"""What `cdk deploy` uploads is all that a job run needs: Spark runs it where nothing of the repository can be reached."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from aws_cdk import App, Stack
from moto.server import ThreadedMotoServer

from emr_jobs import job, session, verify
from emr_jobs.stores import S3Door
from functions.indexer.runs import submission
from headrace.index.job import JobResult
from headrace.objects import Objects, keys, packed
from headrace.settings import Settings
from infra import spark
from infra.machine import REPOSITORY, here
from infra.spark import SparkAssets
from tests.infra.machines import bare_environment, packed_or_skipped
from tests.unit.emr_jobs import here as in_process
from tests.unit.emr_jobs import samples

OF_DRIVER = "spark.emr-serverless.driverEnv."
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
# Two processes of one core and half a gigabyte, where the submission asks for more than a small machine has.
SMALL = {
    "spark.driver.memory": "512m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.memoryOverheadFactor": "0",
    "spark.ui.enabled": "false",
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    with packed_or_skipped():
        spark.pack_environment(folder, here())
    return folder / spark.ENVIRONMENT


@pytest.fixture(scope="module")
def unpacked(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder that has only the environment, under the name that the submission gives it."""
    folder = tmp_path_factory.mktemp("driver")
    with tarfile.open(archive) as tar:
        tar.extractall(folder / spark.UNPACKED, filter="tar")
    return folder


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


def put_job(objects: Objects) -> None:
    definition = samples.definition()
    found = samples.records([({"status": row, "at": row, "note": "a b"}, f"k{row}") for row in range(50)])
    key = samples.put_definition(objects, definition)
    segments = samples.put_segments(objects, found, [20, 40])
    samples.put_input(objects, "j", samples.task("build", "r", definition, key, segments=segments))


def submitted(code: Path, archive: Path) -> dict[str, Any]:
    """Returns the entry point, its arguments and Spark's, as the indexer sends them; `code` is where the uploads are."""
    code.mkdir()
    spark.copy_entry_point(code)
    jobs = code / "packages"
    jobs.mkdir()
    spark.copy_jobs(jobs)
    settings = Settings(
        bucket="bucket",
        spark_entry_point=str(code / spark.ENTRY_POINT),
        spark_packages=shutil.make_archive(str(code / "packages"), "zip", jobs),
        spark_environment=str(archive),
    )
    shutil.rmtree(jobs)
    return dict(submission("j", settings, "us-east-1")["jobDriver"]["sparkSubmit"])


def run_here(folder: Path, archive: Path, endpoint: str) -> subprocess.CompletedProcess[str]:
    """Runs what was submitted on a cluster of this machine: a driver, and an executor that unpacks for itself.

    `folder` is the driver's. There EMR Serverless unpacks the archive, and sets the driver's environment.
    """
    sent = submitted(folder / "code", archive)
    parameters = sent["sparkSubmitParameters"].split()
    driver = dict(word.removeprefix(OF_DRIVER).split("=") for word in parameters if word.startswith(OF_DRIVER))
    home = Path(pyspark.__file__).parent
    own = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [
        *(str(home / "bin" / "spark-submit"), "--master", "local-cluster[1,1,512]", *parameters),
        *(word for name, value in SMALL.items() for word in ("--conf", f"{name}={value}")),
        *(sent["entryPoint"], *sent["entryPointArguments"], "--endpoint", endpoint),
    ]
    environment = bare_environment(**{**CREDENTIALS, **driver, **own})
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=480, check=False
    )


@pytest.mark.full
def test_a_job_run_needs_nothing_but_what_is_uploaded(
    archive: Path, unpacked: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = S3Door("bucket", endpoint)
    objects = door.open()
    objects._client.create_bucket(Bucket="bucket")  # type: ignore[attr-defined]
    put_job(objects)
    finished = run_here(unpacked, archive, endpoint)
    assert finished.returncode == 0, finished.stderr[-4000:]
    result = packed.decode(objects.get(keys.job_result("j")), JobResult, "result")
    assert (set(result.runs), result.failures) == ({"r"}, ())
    monkeypatch.setattr(job, "run_pass", in_process.run_pass)
    monkeypatch.setattr(session, "tune", lambda spark: spark)
    (verdict,) = verify.run(None, door, keys.job_input("j")).runs  # type: ignore[arg-type]
    assert (verdict.problem, verdict.rows["col"]) == ("", 50)


@pytest.mark.full
def test_the_environment_is_used_and_nothing_of_the_tests(unpacked: Path) -> None:
    found = _python(unpacked, "import pyarrow, sys; print(pyarrow.__file__, *sys.path, sep='\\n')").stdout.split()
    root = unpacked / spark.UNPACKED
    assert Path(found[0]).is_relative_to(root)
    assert str(root / "lib") in found
    assert not any(path.startswith((sys.prefix + os.sep, str(REPOSITORY))) for path in found)


@pytest.mark.full
def test_the_launcher_says_which_python_is_missing(unpacked: Path, tmp_path: Path) -> None:
    launcher = (unpacked / spark.UNPACKED / "bin" / "python").read_text()
    other = tmp_path / "bin" / "python"
    other.parent.mkdir()
    other.write_text(launcher.replace(f"python{here().python}", "python3.0"))
    other.chmod(0o755)
    finished = subprocess.run([other, "-V"], env=bare_environment(), capture_output=True, text=True, check=False)
    assert finished.returncode == 127
    assert "for that version alone" in finished.stderr


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    def packed_again(name: str, when_s: int) -> bytes:
        root = tmp_path / name
        root.mkdir()
        for file in ("b", "a"):
            (root / file).write_text(file)
            os.utime(root / file, (when_s, when_s))
        (root / "a").chmod(0o700)
        spark.pack(root, tmp_path / f"{name}.tgz")
        return (tmp_path / f"{name}.tgz").read_bytes()

    assert packed_again("one", 1_000_000_000) == packed_again("two", 1_700_000_000)


def test_a_deployment_uploads_an_archive_that_spark_unpacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark goes by the name's end. The committed template can't show it: without a bundle every asset is a `.zip`."""
    monkeypatch.setattr(spark, "pack_environment", lambda folder: (folder / spark.ENVIRONMENT).write_bytes(b"e"))
    app = App(outdir=str(tmp_path))
    assets = SparkAssets(Stack(app, "S"), "Assets")
    ends = [one.s3_object_key.partition(".")[2] for one in (assets.entry_point, assets.packages, assets.environment)]
    assert ends == ["py", "zip", "tgz"]
    app.synth()
    (jobs,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert {path.name for path in jobs.iterdir()} == {"headrace", "emr_jobs"}


def _python(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    launcher = f"./{spark.UNPACKED}/bin/python"
    return subprocess.run(
        [launcher, "-c", program], cwd=folder, env=bare_environment(), capture_output=True, text=True, check=True
    )
