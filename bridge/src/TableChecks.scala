package org.apache.spark.sql.indextables

import java.util

import org.apache.spark.SPARK_VERSION
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.ResolvedTable
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.connector.catalog.CatalogV2Util
import org.apache.spark.sql.connector.expressions.Transform

/** Refuses statements that a catalog would accept although the table cannot follow them. */
case class TableChecks(session: SparkSession) extends (LogicalPlan => Unit) {
  override def apply(plan: LogicalPlan): Unit = plan match {
    case AlterTableWithComment(command, _) => apply(command)
    case create: CreateTableAsSelect => create.tableSpec match {
      case spec: TableSpec if Provider.isName(spec.provider) =>
        checkLayout(create.partitioning, spec)
        if (!create.ignoreIfExists) spec.location.filter(at => TableInfo.of(options(at)).nonEmpty).foreach { at =>
          throw new Failure(s"a table exists at $at; insert into it, or choose another location")
        }
      case _ =>
    }
    case create: CreateTable => checkLayout(create.partitioning, create.tableSpec)
    case replace: ReplaceTable => checkLayout(replace.partitioning, replace.tableSpec)
    case replace: ReplaceTableAsSelect => checkLayout(replace.partitioning, replace.tableSpec)
    case SetTableProperties(ResolvedTable(_, _, table: IndexTable, _), changes) =>
      val all = new util.HashMap[String, String](table.properties)
      changes.foreach { case (key, value) => all.put(key, value) }
      TableInfo.ofCatalog(all, table.schema, table.partitionNames, changed = true)
    case UnsetTableProperties(ResolvedTable(_, _, table: IndexTable, _), keys, _) =>
      keys.find(key => table.indexing.containsKey(SessionOptions.plain(key))).foreach { key =>
        throw new Failure(s"'$key' determines how the rows of the table are indexed, so it cannot be removed; to index them in another " +
          "way, overwrite the table")
      }
    case change: AlterTableCommand if changesColumns(change) => change.table match {
      case ResolvedTable(_, _, _: IndexTable, _) => throw new Failure(
        "ALTER TABLE cannot change the columns of a table of indextables: write rows with the option mergeSchema " +
          "to add columns, or overwrite the table with the option overwriteSchema to replace them")
      case _ =>
    }
    case alter: AlterColumns => alter.table match {
      case ResolvedTable(catalog, _, table: IndexTable, _)
          if CatalogV2Util.isSessionCatalog(catalog) && !SPARK_VERSION.startsWith("4.0.") && !partitionsAreLast(table) =>
        throw new Failure("Spark's catalog changes comments of columns only in tables whose partition columns come last; " +
          s"this one is partitioned by ${table.partitionNames.mkString(", ")}: give the comments where the table is created")
      case _ =>
    }
    case _ =>
  }

  private def checkLayout(partitioning: Seq[Transform], spec: TableSpecBase): Unit =
    if (Provider.isName(spec.provider)) partitioning.foreach(Columns.partitionName)

  private def partitionsAreLast(table: IndexTable): Boolean =
    table.schema.fieldNames.takeRight(table.partitionNames.size).sameElements(table.partitionNames)

  private def changesColumns(change: AlterTableCommand): Boolean = change match {
    // A catalog keeps the comments of columns.
    case alter: AlterColumns => alter.specs.exists { spec =>
      spec.newComment.isEmpty || spec.newDataType.nonEmpty || spec.newNullability.nonEmpty || spec.newPosition.nonEmpty
    }
    case _: AddColumns | _: DropColumns | _: RenameColumn | _: ReplaceColumns => true
    case _ => false
  }

  private def options(path: String): util.Map[String, String] =
    SessionOptions.merge(util.Collections.emptyMap(), util.Map.of("path", path))
}
