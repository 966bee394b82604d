package org.apache.spark.sql.indextables

import org.apache.spark.sql.catalyst.plans.logical.{Command, LogicalPlan}
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}

/** Rejects searches that no table can evaluate. It checks optimized plans, after BindToTable. */
object CheckUnboundSearches extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = {
    plan.foreach(node => node.expressions.foreach(_.foreach {
      case _: Buckets =>
      case expression: IndexExpression if node.isInstanceOf[Command] => throw new Failure(
        s"${expression.describe} cannot choose the rows that a statement changes; select them first, and name them by a column")
      case expression: IndexExpression => throw new Failure(message(expression))
      case column: UnindexedColumn => throw column.failure
      case _: AllFields => throw new Failure(
        "_indexall has no value of its own; it can only be searched: _indexall INDEXQUERY 'words'")
      case _ =>
    }))
    Nil
  }

  private def message(expression: IndexExpression): String = {
    val column = expression.subject.map(_.sql)
    val why = column match {
      case Some(name) => s"$name is not an unchanged column of an indextables table"
      case None => "no table of indextables is below it"
    }
    val (what, example) = expression match {
      case Search(_, _, _, Some(comparison)) => (s"$comparison compares addresses by the index, and", comparison)
      case other => (other.describe, "message INDEXQUERY 'words'")
    }
    s"$what cannot be answered here: $why. A column of another source, of a cached or checkpointed " +
      "DataFrame, or one that is computed has no index. Search the table itself, before it is cached or its column is " +
      s"changed: SELECT ... FROM (SELECT * FROM t WHERE $example)"
  }
}
