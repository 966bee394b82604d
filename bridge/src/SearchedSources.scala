package org.apache.spark.sql.indextables

import java.net.URI
import java.util
import java.util.Locale

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.catalyst.catalog.{CatalogTable, CatalogUtils, HiveTableRelation}
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, AttributeReference, AttributeSet, ExprId, Expression, InputFileBlockLength}
import org.apache.spark.sql.catalyst.expressions.{InputFileBlockStart, InputFileName, LeafExpression, NamedExpression, SubqueryExpression, Unevaluable}
import org.apache.spark.sql.catalyst.plans.logical.{Command, LogicalPlan, Project, Union, V2WriteCommand}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.{Identifier, SupportsRead, Table, TableCapability, TableCatalog, V1Table}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write.RowLevelOperationTable
import org.apache.spark.sql.execution.datasources.{CatalogFileIndex, HadoopFsRelation, LogicalRelation, PartitioningAwareFileIndex, V1WriteCommand}
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * Replaces tables of other formats that a query searches by their own names by their companion indexes.
 *
 * A property of the table has the path of its index (CompanionIndex). The index is read with the newest version of the table,
 * unless the session sets `companion.freshness`. A search is refused if the index could return other rows than the table: for
 * an earlier version, for a table that is read with options, and for partitions of a catalog that are not the folders of the
 * table. A table that a query searches is read by its index everywhere in the query, so that the query reads one version.
 */
class SearchedSources {
  import SearchedSources._

  // The indexes of the searched tables, and the columns of their relations.
  private val indexes = mutable.Map.empty[IndexedTable, DataSourceV2Relation]
  private val indexed = mutable.Set.empty[ExprId]

  /** Replaces the tables that the searches of a node refer to by their indexes. */
  def replaceSources(node: LogicalPlan): LogicalPlan = {
    val subjects = node.expressions.flatMap(_.collect {
      case expression: IndexExpression if !expression.isInstanceOf[Buckets] => expression.subject
    })
    val subjectColumns = origins(node, AttributeSet(subjects.flatten.flatMap(_.references)))
    val searched = node.mapChildren(_.transformUp {
      case relation if relation.children.isEmpty && relation.output.exists(subjectColumns.contains) => index(relation)
    })
    // An expression without a column refers to the only table below.
    if (subjects.forall(_.nonEmpty) || searched.exists(IndexRelation.unapply(_).nonEmpty)) searched
    else searched.mapChildren(_.transformUp { case relation if relation.children.isEmpty => index(relation) })
  }

  /** Replaces all other reads of the searched tables in a plan. */
  def replaceOtherReads(plan: LogicalPlan): LogicalPlan =
    if (indexes.isEmpty) plan
    else {
      val rewritten = replaceReads(plan)
      if (WholePlan.nodes(rewritten).exists(node => node.expressions.exists(_.exists(isOfFile)) && isOfIndex(node)))
        throw new Failure("a query that searches a table of another format by its own name reads its companion index, which does " +
          "not have the file of a row: leave input_file_name() out, or join with a DataFrame that has it (spark.read of the path)")
      rewritten
    }

  private def isOfIndex(node: LogicalPlan): Boolean =
    node.collectLeaves().exists(_.output.exists(column => indexed(column.exprId)))

  private def isOfFile(expression: Expression): Boolean = expression match {
    case _: InputFileName | _: InputFileBlockStart | _: InputFileBlockLength => true
    case _ => false
  }

  private def replaceReads(plan: LogicalPlan): LogicalPlan = plan match {
    case _: SearchTarget => plan
    // Cached rows are used until the cache is refreshed, as with any table.
    case cached if isCached(cached) => cached
    case relation if relation.children.isEmpty => replaceRead(relation)
    case node =>
      // A relation below other commands may be the one that they change.
      val rewritten = node match {
        case _: V2WriteCommand | _: V1WriteCommand => node.mapChildren(replaceReads)
        case _: Command => node
        case _ => node.mapChildren(replaceReads)
      }
      rewritten.transformExpressions { case subquery: SubqueryExpression => subquery.withNewPlan(replaceReads(subquery.plan)) }
  }

