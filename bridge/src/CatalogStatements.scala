package org.apache.spark.sql.indextables

import java.util

import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.analysis.ResolvedTable
import org.apache.spark.sql.catalyst.catalog.{CatalogTable, CatalogTableType}
import org.apache.spark.sql.catalyst.plans.logical.{AlterTableCommand, AnalyzeColumn, AnalyzeTable, CommentOnTable, LogicalPlan}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic
import org.apache.spark.sql.connector.catalog.{CatalogManager, TableCatalog, TableChange}
import org.apache.spark.sql.execution.command.LeafRunnableCommand

/**
 * Statements of Spark's catalog about indextables tables.
 *
 * DESCRIBE, SHOW CREATE TABLE and SHOW TBLPROPERTIES also show the location and the comment, which Spark's catalog does not
 * pass to a data source, and the index settings in the table's log. ANALYZE TABLE has nothing to compute: the log has the
 * statistics of every version.
 */
case class CatalogStatements(session: SparkSession) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperatorsUp {
    case AnalyzeTable(ResolvedTable(_, _, table: IndexTable, _), _, _) => StatisticsInLog(table, Nil)
    case AnalyzeColumn(ResolvedTable(_, _, table: IndexTable, _), columns, _) => StatisticsInLog(table, columns.getOrElse(Nil))
    case command: AlterTableCommand if command.resolved && comment(command).nonEmpty =>
      AlterTableWithComment(command, comment(command).get)
    case resolved @ ResolvedTable(catalog, identifier, table: IndexTable, _)
        if catalog.name == CatalogManager.SESSION_CATALOG_NAME && !table.isDescribed && identifier.namespace.length == 1 =>
      val name = TableIdentifier(identifier.name, identifier.namespace.headOption)
      val stored = Try(session.asInstanceOf[classic.SparkSession].sessionState.catalog.getTableMetadata(name)).toOption
      stored.map(info => resolved.copy(table = table.withProperties(propertiesOf(table, info)))).getOrElse(resolved)
  }

  /** The comment of a table of the session catalog that a statement would delete; None if the statement sets one. */
  private def comment(command: AlterTableCommand): Option[String] = command.table match {
    case ResolvedTable(_, _, table: IndexTable, _) if table.isDescribed && !command.isInstanceOf[AlterTableWithComment] &&
        !command.isInstanceOf[CommentOnTable] => Option(table.properties.get(TableCatalog.PROP_COMMENT))
    case _ => None
  }

  private def propertiesOf(table: IndexTable, stored: CatalogTable): util.Map[String, String] = {
    val all = new util.LinkedHashMap[String, String](table.properties)
    all.remove("path")
    stored.storage.locationUri.foreach(uri => all.put(TableCatalog.PROP_LOCATION, uri.toString))
    if (stored.tableType == CatalogTableType.MANAGED) all.put(TableCatalog.PROP_IS_MANAGED_LOCATION, "true")
    else all.put(TableCatalog.PROP_EXTERNAL, "true")
    stored.comment.foreach(all.put(TableCatalog.PROP_COMMENT, _))
    val declared = SessionOptions.catalogOptions(table.properties)
    table.indexing.asScala.foreach { case (key, value) => if (!declared.containsKey(key)) all.put(key, value) }
    all
  }
}

/** A change of a table and its comment: Spark's session catalog deletes a comment that is not among the changes. */
case class AlterTableWithComment(command: AlterTableCommand, comment: String) extends AlterTableCommand {
  override def table: LogicalPlan = command.table
  override def changes: Seq[TableChange] =
    command.changes :+ TableChange.setProperty(TableCatalog.PROP_COMMENT, comment)
  override protected def withNewChildInternal(newChild: LogicalPlan): LogicalPlan =
    copy(command = command.withNewChildren(Seq(newChild)).asInstanceOf[AlterTableCommand])
}

/** ANALYZE TABLE: checks that the table and the named columns exist. */
case class StatisticsInLog(table: IndexTable, columns: Seq[String]) extends LeafRunnableCommand {
  override def run(session: SparkSession): Seq[Row] = {
    val conf = session.asInstanceOf[classic.SparkSession].sessionState.conf
    columns.find(name => !table.schema.fieldNames.exists(conf.resolver(_, name))).foreach { name =>
      throw new Failure(s"no column '$name'; the columns are: ${table.schema.fieldNames.mkString(", ")}")
    }
    Rpc("schema", Json.obj("options" -> SessionOptions.merge(table.properties, util.Collections.emptyMap())))
    Nil
  }
}
