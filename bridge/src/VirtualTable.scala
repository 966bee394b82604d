package org.apache.spark.sql.indextables

import java.util

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.connector.catalog.{MetadataColumn, SupportsRead, Table, TableCapability}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.types.{DataType, FloatType, LongType, StringType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A column that a query adds to a table: whether a search matches the row, a fragment of a text, a bucket. */
case class VirtualColumn(definition: Seq[(String, Any)]) {
  /** Derived from the definition: equal definitions have equal names in all queries. */
  lazy val name: String = VirtualColumn.Prefix + util.UUID.nameUUIDFromBytes(text.getBytes("UTF-8")).toString.replace("-", "")

  private lazy val text: String = Json.text(Json.obj(definition: _*))

  def json: util.Map[String, Any] = Json.obj(("name" -> name) +: definition: _*)

  def describe: String = s"$name: $text"
}

object VirtualColumn {
  val Prefix = "_indextables_"
  val Score = "_score"
  val AllFields = "_indexall"
  val FileMetadata = "_metadata"
  val FileMetadataType: StructType =
    new StructType().add("file_path", StringType).add("file_name", StringType).add("file_size", LongType)

  /** The metadata columns of every table. */
  val metadata: Array[MetadataColumn] = Array(
    column(Score, FloatType, "The relevance of the row for the searches of the query"),
    column(AllFields, StringType, "All text-like fields, to be searched"),
    column(FileMetadata, FileMetadataType, "Path, name and size of the row's split"))

  private def column(columnName: String, columnType: DataType, description: String): MetadataColumn = new MetadataColumn {
    override def name(): String = columnName
    override def dataType(): DataType = columnType
    override def isNullable(): Boolean = false
    override def comment(): String = description
  }
}

/** A table with the columns that one query adds to it. */
case class VirtualTable(table: IndexTable, virtual: Seq[VirtualColumn]) extends Table with SupportsRead {
  override def name(): String = table.name()
  override def schema(): StructType = table.schema
  override def partitioning(): Array[Transform] = table.partitioning
  override def properties(): util.Map[String, String] = table.properties
  override def capabilities(): util.Set[TableCapability] = table.capabilities()
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    new IndexScanBuilder(table, options, virtual)
  }
}

/** Matches a table of indextables, with its virtual columns. */
object IndexTables {
  def unapply(table: Table): Option[(IndexTable, Seq[VirtualColumn])] = table match {
    case plain: IndexTable => Some((plain, Nil))
    case VirtualTable(inner, virtual) => Some((inner, virtual))
    case _ => None
  }
}

/** Matches a relation of a table of indextables without virtual columns. */
object IndexRelation {
  def unapply(plan: LogicalPlan): Option[(IndexTable, DataSourceV2Relation)] = plan match {
    case relation: DataSourceV2Relation => relation.table match {
      case table: IndexTable => Some((table, relation))
      case _ => None
    }
    case _ => None
  }
}