  private def isCached(plan: LogicalPlan): Boolean = {
    val session = SparkSession.active
    val cache = session.sharedState.cacheManager
    !cache.isEmpty && cache.lookupCachedData(session, plan).nonEmpty
  }

  private def index(relation: LogicalPlan): LogicalPlan = (for {
    source <- sourceOf(relation)
    key <- source.key
  } yield {
    val latest =
      if (SparkSession.active.conf.contains(s"spark.indextables.$Freshness")) Map.empty[String, String]
      else Map(Freshness -> "latest")
    val options = latest ++ CompanionIndex.check(source.table, key.index, latest)
    val found = indexes.getOrElseUpdate(key, load(key.index, options))
    withColumns(source, key, found)
  }).getOrElse(relation)

  /** The index, if the query searches the table elsewhere. Reads of an earlier version, or of a part, are not replaced. */
  private def replaceRead(relation: LogicalPlan): LogicalPlan = (for {
    source <- sourceOf(relation) if source.table.problem.isEmpty
    key <- source.key
    found <- indexes.get(key)
    (table, _) <- IndexTables.unapply(found.table)
  } yield withColumns(source, key, found.copy(table = UnsearchedIndex(table)))).getOrElse(relation)

  private def load(path: String, options: Map[String, String]): DataSourceV2Relation =
    SparkSession.active.read.format(Provider.Name).options(options).load(path).queryExecution.analyzed.collectFirst {
      case relation: DataSourceV2Relation => relation
    }.get

  /** The index with the columns of the relation that it replaces. */
  private def withColumns(source: Source, key: IndexedTable, found: DataSourceV2Relation): LogicalPlan = {
    val index = found.newInstance()
    val matches = source.output.map { column =>
      column -> ofIndex(column, index.output).filter(own => !source.isFolder || defaultOf(own) == defaultOf(column))
    }
    val same = matches.forall { case (column, own) => own.exists(_.name == column.name) }
    val relation = if (same) index.copy(output = source.output.collect { case column: AttributeReference => column }) else index
    indexed ++= relation.output.map(_.exprId)
    if (same) relation
    else Project(matches.map { case (column, own) =>
      val default = defaultOf(column).filter(_ => source.isFolder)
      val value = own.getOrElse(UnindexedColumn(column.name, column.dataType, default, source.table.name, key.index))
      Alias(value, column.name)(column.exprId, column.qualifier, Some(column.metadata)): NamedExpression
    }, relation)
  }
}

object SearchedSources {
  private val Freshness = "companion.freshness"
  private val ExistsDefault = "EXISTS_DEFAULT"

  /** The paths of an index and of its table: the clones of a table have the same index in their properties. */
  private case class IndexedTable(index: String, location: String)

  /** A relation of another format: the table that it reads, and its columns. */
  private case class Source(table: SourceTable, output: Seq[Attribute]) {
    def isFolder: Boolean = table.format.contains("parquet")
    def key: Option[IndexedTable] = CompanionIndex.path(table.properties).map(IndexedTable(_, table.location))
  }

  /** Columns, and the columns below from which they have their values. */
  private def origins(node: LogicalPlan, columns: AttributeSet): AttributeSet = {
    var all = columns
    var before = -1
    while (all.size != before) {
      before = all.size
      node.foreach { plan =>
        plan match {
          case union: Union => union.output.zipWithIndex.foreach { case (column, place) =>
            if (all.contains(column)) all ++= AttributeSet(union.children.map(_.output(place)))
          }
          case _ =>
        }
        plan.expressions.foreach(_.foreach {
          case alias: Alias if all.contains(alias.toAttribute) => all ++= alias.references
          case _ =>
        })
      }
    }
    all
  }

