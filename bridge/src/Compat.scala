package org.apache.spark.sql.indextables

import org.apache.spark.sql.catalyst.expressions.{Expression, SubqueryExpression}
import org.apache.spark.sql.catalyst.parser.ParseException
import org.apache.spark.sql.catalyst.trees.Origin
import org.apache.spark.sql.connector.read.PartitionReaderFactory
import org.apache.spark.sql.execution.datasources.v2.python.{PythonCustomMetric, PythonPartitionReaderFactory, UserDefinedPythonDataSource}
import org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory
import org.apache.spark.sql.types.StructType

/** Internals of Spark that differ between its minor versions; `bridge/compat` has the code for older versions. */
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
