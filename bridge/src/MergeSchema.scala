package org.apache.spark.sql.indextables

import java.util.Locale

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.{NamedRelation, UnresolvedRelation}
import org.apache.spark.sql.catalyst.plans.logical.{AppendData, LogicalPlan, OverwriteByExpression, OverwritePartitionsDynamic, V2WriteCommand}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.classic
import org.apache.spark.sql.types._

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
    val target = write.table match {
      case name: UnresolvedRelation => analyzed(name.clearWritePrivileges)
      case relation => relation
    }
    val incoming = (if (write.query.resolved) write.query else analyzed(write.query)).schema.asNullable
    target.collectFirst { case IndexRelation(table, relation) =>
      val all = both(table.schema, incoming).asInstanceOf[StructType]
      if (all == table.schema) relation
      else relation.copy(table = table.withSchema(all), output = DataTypeUtils.toAttributes(all))
    }.getOrElse(write.table)
  }

  /** A type with the fields that another one has besides; types that do not agree are for the planner to refuse. */
  private def both(current: DataType, incoming: DataType): DataType = (current, incoming) match {
    case (StructType(fields), StructType(others)) =>
      def name(field: StructField) = field.name.toLowerCase(Locale.ROOT)
      val incomingFields = others.map(field => name(field) -> field).toMap
      val names = fields.map(name).toSet
      StructType(
        fields.map(field => incomingFields.get(name(field)).fold(field)(o => field.copy(dataType = both(field.dataType, o.dataType))))
          ++ others.filterNot(field => names(name(field))))
    case (ArrayType(element, nulls), ArrayType(other, _)) => ArrayType(both(element, other), nulls)
    case (MapType(key, value, nulls), MapType(_, other, _)) => MapType(key, both(value, other), nulls)
    case _ => current
  }

  private def analyzed(plan: LogicalPlan): LogicalPlan =
    classic.Dataset.ofRows(session.asInstanceOf[classic.SparkSession], plan).queryExecution.analyzed
}
