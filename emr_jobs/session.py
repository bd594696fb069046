"""The Spark session on one machine, which the emulator and the tests use, and a way to map Arrow batches without
pandas.

On EMR Serverless, the parameters of the job submission decide the session's settings.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

# A short life on a small machine: compile fast rather than well, collect without a pool of threads.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UseCompressedOops -Dlog4j2.level=ERROR"

_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": _JVM,
    "spark.pyspark.python": sys.executable,
    "spark.pyspark.driver.python": sys.executable,
}

# What a job needs wherever it runs: sizes come from the data, and batches are bounded in bytes.
_EVERYWHERE = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 * 1024 * 1024),
}


def local(threads: int | str = "*", *, memory: str = "1g", directory: str | None = None) -> SparkSession:
    """Returns the local Spark session of this process, and starts it if there is none. It stays open for later jobs.

    Args:
        threads: number of tasks at a time; `*` means one per processor.
        memory: the JVM's heap. Each Python worker takes about 300 MB in addition.
        directory: for temporary files of sorting; by default the system's temporary directory.
    """
    # The environment decides what settings do not: Python workers would be whatever `python3` is, and the JVM would look
    # up the address of the machine's own name.
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    builder = SparkSession.builder.master(f"local[{threads}]").appName("headrace")
    settings = {**_LOCAL, "spark.driver.memory": memory}
    if directory is not None:
        settings["spark.local.dir"] = directory
    for name, value in settings.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return tune(session)


def tune(session: SparkSession) -> SparkSession:
    """Sets the options that jobs need on a session, and returns it."""
    for name, value in _EVERYWHERE.items():
        session.conf.set(name, value)
    return session


Map = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(frame: DataFrame, function: Map, schema: StructType) -> DataFrame:
    """Applies a function to the Arrow batches of each partition. The function is pickled and runs in Python workers.

    Args:
        function: takes an iterator of batches and yields batches of `schema`; columns are matched by position.
    """
    mapped = UserDefinedFunction(
        function, returnType=schema, name="mapped", evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )(*[frame[column] for column in frame.columns])
    return DataFrame(frame._jdf.mapInArrow(mapped._jc, False, None), frame.sparkSession)
