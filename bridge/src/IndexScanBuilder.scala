package org.apache.spark.sql.indextables

import java.util

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.connector.expressions._
import org.apache.spark.sql.connector.expressions.aggregate._
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Collects the filters, columns, limit, order and aggregates of a query; the planner decides what is pushed down. */
class IndexScanBuilder(table: IndexTable, readOptions: CaseInsensitiveStringMap, virtual: Seq[VirtualColumn] = Nil)
    extends ScanBuilder with SupportsPushDownV2Filters with SupportsPushDownRequiredColumns
    with SupportsPushDownLimit with SupportsPushDownTopN with SupportsPushDownAggregates {
  private val options = SessionOptions.merge(table.properties, readOptions.asCaseSensitiveMap)
  private var projection: StructType = table.schema
  private var pushed: Array[Predicate] = Array.empty
  private var texts: Seq[String] = Nil
  private var limit: Option[Int] = None
  private var order: Array[SortOrder] = Array.empty
  private var aggregation: Option[PushedAggregation] = None
  private var isChecked = false

  private lazy val read = new ReadRequest(options, QuerySnapshots.of(options, table.isInCatalog), table, virtual)

  private def request(more: (String, Any)*): util.Map[String, Any] = read(more: _*)

  override def pushPredicates(predicates: Array[Predicate]): Array[Predicate] = {
    isChecked = true
    val reply = Rpc("accept", request("filters" -> ExpressionJson.all(predicates))).json
    val conditions = reply.get("accepted").asScala.map(text => Option(text.textValue)).toSeq
    pushed = predicates.zip(conditions).collect { case (predicate, Some(_)) => predicate }
    texts = conditions.flatten
    predicates.zip(conditions).collect { case (predicate, None) => predicate }
  }

  override def pushedPredicates(): Array[Predicate] = pushed

  // Nested fields are not pruned: a column is always read as a whole.
  override def pruneColumns(required: StructType): Unit = projection = StructType(required.map { field =>
    table.schema.find(_.name == field.name).getOrElse {
      if (field.name == VirtualColumn.FileMetadata) field.copy(dataType = VirtualColumn.FileMetadataType) else field
    }
  })

  override def pushLimit(most: Int): Boolean = {
    limit = Some(most)
    true
  }

  override def pushTopN(orders: Array[SortOrder], most: Int): Boolean = {
    val columns = orders.map(_.expression).collect { case column: NamedReference => column.fieldNames }
    val accepted = columns.length == orders.length &&
      Rpc("order", request("columns" -> columns)).json.get("accepted").asBoolean
    if (accepted) {
      order = orders
      limit = Some(most)
    }
    accepted
  }

  // Each split returns its own first rows, from which Spark computes the first of all.
  override def isPartiallyPushed(): Boolean = true

  override def supportCompletePushDown(aggregate: Aggregation): Boolean = planAggregation(aggregate).exists(_.complete)

  override def pushAggregation(aggregate: Aggregation): Boolean = {
    aggregation = planAggregation(aggregate)
    aggregation.foreach(answer => projection = answer.schema)
    aggregation.nonEmpty
  }

  private var lastAnswer: Option[(util.Map[String, Any], Option[PushedAggregation])] = None

  private def planAggregation(aggregate: Aggregation): Option[PushedAggregation] = AggregationJson(aggregate).flatMap { json =>
    lastAnswer match {
      case Some((same, answer)) if same == json => answer
      case _ =>
        val filters = ExpressionJson.all(pushed)
        val reply = Rpc("aggregate", request(
          "filters" -> filters, "aggregate" -> json, "parallelism" -> Executors.cores)).json
        val answer = Option(reply.get("schema")).map { schema =>
          val columns = DataType.fromJson(schema.asText).asInstanceOf[StructType]
          new PushedAggregation(json, columns, reply.get("complete").asBoolean, aggregate)
        }
        lastAnswer = Some((json, answer))
        answer
    }
  }

  override def build(): Scan = {
    // A query whose searches are in no pushed filter is checked here, before anything runs.
    if (virtual.nonEmpty && !isChecked) Rpc("accept", request("filters" -> Array.empty[Any]))
    // Spark optimizes a query once; a snapshot that is read later would be newer. Streams read no snapshot and are not optimized.
    if (QuerySnapshots.isQueryOptimized) read
    new IndexScan(options, readOptions, table, read, virtual, projection, ExpressionJson.all(pushed), texts, limit, order, aggregation)
  }
}

/** The common part of read requests: the table, its snapshot, and the virtual columns of the query. */
class ReadRequest(
    options: util.Map[String, String], snapshot: util.Map[String, Any], table: IndexTable, virtual: Seq[VirtualColumn]) {
  private val members = Seq(
    "options" -> options,
    "zone" -> SQLConf.get.sessionLocalTimeZone,
    "snapshot" -> snapshot,
    "in_catalog" -> table.isInCatalog,
    "table_schema" -> table.schema.json,
    "virtual" -> virtual.map(_.json).toArray)

  def apply(more: (String, Any)*): util.Map[String, Any] = Json.obj(members ++ more: _*)
}

/** A pushed aggregation: its request, and the columns of its result. */
class PushedAggregation(
    val json: util.Map[String, Any], val schema: StructType, val complete: Boolean, aggregate: Aggregation) {
  def request: util.Map[String, Any] = {
    val members = new util.LinkedHashMap[String, Any](json)
    members.put("complete", complete)
    members
  }

  def describe: String = {
    val groups = aggregate.groupByExpressions.map(_.describe).mkString(", ")
    aggregate.aggregateExpressions.map(_.describe).mkString(", ") + (if (groups.isEmpty) "" else s" GROUP BY $groups")
  }
}

/** Aggregations as JSON; None if the protocol does not have a function. */
object AggregationJson {
  def apply(aggregate: Aggregation): Option[util.Map[String, Any]] = {
    val functions = aggregate.aggregateExpressions.map(function)
    if (functions.exists(_.isEmpty)) None
    else Some(Json.obj(
      "groups" -> util.Arrays.asList(ExpressionJson.all(aggregate.groupByExpressions): _*),
      "functions" -> util.Arrays.asList(functions.map(_.get): _*)))
  }

  private def function(aggregate: AggregateFunc): Option[util.Map[String, Any]] = aggregate match {
    case _: CountStar => Some(Json.obj("function" -> "count"))
    case count: Count => Some(of("count", count.column, count.isDistinct))
    case sum: Sum => Some(of("sum", sum.column, sum.isDistinct))
    case average: Avg => Some(of("avg", average.column, average.isDistinct))
    case least: Min => Some(of("min", least.column, distinct = false))
    case greatest: Max => Some(of("max", greatest.column, distinct = false))
    case _ => None
  }

  private def of(name: String, column: Expression, distinct: Boolean): util.Map[String, Any] =
    Json.obj("function" -> name, "column" -> ExpressionJson(column), "distinct" -> distinct)
}
