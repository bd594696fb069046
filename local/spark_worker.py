"""Runs the real index jobs, one after the other, in a child process that keeps a Spark session open.

    python -m local.spark_worker --fd 5

The first job starts the child, because a JVM takes a gigabyte and some seconds; after a crash, the next job starts it
again. A job's own output goes to standard error.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

import msgspec

from headrace import decoding
from local.emr_runs import JobFailed

log = logging.getLogger("headrace.spark")
NO_JAVA = (
    "no Java was found, and index jobs run on Spark, which needs Java 17 or newer: install it (Debian: apt-get install "
    "openjdk-17-jre-headless), or set JAVA_HOME; streams work without it, and searches look at the newest records only"
)


class Said(msgspec.Struct, frozen=True):
    """A message from the child about its job: that it is running, or that it has ended, and how."""

    over: bool
    error: str | None = None


class SparkWorker:
    """The port `local.emr_runs.Worker`, implemented with a child process."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """Creates a worker whose child gets this environment; by default that of this process."""
        self._environment = dict(os.environ if environment is None else environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._lock = threading.Lock()

    def run(self, arguments: list[str], running: Callable[[], None]) -> None:
        """Sends the job to the child and waits for its end. Raises JobFailed if the job fails, the child ends early, or
        Java is missing.
        """
        if not has_java(self._environment):
            log.error(NO_JAVA)
            raise JobFailed(NO_JAVA)
        try:
            pipe = self._started()
            pipe.send_bytes(msgspec.json.encode(arguments))
            while not (said := decoding.from_json(pipe.recv_bytes(), Said)).over:
                running()
        except (EOFError, OSError) as exc:
            self.close()
            raise JobFailed("the Spark process ended in the middle of the job") from exc
        if said.error is not None:
            raise JobFailed(said.error)

    def interrupt(self) -> None:
        """Kills the child; the next job starts another one."""
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """Kills the child process, if there is one; a later job starts another one."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._process.wait()
                if self._process.stdin is not None:
                    self._process.stdin.close()
            if self._pipe is not None:
                self._pipe.close()
            self._process = self._pipe = None

    def _started(self) -> Connection:
        if self._process is not None and self._process.poll() is not None:
            self.close()
        with self._lock:
            if self._pipe is None:
                self._pipe, other = Pipe()
                with other:
                    self._process = subprocess.Popen(
                        [sys.executable, "-m", "local.spark_worker", "--fd", str(other.fileno())],
                        env=self._environment,
                        stdin=subprocess.PIPE,
                        stdout=sys.stderr.fileno(),
                        pass_fds=[other.fileno()],
                        start_new_session=True,
                    )
                log.info("Spark starts, in process %d", self._process.pid)
            return self._pipe


def has_java(environment: Mapping[str, str]) -> bool:
    """Returns whether Spark would find an installed Java."""
    home = environment.get("JAVA_HOME")
    if home:
        return (Path(home) / "bin" / "java").exists()
    return shutil.which("java", path=environment.get("PATH")) is not None


def serve(pipe: Connection) -> None:
    """Runs in the child process: executes jobs until the other end of the pipe is closed."""
    while True:
        try:
            arguments = decoding.from_json(pipe.recv_bytes(), list[str])
        except (EOFError, ConnectionResetError):
            return
        error: str | None = None
        try:
            from emr_jobs import main as job
            from emr_jobs import session

            spark = session.local()
            pipe.send_bytes(msgspec.json.encode(Said(over=False)))
            job.run(spark, arguments)
        except SystemExit as exc:  # the arguments are not understood
            error = f"exit code {exc.code}"
        except Exception as exc:
            log.exception("job failed: arguments=%s", arguments)
            error = f"{type(exc).__name__}: {exc}"[:256]
        pipe.send_bytes(msgspec.json.encode(Said(over=True, error=error)))


def main(arguments: list[str] | None = None) -> None:
    """Runs the jobs that the parent process sends through a pipe, until the parent ends."""
    parser = argparse.ArgumentParser(prog="python -m local.spark_worker", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="the pipe that jobs come from")
    options = parser.parse_args(arguments)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    for noisy in ("botocore", "py4j"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    threading.Thread(target=_end_with_parent, name="lifeline", daemon=True).start()
    serve(Connection(options.fd))


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
