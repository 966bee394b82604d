package org.apache.spark.sql.indextables

import java.util

import org.apache.spark.sql.connector.catalog.{SupportsRead, Table, TableCapability}
import org.apache.spark.sql.connector.catalog.TableCapability._
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A table as Spark sees it. */
class IndexTable(
    override val schema: StructType,
    override val partitioning: Array[Transform],
    override val properties: util.Map[String, String])
    extends Table with SupportsRead {

  override def name(): String = s"${Provider.Name} ${properties.getOrDefault("path", "")}".trim

  override def capabilities(): util.Set[TableCapability] = util.EnumSet.of(BATCH_READ)

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    new IndexScanBuilder(this, SessionOptions.merged(properties, options.asCaseSensitiveMap))

  // Equal tables let Spark drop cached results after a write, and share equal parts of a plan.
  override def equals(other: Any): Boolean = other match {
    case table: IndexTable => table.schema == schema && table.properties == properties
    case _ => false
  }

  override def hashCode(): Int = (schema, properties).hashCode()
}
