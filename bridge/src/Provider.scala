package org.apache.spark.sql.indextables

import java.util
import java.util.Locale

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.{DataFrame, SaveMode, SQLContext}
import org.apache.spark.sql.connector.catalog.{Table, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.execution.streaming.Sink
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.sources.{BaseRelation, CreatableRelationProvider, DataSourceRegister, StreamSinkProvider}
import org.apache.spark.sql.streaming.OutputMode
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The data source `indextables`. */
class Provider extends TableProvider with DataSourceRegister with CreatableRelationProvider with StreamSinkProvider {
  // Spark calls one provider for the schema, then for the partitioning.
  private var lastLookup: Option[(util.Map[String, String], Option[TableInfo])] = None

  override def shortName(): String = Provider.Name

  override def supportsExternalMetadata(): Boolean = true

  override def inferSchema(options: CaseInsensitiveStringMap): StructType = {
    val merged = SeveralTables.paths(options.asCaseSensitiveMap).headOption match {
      case Some(path) =>
        SessionOptions.merge(util.Collections.emptyMap(), SeveralTables.withPath(options.asCaseSensitiveMap, path))
      case None => SessionOptions.merge(StreamOptions.remove(options))
    }
    lookup(merged).getOrElse(throw Provider.missing(merged)).schema
  }

  override def inferPartitioning(options: CaseInsensitiveStringMap): Array[Transform] =
    // A managed table that is being created has no path yet.
    if (!options.containsKey("path")) Array.empty
    else lookup(SessionOptions.merge(StreamOptions.remove(options))).map(_.partitioning).getOrElse(Array.empty)

  override def getTable(
      schema: StructType, partitioning: Array[Transform], properties: util.Map[String, String]): Table = {
    val declared = new IndexTable(schema, partitioning, properties, lastLookup.flatMap(_._2))
    val paths = SeveralTables.paths(properties)
    if (paths.nonEmpty) new SeveralTables(schema, paths, properties)
    else if (!declared.isInCatalog) declared
    else {
      // A catalog has the schema of the table's creation; the log, once there is one, has the current schema.
      TableInfo.ofCatalog(properties, schema, declared.partitionNames).map { info =>
        new IndexTable(Columns.withComments(info.schema, schema), info.partitioning, properties, Some(info))
      }.getOrElse(declared)
    }
  }

  // The planner refuses types that cannot be stored, with a reason.
  override def supportsDataType(dataType: DataType): Boolean = true

  override def createRelation(
      context: SQLContext, mode: SaveMode, parameters: Map[String, String], data: DataFrame): BaseRelation =
    SaveModes.save(context, mode, parameters, data)

  override def createSink(
      context: SQLContext, parameters: Map[String, String], partitionColumns: Seq[String], mode: OutputMode): Sink =
    new TableSink(parameters, partitionColumns, mode)

  private def lookup(options: util.Map[String, String]): Option[TableInfo] = lastLookup match {
    case Some((same, info)) if same == options => info
    case _ =>
      val info = TableInfo.of(options)
      lastLookup = Some((options, info))
      info
  }
}

object Provider {
  val Name = "indextables"
  // The names of IndexTables for Scala are accepted, too.
  private val names = Set(
    Name, "io.indextables.provider.indextablesprovider", "io.indextables.spark.core.indextables4sparktableprovider")

  /** Whether a table of a catalog is one of indextables, by the provider that the catalog stores. */
  def isName(provider: Option[String]): Boolean = provider.exists(name => names(name.toLowerCase(Locale.ROOT)))

  def missing(options: util.Map[String, String]): Failure =
    new Failure(s"no table at ${options.get("path")}: check the path, or write a table there first")
}

/** Schema and partition columns of a table, from its log. */
class TableInfo(json: JsonNode) {
  val schema: StructType = DataType.fromJson(json.get("schema").asText).asInstanceOf[StructType]
  val partitionColumns: Seq[String] = json.get("partitions").asScala.map(_.asText).toSeq
  def partitioning: Array[Transform] = partitionColumns.map(Columns.partitioning).toArray

  /** The columns, in lower case, that are indexed as addresses. */
  val addresses: Set[String] = json.get("addresses").asScala.map(_.asText).toSet

  /** The options by which columns are indexed. */
  val indexing: util.Map[String, String] = {
    val all = new util.TreeMap[String, String]()
    json.get("indexing").properties.forEach(entry => all.put(entry.getKey, entry.getValue.asText))
    all
  }
}

object TableInfo {
  /** The table at the options' path, if there is one. */
  def of(options: util.Map[String, String]): Option[TableInfo] = {
    val json = Rpc("schema", Json.obj("options" -> options, "zone" -> SQLConf.get.sessionLocalTimeZone)).json
    if (json.has("schema")) Some(new TableInfo(json)) else None
  }

  /**
   * The same for a table of a catalog, which has no path while it is created. Options that the catalog stores must not be
   * secret, and have to fit the columns; if they are being changed (`changed`), also the existing rows.
   */
  def ofCatalog(
      properties: util.Map[String, String], declared: StructType, partitions: Seq[String], changed: Boolean = false)
      : Option[TableInfo] = {
    val json = Rpc("schema", Json.obj(
      "options" -> SessionOptions.merge(properties, util.Collections.emptyMap()),
      "catalog_options" -> SessionOptions.catalogOptions(properties).keySet,
      "declared" -> declared.json,
      "partitions" -> partitions.toArray,
      "changed" -> changed)).json
    if (json.has("schema")) Some(new TableInfo(json)) else None
  }
}
