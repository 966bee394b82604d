package org.apache.spark.sql.indextables

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute
import org.apache.spark.sql.catalyst.expressions.{Cast, Expression, ExpressionInfo, Literal}
import org.apache.spark.sql.types.{DoubleType, StringType}
import org.apache.spark.unsafe.types.UTF8String

/** The SQL functions of indextables. */
object SearchFunctions {
  private type Builder = Seq[Expression] => Expression

  val Kinds: Seq[String] = Seq("indexquery", "textsearch", "fieldmatch")
  private val Original = "tantivy4spark"

  def inject(session: SparkSessionExtensions): Unit = all.foreach { case (name, usage, builder) =>
    val info = new ExpressionInfo(getClass.getName.stripSuffix("$"), null, name, usage, "")
    session.injectFunction((FunctionIdentifier(name), info, builder))
  }

  private def all: Seq[(String, String, Builder)] =
    Kinds.map(kind => (kind, "_FUNC_(column, query) - whether a search finds the row", exactly(kind, 2, "a column and a query") {
      case Seq(column, query) => Search(kind, column, query)
    })) ++
    Kinds.map(kind => (s"${kind}all", "_FUNC_(query) - whether a search over all fields finds the row",
      exactly(s"${kind}all", 1, "a query") { case Seq(query) => SearchAll(kind, query) })) ++
    Kinds.map(kind => (s"${Original}_$kind", "_FUNC_(column, query) - whether a search finds the row",
      exactly(s"${Original}_$kind", 2, "a column and a query") {
        // IndexTables for Scala takes the name of the column as a text.
        case Seq(Literal(name: UTF8String, StringType), query) => Search(kind, UnresolvedAttribute.quotedString(name.toString), query)
        case Seq(column, query) => Search(kind, column, query)
      })) ++
    Kinds.map(kind => (s"${Original}_${kind}all", "_FUNC_(query) - whether a search over all fields finds the row",
      exactly(s"${Original}_${kind}all", 1, "a query") { case Seq(query) => SearchAll(kind, query) })) ++
    Seq("score", "indextables_score").map(name =>
      (name, "_FUNC_() - how well the row matches the searches of the query", exactly(name, 0, "nothing") { case _ => Score() })) ++
    Seq("highlight", "indextables_highlight").map(name =>
      (name, "_FUNC_(column) - the part of a text that matches", exactly(name, 1, "a column") {
        case Seq(column) => Highlight(column)
      })) ++
    Seq(
      ("indextables_histogram", "_FUNC_(column, interval[, offset]) - the step that a number belongs to", histogram _),
      ("indextables_date_histogram", "_FUNC_(column, interval[, offset]) - the step that a time belongs to", dateHistogram _),
      ("indextables_range", "_FUNC_(column, name, from, to, ...) - the named range that a number belongs to", range _))

  private def exactly(name: String, count: Int, what: String)(make: PartialFunction[Seq[Expression], Expression]): Builder =
    arguments => if (arguments.size == count) make(arguments) else throw new Failure(s"$name takes $what, not ${arguments.size} arguments")

  private def histogram(arguments: Seq[Expression]): Expression = arguments match {
    case Seq(column, interval) => validate(Histogram(column, double(interval), 0))
    case Seq(column, interval, offset) => validate(Histogram(column, double(interval), double(offset)))
    case Seq(column, interval, offset, minimum) =>
      checkMinimum(minimum)
      validate(Histogram(column, double(interval), double(offset)))
    case _ => throw wrongArguments("indextables_histogram", "a column, an interval and perhaps an offset", arguments)
  }

  private def dateHistogram(arguments: Seq[Expression]): Expression = arguments match {
    case Seq(column, interval) => dateHistogram(column, text(interval), "0s")
    case Seq(column, interval, offset) => dateHistogram(column, text(interval), text(offset))
    case Seq(column, interval, offset, minimum) =>
      checkMinimum(minimum)
      dateHistogram(column, text(interval), text(offset))
    case _ => throw wrongArguments("indextables_date_histogram", "a column, an interval as '15m' and perhaps an offset", arguments)
  }

  private def dateHistogram(column: Expression, interval: String, offset: String): Expression = {
    val unchecked = DateHistogram(column, interval, offset, 1, 0)
    val reply = check(unchecked)
    unchecked.copy(steps = reply.get("interval").asLong, start = reply.get("offset").asLong)
  }

  private def range(arguments: Seq[Expression]): Expression = {
    if (arguments.size < 4 || arguments.size % 3 != 1) {
      throw wrongArguments("indextables_range", "a column, then a name, a start and an end for each range", arguments)
    }
    val buckets = arguments.tail.grouped(3).map { case Seq(name, start, end) => (text(name), bound(start), bound(end)) }
    validate(RangeBuckets(arguments.head, buckets.toSeq))
  }

  private def validate(buckets: Buckets): Expression = {
    check(buckets)
    buckets
  }

  private def check(buckets: Buckets) =
    Rpc("buckets", Json.obj("kind" -> buckets.kind, "arguments" -> buckets.arguments)).json

  /** The argument min_doc_count of IndexTables for Scala: a group has at least one row. */
  private def checkMinimum(argument: Expression): Unit = {
    val minimum = double(argument)
    if (minimum != 0 && minimum != 1) throw new Failure(
      s"the fourth argument, the smallest number of rows of a bucket, is 0 or 1, not ${argument.sql}; to leave out small " +
        "groups write HAVING count(*) >= n")
  }

  private def wrongArguments(name: String, what: String, arguments: Seq[Expression]): Failure =
    new Failure(s"$name takes $what, not ${arguments.size} arguments")

  private def constant(argument: Expression): Any = {
    if (!argument.resolved || !argument.foldable) {
      throw new Failure(s"${argument.sql} has to be a constant: buckets are the same for all rows")
    }
    argument.eval()
  }

  private def bound(argument: Expression): Option[Double] = if (constant(argument) == null) None else Some(double(argument))

  private def double(argument: Expression): Double = {
    constant(argument)
    Option(Cast(argument, DoubleType, ansiEnabled = true).eval()).map(_.asInstanceOf[Double])
      .getOrElse(throw new Failure("an interval or an offset of buckets cannot be null"))
  }

  private def text(argument: Expression): String = {
    if (constant(argument) == null || argument.dataType != StringType) throw new Failure(s"${argument.sql} has to be a text")
    argument.eval().toString
  }
}
