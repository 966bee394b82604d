package org.apache.spark.sql.indextables

import java.util.Locale

import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation
import org.apache.spark.sql.catalyst.plans.logical.{AppendData, InsertIntoStatement, LogicalPlan, OverwriteByExpression, OverwritePartitionsDynamic}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.classic
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.types._

/**
 * Lets rows with the option mergeSchema bring new columns into a table that a catalog names.
 *
 * Spark checks rows against the table's columns before the planner sees them, so the table is shown to it with the
 * new ones. The planner decides whether they may come, from the options of the call, the table and the session.
 */
case class MergeSchema(session: SparkSession) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan match {
    case write: InsertIntoStatement if write.byName =>
      widened(write.table, write.query, Map.empty).fold(plan)(wider => write.copy(table = wider))
    case write: AppendData if write.isByName =>
      widened(write.table, write.query, write.writeOptions).fold(plan)(wider => write.copy(table = wider))
    case write: OverwriteByExpression if write.isByName =>
      widened(write.table, write.query, write.writeOptions).fold(plan)(wider => write.copy(table = wider))
    case write: OverwritePartitionsDynamic if write.isByName =>
      widened(write.table, write.query, write.writeOptions).fold(plan)(wider => write.copy(table = wider))
    case _ => plan
  }

  /** The target with the new columns of the rows; None if there are none, or if the write may not add any. */
  private def widened(target: LogicalPlan, query: LogicalPlan, writeOptions: Map[String, String]): Option[DataSourceV2Relation] =
    for {
      (table, relation) <- resolved(target)
      incoming <- if (query.resolved) Some(query) else analyzed(query)
      all = both(table.schema, incoming.schema.asNullable).asInstanceOf[StructType]
      if all != table.schema && mergesSchema(table, relation.options.asCaseSensitiveMap.asScala.toMap ++ writeOptions)
    } yield relation.copy(table = table.withSchema(all), output = DataTypeUtils.toAttributes(all))

  private def resolved(target: LogicalPlan): Option[(IndexTable, DataSourceV2Relation)] = (target match {
    case name: UnresolvedRelation => analyzed(name.clearWritePrivileges)
    case relation => Some(relation)
  }).flatMap(_.collectFirst { case IndexRelation(table, relation) => (table, relation) })

  private def mergesSchema(table: IndexTable, options: Map[String, String]): Boolean = {
    val merged = SessionOptions.merged(table.properties, options.asJava)
    Rpc("write_options", Json.obj("options" -> merged)).json.get("merge_schema").asBoolean
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

  /** None if Spark cannot analyze it: then Spark reports the error itself. */
  private def analyzed(plan: LogicalPlan): Option[LogicalPlan] =
    Try(classic.Dataset.ofRows(session.asInstanceOf[classic.SparkSession], plan).queryExecution.analyzed).toOption
}
