package org.apache.spark.sql.indextables

import org.apache.spark.sql.catalyst.analysis.TypeCheckResult
import org.apache.spark.sql.catalyst.analysis.TypeCheckResult.{TypeCheckFailure, TypeCheckSuccess}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * The bucket of a value. Scans compute the buckets of whole columns in Python, and the planner parses and checks all arguments.
 * Only rows that no scan reads (cached tables, other sources, fields of structs) are evaluated here, one by one, as Spark
 * evaluates any expression; `tests/spark/test_buckets.py` compares both.
 */
trait Buckets extends UnaryExpression with IndexExpression with CodegenFallback {
  def column: Expression
  def kind: String
  def arguments: Array[Any]
  override def child: Expression = column
  override def nullable: Boolean = true
  override def subject: Option[Expression] = Some(column)
  override def outerJoinDefault: Option[Any] = None
  override def prettyName: String = s"indextables_$kind"
  override def describe: String = s"$prettyName(${column.sql}, ...)"
  override def definition(path: Option[Seq[String]]): Seq[(String, Any)] =
    Seq("kind" -> kind, "column" -> path.map(_.toArray), "arguments" -> arguments)

  protected def accepts(dataType: DataType): Boolean
  protected def inputTypes: String

  override def checkInputDataTypes(): TypeCheckResult =
    if (accepts(column.dataType)) TypeCheckSuccess
    else TypeCheckFailure(s"$prettyName takes $inputTypes, but ${column.sql} is ${column.dataType.sql}")
}

/** Numbers as doubles. */
trait NumberBuckets extends Buckets {
  override protected def accepts(dataType: DataType): Boolean = dataType.isInstanceOf[NumericType]
  override protected def inputTypes: String = "numbers"

  protected def number(value: Any): Double = value match {
    case decimal: Decimal => decimal.toJavaBigDecimal.doubleValue
    case other => other.asInstanceOf[Number].doubleValue
  }
}

/** `indextables_histogram(column, interval [, offset])`. */
case class Histogram(column: Expression, interval: Double, offset: Double) extends NumberBuckets {
  override def kind: String = "histogram"
  override def dataType: DataType = DoubleType
  override def arguments: Array[Any] = Array(interval.toString, offset.toString)
  override protected def nullSafeEval(value: Any): Any =
    math.floor((number(value) - offset) / interval) * interval + offset
  override protected def withNewChildInternal(newChild: Expression): Expression = copy(column = newChild)
}

/** `indextables_range(column, name, from, to, ...)`. */
case class RangeBuckets(column: Expression, buckets: Seq[(String, Option[Double], Option[Double])])
    extends NumberBuckets {
  override def kind: String = "range"
  override def dataType: DataType = StringType
  override def arguments: Array[Any] = buckets.map { case (name, start, end) =>
    Array[Any](name, start.map(_.toString).orNull, end.map(_.toString).orNull)
  }.toArray
  override protected def nullSafeEval(value: Any): Any = {
    val numeric = number(value)
    buckets.collectFirst {
      case (name, start, end) if start.forall(numeric >= _) && end.forall(numeric < _) && !numeric.isNaN =>
        UTF8String.fromString(name)
    }.orNull
  }
  override protected def withNewChildInternal(newChild: Expression): Expression = copy(column = newChild)
}

/** `indextables_date_histogram(column, '15m' [, offset])`, in microseconds. */
case class DateHistogram(column: Expression, interval: String, offset: String, steps: Long, start: Long) extends Buckets {
  override def kind: String = "date_histogram"
  override def dataType: DataType = column.dataType match {
    case TimestampNTZType => TimestampNTZType
    case _ => TimestampType
  }
  override def arguments: Array[Any] = Array(interval, offset)
  override protected def accepts(dataType: DataType): Boolean = dataType match {
    case DateType | TimestampType | TimestampNTZType => true
    case _ => false
  }
  override protected def inputTypes: String = "a date or a timestamp"
  override protected def nullSafeEval(value: Any): Any = {
    val micros = value match {
      case days: Int => days * 86400000000L
      case other => other.asInstanceOf[Long]
    }
    Math.floorDiv(micros - start, steps) * steps + start
  }
  override protected def withNewChildInternal(newChild: Expression): Expression = copy(column = newChild)
}
