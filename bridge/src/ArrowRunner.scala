package org.apache.spark.sql.execution.python.indextables

import org.apache.spark.api.python.{BasePythonRunner, ChainedPythonFunctions, PythonEvalType}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.{ArrowPythonRunner, BatchedPythonArrowInput}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.vectorized.ColumnarBatch

/** Runs Python functions that take and return Arrow batches. */
object ArrowRunner {
  def apply(
      functions: Seq[(ChainedPythonFunctions, Long)],
      input: StructType,
      conf: SQLConf,
      metrics: Map[String, SQLMetric],
      artifacts: Option[String]): BasePythonRunner[Iterator[InternalRow], ColumnarBatch] = new ArrowPythonRunner(
    functions,
    PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
    Array(Array(0)),
    input,
    conf.sessionLocalTimeZone,
    conf.arrowUseLargeVarTypes,
    ArrowPythonRunner.getPythonRunnerConfMap(conf),
    metrics,
    artifacts,
    None) with BatchedPythonArrowInput
}