  /** The column of an index that has the values of a column of its source. */
  private def ofIndex(column: Attribute, indexed: Seq[Attribute]): Option[Attribute] = {
    val isSame = SparkSession.active.sessionState.conf.resolver
    indexed.find(_.name == column.name).orElse(indexed.find(each => isSame(each.name, column.name)))
      .filter(_.dataType.asNullable == column.dataType.asNullable)
  }

  /** The value of a column in files that lack it, which a catalog may know, but not the files. */
  private def defaultOf(column: Attribute): Option[String] =
    if (column.metadata.contains(ExistsDefault)) Some(column.metadata.getString(ExistsDefault)) else None

  private def sourceOf(plan: LogicalPlan): Option[Source] = plan match {
    // A statement that changes rows reads them with their positions in files.
    case relation: DataSourceV2Relation if relation.table.isInstanceOf[RowLevelOperationTable] => None
    case relation: DataSourceV2Relation if IndexTables.unapply(relation.table).isEmpty && relation.options.isEmpty => for {
      identifier <- relation.identifier if !isEarlierVersion(relation.table)
      table <- SourceTable.of(nameOf(identifier), relation.table)
    } yield Source(table, relation.output)
    case relation: LogicalRelation if !relation.isStreaming => for {
      table <- relation.catalogTable if !isEarlierVersion(relation.relation) && Try(table.location).isSuccess
    } yield {
      val source = SourceTable.of(table, propertiesOf(table))
      Source(relation.relation match {
        case files: HadoopFsRelation => source.readAs(files)
        case _ => source
      }, relation.output)
    }
    case relation: HiveTableRelation if Try(relation.tableMeta.location).isSuccess =>
      Some(Source(SourceTable.of(relation.tableMeta, relation.tableMeta.properties), relation.output))
    case _ => None
  }

  private def nameOf(identifier: Identifier): String = (identifier.namespace :+ identifier.name).mkString(".")

  /** The properties of a table of the session catalog. Delta stores them in its log. */
  private def propertiesOf(table: CatalogTable): Map[String, String] = {
    val loaded = for {
      database <- table.identifier.database
      catalog <- SparkSession.active.sessionState.catalogManager.v2SessionCatalog match {
        case tables: TableCatalog => Some(tables)
        case _ => None
      }
      found <- Try(catalog.loadTable(Identifier.of(Array(database), table.identifier.table))).toOption
    } yield found
    loaded match {
      case Some(found: V1Table) => found.v1Table.properties
      case Some(found) => found.properties.asScala.toMap
      case None => table.properties
    }
  }

  /**
   * Whether a relation reads an earlier version, a branch, or changes of a table.
   *
   * The bridge is compiled without Delta and Iceberg, so members of their classes are called by name.
   */
  private def isEarlierVersion(relation: AnyRef): Boolean = relation match {
    case files: HadoopFsRelation => files.location.getClass.getSimpleName match {
      case "TahoeLogFileIndex" => SourceTable.member(files.location, "isTimeTravelQuery").forall(_ != java.lang.Boolean.FALSE)
      case name => name.startsWith("Tahoe")
    }
    case table: Table =>
      // Iceberg has a snapshot id for every table, also for the newest version.
      val newest = Option(table.properties.get("current-snapshot-id"))
      SourceTable.member(table, "branch").nonEmpty ||
        SourceTable.member(table, "snapshotId").exists(id => !newest.contains(id.toString))
    case _ => false
  }
}

/** The companion index in place of a read of its table without a search; no search is bound to it. */
case class UnsearchedIndex(table: IndexTable) extends Table with SupportsRead {
  override def name(): String = table.name()
  override def schema(): StructType = table.schema
  override def partitioning(): Array[Transform] = table.partitioning
  override def properties(): util.Map[String, String] = table.properties
  override def capabilities(): util.Set[TableCapability] = table.capabilities()
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = table.newScanBuilder(options)
}

