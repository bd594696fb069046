"""Maps of Arrow batches, without pandas.

`DataFrame.mapInArrow` of Spark 4.0 refuses to start where pandas is not installed, though it never uses it; and where
it is installed, pyarrow imports it too. So the function is registered here as that method does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

Map = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(frame: DataFrame, function: Map, schema: StructType) -> DataFrame:
    """Each partition's batches through `function`, which runs in a Python worker and is pickled to get there.

    Args:
        function: gives batches of `schema`, whose columns are matched by position.
    """
    mapped = UserDefinedFunction(
        function, returnType=schema, name="mapped", evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )(*[frame[column] for column in frame.columns])
    return DataFrame(frame._jdf.mapInArrow(mapped._jc, False, None), frame.sparkSession)
