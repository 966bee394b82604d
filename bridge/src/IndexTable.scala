package org.apache.spark.sql.indextables

import java.util
import java.util.Locale

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.connector.catalog.{MetadataColumn, SupportsDeleteV2, SupportsMetadataColumns, SupportsPartitionManagement}
import org.apache.spark.sql.connector.catalog.{SupportsRead, SupportsWrite, Table, TableCapability, TableCatalog}
import org.apache.spark.sql.connector.catalog.TableCapability._
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.expressions.{FieldReference, IdentityTransform, LiteralValue, Transform}
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, WriteBuilder}
import org.apache.spark.sql.execution.python.indextables.ArrowAnswer
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * A table as Spark sees it.
 *
 * Spark refuses two of the four save modes for tables with the capability BATCH_WRITE. So a table that is given by its path
 * has that capability only as the target of a write (`writable`, `SaveModes`); `mode` is then the save mode.
 */
class IndexTable(
    override val schema: StructType,
    override val partitioning: Array[Transform],
    override val properties: util.Map[String, String],
    cachedInfo: Option[TableInfo] = None,
    val mode: Option[String] = None,
    val partitionBy: Option[Array[String]] = None,
    isWriteTarget: Boolean = false,
    val batch: Option[StreamBatch] = None,
    val isDescribed: Boolean = false)
    extends Table with SupportsRead with SupportsWrite with SupportsDeleteV2 with SupportsMetadataColumns
    with SupportsPartitionManagement {

  /** Whether it is a table of a catalog. */
  def isInCatalog: Boolean = properties.containsKey(TableCatalog.PROP_PROVIDER)

  private def options: util.Map[String, String] = SessionOptions.merge(properties, util.Collections.emptyMap())

  private lazy val info: Option[TableInfo] = cachedInfo.orElse(if (isInCatalog) None else TableInfo.of(options))

  /** Whether a column, in lower case, is indexed as addresses. */
  def addresses(column: String): Boolean = info.exists(_.addresses(column))

  /** The options by which the columns of the table are indexed. */
  def indexing: util.Map[String, String] = info.map(_.indexing).getOrElse(util.Collections.emptyMap())

  /** The columns that rows are partitioned by. */
  def partitionNames: Seq[String] = partitioning.toSeq.collect { case IdentityTransform(FieldReference(Seq(column))) => column }

  /** The partition columns of a write: those of `partitionBy`, or of the catalog. */
  def declaredPartitions: Option[Array[String]] = partitionBy.orElse(
    if (!isInCatalog) None
    else Some(partitioning.map(Columns.partitionName)))

  def withSchema(wider: StructType): IndexTable =
    new IndexTable(wider, partitioning, properties, cachedInfo, mode, partitionBy, isWriteTarget, batch)

  def writable: IndexTable = new IndexTable(schema, partitioning, properties, cachedInfo, mode, partitionBy, isWriteTarget = true)

  /** The table with the properties that statements about it show. */
  def withProperties(shown: util.Map[String, String]): IndexTable =
    new IndexTable(schema, partitioning, shown, cachedInfo, mode, partitionBy, isWriteTarget, batch, isDescribed = true)

  override def name(): String =
    s"${Provider.Name} ${properties.getOrDefault("path", properties.getOrDefault(TableCatalog.PROP_LOCATION, ""))}".trim

  override def capabilities(): util.Set[TableCapability] = {
    val all = util.EnumSet.of(BATCH_READ, MICRO_BATCH_READ, TRUNCATE, OVERWRITE_BY_FILTER, OVERWRITE_DYNAMIC)
    if (isInCatalog || isWriteTarget) all.add(BATCH_WRITE)
    // Spark does not pass the columns of `partitionBy` to a table that is given by its path, so such a stream uses TableSink.
    if (isInCatalog) all.add(STREAMING_WRITE)
    all
  }

  override def metadataColumns(): Array[MetadataColumn] = VirtualColumn.metadata

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    new IndexScanBuilder(this, options)
  }

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = new IndexWriteBuilder(this, info)

  // The planner refuses conditions that cannot be deleted, with a reason.
  override def canDeleteWhere(predicates: Array[Predicate]): Boolean = true

  override def deleteWhere(predicates: Array[Predicate]): Unit = Rpc("delete", Json.obj(
    "options" -> options, "filters" -> ExpressionJson.all(predicates)))

  // --- partitions ------------------------------------------------------------------------------------

  override def partitionSchema(): StructType = StructType(partitionNames.flatMap(name => schema.find(_.name == name)))

  override def listPartitionIdentifiers(names: Array[String], values: InternalRow): Array[InternalRow] = {
    val columns = partitionSchema()
    val all = ArrowAnswer.internalRows(Rpc("partitions", Json.obj("options" -> options)).blobs.head, columns)
    val places = names.map(name => (columns.fieldIndex(name), columns(name).dataType))
    all.filter(row => places.zipWithIndex.forall { case ((place, dataType), number) =>
      row.get(place, dataType) == values.get(number, dataType)
    }).toArray
  }

  override def dropPartition(identifier: InternalRow): Boolean = {
    deleteWhere(partitionSchema().fields.zipWithIndex.map { case (field, place) =>
      val column = Columns.reference(field.name)
      if (identifier.isNullAt(place)) new Predicate("IS_NULL", Array(column))
      else new Predicate("=", Array(column, LiteralValue(identifier.get(place, field.dataType), field.dataType)))
    })
    true
  }

  override def createPartition(identifier: InternalRow, properties: util.Map[String, String]): Unit = throw new Failure(
    "a partition of a table of indextables exists while it has rows; write rows instead of ADD PARTITION")

  override def replacePartitionMetadata(identifier: InternalRow, properties: util.Map[String, String]): Unit =
    throw new Failure("a partition of a table of indextables has no properties of its own")

  override def loadPartitionMetadata(identifier: InternalRow): util.Map[String, String] = util.Collections.emptyMap()

  // Spark compares tables to refresh cached results after a write, and to reuse equal parts of a plan.
  override def equals(other: Any): Boolean = other match {
    case table: IndexTable => table.schema == schema && table.identity == identity
    case _ => false
  }

  override def hashCode(): Int = (schema, identity).hashCode()

  /** The properties by keys in lower case: Spark passes options of reads in their spelling, those of writes in lower case. */
  private lazy val identity: Map[String, String] =
    properties.asScala.map { case (key, value) => (key.toLowerCase(Locale.ROOT), value) }.toMap
}