/** A column of a source that its companion index does not have; an error only if a query reads it. */
case class UnindexedColumn(column: String, dataType: DataType, default: Option[String], source: String, index: String)
    extends LeafExpression with Unevaluable {
  override def nullable: Boolean = true
  override def toString: String = column

  def failure: Failure = new Failure(
    s"$source cannot be searched by its companion index at $index, which has no column $column of the type " +
      s"${dataType.catalogString}${default.fold("")(text => s" with the default $text in files without it")}; a query that searches " +
      "a table reads it by its index only. Leave the column out of the query, " +
      "or build the index again (BUILD INDEXTABLES COMPANION): " +
      s"as it is for a table with new columns, with MERGE SCHEMA for columns that only some files of a folder have, with " +
      s"PARTITION TYPES ('$column':'${dataType.catalogString}') for a partition column of a folder")
}

/**
 * A table of another format that has a companion index.
 *
 * @param format its format, if Spark has it
 * @param partitions the locations and values of the partitions in the catalog; None if they are the folders of the table
 * @param metadataFile the current metadata file of an Iceberg table, from its catalog
 * @param problem why an index cannot replace the table
 */
case class SourceTable(
    name: String,
    properties: Map[String, String],
    location: String,
    format: Option[String],
    partitions: Option[Seq[(URI, Map[String, String])]] = None,
    metadataFile: Option[String] = None,
    problem: Option[String] = None) {
  /** The table, with the options and partitions of a relation of files. */
  def readAs(files: HadoopFsRelation): SourceTable = {
    val given = files.options.filterNot { case (key, value) => SourceTable.isNeutral(key, value) }.keys.toSeq.sorted
    val optionProblem =
      if (given.isEmpty) None
      else Some(s"it is read with the ${if (given.size == 1) "option" else "options"} ${given.mkString(", ")}, which the index " +
        "does not have; leave them out, or set the property on a table without them")
    files.location match {
      case index if index.getClass.getSimpleName.startsWith("Tahoe") => copy(format = Some("delta"), partitions = None)
      case _: CatalogFileIndex => copy(problem = problem.orElse(optionProblem))
      case index: PartitioningAwareFileIndex =>
        // A listed folder has the partitions of its sub-folders, not those of the catalog.
        val isListed = index.rootPaths.map(CompanionIndex.plain) == Seq(CompanionIndex.plain(new Path(location)))
        val elsewhere =
          if (isListed || partitions.nonEmpty) None
          else Some(s"it reads ${index.rootPaths.mkString(", ")}, and not its folder")
        copy(problem = problem.orElse(optionProblem).orElse(elsewhere), partitions = partitions.filter(_ => !isListed))
      case index => copy(problem = Some(s"it reads its files by ${index.getClass.getSimpleName}, which is not supported"))
    }
  }
}

object SourceTable {
  private val Neutral = Set("path", "serialization.format")
  // An option that Spark's conversion of Hive tables adds.
  private val MergeSchema = "mergeschema"

  def isNeutral(key: String, value: String): Boolean = {
    val lower = key.toLowerCase(Locale.ROOT)
    Neutral(lower) || (lower == MergeSchema && value.equalsIgnoreCase("false"))
  }

  /** A table that a catalog loaded; None if it has no location. */
  def of(name: String, table: Table): Option[SourceTable] = table match {
    case v1: V1Table if Try(v1.v1Table.location).isSuccess => Some(of(v1.v1Table, v1.v1Table.properties).copy(name = name))
    case _ =>
      val properties = table.properties.asScala.toMap
      for (location <- properties.get(TableCatalog.PROP_LOCATION)) yield {
        val format = properties.get(TableCatalog.PROP_PROVIDER).map(_.toLowerCase(Locale.ROOT)).filter(Formats)
        SourceTable(
          name, properties, location, format, metadataFile = if (format.contains("iceberg")) metadataFile(table) else None)
      }
  }

  private val Formats = Set("delta", "iceberg", "parquet")

