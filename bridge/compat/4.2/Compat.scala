package org.apache.spark.sql.indextables {
  import org.apache.spark.sql.catalyst.expressions.{Expression, SubqueryExpression}
  import org.apache.spark.sql.catalyst.parser.ParseException
  import org.apache.spark.sql.catalyst.trees.Origin
  import org.apache.spark.sql.connector.read.PartitionReaderFactory
  import org.apache.spark.sql.execution.datasources.v2.python.{PythonCustomMetric, PythonPartitionReaderFactory, UserDefinedPythonDataSource}
  import org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory
  import org.apache.spark.sql.types.StructType

  /** Internals of Spark that differ between its minor versions; these are Spark 4.2's and 4.3's. */
  object Compat {
    /** The columns of the outer query that a subquery refers to. */
    def outerAttributes(subquery: SubqueryExpression): Seq[Expression] = subquery.getOuterAttrs

    /** Runs a Python function in the tasks of a scan. */
    def readerFactory(
        source: UserDefinedPythonDataSource, function: Array[Byte], result: StructType, artifacts: Option[String])
        : PartitionReaderFactory = new PythonPartitionReaderFactory(source, function, result, artifacts, None)

    /** Runs a Python function on the rows of a write task. */
    def evaluatorFactory(
        source: UserDefinedPythonDataSource, function: Array[Byte], input: StructType, result: StructType, artifacts: Option[String])
        : MapInBatchEvaluatorFactory = source.createMapInBatchEvaluatorFactory(
      function, "write", input, result, PythonCustomMetric.pythonMetrics, artifacts, None)
  }

  /** A parse error without a position. */
  class SyntaxError(errorClass: String, parameters: Map[String, String])
      extends ParseException(None, Origin(), errorClass, parameters)
}

package org.apache.spark.sql.execution.python.indextables {
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
}
