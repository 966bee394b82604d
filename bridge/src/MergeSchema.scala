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
 * Adds the new columns of rows to the target of a write with the option mergeSchema, if the target is a table of a catalog.
 *
 * Spark compares the rows with the columns of the target before it calls the planner, so the target needs the new columns.
 * The planner decides whether the write may add columns, by the options of the call, the table and the session.
 */
case class MergeSchema(session: SparkSession) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan match {
    case write: InsertIntoStatement if write.byName =>
      widen(write.table, write.query, Map.empty).fold(plan)(wider => write.copy(table = wider))
    case write: AppendData if write.isByName =>
      widen(write.table, write.query, write.writeOptions).fold(plan)(wider => write.copy(table = wider))
    case write: OverwriteByExpression if write.isByName =>
      widen(write.table, write.query, write.writeOptions).fold(plan)(wider => write.copy(table = wider))
    case write: OverwritePartitionsDynamic if write.isByName =>
      widen(write.table, write.query, write.writeOptions).fold(plan)(wider => write.copy(table = wider))
    case _ => plan
  }

  /** The target with the new columns of the rows; None if there are none, or if the write may not add any. */
  private def widen(target: LogicalPlan, query: LogicalPlan, writeOptions: Map[String, String]): Option[DataSourceV2Relation] =
    for {
      (table, relation) <- resolveTarget(target)
      incoming <- if (query.resolved) Some(query) else analyze(query)
      all = mergeTypes(table.schema, incoming.schema.asNullable).asInstanceOf[StructType]
      if all != table.schema && mergesSchema(table, relation.options.asCaseSensitiveMap.asScala.toMap ++ writeOptions)
    } yield relation.copy(table = table.withSchema(all), output = DataTypeUtils.toAttributes(all))

  private def resolveTarget(target: LogicalPlan): Option[(IndexTable, DataSourceV2Relation)] = (target match {
    case name: UnresolvedRelation => analyze(name.clearWritePrivileges)
    case relation => Some(relation)
  }).flatMap(_.collectFirst { case IndexRelation(table, relation) => (table, relation) })

  private def mergesSchema(table: IndexTable, options: Map[String, String]): Boolean = {
    val merged = SessionOptions.merge(table.properties, options.asJava)
    Rpc("write_options", Json.obj("options" -> merged)).json.get("merge_schema").asBoolean
  }

  /** A type with the additional fields of another one. Types that do not fit are refused by the planner. */
  private def mergeTypes(current: DataType, incoming: DataType): DataType = (current, incoming) match {
    case (StructType(fields), StructType(others)) =>
      def name(field: StructField) = field.name.toLowerCase(Locale.ROOT)
      val incomingFields = others.map(field => name(field) -> field).toMap
      val names = fields.map(name).toSet
      StructType(
        fields.map(field => incomingFields.get(name(field)).fold(field)(o => field.copy(dataType = mergeTypes(field.dataType, o.dataType))))
          ++ others.filterNot(field => names(name(field))))
    case (ArrayType(element, nulls), ArrayType(other, _)) => ArrayType(mergeTypes(element, other), nulls)
    case (MapType(key, value, nulls), MapType(_, other, _)) => MapType(key, mergeTypes(value, other), nulls)
    case _ => current
  }

  /** None if Spark cannot analyze it: then Spark reports the error itself. */
  private def analyze(plan: LogicalPlan): Option[LogicalPlan] =
    Try(classic.Dataset.ofRows(session.asInstanceOf[classic.SparkSession], plan).queryExecution.analyzed).toOption
}
