package org.apache.spark.sql.indextables

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.expressions.{Cast, Expression, ExpressionInfo, RuntimeReplaceable, TimeZoneAwareExpression}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.types.{DateType, IntegralType, StringType, TimestampNTZType, TimestampType}

/** The table function `indextables_changes('table', from[, to])`: a read with the options of changes. */
object TableChanges {
  val Option = Declarations.ReadChanges
  private val Name = "indextables_changes"
  private val Usage = "_FUNC_('table', from[, to]) - rows inserted and deleted by versions, or between times"

  def inject(session: SparkSessionExtensions): Unit = {
    val info = new ExpressionInfo(getClass.getName.stripSuffix("$"), null, Name, Usage, "")
    session.injectTableFunction((FunctionIdentifier(Name), info, changes))
  }

  private def changes(arguments: Seq[Expression]): LogicalPlan = arguments.map(evaluable) match {
    case Seq(table, from) => load(table, bound("starting", from))
    case Seq(table, from, to) => load(table, bound("starting", from) ++ bound("ending", to))
    case _ => throw new Failure(
      s"$Name takes a table, the first version or time, and perhaps the last one, not ${arguments.size} arguments")
  }

  private def load(table: Expression, options: Map[String, String]): LogicalPlan = {
    val session = SparkSession.active
    val name = constant(table).toString
    val names = if (name.contains("/")) Seq(Provider.Name, name) else session.sessionState.sqlParser.parseMultipartIdentifier(name)
    TimeTravel(session).load(names, options + (Option -> "true")).getOrElse(throw new Failure(
      s"$name is not a table of indextables; give the name of a table of the catalog, or a path with a slash"))
  }

  /** The options of an argument: a number is a version, a text, date or timestamp is a time. */
  private def bound(side: String, argument: Expression): Map[String, String] = {
    val value = constant(argument)
    argument.dataType match {
      case _: IntegralType => Map(s"${side}Version" -> value.toString)
      case StringType => Map(s"${side}Timestamp" -> value.toString)
      case DateType | TimestampType | TimestampNTZType =>
        Map(s"${side}Timestamp" -> evaluable(Cast(argument, StringType)).eval().toString)
      case other => throw new Failure(s"$Name takes versions or times, not ${other.sql}")
    }
  }

  // Replacements that Spark makes only after it has resolved a table function.
  private def evaluable(expression: Expression): Expression = expression.transformUp {
    case part: RuntimeReplaceable => part.replacement
    case part: TimeZoneAwareExpression if part.timeZoneId.isEmpty =>
      part.withTimeZone(SparkSession.active.sessionState.conf.sessionLocalTimeZone)
  }

  private def constant(argument: Expression): Any = {
    if (!argument.resolved || !argument.foldable) throw new Failure(s"the arguments of $Name have to be constants, not ${argument.sql}")
    scala.Option(argument.eval()).getOrElse(throw new Failure(s"the arguments of $Name cannot be null"))
  }
}
