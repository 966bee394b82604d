package org.apache.spark.sql.indextables

import java.util

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.{Identifier, Table, TableCatalog, TableChange, V1Table}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * Companion indexes by the names of their sources: `companions.spark_catalog.default.logs`.
 *
 * As in IndexTables for Scala, a property of the source has the path of its index. The catalog is read-only.
 */
class CompanionCatalog extends TableCatalog {
  private var catalogName = ""

  override def initialize(name: String, options: CaseInsensitiveStringMap): Unit = catalogName = name

  override def name(): String = catalogName

  override def loadTable(identifier: Identifier): Table = {
    val options = new CaseInsensitiveStringMap(indexOptions(identifier).asJava)
    val provider = new Provider
    provider.getTable(provider.inferSchema(options), provider.inferPartitioning(options), options.asCaseSensitiveMap)
  }

  private def indexOptions(identifier: Identifier): Map[String, String] = {
    val source = (identifier.namespace :+ identifier.name).mkString(".")
    if (identifier.namespace.length < 2) throw new Failure(
      s"$catalogName.$source is not the name of a source: give its catalog and namespace too, as $catalogName.spark_catalog.default.logs")
    val loaded = load(identifier)
    val properties = loaded match {
      case table: V1Table => table.v1Table.properties
      case table => table.properties.asScala.toMap
    }
    val path = CompanionIndex.path(properties).getOrElse(
      throw new Failure(s"$source has no companion index: its table property ${CompanionIndex.Root} does not name one"))
    // A clone of a table has the same properties, among them the path of the other table's index.
    val table = SourceTable.of(source, loaded).getOrElse(
      throw new Failure(s"$source has no location, so that the companion index at $path cannot be that of its files"))
    CompanionIndex.check(table, path, Map.empty) + ("path" -> path)
  }

  private def load(identifier: Identifier): Table =
    SparkSession.active.sessionState.catalogManager.catalog(identifier.namespace.head) match {
      case tables: TableCatalog => tables.loadTable(Identifier.of(identifier.namespace.tail, identifier.name))
      case other => throw new Failure(s"the catalog ${other.name} has no tables")
    }

  override def listTables(namespace: Array[String]): Array[Identifier] = Array.empty

  override def createTable(
      identifier: Identifier, schema: StructType, partitions: Array[Transform], properties: util.Map[String, String]): Table =
    throw readOnly

  override def alterTable(identifier: Identifier, changes: TableChange*): Table = throw readOnly

  override def dropTable(identifier: Identifier): Boolean = false

  override def renameTable(from: Identifier, to: Identifier): Unit = throw readOnly

  private def readOnly: Failure =
    new Failure(s"the catalog $catalogName is read-only; build companion indexes by their paths")
}
