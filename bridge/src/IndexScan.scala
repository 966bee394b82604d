package org.apache.spark.sql.indextables

import java.util
import java.util.OptionalLong

import scala.jdk.CollectionConverters._

import org.apache.spark.{JobArtifactSet, SparkContext, SparkEnv}
import org.apache.spark.sql.connector.expressions.{NamedReference, NullOrdering, SortDirection, SortOrder}
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.metric.{CustomMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream
import org.apache.spark.sql.execution.python.indextables.ColumnarReaders
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.internal.connector.SupportsMetadata
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A scan with the pushdown that the planner has accepted; its partitions are planned when it runs. */
class IndexScan(
    options: util.Map[String, String],
    readOptions: CaseInsensitiveStringMap,
    table: IndexTable,
    request: => ReadRequest,
    virtual: Seq[VirtualColumn],
    projection: StructType,
    filters: Array[util.Map[String, Any]],
    texts: Seq[String],
    limit: Option[Int],
    order: Array[SortOrder],
    aggregation: Option[PushedAggregation])
    extends Scan with Batch with SupportsReportStatistics with SupportsRuntimeV2Filtering with SupportsMetadata {
  // A stream reads no snapshot.
  private lazy val read = request
  private var runtime: Array[util.Map[String, Any]] = Array.empty
  private var planned: Option[Reply] = None
  private var streaming = false

  override def readSchema(): StructType = projection

  override def toBatch: Batch = {
    SessionOptions.check(readOptions, "read")
    this
  }

  override def toMicroBatchStream(checkpoint: String): MicroBatchStream = {
    SessionOptions.check(readOptions, "stream")
    streaming = true
    new IndexStream(options, table)
  }

  override def columnarSupportMode(): Scan.ColumnarSupportMode = Scan.ColumnarSupportMode.SUPPORTED

  // --- requests -------------------------------------------------------------------------------------

  private def members(more: (String, Any)*): util.Map[String, Any] = read(Seq(
    "columns" -> projection.fieldNames,
    "schema" -> projection.json,
    "filters" -> filters,
    "limit" -> limit,
    "order" -> order.map(orderJson),
    "aggregate" -> aggregation.map(_.request)) ++ more: _*)

  private def orderJson(by: SortOrder): util.Map[String, Any] = Json.obj(
    "column" -> name(by),
    "ascending" -> (by.direction == SortDirection.ASCENDING),
    "nulls_first" -> (by.nullOrdering == NullOrdering.NULLS_FIRST))

  private def name(by: SortOrder): String = by.expression.asInstanceOf[NamedReference].fieldNames.head

  private def plan: Reply = synchronized {
    planned.getOrElse {
      val reply = Rpc("plan", members(
        "runtime" -> runtime,
        "parallelism" -> Executors.cores,
        "executors" -> Executors.names))
      planned = Some(reply)
      reply
    }
  }

  override def planInputPartitions(): Array[InputPartition] = {
    val kinds = plan.json.get("partitions").asScala.toSeq
    kinds.zip(plan.blobs.tail).map { case (kind, blob) =>
      if (kind.get("kind").asText == "answer") AnswerPartition(blob): InputPartition
      else TaskPartition(blob, Option(kind.get("executor").textValue).toSeq)
    }.toArray
  }

  override def createReaderFactory(): PartitionReaderFactory = new ColumnarReaders(
    Rpc.source, plan.blobs.head, projection, limit.exists(_ <= 10000), JobArtifactSet.getCurrentJobArtifactState.map(_.uuid))

  // --- runtime filters ------------------------------------------------------------------------------

  // With runtime filters an aggregate, or the first rows, would have another result.
  override def filterAttributes(): Array[NamedReference] =
    if (aggregation.nonEmpty || limit.nonEmpty) Array.empty
    else projection.fieldNames.filterNot(name => virtual.exists(_.name == name)).map(Columns.reference)

  override def filter(predicates: Array[Predicate]): Unit = synchronized {
    runtime = runtime ++ ExpressionJson.all(predicates)
    planned = None
  }

  // --- statistics, metrics and EXPLAIN ----------------------------------------------------------------

  private lazy val estimate = Rpc("estimate", members()).json

  // The share of the columns in the size of a file, as Spark estimates it for Parquet, so that it plans the same joins.
  private def share: Double =
    SQLConf.get.fileCompressionFactor * math.min((projection.defaultSize + 8.0) / (table.schema.defaultSize + 8.0), 1.0)

  override def estimateStatistics(): Statistics = new Statistics {
    override def sizeInBytes(): OptionalLong =
      if (streaming) OptionalLong.empty() else OptionalLong.of(math.max((estimate.get("bytes").asLong * share).toLong, 1L))
    override def numRows(): OptionalLong =
      if (streaming || aggregation.nonEmpty) OptionalLong.empty() else OptionalLong.of(estimate.get("rows").asLong)
  }

  override def supportedCustomMetrics(): Array[CustomMetric] = ScanMetrics.all ++ Rpc.source.createPythonMetrics()

  override def reportDriverMetrics(): Array[CustomTaskMetric] = TaskMetric.all(plan.json.get("metrics"))

  private def details: Seq[(String, String)] = Seq(
    Some("PushedFilters" -> texts.mkString("[", ", ", "]")),
    aggregation.map(aggregate => "PushedAggregate" -> (aggregate.describe + (if (aggregate.complete) " (complete)" else ""))),
    if (order.isEmpty) None else Some("PushedTopN" -> s"${order.map(_.describe).mkString(", ")} LIMIT ${limit.get}"),
    limit.filter(_ => order.isEmpty).map(most => "PushedLimit" -> most.toString),
    if (virtual.isEmpty) None else Some("VirtualColumns" -> virtual.map(_.describe).mkString("[", ", ", "]"))).flatten

  override def description(): String =
    s"${Provider.Name} ${options.get("path")} " + details.map { case (name, fact) => s"$name: $fact" }.mkString(", ")

  override def getMetaData(): Map[String, String] =
    (Seq("Path" -> options.get("path"), "ReadSchema" -> projection.simpleString) ++ details).toMap

  // Spark reuses the exchange of an equal scan.
  private lazy val identity: String = Json.text(members())

  override def equals(other: Any): Boolean = other match {
    case scan: IndexScan =>
      (scan eq this) || (!streaming && !scan.streaming && scan.identity == identity && scan.runtimeText == runtimeText)
    case _ => false
  }

  private def runtimeText: String = Json.text(runtime)

  override def hashCode(): Int = if (streaming) System.identityHashCode(this) else identity.hashCode
}

/** The executors of this application, by names that a task can prefer. */
object Executors {
  /** The number of tasks that run at the same time. */
  def cores: Int = SparkContext.getActive.map(_.defaultParallelism).getOrElse(1)

  def names: Array[String] = SparkContext.getActive.map { context =>
    // The form in which Spark's scheduler expects an executor on a host.
    val master = SparkEnv.get.blockManager.master
    master.getMemoryStatus.keys.filterNot(_.isDriver).map(id => s"executor_${id.host}_${id.executorId}").toArray.sorted
  }.getOrElse(Array.empty)
}