  /** A table of the session catalog, from its catalog entry. */
  def of(table: CatalogTable, properties: Map[String, String]): SourceTable = {
    val provider = table.provider.getOrElse("hive").toLowerCase(Locale.ROOT)
    val format = if (provider == "hive" && table.storage.serde.exists(_.contains("parquet"))) "parquet" else provider
    val options = table.storage.properties.filterNot { case (key, value) => isNeutral(key, value) }.keys.toSeq.sorted
    val isParquet = format == "parquet"
    val partitions =
      if (!isParquet || table.partitionColumnNames.isEmpty || !(table.tracksPartitionsInCatalog || provider == "hive")) None
      else Some(SparkSession.active.sessionState.catalog.listPartitions(table.identifier).map(each => (each.location, each.spec)))
    val problem =
      if (!isParquet || options.isEmpty) None
      else Some(s"it has the ${if (options.size == 1) "option" else "options"} ${options.mkString(", ")}, which the index does " +
        "not have; set the property on a table without options")
    SourceTable(
      table.identifier.unquotedString, properties, CatalogUtils.URIToString(table.location), Some(format), partitions, None, problem)
  }

  /** The metadata file that an Iceberg table was loaded from; members of Iceberg's classes are called by name. */
  private def metadataFile(table: Table): Option[String] = for {
    iceberg <- member(table, "table")
    operations <- member(iceberg, "operations")
    current <- member(operations, "current")
    file <- member(current, "metadataFileLocation")
  } yield file.toString

  /** Calls a method without parameters by its name; None if there is no such method. */
  def member(owner: AnyRef, name: String): Option[AnyRef] = for {
    method <- owner.getClass.getMethods.find(each => each.getName == name && each.getParameterCount == 0)
    // The class may not be public.
    value <- { method.setAccessible(true); Option(method.invoke(owner)) }
  } yield value
}

/** The path of a table's companion index, by the table's properties, as in IndexTables for Scala. */
object CompanionIndex {
  val Root = "indextables.companion.indexroot"
  private val RelativePath = "indextables.companion.tableroot.relativepath"
  private val MetadataFile = "companion.sourceMetadataFile"
  private val Region = "fs.s3a.endpoint.region"

  def path(properties: Map[String, String]): Option[String] = {
    val root = regions.map(region => s"$Root.$region").collectFirst { case key if properties.contains(key) => properties(key) }
    root.orElse(properties.get(Root)).map { root =>
      properties.get(RelativePath).fold(root)(relative => s"${root.stripSuffix("/")}/${relative.stripPrefix("/")}")
    }
  }

  /**
   * Checks that the index has all rows of the table; returns the options with which the index is read.
   *
   * @param options those of the read, in addition to the session's
   */
  def check(table: SourceTable, path: String, options: Map[String, String]): Map[String, String] = {
    table.problem.foreach { problem =>
      throw new Failure(s"${table.name} cannot be searched by its companion index at $path: $problem")
    }
    val file = table.metadataFile.map(MetadataFile -> _)
    Rpc("companion", Json.obj(
      "options" -> SessionOptions.merge(util.Collections.emptyMap(), (options ++ file + ("path" -> path)).asJava),
      "name" -> table.name,
      "location" -> table.location,
      "format" -> table.format,
      "zone" -> SparkSession.active.sessionState.conf.sessionLocalTimeZone,
      "partitions" -> table.partitions.map(_.map { case (location, values) =>
        Json.obj("path" -> plain(new Path(location)), "values" -> values.asJava)
      }.toArray)))
    file.toMap
  }

  /** A path as text, without escapes and without the scheme of local files. */
  def plain(path: Path): String = {
    val text = path.toString
    if (text.startsWith("file:")) new Path(path.toUri.getPath).toString else text
  }

  private def regions: Seq[String] = {
    val session = SparkSession.active
    Seq(
      session.conf.getOption("spark.indextables.aws.region"),
      Option(session.sessionState.newHadoopConf().getTrimmed(Region)).filter(_.nonEmpty),
      Option(System.getProperty("aws.region")),
      Option(System.getenv("AWS_DEFAULT_REGION")),
      Option(System.getenv("AWS_REGION"))).flatten
  }
}
