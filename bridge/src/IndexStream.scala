package org.apache.spark.sql.indextables

import java.util
import java.util.Optional

import scala.jdk.CollectionConverters._

import org.apache.spark.JobArtifactSet
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, SortOrder}
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReaderFactory, Scan}
import org.apache.spark.sql.connector.read.streaming._
import org.apache.spark.sql.execution.datasources.v2.MicroBatchScanExec
import org.apache.spark.sql.execution.python.indextables.ColumnarReaders
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType

/** An offset of a stream, in the planner's JSON. */
case class IndexOffset(override val json: String) extends Offset

/** A stream of micro-batches from a table. The planner computes offsets, without state between calls. */
class IndexStream(options: util.Map[String, String], val table: IndexTable)
    extends MicroBatchStream with SupportsTriggerAvailableNow with ReportsSourceMetrics {
  private val zone = SQLConf.get.sessionLocalTimeZone
  // The last version that is read, if the stream ends.
  private var until: Option[Long] = None
  private var newest: Option[Offset] = None
  private var progress: util.Map[String, String] = util.Map.of()
  // Whether the table of a catalog had no log when the stream started: then its first version is new, too.
  private var startedEmpty = false

  def request(more: (String, Any)*): util.Map[String, Any] =
    Json.obj(Seq("options" -> options, "zone" -> zone, "table_schema" -> table.schema.json) ++ more: _*)

  override def initialOffset(): Offset = {
    val reply = Rpc("stream_start", request("in_catalog" -> table.isInCatalog, "started_empty" -> startedEmpty)).json
    startedEmpty |= !reply.has("offset")
    Option(reply.get("offset")).map(offset => IndexOffset(offset.asText)).getOrElse(IndexStream.NoLog)
  }

  override def deserializeOffset(json: String): Offset = IndexOffset(json)

  // The planner applies the limits of the options. Any limit other than "all available" does here.
  override def getDefaultReadLimit: ReadLimit = ReadLimit.maxFiles(Int.MaxValue)

  override def prepareForTriggerAvailableNow(): Unit =
    until = Some(Rpc("stream_latest", request("in_catalog" -> table.isInCatalog)).json.get("version").asLong)

  override def latestOffset(start: Offset, limit: ReadLimit): Offset = if (start == IndexStream.NoLog) null else {
    val reply = Rpc("stream_latest", request(
      "start" -> start.json, "unlimited" -> limit.isInstanceOf[ReadAllAvailable], "until" -> until)).json
    newest = Some(IndexOffset(reply.get("newest").asText))
    progress = reply.get("metrics").properties.asScala.map(entry => entry.getKey -> entry.getValue.asText).toMap.asJava
    IndexOffset(reply.get("offset").asText)
  }

  override def latestOffset(): Offset = throw new UnsupportedOperationException("a stream of indextables needs a start")

  override def reportLatestOffset(): Offset = newest.orNull

  override def metrics(consumed: Optional[Offset]): util.Map[String, String] = progress

  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] = wholeBatch.planInputPartitions(start, end)

  override def createReaderFactory(): PartitionReaderFactory = wholeBatch.createReaderFactory()

  private def wholeBatch = new IndexBatch(this, IndexBatch.Read(table.schema))

  override def commit(end: Offset): Unit = ()

  override def stop(): Unit = ()

  override def toString: String = table.name()
}

object IndexStream {
  // Spark requests the initial offset again until there is something to read: this one is never stored.
  private val NoLog = IndexOffset("")
}

/** The read of a query from a stream's micro-batches: columns, virtual ones included, and pushed filters. */
class IndexBatch(val stream: IndexStream, val read: IndexBatch.Read) extends MicroBatchStream {
  private def request(start: Offset, end: Offset, more: (String, Any)*): util.Map[String, Any] = stream.request(Seq(
    "batch" -> Json.obj("start" -> start.json, "end" -> end.json),
    "virtual" -> read.virtual.map(_.json).toArray) ++ more: _*)

  /** For each filter whether the scan evaluates it, as SQL. */
  def accept(start: Offset, end: Offset, filters: Array[Predicate]): Seq[Option[String]] =
    Rpc("accept", request(start, end, "filters" -> ExpressionJson.all(filters))).json
      .get("accepted").asScala.map(text => Option(text.textValue)).toSeq

  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] = {
    val reply = Rpc("plan", request(start, end,
      "columns" -> read.columns.fieldNames,
      "schema" -> read.columns.json,
      "filters" -> ExpressionJson.all(read.filters),
      "parallelism" -> Executors.cores,
      "executors" -> Executors.names))
    reply.json.get("partitions").asScala.toSeq.zip(reply.blobs.tail).map { case (kind, blob) =>
      if (kind.get("kind").asText == "answer") AnswerPartition(blob): InputPartition
      else StreamTaskPartition(reply.blobs.head, blob, Option(kind.get("executor").textValue).toSeq)
    }.toArray
  }

  override def createReaderFactory(): PartitionReaderFactory = new ColumnarReaders(
    Rpc.source, Array.emptyByteArray, read.columns, false, JobArtifactSet.getCurrentJobArtifactState.map(_.uuid))

  override def initialOffset(): Offset = stream.initialOffset()
  override def latestOffset(): Offset = stream.latestOffset()
  override def deserializeOffset(json: String): Offset = stream.deserializeOffset(json)
  override def commit(end: Offset): Unit = stream.commit(end)
  override def stop(): Unit = ()

  private def key = (read.columns, read.virtual, read.filters.toSeq)

  // Spark reuses the scan of an equal stream.
  override def equals(other: Any): Boolean = other match {
    case batch: IndexBatch => (batch.stream eq stream) && batch.key == key
    case _ => false
  }

  override def hashCode(): Int = stream.hashCode()
}

object IndexBatch {
  case class Read(
      columns: StructType, virtual: Seq[VirtualColumn] = Nil, filters: Array[Predicate] = Array.empty,
      texts: Seq[String] = Nil, complete: Boolean = false)
}

/** The scan of a micro-batch, for plans. */
class IndexBatchScan(val batch: IndexBatch) extends Scan {
  import batch.{read, stream}
  override def readSchema(): StructType = read.columns
  override def columnarSupportMode(): Scan.ColumnarSupportMode = Scan.ColumnarSupportMode.SUPPORTED
  override def description(): String = s"${stream.table.name()} PushedFilters: ${read.texts.mkString("[", ", ", "]")}"
  override def supportedCustomMetrics(): Array[org.apache.spark.sql.connector.metric.CustomMetric] =
    ScanMetrics.all ++ Rpc.source.createPythonMetrics()
}

/**
 * Reads a micro-batch.
 *
 * Spark sums the rows of all scans with the same stream object for the progress of a stream, so scans of one source share it;
 * their columns and filters distinguish them.
 */
class IndexBatchExec(
    output: Seq[Attribute], scan: Scan, stream: MicroBatchStream, start: Offset, end: Offset,
    keyGroupedPartitioning: Option[Seq[Expression]], ordering: Option[Seq[SortOrder]])
    extends MicroBatchScanExec(output, scan, stream, start, end, keyGroupedPartitioning, ordering) {
  private def batch = scan.asInstanceOf[IndexBatchScan].batch

  override def nodeName: String = "MicroBatchScan"

  @transient override lazy val inputPartitions: Seq[InputPartition] = batch.planInputPartitions(start, end).toSeq

  override lazy val readerFactory: PartitionReaderFactory = batch.createReaderFactory()

  override def equals(other: Any): Boolean = other match {
    case exec: IndexBatchExec => exec.batch == batch
    case _ => false
  }

  override def hashCode(): Int = batch.hashCode()
}
