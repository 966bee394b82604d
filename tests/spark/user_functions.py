"""Python functions of users of every kind, which generated queries call."""

import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle
from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import pandas_udf, udf, udtf  # type: ignore[attr-defined]

from tests.spark.generated_queries import COUNTED, TWICE

try:
    from pyspark.sql.functions import arrow_udf, arrow_udtf  # type: ignore[attr-defined]
except ImportError:  # Spark 4.0 has none
    arrow_udf = arrow_udtf = None

# Workers do not find the modules of tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def _same(value: Any) -> Any:
    return value


def _same_pandas(values: pd.Series) -> pd.Series:
    return values


def _same_arrow(values: pa.Array) -> pa.Array:
    return values


def _total_pandas(values: pd.Series) -> int:
    return int(values.sum())


def _total_arrow(values: pa.Array) -> int:
    return pc.sum(values).as_py() or 0


class _Twice:
    """Each row twice; rows come as two values, or as one row of a table."""

    def eval(self, number: Any, text: Any = None) -> Iterator[tuple[int, str]]:
        if isinstance(number, Row):
            number, text = number
        yield number, text
        yield -number, text


class _Lengths:
    """How many rows each batch of a table has."""

    def eval(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        yield pa.table({"rows": pa.array([batch.num_rows], pa.int64())})


class _One:
    """1 for each row of a table."""

    def eval(self, row: Row) -> Iterator[tuple[int]]:
        yield (1,)


def register(spark: SparkSession) -> None:
    """Register every function under the name that generated queries use."""
    spark.udf.register("same_pickled", udf(_same, "long", useArrow=False))
    spark.udf.register("same_pandas", pandas_udf(_same_pandas, "long"))
    spark.udf.register("total_pandas", pandas_udf(_total_pandas, "long"))
    spark.udtf.register(TWICE, udtf(_Twice, returnType="made: long, text: string"))  # type: ignore[arg-type]
    if arrow_udf:
        spark.udf.register("same_arrow", arrow_udf(_same_arrow, "long"))
        spark.udf.register("total_arrow", arrow_udf(_total_arrow, "long"))
        spark.udtf.register(COUNTED, arrow_udtf(_Lengths, returnType="rows: long"))  # type: ignore[arg-type]
    else:
        spark.udf.register("same_arrow", pandas_udf(_same_pandas, "long"))
        spark.udf.register("total_arrow", pandas_udf(_total_pandas, "long"))
        spark.udtf.register(COUNTED, udtf(_One, returnType="rows: long"))  # type: ignore[arg-type]
