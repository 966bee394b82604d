package org.apache.spark.sql.indextables

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation

/**
 * A table named by its path, indextables.`/path`, in queries and in INSERT, DELETE and `writeTo`.
 *
 * Spark supports this for file sources only. The rule runs before Spark resolves such a name.
 */
case class PathRelation(session: SparkSession) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformWithSubqueries {
    case write: InsertIntoStatement if byPath(write.table).nonEmpty => write.copy(table = writeTarget(write.table))
    case write: AppendData if byPath(write.table).nonEmpty => write.copy(table = writeTarget(write.table))
    case write: OverwriteByExpression if byPath(write.table).nonEmpty => write.copy(table = writeTarget(write.table))
    case write: OverwritePartitionsDynamic if byPath(write.table).nonEmpty => write.copy(table = writeTarget(write.table))
    case relation: UnresolvedRelation => byPath(relation).map(load).getOrElse(relation)
  }

  private def byPath(plan: LogicalPlan): Option[UnresolvedRelation] = plan match {
    case relation: UnresolvedRelation if !relation.isStreaming => relation.multipartIdentifier match {
      case Seq(format, path) if format.equalsIgnoreCase(Provider.Name) && path.contains("/") => Some(relation)
      case _ => None
    }
    case _ => None
  }

  private def load(relation: UnresolvedRelation): LogicalPlan = {
    val options = relation.clearWritePrivileges.options.asCaseSensitiveMap
    val reader = session.asInstanceOf[classic.SparkSession].read.format(Provider.Name).options(options)
    reader.load(relation.multipartIdentifier.last).asInstanceOf[classic.Dataset[_]].logicalPlan
  }

  private def writeTarget(table: LogicalPlan): DataSourceV2Relation = load(byPath(table).get).collectFirst {
    case relation: DataSourceV2Relation => relation.copy(table = relation.table.asInstanceOf[IndexTable].writable)
  }.get
}
