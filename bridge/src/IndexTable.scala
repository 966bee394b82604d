package org.apache.spark.sql.indextables

import java.util

import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.catalog.TableCapability._
import org.apache.spark.sql.connector.expressions.{FieldReference, IdentityTransform, Transform}
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, WriteBuilder}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * A table as Spark sees it.
 *
 * Spark refuses two of the four save modes for a table that can be written in batches, so one that is found by its
 * path says so only where it is to be written (`writable`, `inMode`); `mode` is then the save mode.
 */
class IndexTable(
    override val schema: StructType,
    override val partitioning: Array[Transform],
    override val properties: util.Map[String, String],
    val mode: Option[String] = None,
    val partitionBy: Option[Array[String]] = None,
    written: Boolean = false,
    val batch: Option[StreamBatch] = None)
    extends Table with SupportsRead with SupportsWrite with SupportsDeleteV2 with SupportsMetadataColumns {

  /** Whether it is a table of a catalog. */
  def named: Boolean = properties.containsKey(TableCatalog.PROP_PROVIDER)

  /** The partition columns, if the writer names them; a catalog does. */
  def declaredPartitions: Option[Array[String]] = partitionBy.orElse(
    if (!named) None
    else Some(partitioning.map {
      case IdentityTransform(FieldReference(Seq(column))) => column
      case other => throw new Failure(
        s"a table of indextables is partitioned by columns as they are, not by ${other.describe}; " +
          "add a column with that value and partition by it")
    }))

  def withSchema(wider: StructType): IndexTable =
    new IndexTable(wider, partitioning, properties, mode, partitionBy, written, batch)

  def writable: IndexTable = new IndexTable(schema, partitioning, properties, mode, partitionBy, written = true)

  override def name(): String = s"${Provider.Name} ${properties.getOrDefault("path", "")}".trim

  override def capabilities(): util.Set[TableCapability] = {
    val all = util.EnumSet.of(BATCH_READ, MICRO_BATCH_READ, TRUNCATE, OVERWRITE_BY_FILTER, OVERWRITE_DYNAMIC)
    if (named || written) all.add(BATCH_WRITE)
    // Spark does not hand the columns of `partitionBy` to a table by its path: such a stream has a sink of its own.
    if (named) all.add(STREAMING_WRITE)
    all
  }

  override def metadataColumns(): Array[MetadataColumn] = VirtualColumn.metadata

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    new IndexScanBuilder(this, options)
  }

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = new IndexWriteBuilder(this, info)

  // What cannot be deleted is refused by the planner, with a reason.
  override def canDeleteWhere(predicates: Array[Predicate]): Boolean = true

  override def deleteWhere(predicates: Array[Predicate]): Unit = Rpc("delete", Json.obj(
    "options" -> SessionOptions.merged(properties, util.Collections.emptyMap()),
    "filters" -> ExpressionJson.all(predicates)))

  // Equal tables let Spark drop cached results after a write, and share equal parts of a plan.
  override def equals(other: Any): Boolean = other match {
    case table: IndexTable => table.schema == schema && table.properties == properties
    case _ => false
  }

  override def hashCode(): Int = (schema, properties).hashCode()
}
