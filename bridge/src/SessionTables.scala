package org.apache.spark.sql.indextables

import java.util

import scala.util.control.NonFatal

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.catalog.SessionCatalog
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic
import org.apache.spark.sql.connector.catalog.{CatalogExtension, Column, Identifier, Table, TableCatalog, V1Table}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.execution.datasources.v2.V2SessionCatalog
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType

/**
 * Spark's session catalog below a catalog that extends it, such as Delta's.
 *
 * Below such a catalog Spark loads every table as one of a V1 data source, and tables of indextables have none. This catalog
 * loads and creates them as Spark does without an extension, and passes all other tables to Spark.
 */
class SessionTables(catalog: SessionCatalog) extends V2SessionCatalog(catalog) {
  override def loadTable(ident: Identifier): Table = super.loadTable(ident) match {
    case table: V1Table if Provider.isName(table.catalogTable.provider) => withoutExtension(super.loadTable(ident))
    case other => other
  }

  override def createTable(
      ident: Identifier,
      columns: Array[Column],
      partitions: Array[Transform],
      properties: util.Map[String, String]): Table =
    loadAfter(ident, properties)(super.createTable(ident, columns, partitions, properties))

  override def createTable(
      ident: Identifier,
      schema: StructType,
      partitions: Array[Transform],
      properties: util.Map[String, String]): Table =
    loadAfter(ident, properties)(super.createTable(ident, schema, partitions, properties))

  // Spark may return no table here, but an extension that stages tables writes to the returned table.
  private def loadAfter(ident: Identifier, properties: util.Map[String, String])(create: => Table): Table =
    if (!Provider.isName(Option(properties.get(TableCatalog.PROP_PROVIDER)))) create
    else withoutExtension(Option(create).getOrElse(super.loadTable(ident)))

  private def withoutExtension[T](action: => T): T = {
    val conf = SQLConf.get.clone()
    conf.unsetConf(SQLConf.V2_SESSION_CATALOG_IMPLEMENTATION)
    SQLConf.withExistingConf(conf)(action)
  }
}

object SessionTables {
  private val catalogs = util.Collections.newSetFromMap(new util.WeakHashMap[CatalogExtension, java.lang.Boolean])

  /** Puts a `SessionTables` below the catalog that extends the session's, if there is one. */
  def install(session: classic.SparkSession): Unit =
    if (session.sessionState.conf.contains(SQLConf.V2_SESSION_CATALOG_IMPLEMENTATION.key)) {
      try session.sessionState.catalogManager.v2SessionCatalog match {
        case extension: CatalogExtension => catalogs.synchronized {
          if (catalogs.add(extension)) extension.setDelegateCatalog(new SessionTables(session.sessionState.catalog))
        }
        case _ =>
      } catch {
        case NonFatal(_) => // A catalog that cannot be loaded is reported by the statement that needs it.
      }
    }
}

/** Installs `SessionTables` before the first name of a session is looked up. */
case class InstallSessionTables(session: SparkSession) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = {
    SessionTables.install(session.asInstanceOf[classic.SparkSession])
    plan
  }
}
