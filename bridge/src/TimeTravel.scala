package org.apache.spark.sql.indextables

import java.time.Instant
import java.time.temporal.ChronoUnit

import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.analysis.{AsOfTimestamp, AsOfVersion, RelationTimeTravel, TimeTravelSpec, UnresolvedRelation}
import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.catalyst.expressions.{Alias, Expression, SubqueryExpression}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, OneRowRelation, Project, SubqueryAlias}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic
import org.apache.spark.sql.connector.catalog.CatalogManager

/**
 * A table at an earlier version, or its changes: VERSION AS OF, TIMESTAMP AS OF, and options, for tables by name
 * and by path. Spark's session catalog does not support time travel, so the table is loaded by its location.
 */
case class TimeTravel(session: SparkSession) extends Rule[LogicalPlan] {
  private val version = "versionAsOf"
  private val timestamp = "timestampAsOf"

  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformWithSubqueries {
    case travel @ RelationTimeTravel(relation: UnresolvedRelation, moment, number) =>
      locate(relation).map { case (path, options) =>
        val zone = classicSession.sessionState.conf.sessionLocalTimeZone
        val travelOptions = TimeTravelSpec.create(moment.map(resolve), number, zone).map {
          case AsOfVersion(requested) => version -> requested
          case AsOfTimestamp(micros) => timestamp -> Instant.EPOCH.plus(micros, ChronoUnit.MICROS).toString
        }
        load(relation, path, options ++ travelOptions)
      }.getOrElse(travel)
    case relation: UnresolvedRelation if isTimeTravel(relation) =>
      locate(relation).map { case (path, options) => load(relation, path, options) }.getOrElse(relation)
    // Changes have more columns than the table in the catalog.
    case relation: UnresolvedRelation if relation.isStreaming && relation.options.containsKey(TableChanges.Option) =>
      locate(relation).map { case (path, options) =>
        val stream = classicSession.readStream.format(Provider.Name).options(options).load(path)
        SubqueryAlias(relation.multipartIdentifier.last, stream.asInstanceOf[classic.Dataset[_]].logicalPlan)
      }.getOrElse(relation)
  }

  /** Resolves an expression such as current_timestamp() - INTERVAL 1 DAY. */
  private def resolve(moment: Expression): Expression =
    if (moment.resolved || SubqueryExpression.hasSubquery(moment)) moment
    else classicSession.sessionState.analyzer.execute(Project(Seq(Alias(moment, "moment")()), OneRowRelation())) match {
      case Project(Seq(Alias(expression, _)), _) => expression
      case _ => moment
    }

  private def classicSession: classic.SparkSession = session.asInstanceOf[classic.SparkSession]

  private def isTimeTravel(relation: UnresolvedRelation): Boolean =
    !relation.isStreaming && Seq(version, timestamp, TableChanges.Option).exists(relation.options.containsKey(_))

  /** The location of an indextables table, and the options with which it is read. */
  private def locate(relation: UnresolvedRelation): Option[(String, Map[String, String])] = {
    val readOptions = relation.options.asCaseSensitiveMap.asScala.toMap
    relation.multipartIdentifier match {
      case Seq(format, path) if format.equalsIgnoreCase(Provider.Name) && path.contains("/") => Some((path, readOptions))
      case names => catalogTable(names).flatMap(table => table.storage.locationUri.map { uri =>
        val stored = table.storage.properties.filterNot(_._1.equalsIgnoreCase("path"))
        (uri.toString, stored.map { case (key, value) => (SessionOptions.Stored + key, value) } ++ readOptions)
      })
    }
  }

  /** The indextables table with a name in the session catalog. */
  def catalogTable(names: Seq[String]): Option[CatalogTable] = {
    val catalog = classicSession.sessionState.catalog
    val own = if (names.size == 3 && names.head.equalsIgnoreCase(CatalogManager.SESSION_CATALOG_NAME)) names.tail else names
    val identifier = own match {
      case Seq(table) if !catalog.isTempView(names) => Some(TableIdentifier(table))
      case Seq(database, table) => Some(TableIdentifier(table, Some(database)))
      case _ => None
    }
    identifier.flatMap(name => Try(catalog.getTableMetadata(name)).toOption)
      .filter(table => Provider.isName(table.provider))
  }

  /** A table by its name or path, read with additional options; None if it is not a table of indextables. */
  def load(names: Seq[String], more: Map[String, String]): Option[LogicalPlan] = {
    val relation = UnresolvedRelation(names)
    locate(relation).map { case (path, options) => load(relation, path, options ++ more) }
  }

  private def load(relation: UnresolvedRelation, path: String, options: Map[String, String]): LogicalPlan = {
    val reader = classicSession.read.format(Provider.Name).options(options)
    SubqueryAlias(relation.multipartIdentifier.last, reader.load(path).asInstanceOf[classic.Dataset[_]].logicalPlan)
  }
}
