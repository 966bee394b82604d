package org.apache.spark.sql.indextables

import org.apache.spark.sql.catalyst.expressions.{Exists, Expression, LateralSubquery, ListQuery, ScalarSubquery, SubqueryExpression}
import org.apache.spark.sql.catalyst.parser.ParseException
import org.apache.spark.sql.catalyst.trees.Origin
import org.apache.spark.sql.connector.read.PartitionReaderFactory
import org.apache.spark.sql.execution.datasources.v2.python.{PythonCustomMetric, PythonPartitionReaderFactory, UserDefinedPythonDataSource}
import org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory
import org.apache.spark.sql.types.StructType

/** Internals of Spark 4.0; see `bridge/src/Compat.scala`. */
object Compat {
  /** The columns of the outer query that a subquery refers to. */
  def outerAttributes(subquery: SubqueryExpression): Seq[Expression] = subquery match {
    case scalar: ScalarSubquery => scalar.outerAttrs
    case lateral: LateralSubquery => lateral.outerAttrs
    case list: ListQuery => list.outerAttrs
    case exists: Exists => exists.outerAttrs
    case _ => Nil
  }

  /** Runs a Python function in the tasks of a scan. */
  def readerFactory(
      source: UserDefinedPythonDataSource, function: Array[Byte], result: StructType, artifacts: Option[String])
      : PartitionReaderFactory = new PythonPartitionReaderFactory(source, function, result, artifacts)

  /** Runs a Python function on the rows of a write task. */
  def evaluatorFactory(
      source: UserDefinedPythonDataSource, function: Array[Byte], input: StructType, result: StructType, artifacts: Option[String])
      : MapInBatchEvaluatorFactory = source.createMapInBatchEvaluatorFactory(
    function, "write", input, result, PythonCustomMetric.pythonMetrics, artifacts)
}

/** A parse error without a position. */
class SyntaxError(errorClass: String, parameters: Map[String, String])
    extends ParseException(None, Origin(), Origin(), errorClass, parameters)
