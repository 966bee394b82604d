package org.apache.spark.sql.indextables

import java.util.Locale

import org.apache.spark.sql.catalyst.analysis.TypeCheckResult
import org.apache.spark.sql.catalyst.analysis.TypeCheckResult.{TypeCheckFailure, TypeCheckSuccess}
import org.apache.spark.sql.catalyst.expressions.{VirtualColumn => _, _}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** An expression that only a scan of an indextables table can compute. BindToTable replaces it by a virtual column. */
trait IndexExpression extends Expression {
  /** Its column. An expression without a column belongs to the only table below it. */
  def subject: Option[Expression]

  /** The definition for the planner, with the column's path in the table. */
  def definition(path: Option[Seq[String]]): Seq[(String, Any)]

  /** Its value for a row that an outer join adds; None for null. */
  def outerJoinDefault: Option[Any]

  /** The expression as SQL writes it, for errors. */
  def describe: String

  override def toString: String = describe
}

/** The constant query of a search function. */
object ConstantText {
  def check(text: Expression, function: String): TypeCheckResult = text match {
    case query if !query.resolved => TypeCheckSuccess
    case query if query.dataType == StringType && query.foldable && query.eval() != null =>
      if (query.eval().asInstanceOf[UTF8String].isValid) TypeCheckSuccess
      else TypeCheckFailure(s"the query of $function is not valid UTF-8; give it as a text")
    case _ => TypeCheckFailure(
      s"$function takes its query as a constant text, as $function 'words'")
  }

  def value(text: Expression): String = text.eval().toString
}

/**
 * `column INDEXQUERY 'query'` and its relatives: true or false for a row, never null.
 *
 * `comparison` is the SQL of the comparison of addresses that it replaces.
 */
case class Search(kind: String, column: Expression, query: Expression, comparison: Option[String] = None)
    extends BinaryExpression with IndexExpression with Unevaluable {
  override def left: Expression = column
  override def right: Expression = query
  override def dataType: DataType = BooleanType
  override def nullable: Boolean = false
  override def prettyName: String = kind
  override def subject: Option[Expression] = column match {
    case AllFields(of) => of
    case named => Some(named)
  }
  override def outerJoinDefault: Option[Any] = Some(false)
  override def checkInputDataTypes(): TypeCheckResult = ConstantText.check(query, kind.toUpperCase(Locale.ROOT))
  override def definition(path: Option[Seq[String]]): Seq[(String, Any)] = {
    val named = if (column.isInstanceOf[AllFields]) None else path.map(_.toArray)
    Seq("kind" -> kind, "column" -> named, "query" -> ConstantText.value(query))
  }
  override def describe: String = comparison.getOrElse(s"${column.sql} ${kind.toUpperCase(Locale.ROOT)} ${query.sql}")
  override def sql: String = s"$kind(${column.sql}, ${query.sql})"
  override protected def withNewChildrenInternal(newLeft: Expression, newRight: Expression): Expression =
    copy(column = newLeft, query = newRight)
}

/** `* INDEXQUERY 'query'`: a search over all fields. It names no column, so it is bound before Spark moves it. */
case class SearchAll(kind: String, query: Expression) extends UnaryExpression with IndexExpression with Unevaluable {
  override def child: Expression = query
  override def dataType: DataType = BooleanType
  override def nullable: Boolean = false
  override def prettyName: String = s"${kind}all"
  override def subject: Option[Expression] = None
  override def outerJoinDefault: Option[Any] = Some(false)
  override def checkInputDataTypes(): TypeCheckResult = ConstantText.check(query, kind.toUpperCase(Locale.ROOT))
  override def definition(path: Option[Seq[String]]): Seq[(String, Any)] =
    Seq("kind" -> kind, "query" -> ConstantText.value(query))
  override def describe: String = s"* ${kind.toUpperCase(Locale.ROOT)} ${query.sql}"
  override def sql: String = s"${kind}all(${query.sql})"
  override protected def withNewChildInternal(newChild: Expression): Expression = copy(query = newChild)
}

/** `_indexall`: all fields of a table, to be searched; it has no value. The table is that of the column `of`, if there is one. */
case class AllFields(of: Option[Expression]) extends Expression with Unevaluable {
  override def children: Seq[Expression] = of.toSeq
  override def dataType: DataType = StringType
  override def nullable: Boolean = false
  override def sql: String = VirtualColumn.AllFields
  override protected def withNewChildrenInternal(newChildren: IndexedSeq[Expression]): Expression =
    copy(of = newChildren.headOption)
}

/** `score()`: the relevance of the row for the searches of the query. The table is that of the column `of`, if there is one. */
case class Score(of: Option[Expression] = None) extends IndexExpression with Unevaluable {
  override def children: Seq[Expression] = of.toSeq
  override def dataType: DataType = FloatType
  override def nullable: Boolean = true
  override def prettyName: String = "score"
  override def subject: Option[Expression] = of
  override def outerJoinDefault: Option[Any] = None
  override def definition(path: Option[Seq[String]]): Seq[(String, Any)] = Nil
  override def describe: String = "score()"
  override def sql: String = "score()"
  override protected def withNewChildrenInternal(newChildren: IndexedSeq[Expression]): Expression =
    copy(of = newChildren.headOption)
}

/** `highlight(column)`: the part of a text that the searches of the query match. */
case class Highlight(column: Expression) extends UnaryExpression with IndexExpression with Unevaluable {
  override def child: Expression = column
  override def dataType: DataType = StringType
  override def nullable: Boolean = true
  override def prettyName: String = "highlight"
  override def subject: Option[Expression] = Some(column)
  override def outerJoinDefault: Option[Any] = None
  override def definition(path: Option[Seq[String]]): Seq[(String, Any)] =
    Seq("kind" -> "highlight", "column" -> path.map(_.toArray))
  override def describe: String = s"highlight(${column.sql})"
  override protected def withNewChildInternal(newChild: Expression): Expression = copy(column = newChild)
}

/** Path, name and size of the split that a row is in. */
case class FileMetadata() extends LeafExpression with IndexExpression with Unevaluable {
  override def dataType: DataType = VirtualColumn.FileMetadataType
  override def nullable: Boolean = true
  override def subject: Option[Expression] = None
  override def outerJoinDefault: Option[Any] = None
  override def definition(path: Option[Seq[String]]): Seq[(String, Any)] = Nil
  override def describe: String = "input_file_name()"
}
