package org.apache.spark.sql.indextables

import java.util.Locale

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.{NamedRelation, UnresolvedRelation}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.classic
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.types.StructType

/**
 * Lets rows with the option mergeSchema bring new columns into a table that a catalog names.
 *
 * Spark checks rows against the table's columns before the planner sees them, so the table is shown to it with the
 * new ones. The planner decides whether they may come.
 */
case class MergeSchema(session: SparkSession) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan match {
    case write: AppendData if merges(write) => write.copy(table = widened(write))
    case write: OverwriteByExpression if merges(write) => write.copy(table = widened(write))
    case write: OverwritePartitionsDynamic if merges(write) => write.copy(table = widened(write))
    case _ => plan
  }

  private def merges(write: V2WriteCommand): Boolean = write.isByName && {
    val options = write match {
      case append: AppendData => append.writeOptions
      case overwrite: OverwriteByExpression => overwrite.writeOptions
      case overwrite: OverwritePartitionsDynamic => overwrite.writeOptions
      case _ => Map.empty[String, String]
    }
    options.exists { case (key, value) =>
      key.toLowerCase(Locale.ROOT).stripPrefix("spark.indextables.") == "mergeschema" && value.equalsIgnoreCase("true")
    }
  }

  private def widened(write: V2WriteCommand): NamedRelation = {
    val found = write.table match {
      case name: UnresolvedRelation => analyzed(name.clearWritePrivileges)
      case relation => relation
    }
    val incoming = (if (write.query.resolved) write.query else analyzed(write.query)).schema.asNullable
    found.collectFirst { case relation @ DataSourceV2Relation(table: IndexTable, _, _, _, _, _) =>
      val known = table.schema.fieldNames.map(_.toLowerCase(Locale.ROOT)).toSet
      val added = incoming.filterNot(field => known(field.name.toLowerCase(Locale.ROOT)))
      val all = StructType(table.schema ++ added)
      if (added.isEmpty) relation
      else relation.copy(table = table.withSchema(all), output = DataTypeUtils.toAttributes(all))
    }.getOrElse(write.table)
  }

  private def analyzed(plan: LogicalPlan): LogicalPlan =
    classic.Dataset.ofRows(session.asInstanceOf[classic.SparkSession], plan).queryExecution.analyzed
}
