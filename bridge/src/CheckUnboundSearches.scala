package org.apache.spark.sql.indextables

import org.apache.spark.sql.catalyst.plans.logical.{Command, LogicalPlan}
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}

/** Fails for what no table of ours can answer, rather than guess. It looks at plans that are ready to run. */
object CheckUnboundSearches extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = {
    plan.foreach(node => node.expressions.foreach(_.foreach {
      case _: Buckets =>
      case expression: IndexExpression if node.isInstanceOf[Command] => throw new Failure(
        s"${expression.shown} cannot choose the rows that a statement changes; select them first, and name them by a column")
      case expression: IndexExpression => throw new Failure(sentence(expression))
      case column: UnindexedColumn => throw column.failure
      case _: AllFields => throw new Failure(
        "_indexall has no value of its own; it can only be searched: _indexall INDEXQUERY 'words'")
      case _ =>
    }))
    Nil
  }

  private def sentence(expression: IndexExpression): String = {
    val column = expression.subject.map(_.sql)
    val why = column match {
      case Some(name) => s"$name is not a column as a table of indextables has it"
      case None => "there is no table of indextables below it"
    }
    val (what, example) = expression match {
      case Search(_, _, _, Some(written)) => (s"$written compares addresses, which an index does, and", written)
      case other => (other.shown, "message INDEXQUERY 'words'")
    }
    s"$what cannot be answered here: $why. A column of another source, of a cached or checkpointed " +
      "DataFrame, or one that is computed has no index. Search the table itself, before it is cached or its column is " +
      s"changed: SELECT ... FROM (SELECT * FROM t WHERE $example)"
  }
}
