"""Runs one job: builds and compacts the index runs that its input object asks for, or does what a surface has requested
(`emr_jobs.requested`).

    python -m emr_jobs.main --bucket my-bucket --input jobs/3f9c/input.json.zst

The input (`headrace.index.job.JobInput`) lists tasks, each for one index run of one log. A task that fails is reported
in the result object, beside the input, and fails no other. A run counts once its descriptor exists; tasks whose run
exists are not done again, so that a job may be killed at any moment, repeated, and run twice at once.

Exits with 0 if every task was looked at, whatever became of it, and with 1 if the job as a whole failed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from emr_jobs import job, session
from emr_jobs.stores import S3Door
from headrace.objects import keys


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the job's command line; the code that submits jobs uses it, too."""
    found = argparse.ArgumentParser(
        "emr_jobs.main", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--bucket", required=True, help="where the logs are, and the job's input")
    found.add_argument("--input", required=True, help="key of the input object, jobs/<job id>/input.json.zst")
    found.add_argument("--endpoint", default="", help="of the object store, if it is not that of AWS")
    found.add_argument(
        "--verify", action="store_true", help="change nothing: read the runs back and compare them with their records"
    )
    return found


def run(spark: SparkSession, arguments: Sequence[str]) -> None:
    """Runs the job that the arguments describe in this Spark session or, with `--verify`, compares its results with
    their records.

    Raises:
        Exception: the job failed as a whole; its input is missing, for instance.
    """
    options = parser().parse_args(arguments)
    door = S3Door(options.bucket, options.endpoint)
    if keys.requested_job(options.input) is not None:
        from emr_jobs import requested

        requested.run(session.tune(spark), door, options.input)
    elif options.verify:
        from emr_jobs import verify

        verify.run(session.tune(spark), door, options.input)
    else:
        job.run(session.tune(spark), door, options.input)


def main() -> int:
    """Runs the job that the command line describes, and returns 0. Raises an error if the job failed as a whole."""
    parser().parse_args()  # before Spark starts
    run(SparkSession.builder.appName("headrace").getOrCreate(), sys.argv[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
