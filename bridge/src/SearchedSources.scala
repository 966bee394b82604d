package org.apache.spark.sql.indextables

import java.util

import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.spark.sql.catalyst.catalog.{CatalogTable, HiveTableRelation}
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, AttributeReference, AttributeSet}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Union}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.{Identifier, Table, TableCatalog, V1Table}
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, LogicalRelation}
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation

/**
 * Searches of a table of another format by its own name: its companion index takes its place.
 *
 * A property of the table says where its index is (CompanionIndex). The index answers as of the newest version of the table,
 * as the table itself does, unless the session sets `companion.freshness`. A table that is read at an earlier version, or with
 * options, keeps its place, so that the search is refused.
 */
object SearchedSources {
  private val Freshness = "companion.freshness"

  /** A table of another format: its name, its properties, where it is, and its columns. */
  private case class Source(name: String, properties: Map[String, String], location: String, output: Seq[Attribute])

  /** A node with searches, above the indexes of the tables that it searches. */
  def replaced(node: LogicalPlan): LogicalPlan = {
    val subjects = node.expressions.flatMap(_.collect {
      case expression: IndexExpression if !expression.isInstanceOf[Buckets] => expression.subject
    })
    val named = origins(node, AttributeSet(subjects.flatten.flatMap(_.references)))
    val searched = node.mapChildren(_.transformUp {
      case relation if relation.children.isEmpty && relation.output.exists(named.contains) => index(relation)
    })
    // What names no column refers to the only table below.
    if (subjects.forall(_.nonEmpty) || searched.exists(IndexRelation.unapply(_).nonEmpty)) searched
    else searched.mapChildren(_.transformUp { case relation if relation.children.isEmpty => index(relation) })
  }

  /** Columns, and those below that they are the values of. */
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

  private def index(relation: LogicalPlan): LogicalPlan = (for {
    source <- sourceOf(relation)
    path <- CompanionIndex.path(source.properties)
  } yield indexOf(source, path)).getOrElse(relation)

  private def indexOf(source: Source, path: String): LogicalPlan = {
    val session = SparkSession.active
    val latest =
      if (session.conf.contains(s"spark.indextables.$Freshness")) Map.empty[String, String] else Map(Freshness -> "latest")
    val options = latest + ("path" -> path)
    Rpc("companion", Json.obj(
      "options" -> SessionOptions.merged(util.Collections.emptyMap(), options.asJava),
      "name" -> source.name,
      "location" -> source.location))
    val loaded = session.read.format(Provider.Name).options(latest).load(path).queryExecution.analyzed.collectFirst {
      case relation: DataSourceV2Relation => relation
    }.get
    val types = loaded.output.map(column => column.name -> column.dataType.asNullable).toMap
    source.output.find(column => !types.get(column.name).contains(column.dataType.asNullable)).foreach { column =>
      throw new Failure(
        s"${source.name} cannot be searched by its companion index at $path, which has no column ${column.name} of the type " +
          s"${column.dataType.catalogString}: sync the index (BUILD INDEXTABLES COMPANION), or select other columns before the search")
    }
    loaded.copy(output = source.output.collect { case column: AttributeReference => column })
  }

  private def sourceOf(plan: LogicalPlan): Option[Source] = plan match {
    case relation: DataSourceV2Relation if IndexTables.unapply(relation.table).isEmpty && relation.options.isEmpty => for {
      identifier <- relation.identifier if !isEarlierVersion(relation.table)
      properties = relation.table.properties.asScala.toMap
      location <- properties.get(TableCatalog.PROP_LOCATION)
    } yield Source(nameOf(identifier), properties, location, relation.output)
    case relation: LogicalRelation if !relation.isStreaming => for {
      table <- relation.catalogTable if !isEarlierVersion(relation.relation) && Try(table.location).isSuccess
    } yield Source(table.identifier.unquotedString, propertiesOf(table), table.location.toString, relation.output)
    case relation: HiveTableRelation if Try(relation.tableMeta.location).isSuccess =>
      val table = relation.tableMeta
      Some(Source(table.identifier.unquotedString, table.properties, table.location.toString, relation.output))
    case _ => None
  }

  private def nameOf(identifier: Identifier): String = (identifier.namespace :+ identifier.name).mkString(".")

  /** Those of a table of the session catalog. Delta keeps them in its log. */
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
   * Delta's and Iceberg's classes are not known here, so their members are called by name.
   */
  private def isEarlierVersion(relation: AnyRef): Boolean = relation match {
    case files: HadoopFsRelation => files.location.getClass.getSimpleName match {
      case "TahoeLogFileIndex" => member(files.location, "isTimeTravelQuery").forall(_ != java.lang.Boolean.FALSE)
      case name => name.startsWith("Tahoe")
    }
    case table: Table =>
      // Iceberg names the snapshot that a table shows, also if it is the newest.
      val newest = Option(table.properties.get("current-snapshot-id"))
      member(table, "branch").exists(_ != null) ||
        member(table, "snapshotId").exists(id => id != null && !newest.contains(id.toString))
    case _ => false
  }

  private def member(owner: AnyRef, name: String): Option[AnyRef] =
    owner.getClass.getMethods.find(method => method.getName == name && method.getParameterCount == 0).map(_.invoke(owner))
}

/** Where the companion index of a table is, by the table's properties, as in IndexTables for Scala. */
object CompanionIndex {
  val Root = "indextables.companion.indexroot"
  private val RelativePath = "indextables.companion.tableroot.relativepath"

  def path(properties: Map[String, String]): Option[String] = {
    val root = regions.map(region => s"$Root.$region").collectFirst { case key if properties.contains(key) => properties(key) }
    root.orElse(properties.get(Root)).map { root =>
      properties.get(RelativePath).fold(root)(relative => s"${root.stripSuffix("/")}/${relative.stripPrefix("/")}")
    }
  }

  private def regions: Seq[String] = Seq(
    SparkSession.active.conf.getOption("spark.indextables.aws.region"),
    Option(System.getenv("AWS_DEFAULT_REGION")),
    Option(System.getenv("AWS_REGION"))).flatten
}
